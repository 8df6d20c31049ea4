"""Steps of episodes: found in each of the policy's turns on its own, so that none reaches into an observation.

What a turn is, is said by the rollout (``Rollout.turn_spans``): its text is that of its sampled tokens, and what
follows its last token is the observation's. An episode in which nothing matched has one unmatched step a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from workbench.schema import Rollout, Step
from workbench.steps.align import align_steps
from workbench.steps.pattern import StepPattern
from workbench.steps.split import MAX_STEPS, Split


@dataclass(frozen=True)
class TurnText:
    """One turn: its (first, last) tokens, where its text begins in the completion's, and that text."""

    first: int
    last: int
    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def turn_texts(rollout: Rollout) -> list[TurnText]:
    """The policy's turns in a rollout's text, without an end-of-sequence token that closes it."""
    texts = rollout.texts[:-1] if rollout.finished else rollout.texts
    begins = [0, *accumulate(map(len, texts))]
    return [
        TurnText(first, last, begins[first], "".join(texts[first : last + 1]))
        for first, last in rollout.turn_spans
        if first < len(texts)
    ]


def joined(turns: Sequence[TurnText], splits: Sequence[Split], pattern: StepPattern) -> Split:
    """The split of a whole episode, of those of its turns' texts. With over 1,000 steps, or a turn that could not be
    split, it is one unmatched step a turn, ``failed``.

    Where some turn has a match, one without is a step all the same if the pattern says what ends steps, and is in none
    if it says what starts them or what they are.
    """
    moved = [split.moved(turn.start) for turn, split in zip(turns, splits, strict=True)]
    matched = any(split.matched for split in moved)
    steps = [step for split in moved for step in split.steps if step.start < step.end]
    if matched and pattern.kind in ("starts", "is"):
        steps = [step for step in steps if step.matched]
    if len(steps) > MAX_STEPS or any(split.failed for split in splits):
        return unsplit_turns(turns)
    matches = [match for split in moved for match in split.matches]
    steps = [replace(step, matched=matched) for step in steps]
    return Split(steps, matches)


def unsplit_turns(turns: Sequence[TurnText]) -> Split:
    """An episode that could not be split: each turn is one unmatched step."""
    return Split([Step(turn.start, turn.end, matched=False) for turn in turns if turn.text], [], failed=True)


def align_turns(rollout: Rollout, steps: Sequence[Step]) -> list[tuple[int, int]]:
    """The (first, last) token of each step, within the turn that it lies in. Raises ValueError for one that lies in
    none."""
    spans: list[tuple[int, int]] = []
    for turn in turn_texts(rollout):
        here = [step for step in steps if turn.start <= step.start and step.end <= turn.end and step.start < step.end]
        own = [Step(step.start - turn.start, step.end - turn.start, step.matched) for step in here]
        texts = rollout.texts[turn.first : turn.first + _tokens(rollout, turn)]
        spans += [(turn.first + first, turn.first + last) for first, last in align_steps(texts, own)]
    if len(spans) != len(steps):
        raise ValueError(f"{len(steps) - len(spans)} of {len(steps)} steps lie in no turn of the policy's")
    return spans


def _tokens(rollout: Rollout, turn: TurnText) -> int:
    """Of a turn, without the end-of-sequence token that closes the completion."""
    return min(turn.last, len(rollout) - 1 - rollout.finished) - turn.first + 1
