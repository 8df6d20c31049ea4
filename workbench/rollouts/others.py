"""Readers of what other tools write of their rollouts: verl, prime-rl, verifiers, OpenRLHF, lm-eval, conversations.

Each was checked against the code that writes it: verl's ``RayPPOTrainer._write_generations``, prime-rl's
``TokenExporter``, verifiers' ``state_to_output``, OpenRLHF's ``cli/batch_inference.py`` and lm-eval's
``EvaluationTracker.save_results_samples``. What a row says beside prompt and completion is in the record's columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import TaskError
from workbench.rollouts.conversations import (
    conversation_of,
    is_messages,
    notes_of,
    read_messages,
    text_of,
    texts_only,
    uses_tools,
)
from workbench.rollouts.records import (
    Record,
    answered,
    are_numbers,
    check_reward,
    is_conversation,
    is_finished,
    is_number,
    logged_advantage,
    prompt_text,
    sharegpt_messages,
    token_ids,
    with_system,
)
from workbench.schema import ASSISTANT, TOOL, Prompt

_TOOLS_ANSWER = re.compile(
    r"(\n?(?:user|tool)(?:\s*<tool_response>.*?</tool_response>)+\n*(?:assistant\n)?)", re.DOTALL
)
_EXPORTED = ("token_ids", "loss_mask", "inference_logprobs")


def is_verl(values: Mapping[str, Any]) -> bool:
    return {"input", "output", "score"} <= values.keys()


def read_verl(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A line of ``{step}.jsonl``: ``score`` is the reward, ``gts`` the right answer; a step's groups are apart."""
    rest = dict(values)
    prompt, completion = prompt_text(where, rest.pop("input"), "input"), _text(where, "output", rest.pop("output"))
    pieces = _parted_by_tools(completion)
    rest["reward"] = rest.pop("score")
    check_reward(where, rest, "score")
    step = rest.pop("step", None)
    if rest.get("gts") is not None:
        rest["answer"] = rest.pop("gts")
    if step is not None:
        rest["training_step"] = step
    return [
        Record(
            where, prompt, completion, finished=is_finished(rest), series=f"{step}", columns=rest, pieces=pieces or None
        )
    ]


def _parted_by_tools(output: str) -> tuple[tuple[str, str], ...]:
    """(role, text) of the turns and the tools' answers of an output; nothing where no tool answered.

    The file has neither the mask nor the chat template's special tokens. What remains of them around an answer, in the
    template of Qwen's models and those with its ``<tool_response>``, is the names of the roles.
    """
    parts = _TOOLS_ANSWER.split(output)
    return tuple((ASSISTANT if i % 2 == 0 else TOOL, part) for i, part in enumerate(parts)) if len(parts) > 1 else ()


def is_openrlhf(values: Mapping[str, Any]) -> bool:
    return {"input", "output"} <= values.keys() and "instruction" not in values


def read_openrlhf(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``input`` and ``output``, with a ``reward`` where a reward model scored them."""
    rest = dict(values)
    prompt, completion = prompt_text(where, rest.pop("input"), "input"), _text(where, "output", rest.pop("output"))
    check_reward(where, rest)
    return [Record(where, prompt, completion, finished=is_finished(rest), columns=rest)]


def is_verifiers(values: Mapping[str, Any]) -> bool:
    return {"example_id", "prompt", "completion", "reward"} <= values.keys()


def read_verifiers(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A line of ``results.jsonl``: messages, or text. A rollout that failed before it said anything gives none."""
    rest = dict(values)
    prompt, completion = rest.pop("prompt"), rest.pop("completion")
    if prompt is None or not completion:
        return []
    check_reward(where, rest)
    for name in ("timing", "token_usage", "trajectory", "error_chain", "long_error_chain"):
        rest.pop(name, None)
    finished = not rest.pop("is_truncated") if isinstance(rest.get("is_truncated"), bool) else is_finished(rest)
    tools = rest.pop("tool_defs", None)
    return [answered(where, prompt, completion, tools, finished=finished, columns=rest)]


def is_conversation_row(values: Mapping[str, Any]) -> bool:
    return "prompt" not in values and _turns(values) is not None


def read_conversation(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``messages`` as OpenAI has them, or ShareGPT's ``conversations``.

    Where tools are used, all from the assistant's first message on is the episode; else the last message is the answer.
    """
    name = "messages" if is_messages(values.get("messages")) else "conversations"
    messages = read_messages(where, name, _turns(values) or [])
    rest = {column: value for column, value in values.items() if column not in (name, "system")}
    if uses_tools(messages):
        check_reward(where, rest)
        conversation = conversation_of(where, name, [], messages, rest.pop("tools", None))
        return [
            Record(
                where,
                conversation.prompt,
                conversation=conversation,
                finished=is_finished(rest),
                columns=rest,
                notes=notes_of(messages),
            )
        ]
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise TaskError(
            f"{where}: the last of the messages must be the assistant's, with another before it; load the file as a "
            "task where there are no answers"
        )
    check_reward(where, rest)
    *asked, last = messages
    notes = notes_of(messages, in_text=True)
    finished = is_finished(rest)
    return [Record(where, texts_only(asked), text_of(last), finished=finished, columns=rest, notes=notes)]


def _turns(values: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    messages = values.get("messages")
    return with_system(messages, values) if is_messages(messages) else sharegpt_messages(values)


def is_prime_rl(values: Mapping[str, Any]) -> bool:
    return set(_EXPORTED) <= values.keys()


def read_prime_rl(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A sequence of ``token_exports``: the prompt is what comes before the first token that the loss takes."""
    ids = token_ids(where, values["token_ids"]) or ()
    taken = values["loss_mask"]
    if not isinstance(taken, list) or len(taken) != len(ids) or not all(isinstance(mask, bool) for mask in taken):
        raise TaskError(f"{where}: 'loss_mask' must be true or false for each of the {len(ids)} tokens")
    given = {name: values[name] for name in ("inference_logprobs", "entropy", "advantages") if values.get(name)}
    for name, numbers in given.items():
        known = [n for n in numbers if n is not None] if name == "advantages" else numbers
        if not are_numbers(known) or len(numbers) != len(ids):
            raise TaskError(f"{where}: {name!r} must be one number a token, {len(ids)} of them")
    if True not in taken or taken[0]:
        raise TaskError(f"{where}: 'loss_mask' leaves no prompt, or no completion; export whole sequences")
    first = taken.index(True)
    columns = {"training_step": values.get("step"), "env_name": values.get("env_name")}
    columns |= logged_advantage(given.get("advantages", [None] * len(ids))[first:], taken[first:])
    return [
        Record(
            where,
            "",
            prompt_ids=ids[:first],
            token_ids=ids[first:],
            logprobs=_floats(given, "inference_logprobs", first),
            entropies=_floats(given, "entropy", first),
            mask=None if all(taken[first:]) else tuple(map(int, taken[first:])),
            series=f"step {values.get('step')}",
            columns={name: value for name, value in columns.items() if value is not None},
        )
    ]


def _floats(given: Mapping[str, Sequence[float]], name: str, first: int) -> tuple[float, ...] | None:
    return tuple(map(float, given[name][first:])) if name in given else None


def is_lm_eval(values: Mapping[str, Any]) -> bool:
    return {"doc_id", "doc", "arguments", "resps"} <= values.keys()


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
    asked = _lm_eval_prompt(prompt)
    return [Record(where, asked, answer, series=series, columns=dict(columns)) for answer in answers]


def _lm_eval_prompt(text: str) -> Prompt:
    """A prompt; with ``--apply_chat_template`` of an API's model it is a list of messages as JSON."""
    if text.startswith("[{"):
        try:
            messages = json.loads(text)
        except ValueError:
            return text
        if is_conversation(messages):
            return [{"role": message["role"], "content": message["content"]} for message in messages]
    return text


def _text(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TaskError(f"{where}: {name!r} must be text, not {type(value).__name__}")
    return value
