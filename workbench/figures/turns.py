"""The turns of an episode as its drawing wants them: who wrote each stretch of tokens, in what time, and what it calls.

A turn calls a tool where it has lines ``call: 37*8`` or ``<tool_call>`` with JSON; whether a call can be answered
is not known here, nor is credit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from workbench.figures.payloads import TurnPayload
from workbench.schema import Rollout
from workbench.schema.rollouts import ASSISTANT, Turn, sampled_runs

OBSERVATION = "observation"
"""The role of a stretch that nothing but a mask tells of."""
_LINE = re.compile(r"[ \t]*call:(.*)")
_TOOL_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_END = re.compile(r"\s*(?:<[^<>\s]{1,40}>)?\s*")  # what may follow a call: an end-of-sequence token
_LONGEST_NAME = 60


def turns_payload(rollout: Rollout) -> list[TurnPayload]:
    """Every stretch of an episode, in order; of a completion that is none, nothing."""
    if not rollout.is_episode:
        return []
    return [_turn_payload(turn, rollout.texts[turn.start : turn.end]) for turn in rollout.turns or _of_mask(rollout)]


def _of_mask(rollout: Rollout) -> Iterator[Turn]:
    """The stretches of a mask, which says no more than where they are."""
    at = 0
    for first, last in sampled_runs(rollout.mask or ()):
        if first > at:
            yield Turn(OBSERVATION, at, first)
        yield Turn(ASSISTANT, first, last + 1)
        at = last + 1
    if at < len(rollout):
        yield Turn(OBSERVATION, at, len(rollout))


def _turn_payload(turn: Turn, texts: Sequence[str]) -> TurnPayload:
    text = "".join(texts)
    payload: TurnPayload = {
        "role": turn.role,
        "sampled": turn.is_sampled,
        "start": turn.start,
        "end": turn.end,
        "seconds": round(turn.seconds, 4),
        "error": turn.error,
        "note": turn.note,
    }
    if turn.is_sampled and (names := called(text)):
        payload["calls"] = names
        payload["isCall"] = bool(_END.fullmatch(_LINE.sub("", _TOOL_CALL.sub("", text))))
    return payload


def called(text: str) -> list[str]:
    """The tool that each call of a turn names, "" where it names none."""
    lines = ["" for line in text.splitlines() if _LINE.match(line)]
    return lines + [_name(call) for call in _TOOL_CALL.findall(text)]


def _name(call: str) -> str:
    try:
        read = json.loads(call)
    except (ValueError, RecursionError):
        return ""
    name = read.get("name") if isinstance(read, dict) else None
    return name[:_LONGEST_NAME] if isinstance(name, str) else ""
