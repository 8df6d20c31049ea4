"""Readers of logs of rollouts: this workbench's groups, TRL, ms-swift, verl, Agent-R1, prime-rl, verifiers, OpenRLHF,
lm-eval, conversations, NeMo-RL, NeMo Gym, torchtitan, ART and miles; and how logged advantages follow from rewards.

Most were checked against the code that writes it: verl's ``RayPPOTrainer._write_generations``, prime-rl's
``TokenExporter``, verifiers' ``state_to_output``, OpenRLHF's ``cli/batch_inference.py``, lm-eval's
``EvaluationTracker.save_results_samples`` and ART's ``trajectory_group_to_dict``. What a row says beside prompt and
completion is in the record's columns.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from workbench.credit import assign_credit
from workbench.data.conversations import (
    Conversation,
    conversation_of,
    conversation_turns,
    is_conversation,
    is_messages,
    messages_of_items,
    notes_of,
    read_messages,
    role_of,
    text_of,
    texts_only,
    uses_tools,
)
from workbench.data.rows import (
    IDS,
    LIST,
    MASK,
    MAYBE_NUMBERS,
    NUMBERS,
    REWARD,
    Record,
    check_value,
    each_token,
    is_finished,
    is_number,
    logged_advantage,
    prompt_text,
    read_row,
    without,
)
from workbench.errors import TaskError
from workbench.schema import ASSISTANT, TOOL, Prompt, Rollout, Turn

_TOOLS_ANSWER = re.compile(
    r"(\n?(?:user|tool)(?:\s*<tool_response>.*?</tool_response>)+\n*(?:assistant\n)?)", re.DOTALL
)


_OF_ROLLOUT = {field.name for field in fields(Rollout)}


def read_group(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A group as this workbench prints it, whose tokens' texts are kept as they are, or a list of plain completions."""
    prompt = prompt_text(where, values.get("prompt"))
    policy, sampling = str(values.get("policy") or ""), values.get("sampling")
    sampling = sampling if isinstance(sampling, dict) else {}
    records: list[Record] = []
    for number, rollout in enumerate(values["rollouts"], start=1):
        at = f"{where}: rollout {number}"
        try:
            columns = {**(values.get("columns") or {}), **(rollout.get("columns") or {})}
            if "texts" in rollout:
                columns = {name: value for name, value in rollout.items() if name not in _OF_ROLLOUT} | columns
                each_token(at, "mask", rollout.get("mask"), MASK, len(rollout["texts"]))
                kept = Rollout.from_json({"finished": False, **rollout, "columns": columns})
                record = Record(where, prompt, rollout=kept, columns=columns)
            else:
                row = {name: value for name, value in rollout.items() if name != "columns"} | {"prompt": prompt}
                record = read_row(at, row)
                record = replace(record, where=where, columns=columns | record.columns)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            needs = "it is an object with a 'completion', or with 'token_ids' and 'texts', one text an id"
            raise TaskError(f"{at}: {error}; {needs}; and 'columns' are named values") from error
        records.append(replace(record, series=where, policy=policy, sampling=sampling))
    return records


def read_trl(where: str, values: Mapping[str, Any]) -> list[Record]:
    """TRL's log: a reward that scored nothing is NaN there, ``None`` here. ``with_rewards`` adds ``reward``."""
    return [read_row(where, values, series=values["step"], training_step="step", logged_advantage="advantage")]


def read_swift(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A line is a table: each column is a list with an entry a completion. Else as TRL's log."""
    rest = dict(values)
    rest["step"], rest["advantage"] = rest.pop("step", None) or rest.pop("gen_step"), rest.pop("advantages")
    names = ["logged_entropy" if name == "entropy" else name for name in rest]
    rows = zip(*(check_value(where, name, column, LIST) for name, column in rest.items()), strict=True)
    return [record for row in rows for record in read_trl(where, dict(zip(names, row, strict=True)))]


def read_verl(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A line of ``{step}.jsonl``: ``score`` is the reward, ``gts`` the right answer; a step's groups are apart."""
    names = {"prompt": "input", "completion": "output", "reward": "score", "answer": "gts", "training_step": "step"}
    record = read_row(where, values, series=values.get("step"), **names)
    # The file has neither the mask nor the chat template's special tokens. What remains of them around a tool's answer,
    # in the template of Qwen's models and those with its ``<tool_response>``, is the names of the roles.
    parts = _TOOLS_ANSWER.split(record.completion or "")
    if len(parts) == 1:
        return [record]
    by_marks = "whose observations were told by <tool_response>, for the file has no mask"
    pieces = tuple((ASSISTANT if i % 2 == 0 else TOOL, part) for i, part in enumerate(parts))
    return [replace(record, pieces=pieces, notes=(by_marks,))]


def read_step_credit(where: str, values: Mapping[str, Any]) -> list[Record]:
    """Read a row of ``docs/step-credit.schema.json``, whose advantages are logged ones; its steps are cut anew."""
    names = {"completion": "text", "token_ids": "ids", "reward": "outcome"}
    row = {name: values.get(name) for name in ("prompt", "text", "ids", "mask", "outcome", "finished")}
    record = read_row(where, row, series=f"{values['batch']}/{values['group']}", **names)
    ids = record.token_ids or ()
    advantages = each_token(where, "advantages", values["advantages"], MAYBE_NUMBERS, len(ids)) or ()
    logged = logged_advantage(advantages, record.mask or [1] * len(ids))
    return [replace(record, columns={**record.columns, **logged})]


def read_agent_r1(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A trajectory of Agent-R1: each of its ``steps`` is a turn, whose ``input`` is all that was said before it.

    ``step_scores`` are what the steps were given; ``score`` is their sum.
    """
    steps = values["steps"]
    pieces = [(ASSISTANT, steps[0]["output"])]
    for before, step in pairwise(steps):
        said = before["input"] + before["output"]
        if not step["input"].startswith(said):
            raise TaskError(f"{where}: the 'input' of a step does not go on from the step before; leave the row out")
        pieces += [(TOOL, step["input"][len(said) :]), (ASSISTANT, step["output"])]
    joined = {"input": steps[0]["input"], "output": "".join(text for _, text in pieces)}
    scores = {"step_scores": [step.get("score") for step in steps]}
    [record] = read_verl(where, without(values, "steps") | joined | scores)
    return [replace(record, pieces=tuple(pieces), notes=())]


def read_nemo_gym(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A rollout of NeMo Gym: what OpenAI's Responses were asked, and what came of it."""
    asked, response = values["responses_create_params"], values["response"]
    row = {
        **without(values, "responses_create_params", "response"),
        "prompt": asked["input"] if isinstance(asked["input"], str) else messages_of_items(asked["input"]),
        "completion": messages_of_items(response["output"]),
        "tools": asked.get("tools"),
        "finished": response.get("status") != "incomplete",
    }
    return [read_row(where, row, series=values.get("_ng_task_index"))]


def read_torchtitan(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A rollout of torchtitan's reinforcement learning: the first prompt, and each turn with what it was answered."""
    turns = values["turns"]
    row = {
        **without(values, "turns"),
        "prompt": turns[0]["prompt_messages"],
        "completion": [message for turn in turns for message in (turn["completion_message"], *turn["env_messages"])],
        "finished": values.get("status") == "completed",
    }
    return [read_row(where, row, series=values.get("group_id"), logged_advantage="advantage")]


def read_art(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A group of ART's trajectories: messages, where the policy sampled them within the ``choices`` of a response."""
    records = []
    for number, trajectory in enumerate(values["trajectories"], start=1):
        said = trajectory["messages_and_choices"]
        messages, ends = [one.get("message", one) for one in said], [one.get("finish_reason") for one in said]
        first = next((i for i, end in enumerate(ends) if end is not None), len(ends))
        row = {
            **without(trajectory, "messages_and_choices"),
            "prompt": messages[:first],
            "completion": messages[first:],
            "finished": list(filter(None, ends))[-1:] != ["length"],
        }
        records.append(read_row(f"{where}: trajectory {number}", row, series=where))
    return records


def read_openrlhf(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``input`` and ``output``, with a ``reward`` where a reward model scored them."""
    return [read_row(where, values, prompt="input", completion="output")]


_OF_VERIFIERS = ("timing", "token_usage", "trajectory", "error_chain", "long_error_chain")
"""Columns of verifiers that say nothing of a completion."""


def read_verifiers(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A line of ``results.jsonl``: messages, or text. A rollout that failed before it said anything gives none."""
    if values["prompt"] is None or not values["completion"]:
        return []
    return [read_row(where, without(values, *_OF_VERIFIERS), tools="tool_defs")]


def read_conversation(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``messages`` as OpenAI has them, or ShareGPT's ``conversations``.

    Where tools are used, all from the assistant's first message on is the episode; else the last message is the answer.
    """
    name = "messages" if is_messages(values.get("messages")) else "conversations"
    messages = read_messages(where, name, conversation_turns(values) or [])
    rest = without(values, name, "system")
    check_value(where, "reward", rest.get("reward"), REWARD)
    if uses_tools(messages):
        conversation = conversation_of(where, name, [], messages, rest.pop("tools", None))
        record = Record(where, conversation.prompt, conversation=conversation, notes=notes_of(messages))
    elif len(messages) > 1 and messages[-1]["role"] == ASSISTANT:
        asked, answer = texts_only(messages[:-1]), text_of(messages[-1])
        record = Record(where, asked, answer, notes=notes_of(messages, in_text=True))
    else:
        raise TaskError(
            f"{where}: the last of the messages must be the assistant's, with another before it; load the file as a "
            "task where there are no answers"
        )
    return [replace(record, finished=is_finished(rest), columns=rest)]


def read_prime_rl(where: str, values: Mapping[str, Any]) -> list[Record]:
    """Read a sequence of ``token_exports``."""
    record = _whole_sequence(where, values, "loss_mask", "inference_logprobs")
    said = {"training_step": values.get("step"), "env_name": values.get("env_name")}
    known = {name: value for name, value in said.items() if value is not None}
    return [replace(record, series=f"step {values.get('step')}", columns=known | record.columns)]


def _whole_sequence(
    where: str, values: Mapping[str, Any], mask: str, logprobs: str, length: int | None = None
) -> Record:
    """Read ``token_ids`` of prompt and completion; the prompt is what comes before the first token of the mask.

    ``mask`` and ``logprobs`` are the columns' names; what is behind ``length`` is padding.
    """
    names = ("token_ids", mask, logprobs, "entropy", "advantages")
    given = {name: list(values.get(name) or ())[:length] or None for name in names}
    ids = check_value(where, "token_ids", given["token_ids"], IDS)
    taken = each_token(where, mask, given[mask], MASK, len(ids)) or ()
    if not any(taken) or taken[0]:
        raise TaskError(f"{where}: {mask!r} leaves no prompt, or no completion; write whole sequences")
    first = taken.index(1)
    of_policy, entropies = (each_token(where, name, given[name], NUMBERS, len(ids)) for name in (logprobs, "entropy"))
    advantages = each_token(where, "advantages", given["advantages"], MAYBE_NUMBERS, len(ids)) or (None,) * len(ids)
    return Record(
        where,
        "",
        prompt_ids=ids[:first],
        token_ids=ids[first:],
        logprobs=of_policy and of_policy[first:],
        entropies=entropies and entropies[first:],
        mask=None if all(taken[first:]) else taken[first:],
        columns=logged_advantage(advantages[first:], taken[first:]),
    )


def read_nemo_rl(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A line of NeMo-RL's ``train_data_step*.jsonl``: ids of prompt and completion, padded behind ``input_lengths``."""
    used = ("token_ids", "token_loss_mask", "generation_logprobs", "advantages", "prev_logprobs", "content")
    rest = without(values, *used, "rewards", "input_lengths")
    reward = check_value(where, "rewards", values.get("rewards"), REWARD)
    record = _whole_sequence(where, values, "token_loss_mask", "generation_logprobs", values.get("input_lengths"))
    record = replace(record, columns=rest | {"reward": reward} | record.columns)
    texts = values["content"]
    if isinstance(texts, list) and len(texts) == 2 and all(isinstance(text, str) for text in texts):
        record = replace(record, prompt=texts[0], completion=texts[1], prompt_ids=None)
    return [record]


def read_miles(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A ``Sample`` of slime or miles: the last ``response_length`` of its ``tokens`` are the completion."""
    ids, length = check_value(where, "tokens", values["tokens"], IDS), values["response_length"]
    if type(length) is not int or not 0 < length <= len(ids):
        raise TaskError(f"{where}: 'response_length' is {length!r}; give a number of the {len(ids)} tokens")
    row = {
        **without(values, "index", "group_index", "response_length", "status"),
        "tokens": ids[-length:],
        "finished": values.get("status") == "completed",
        "rollout_log_probs": values.get("rollout_log_probs") or None,
    }
    names = {"completion": "response", "token_ids": "tokens", "mask": "loss_mask", "logprobs": "rollout_log_probs"}
    return [read_row(where, row, series=f"group {values.get('group_index')}", answer="label", **names)]


def read_lm_eval(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A line of ``samples_*.jsonl`` of a task that generates: each of ``resps`` is a completion, once for each filter.

    The metrics of a sample that was answered once are its completion's; ``exact_match`` or ``acc`` is ``correct``.
    """
    arguments = values["arguments"]
    requests = list(arguments.values()) if isinstance(arguments, dict) else arguments
    request = requests[0] if isinstance(requests, list) and len(requests) == 1 else None
    prompt = request.get("arg_0") if isinstance(request, dict) else request[0] if isinstance(request, list) else None
    answers = values["resps"][0] if isinstance(values["resps"], list) and values["resps"] else None
    if not isinstance(prompt, str) or not isinstance(answers, list) or not all(isinstance(a, str) for a in answers):
        raise TaskError(
            f"{where}: this task of lm-eval compares choices and generates no text; give the samples of one that does"
        )
    columns = {"answer": values.get("target"), "doc": values["doc"], "filter": values.get("filter")}
    metrics = {name: values[name] for name in values.get("metrics", ()) if is_number(values.get(name))}
    right = next((metrics[name] for name in ("exact_match", "acc") if name in metrics), None)
    if len(answers) == 1:
        columns |= metrics | ({} if right not in (0, 1) else {"correct": bool(right)})
    series = f"{values.get('filter')} {values['doc_id']}"
    asked: Prompt = prompt
    with suppress(ValueError):  # with ``--apply_chat_template`` of an API's model it is messages as JSON
        if prompt.startswith("[{") and is_conversation(messages := json.loads(prompt)):
            asked = [{"role": message["role"], "content": message["content"]} for message in messages]
    return [Record(where, asked, answer, series=series, columns=dict(columns)) for answer in answers]


_TRUNCATED = frozenset({"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed"})
"""What verifiers' ``Trace.is_truncated`` takes for a limit that stopped a trace."""
_ASKED = frozenset({"prompt", "system_prompt"})
"""Fields of a task's data that are in the messages."""


def read_traces(where: str, values: Mapping[str, Any]) -> list[Record]:
    """The completion of each trace of an episode, or of the one that the row is; none of one that nothing sampled."""
    traces = values["traces"] if isinstance(values.get("traces"), list) else [values]
    series = str((values.get("group") or {}).get("id", ""))
    records = [_trace(f"{where}: trace {n}" if len(traces) > 1 else where, trace) for n, trace in enumerate(traces, 1)]
    return [replace(record, series=series) for record in records if record is not None]


def _trace(where: str, trace: Mapping[str, Any]) -> Record | None:
    path, branches = _last_path(where, trace["nodes"])
    first = next((i for i, node in enumerate(path) if node.get("sampled")), None)
    if first is None:
        return None
    messages = read_messages(where, "nodes", [node.get("message") for node in path])
    tools = [{"type": "function", "function": tool} for tool in trace.get("tools") or ()]
    conversation = conversation_of(where, "nodes", messages[:first], messages[first:], tools)
    columns = _columns(trace) | ({"branches": branches} if branches > 1 else {})
    calls = [call for call in trace.get("calls") or () if call.get("error") is None]
    is_cut = trace.get("stop_condition") in _TRUNCATED or (bool(calls) and calls[-1].get("finish_reason") == "length")
    record = Record(where, conversation.prompt, conversation=conversation, finished=not is_cut, columns=columns)
    if all(node.get("token_ids") for node in path if node.get("sampled")):
        return _with_tokens(record, path, conversation)
    if any(node.get("advantages") for node in path):
        columns["logged_advantages"] = [node.get("advantages") for node in path]
    return replace(record, notes=notes_of(messages))


def _last_path(where: str, nodes: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], int]:
    """The nodes from a root to the last leaf, and how many leaves there are. A node's parent stands before it."""
    parents = [node.get("parent") for node in nodes]
    for number, parent in enumerate(parents):
        if parent is not None and (type(parent) is not int or not 0 <= parent < number):
            raise TaskError(f"{where}: node {number} has the parent {parent!r}, which is no node before it")
    path, at = list[Mapping[str, Any]](), len(nodes) - 1 if nodes else None  # the last one is a leaf
    while at is not None:
        path.append(nodes[at])
        at = parents[at]
    return path[::-1], len(set(range(len(nodes))) - set(parents))


def _with_tokens(record: Record, path: Sequence[Mapping[str, Any]], conversation: Conversation) -> Record:
    """Return a record of nodes with ids: from the first sampled token on, with who wrote each stretch."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    advantages: list[float | None] = []
    known = True
    for number, node in enumerate(path):
        where = f"{record.where}: node {number}"
        added = check_value(where, "token_ids", node.get("token_ids") or [], IDS)
        sampled = each_token(where, "mask", node.get("mask") or [], MASK, len(added)) or ()
        values = each_token(where, "logprobs", node.get("logprobs") or None, NUMBERS, sum(sampled))
        known = known and (values is not None or not any(sampled))
        logged = check_value(where, "advantages", node.get("advantages") or [None] * len(added), MAYBE_NUMBERS)
        if len(logged) not in (len(added), sum(sampled)):
            raise TaskError(f"{where}: 'advantages' must be one number a token, or a sampled token")
        ids += added
        mask += sampled
        of_sampled = iter(values or ())
        logprobs += [next(of_sampled, 0.0) if taken else 0.0 for taken in sampled]
        own = iter(logged)
        advantages += logged if len(logged) == len(added) else [next(own) if taken else None for taken in sampled]
    first = mask.index(1)
    return replace(
        record,
        token_ids=tuple(ids[first:]),
        mask=tuple(mask[first:]),
        logprobs=tuple(logprobs[first:]) if known else None,
        columns={**record.columns, **logged_advantage(advantages[first:], mask[first:])},
        turns=tuple(_stretches(mask[first:], conversation)),
    )


def _stretches(mask: Sequence[int], conversation: Conversation) -> list[Turn]:
    """The turns of a mask and what stands between them, written by whom the messages between two turns are of."""
    at, messages = conversation.turns, conversation.messages
    writers = [role_of(messages[a + 1 : b]) for a, b in zip(at, [*at[1:], len(messages)], strict=True)]
    turns: list[Turn] = []
    for sampled, run in groupby(range(len(mask)), lambda token: bool(mask[token])):
        tokens = list(run)
        role = ASSISTANT if sampled else writers[min(len(turns) // 2, len(writers) - 1)]
        turns.append(Turn(role, tokens[0], tokens[-1] + 1))
    return turns


def _columns(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sum of weighted rewards, each of them, the metrics, the task's data and the last error."""
    data = (trace.get("task") or {}).get("data") or {}
    columns = {name: value for name, value in data.items() if name not in _ASKED}
    scores = {
        name: float(reward["score"]) * float(reward.get("weight", 1.0))
        for name, reward in (trace.get("rewards") or {}).items()
        if is_number(reward.get("score"))
    }
    errors = trace.get("errors")
    known = {
        "reward": sum(scores.values()) if scores else None,
        "rewards": scores or None,
        "metrics": trace.get("metrics") or None,
        "logged_advantage": trace["advantage"] if is_number(trace.get("advantage")) else None,
        "error": f"{errors[-1].get('type')}: {errors[-1].get('message')}" if errors else None,
    }
    return columns | {name: value for name, value in known.items() if value is not None}


# --- rewards and advantages ------------------------------------------------------------------------------------------

_AGREES = 0.99
"""Least mean correlation of the sum with the logged advantage that counts as the same."""
_BESIDE = ("logged_advantage", "training_step", "logged_entropy")


def with_rewards(records: Sequence[Record]) -> tuple[list[Record], Sequence[str], str]:
    """Return the records with ``reward``, the sum of their reward columns that have a value, those columns, and a note
    about them."""
    import pandas as pd

    names = [name for name in dict.fromkeys(n for record in records for n in record.columns) if name not in _BESIDE]
    values = {name: [record.columns.get(name) for record in records] for name in names}
    numeric = [
        name
        for name in names
        if any(map(is_number, values[name])) and all(value is None or is_number(value) for value in values[name])
    ]
    if not numeric:
        return list(records), (), "no column of numbers can be a reward; 'reward' is not set"
    whole = {name for name in numeric if not any(isinstance(value, float) for value in values[name])}
    scores = pd.DataFrame({name: values[name] for name in numeric}, dtype=float)
    logged = [record.columns.get("logged_advantage") for record in records]
    advantages = pd.Series([value if is_number(value) else None for value in logged], dtype=float)
    of_prompt = pd.Series([record.series + json.dumps(record.prompt) for record in records])
    agreement = {}  # of the first so many: the mean correlation of their sum with the advantage, in groups with one
    for count in range(1, len(numeric) + 1):
        known = pd.DataFrame({"sum": scores.iloc[:, :count].sum(axis=1, min_count=1), "advantage": advantages}).dropna()
        groups = [group for _, group in known.groupby(of_prompt) if len(group) > 1]
        agreement[count] = float(np.mean([_correlate(group["sum"], group["advantage"]) for group in groups] or [1.0]))
    best = max(agreement.values())
    as_good = [count for count, found in agreement.items() if found >= best - (1 - _AGREES)]
    rewards = numeric[: max(as_good, key=lambda count: (whole.isdisjoint(numeric[:count]), count))]
    others = numeric[len(rewards) :]
    unlike = "but the logged advantages are not of this sum: they may have weights, which the file does not hold"
    agrees = "which the logged advantages agree with" if agreement[len(rewards)] >= _AGREES else unlike
    unsummed = f"; taken for no reward: {', '.join(others)}" if others else ""
    summed = []
    for record in records:
        own = {"logged_reward": record.columns["reward"]} if "reward" in record.columns else {}  # a function's name
        known_scores = [record.columns[name] for name in rewards if record.columns.get(name) is not None]
        reward = sum(known_scores) if known_scores else None
        summed.append(replace(record, columns={**record.columns, **own, "reward": reward}))
    return summed, rewards, f"reward is the sum of {', '.join(rewards)}, {agrees}{unsummed}"


def _correlate(sums: Any, advantages: Any) -> float:
    """Return Pearson's correlation; 1 where neither varies, 0 where one does.

    What rounding leaves (of a float32, divided by TRL's 1e-4) is no variance.
    """
    x, y = (np.subtract(values, np.mean(values)) for values in (sums.to_numpy(), advantages.to_numpy()))
    x, y = (values * (np.abs(values).max() > 1e-3) for values in (x, y))
    if not x.any() or not y.any():
        return float(x.any() == y.any())
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


OUTCOMES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("`outcome` ÷ std", {"scale": True}),
    ("`outcome`, not ÷ std", {"scale": False}),
    ("`outcome`, each against the others (RLOO)", {"normalise": "leave_one_out", "scale": False}),
)
"""How trainers make advantages of outcome rewards: in words, and as options of the scheme."""
SAME = 0.01
"""Largest difference of advantages that are the same; logs are rounded."""


@dataclass(frozen=True)
class LoggedAdvantages:
    """The way in which a file's own advantages follow from its rewards, and how far they are off at most."""

    said: str
    options: Mapping[str, Any]
    within: float


def recognise_advantages(groups: Iterable[Any]) -> LoggedAdvantages | None:
    """Find out how the advantages that a file logged were made of its rewards. None where that is not known.

    ``groups`` have ``rollouts`` with ``columns``: groups, or those that are not tokenised yet.
    """
    columns = [[rollout.columns for rollout in group.rollouts] for group in groups]
    logged = [
        (rewards, advantages)
        for rows in columns
        if (rewards := [row.get("reward") for row in rows])
        and all(map(is_number, advantages := [row.get("logged_advantage") for row in rows]))
        and len([reward for reward in rewards if reward is not None]) > 1
    ]
    found = []
    for said, options in OUTCOMES:
        off = 0.0
        for rewards, advantages in logged:
            steps: list[list[Any]] = [[]] * len(rewards)
            ours = assign_credit(steps, steps, [1] * len(rewards), "outcome", outcome_rewards=rewards, **options)
            off = max(off, *(abs(a - b) for a, b in zip(ours[:, 0].tolist(), advantages, strict=True)))
        found.append(LoggedAdvantages(said, options, off))
    best = min(found, key=lambda way: way.within)
    return best if logged and best.within <= SAME else None
