"""Text and a step pattern → the character spans of its steps.

Steps are ordered, do not overlap and are never empty; text outside them stays outside. The one exception is text in
which the pattern finds nothing: it is a single step that spans it all and is marked ``matched=False``. This module
does not know about tokens, nor in which process it runs: the page has it run in the reward worker.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from workbench.errors import PatternError, PatternTooSlow, TooManySteps
from workbench.schema import Step
from workbench.steps.pattern import StepPattern

TIMEOUT = 0.25
"""Seconds one text may take."""
PREVIEW_TIMEOUT = 1.0
"""Seconds all texts of a preview may take together."""
MAX_STEPS = 1000


@dataclass(frozen=True)
class Split:
    """A text's steps, and where the pattern matched in it.

    ``failed``: it has over 1,000 steps, or took too long, and is one unmatched step.
    """

    steps: list[Step]
    matches: list[tuple[int, int]]
    failed: bool = False

    @property
    def matched(self) -> bool:
        """Whether the pattern found a step."""
        return any(step.matched for step in self.steps)

    def moved(self, by: int) -> Split:
        """The same, of a text that stands ``by`` characters into another."""
        steps = [Step(step.start + by, step.end + by, step.matched) for step in self.steps]
        return Split(steps, [(start + by, end + by) for start, end in self.matches], self.failed)


class Steps(list[Step]):
    """A list of steps that holds their text, for rich display."""

    def __init__(self, steps: Iterable[Step], text: str) -> None:
        super().__init__(steps)
        self.text = text


def split_steps(text: str, pattern: StepPattern, *, timeout: float = TIMEOUT) -> Steps:
    """Cut ``text`` into steps.

    - ``starts``: a step runs from a match to the next one or the text's end; text before the first is in no step.
    - ``ends``: a step runs to the end of a match, whose own text (the separator) it includes. Text after the last
      separator is a last step unless it is blank. A blank piece is no step: it goes to the step before it, and is in
      no step at the text's beginning and end.
    - ``is``: a match is a step; all else is in no step. Of two that overlap the later one loses the common part.
    - ``turns``: all of ``text`` is a step; an episode's turns are cut from each other before.

    Raises PatternTooSlow after ``timeout`` seconds, TooManySteps over 1,000 steps, PatternSyntaxError and PatternError
    for a pattern that cannot be used. Other threads run while it matches.
    """
    split = split_text(text, pattern, timeout=timeout)
    if split.failed:
        raise TooManySteps(f"the step pattern finds over {MAX_STEPS:,} steps in one text; make it more particular")
    return Steps(split.steps, text)


def split_text(text: str, pattern: StepPattern, *, timeout: float = TIMEOUT) -> Split:
    """``split_steps`` that also says where the pattern matched. Text with over 1,000 steps stays one, ``failed``."""
    if pattern.by_tokens:
        raise PatternError(
            f"the step pattern of kind {pattern.kind!r} cuts a completion by its tokens, and here is only text; choose "
            "a kind that reads text"
        )
    found = _matches(text, pattern, timeout)
    if found is None:
        return unsplit(text)
    matches, marks = found
    match pattern.kind:
        case "starts":
            spans = _started(text, marks)
        case "ends":
            spans = _ended(text, marks)
        case _:
            spans = _disjoint(marks)
    steps = [Step(start, end) for start, end in islice(spans, MAX_STEPS + 1)]
    if len(steps) > MAX_STEPS:
        return unsplit(text)
    return Split(steps or [_whole(text)], matches)


def split_all(texts: Sequence[str], pattern: StepPattern, *, timeout: float = TIMEOUT) -> list[list[Step]]:
    """``split_steps`` of each text; an error names the text (``sample`` of PatternTooSlow is its index)."""
    return [split.steps for split in split_preview(texts, pattern, timeout=timeout, total=math.inf)]


def split_preview(
    texts: Sequence[str], pattern: StepPattern, *, timeout: float = TIMEOUT, total: float = PREVIEW_TIMEOUT
) -> list[Split]:
    """``split_text`` of each text, all of them in ``total`` seconds; an error names the text."""
    splits = []
    ends = time.monotonic() + total
    for sample, text in enumerate(texts):
        left = ends - time.monotonic()
        try:
            if left <= 0:
                raise PatternTooSlow("")
            splits.append(split_text(text, pattern, timeout=min(timeout, left)))
        except PatternTooSlow as error:
            if left < timeout:
                message = f"the step pattern is too slow ({total:g} s for all rollouts), at rollout {sample + 1}"
            else:
                message = f"{error} on rollout {sample + 1}"
            raise PatternTooSlow(message, sample=sample) from error
    return splits


def split_leniently(texts: Sequence[str], pattern: StepPattern, *, timeout: float = TIMEOUT) -> list[Split]:
    """``split_text`` of each text; one that cannot be split in time is one unmatched step, too.

    Raises PatternError for a pattern that cannot be used at all.
    """
    splits = []
    for text in texts:
        try:
            splits.append(split_text(text, pattern, timeout=timeout))
        except PatternTooSlow:
            splits.append(unsplit(text))
    return splits


def unsplit(text: str) -> Split:
    """A text that could not be split: one unmatched step."""
    return Split([_whole(text)], [], failed=True)


def _whole(text: str) -> Step:
    return Step(0, len(text), matched=False)


def _matches(
    text: str, pattern: StepPattern, timeout: float
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]] | None:
    """Where the pattern matches, and the same by its group ``step`` if it took part in the match; None for too many."""
    compiled = pattern.compiled
    named = "step" in compiled.groupindex
    limit = 20 * MAX_STEPS if pattern.kind == "ends" else MAX_STEPS  # blank pieces end in a mark and are no steps
    matches, marks = [], []
    try:
        for match in compiled.finditer(text, timeout=timeout, concurrent=True):
            span = match.span("step") if named else match.span()
            matches.append(match.span())
            marks.append(match.span() if span == (-1, -1) else span)
            if len(marks) > limit:
                return None
    except TimeoutError as error:
        raise PatternTooSlow(f"the step pattern is too slow ({timeout:g} s)") from error
    return matches, sorted(marks)


def _started(text: str, marks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    starts = sorted({start for start, _ in marks if start < len(text)})
    yield from pairwise([*starts, len(text)])


def _ended(text: str, marks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    start, pending = 0, None
    for end in sorted({end for _, end in marks if end > 0}):
        if text[start:end].strip():
            if pending:
                yield pending
            pending = start, end
        elif pending:
            pending = pending[0], end
        start = end
    if pending:
        yield pending
    if start and text[start:].strip():
        yield start, len(text)


def _disjoint(marks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    taken = 0
    for start, end in marks:
        if max(start, taken) < end:
            yield max(start, taken), end
            taken = end
