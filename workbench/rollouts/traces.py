"""Traces of verifiers 0.4 and prime-rl: a line of ``traces.jsonl``, or of ``rollouts/step_N/train_rollouts.jsonl``.

Checked against verifiers' ``v1/trace.py``, ``v1/graph.py`` and ``v1/episode.py``: an episode holds ``traces``, a trace
a graph of ``nodes``, each a message with the ``token_ids`` it adds, their ``mask`` (True where the policy sampled) and
the ``logprobs`` of those. The path to the last leaf is the completion: what was left on the way (a compacted context,
another agent's) is counted in the column ``branches``. Where a node has no ids, an API's say, the messages count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.errors import TaskError
from workbench.rollouts.conversations import Conversation, conversation_of, notes_of, read_messages, role_of
from workbench.rollouts.records import Record, are_numbers, is_number, logged_advantage, token_ids
from workbench.schema import ASSISTANT, Turn
from workbench.schema.rollouts import sampled_runs

_TRUNCATED = frozenset({"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed"})
"""What verifiers' ``Trace.is_truncated`` takes for a limit that stopped a trace."""
_ASKED = frozenset({"prompt", "system_prompt"})
"""Fields of a task's data that are in the messages."""


def is_traces(values: Mapping[str, Any]) -> bool:
    return isinstance(values.get("task"), dict) and any(
        isinstance(values.get(name), list) for name in ("traces", "nodes")
    )


def read_traces(where: str, values: Mapping[str, Any]) -> list[Record]:
    """The completion of each trace of an episode, or of the one that the row is; none of one that nothing sampled."""
    traces = values["traces"] if isinstance(values.get("traces"), list) else [values]
    group = values.get("group")
    series = str(group.get("id", "")) if isinstance(group, dict) else ""
    records = [_trace(f"{where}: trace {n}" if len(traces) > 1 else where, trace) for n, trace in enumerate(traces, 1)]
    return [Record(**{**vars(record), "series": series}) for record in records if record is not None]


def _trace(where: str, trace: Any) -> Record | None:
    nodes = trace.get("nodes") if isinstance(trace, dict) else None
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise TaskError(f"{where}: 'nodes' must be a list of messages with their tokens; write the trace again")
    path, branches = _last_path(where, nodes)
    first = next((i for i, node in enumerate(path) if node.get("sampled")), None)
    if first is None:
        return None
    messages = read_messages(where, "nodes", [node.get("message") for node in path])
    tools = [{"type": "function", "function": tool} for tool in trace.get("tools") or () if isinstance(tool, dict)]
    conversation = conversation_of(where, "nodes", messages[:first], messages[first:], tools)
    columns = _columns(trace) | ({"branches": branches} if branches > 1 else {})
    record = Record(
        where, conversation.prompt, conversation=conversation, finished=not _is_truncated(trace), columns=columns
    )
    if not all(node.get("token_ids") for node in path if node.get("sampled")):
        if any(node.get("advantages") for node in path):
            columns["logged_advantages"] = [node.get("advantages") for node in path]
        return replace(record, notes=notes_of(messages))
    return Record(**{**vars(record), **_tokens(where, path, conversation, columns)})


def _last_path(where: str, nodes: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], int]:
    """The nodes from a root to the last leaf, and how many leaves there are. A node's parent stands before it."""
    parents = [node.get("parent") for node in nodes]
    for number, parent in enumerate(parents):
        if parent is not None and (type(parent) is not int or not 0 <= parent < number):
            raise TaskError(f"{where}: node {number} has the parent {parent!r}, which is no node before it")
    leaves = [number for number in range(len(nodes)) if number not in parents]
    path: list[Mapping[str, Any]] = []
    at: int | None = leaves[-1] if leaves else None
    while at is not None:
        path.append(nodes[at])
        at = parents[at]
    return path[::-1], len(leaves)


def _tokens(
    where: str, path: Sequence[Mapping[str, Any]], conversation: Conversation, columns: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a record whose nodes have ids: from the first sampled token on, with who wrote each stretch."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    advantages: list[float | None] = []
    known = True
    for number, node in enumerate(path):
        added = token_ids(f"{where}: node {number}", node.get("token_ids")) or ()
        sampled, values = node.get("mask") or [], node.get("logprobs") or []
        if not isinstance(sampled, list) or len(sampled) != len(added):
            raise TaskError(f"{where}: node {number} has {len(added)} 'token_ids' and a 'mask' of another length")
        if values and (not are_numbers(values) or len(values) != sum(map(bool, sampled))):
            raise TaskError(f"{where}: node {number}: 'logprobs' must be one number a sampled token")
        advantages += _advantages(f"{where}: node {number}", node.get("advantages"), sampled)
        known = known and (bool(values) or not any(sampled))
        of_sampled = iter(values)
        ids += added
        mask += [int(bool(value)) for value in sampled]
        logprobs += [float(next(of_sampled, 0.0)) if value else 0.0 for value in sampled]
    if 1 not in mask:
        raise TaskError(f"{where}: no token of the nodes' 'mask' was sampled; write the trace again")
    first = mask.index(1)
    return {
        "token_ids": tuple(ids[first:]),
        "mask": tuple(mask[first:]),
        "logprobs": tuple(logprobs[first:]) if known else None,
        "columns": {**columns, **logged_advantage(advantages[first:], mask[first:])},
        "episode": tuple(turn.to_json() for turn in _stretches(mask[first:], conversation)),
    }


def _advantages(where: str, values: Any, sampled: Sequence[Any]) -> list[float | None]:
    """Return an advantage for each token of a node, None where there is none. They are given so, or a sampled token."""
    if not values:
        return [None] * len(sampled)
    of_sampled = sum(map(bool, sampled))
    if not isinstance(values, list) or len(values) not in (len(sampled), of_sampled):
        raise TaskError(f"{where}: 'advantages' must be one number a token, or a sampled token")
    if not all(value is None or is_number(value) for value in values):
        raise TaskError(f"{where}: 'advantages' must be numbers, or null")
    if len(values) == len(sampled):
        return values
    left = iter(values)
    return [next(left) if value else None for value in sampled]


def _stretches(mask: Sequence[int], conversation: Conversation) -> list[Turn]:
    """The turns of a mask and what stands between them, written by whom the messages between two turns are of."""
    at, messages = conversation.turns, conversation.messages
    writers = [role_of(messages[a + 1 : b]) for a, b in zip(at, [*at[1:], len(messages)], strict=True)]
    runs = list(sampled_runs(mask))
    turns: list[Turn] = []
    for number, (begin, last) in enumerate(runs):
        following = runs[number + 1][0] if number + 1 < len(runs) else len(mask)
        turns.append(Turn(ASSISTANT, begin, last + 1))
        if following > last + 1:
            turns.append(Turn(writers[min(number, len(writers) - 1)], last + 1, following))
    return turns


def _columns(trace: Mapping[str, Any]) -> dict[str, Any]:
    """The sum of weighted rewards, each of them, the metrics, the task's data and the last error."""
    task = trace.get("task")
    data = task.get("data") if isinstance(task, dict) else None
    columns = (
        {name: value for name, value in (data or {}).items() if name not in _ASKED} if isinstance(data, dict) else {}
    )
    rewards, metrics = trace.get("rewards"), trace.get("metrics")
    scores = {
        name: float(reward["score"]) * float(reward.get("weight", 1.0))
        for name, reward in (rewards.items() if isinstance(rewards, dict) else ())
        if isinstance(reward, dict) and is_number(reward.get("score")) and is_number(reward.get("weight", 1.0))
    }
    if scores:
        columns |= {"reward": sum(scores.values()), "rewards": scores}
    if isinstance(metrics, dict) and metrics:
        columns["metrics"] = metrics
    if is_number(trace.get("advantage")):
        columns["logged_advantage"] = trace["advantage"]
    errors = trace.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[-1], dict):
        columns["error"] = f"{errors[-1].get('type')}: {errors[-1].get('message')}"
    return columns


def _is_truncated(trace: Mapping[str, Any]) -> bool:
    calls = [call for call in trace.get("calls") or () if isinstance(call, dict) and call.get("error") is None]
    return trace.get("stop_condition") in _TRUNCATED or (bool(calls) and calls[-1].get("finish_reason") == "length")
