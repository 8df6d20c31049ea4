"""What travels between the reward worker and its parent as JSON, and the parent's strict reading of it.

The worker runs a user's code, which can reach its pipe; so nothing that comes from it is believed before it has the
shape, the ranges and the lengths that were asked for. Scores are checked by ``protocol``. No processes here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from workbench.errors import RewardError, WorkbenchError
from workbench.rewards.protocol import Batch
from workbench.schema import Step
from workbench.steps import Split

FILENAME = "<reward>"
"""What a user's code is called in its tracebacks."""
_MOST_PARAMETERS = 256
_NONSENSE = "the reward worker's answer makes no sense"


class NonsenseError(Exception):
    """A reply of another shape than was asked for; says which."""


def packed_batch(batch: Batch) -> tuple[dict[str, Any], list[str]]:
    """A batch as JSON, and the names of the columns left out because they are not."""
    columns, left_out = {}, []
    for name, values in batch.columns.items():
        try:
            json.dumps(values)
        except (TypeError, ValueError, RecursionError):
            left_out.append(name)
        else:
            columns[name] = values
    sent = {
        "prompts": list(batch.prompts),
        "completions": list(batch.completions),
        "columns": columns,
        "steps": [list(texts) for texts in batch.steps],
        "completion_ids": None if batch.completion_ids is None else [list(ids) for ids in batch.completion_ids],
    }
    return sent, left_out


def packed_signature(signature: inspect.Signature) -> list[list[Any]]:
    return [[one.name, one.kind.name, one.default is not one.empty] for one in signature.parameters.values()]


def read_signature_reply(reply: Mapping[str, Any]) -> inspect.Signature:
    """The signature that ``packed_signature`` packed. Raises NonsenseError."""
    given = reply.get("parameters")
    kinds = inspect._ParameterKind.__members__
    if not isinstance(given, list) or len(given) > _MOST_PARAMETERS:
        raise NonsenseError(_NONSENSE)
    parameters = []
    for one in given:
        if not (isinstance(one, list) and len(one) == 3 and isinstance(one[0], str) and one[0].isidentifier()):
            raise NonsenseError(_NONSENSE)
        if not (isinstance(one[1], str) and one[1] in kinds and isinstance(one[2], bool)):
            raise NonsenseError(_NONSENSE)
        default = ... if one[2] else inspect.Parameter.empty
        parameters.append(inspect.Parameter(one[0], kinds[one[1]], default=default))
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
    given = reply.get("splits")
    if not isinstance(given, list) or len(given) != len(texts):
        raise NonsenseError(_NONSENSE)
    return [_split(one, len(text)) for one, text in zip(given, texts, strict=True)]


def _split(given: Any, length: int) -> Split:
    if not isinstance(given, dict) or given.keys() != {"steps", "matched", "matches", "failed"}:
        raise NonsenseError(_NONSENSE)
    matched, failed = given["matched"], given["failed"]
    steps, matches = _spans(given["steps"], length), _spans(given["matches"], length)
    if not isinstance(matched, bool) or not isinstance(failed, bool) or not steps:
        raise NonsenseError(_NONSENSE)
    if any(start < end for (_, end), (start, _) in pairwise(steps)):
        raise NonsenseError(_NONSENSE)
    return Split([Step(start, end, matched=matched) for start, end in steps], matches, failed)


def _spans(given: Any, length: int) -> list[tuple[int, int]]:
    if not isinstance(given, list):
        raise NonsenseError(_NONSENSE)
    for one in given:
        if not (isinstance(one, list) and len(one) == 2 and type(one[0]) is int and type(one[1]) is int):
            raise NonsenseError(_NONSENSE)
        if not 0 <= one[0] <= one[1] <= length:
            raise NonsenseError(_NONSENSE)
    return [(start, end) for start, end in given]


def checked_isolation(reply: Mapping[str, Any]) -> tuple[str, ...]:
    """The layers of the seal that are missing. Raises NonsenseError."""
    given = reply.get("missing")
    if not isinstance(given, list) or not all(isinstance(one, str) and len(one) < 500 for one in given):
        raise NonsenseError(_NONSENSE)
    return tuple(given)


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
