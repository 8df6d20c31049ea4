"""What travels between the reward worker and its parent as JSON, and the parent's strict reading of it.

The worker runs a user's code, which can reach its pipe; so nothing that comes from it is believed before it has the
shape, the ranges and the lengths that were asked for. Scores are checked by ``protocol``. No processes here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from itertools import chain, islice, pairwise
from types import SimpleNamespace
from typing import Any

from workbench.errors import RewardError, WorkbenchError
from workbench.rewards.logged import Log, packed_state
from workbench.rewards.protocol import Batch
from workbench.schema import Step
from workbench.steps import Split

FILENAME = "<reward>"
"""What a user's code is called in its tracebacks."""
UNSEALED = "--unsealed"
"""Argument of the worker's module that has it serve without a seal."""
_MOST_PARAMETERS = 256
_NONSENSE = "malformed reply from the reward worker"


class NonsenseError(Exception):
    """A reply of another shape than was asked for; says which."""


def packed_batch(batch: Batch) -> tuple[dict[str, Any], list[str], list[str]]:
    """A batch as JSON without its texts, these, and the names of the columns left out because they are not JSON.

    A prompt or a completion that is a text is there as ``[]``, another one as ``[value]``; steps as their number.
    """
    columns, left_out = {}, []
    for name, values in batch.columns.items():
        try:
            json.dumps(values)
        except (TypeError, ValueError, RecursionError):
            left_out.append(name)
        else:
            columns[name] = values
    sent = {
        "prompts": [[] if isinstance(prompt, str) else [prompt] for prompt in batch.prompts],
        "completions": [[] if isinstance(completion, str) else [completion] for completion in batch.completions],
        "columns": columns,
        "steps": [len(steps) for steps in batch.steps],
        "completion_ids": None if batch.completion_ids is None else [list(ids) for ids in batch.completion_ids],
        "turn": batch.turn,
        "observation": batch.observation,
        "trainer_state": None if batch.trainer_state is None else packed_state(batch.trainer_state),
    }
    texts = [text for text in (*batch.prompts, *batch.completions) if isinstance(text, str)]
    return sent, [*texts, *chain.from_iterable(batch.steps)], left_out


def unpacked_batch(sent: Mapping[str, Any], texts: Sequence[str]) -> Batch:
    """The batch that ``packed_batch`` packed, as a function gets it."""
    rest = iter(texts)
    turns = {name: [value[0] if value else next(rest) for value in sent[name]] for name in ("prompts", "completions")}
    steps = [list(islice(rest, count)) for count in sent["steps"]]
    state = None if sent["trainer_state"] is None else SimpleNamespace(**sent["trainer_state"])
    return Batch(**{**sent, **turns, "steps": steps, "trainer_state": state})


def packed_log(log: Log) -> dict[str, Any]:
    return {"extra": log.extra, "metrics": log.metrics}


def read_log(reply: Mapping[str, Any], batch: Batch, name: str) -> None:
    """Put what the function ``name`` logged into the batch's log. Raises RewardError for what no function can log."""
    log = Log()
    try:
        packed = reply["logged"]
        for column, values in packed["extra"].items():
            log.arguments(None, len(batch))["log_extra"](column, values)
        for metric, value in packed["metrics"]:
            log.log_metric(metric, value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RewardError(f"reward {name!r}: {_NONSENSE}: {str(error)[:200]}", reward=name) from error
    batch.log.extra.update(log.extra)
    batch.log.metrics.extend(log.metrics)


def packed_signature(signature: inspect.Signature) -> list[list[Any]]:
    return [
        [parameter.name, parameter.kind.name, parameter.default is not parameter.empty]
        for parameter in signature.parameters.values()
    ]


def read_signature_reply(reply: Mapping[str, Any]) -> inspect.Signature:
    """The signature that ``packed_signature`` packed. Raises NonsenseError."""
    packed = reply.get("parameters")
    kinds = inspect._ParameterKind.__members__
    if not isinstance(packed, list) or len(packed) > _MOST_PARAMETERS:
        raise NonsenseError(_NONSENSE)
    parameters = []
    for entry in packed:
        if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str) and entry[0].isidentifier()):
            raise NonsenseError(_NONSENSE)
        if not (isinstance(entry[1], str) and entry[1] in kinds and isinstance(entry[2], bool)):
            raise NonsenseError(_NONSENSE)
        default = ... if entry[2] else inspect.Parameter.empty
        parameters.append(inspect.Parameter(entry[0], kinds[entry[1]], default=default))
    return inspect.Signature(parameters, __validate_parameters__=False)


def packed_split(split: Split) -> dict[str, Any]:
    return {
        "steps": [[step.start, step.end] for step in split.steps],
        "matched": split.steps[0].matched,
        "matches": split.matches,
        "failed": split.failed,
    }


def read_split_reply(reply: Mapping[str, Any], texts: Sequence[str]) -> list[Split]:
    """The splits of ``texts``: their steps ordered, disjoint and within the text. Raises NonsenseError."""
    packed = reply.get("splits")
    if not isinstance(packed, list) or len(packed) != len(texts):
        raise NonsenseError(_NONSENSE)
    return [_split(split, len(text)) for split, text in zip(packed, texts, strict=True)]


def _split(packed: Any, length: int) -> Split:
    if not isinstance(packed, dict) or packed.keys() != {"steps", "matched", "matches", "failed"}:
        raise NonsenseError(_NONSENSE)
    matched, failed = packed["matched"], packed["failed"]
    steps, matches = _spans(packed["steps"], length), _spans(packed["matches"], length)
    if not isinstance(matched, bool) or not isinstance(failed, bool) or not steps:
        raise NonsenseError(_NONSENSE)
    if any(start < end for (_, end), (start, _) in pairwise(steps)):
        raise NonsenseError(_NONSENSE)
    return Split([Step(start, end, matched=matched) for start, end in steps], matches, failed)


def _spans(pairs: Any, length: int) -> list[tuple[int, int]]:
    if not isinstance(pairs, list):
        raise NonsenseError(_NONSENSE)
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int and type(pair[1]) is int):
            raise NonsenseError(_NONSENSE)
        if not 0 <= pair[0] <= pair[1] <= length:
            raise NonsenseError(_NONSENSE)
    return [(start, end) for start, end in pairs]


def checked_isolation(reply: Mapping[str, Any]) -> tuple[str, ...]:
    """The layers of the seal that are missing. Raises NonsenseError."""
    sentences = reply.get("missing")
    if not isinstance(sentences, list) or not all(
        isinstance(sentence, str) and len(sentence) < 500 for sentence in sentences
    ):
        raise NonsenseError(_NONSENSE)
    return tuple(sentences)


def check_error(error: WorkbenchError, name: str, count: int) -> WorkbenchError:
    """An error of the worker's, about reward ``name`` and one of ``count`` rollouts; another one where it is not.

    Any code that found the pipe can have sent it, so that its attributes may be anything.
    """
    if not isinstance(error, RewardError):
        return RewardError(f"reward {name!r}: {error}", reward=name)
    places = (error.line, error.rollout, error.step)
    if any(place is not None and type(place) is not int for place in places):
        return RewardError(f"reward {name!r}: {_NONSENSE}: {error}", reward=name)
    if error.rollout is not None and not 0 <= error.rollout < count:
        return RewardError(f"reward {name!r}: {_NONSENSE}: {error}", reward=name)
    error.reward = name
    return error
