"""Text and a step pattern → the character spans of its steps.

Steps are ordered, do not overlap and are never empty; text outside them stays outside. The one exception is text in
which the pattern finds nothing: it is a single step that spans it all and is marked ``matched=False``. This module
does not know in which process it runs: the page has it run in the sandbox.

An episode's steps are found in each of the policy's turns on its own (``Rollout.turn_spans``), so that none reaches
into an observation; if nothing matches, each turn is one unmatched step. Patterns of some kinds read no text:
``split_by_tokens`` compares them with the sampled tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise

from workbench.errors import PatternError, PatternTooSlow, TooManySteps
from workbench.schema import Rollout, Step
from workbench.steps.pattern import StepPattern
from workbench.steps.tokens import align_steps

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


# --- turns of an episode -----------------------------------------------------------------------------------------


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


# --- patterns that read tokens ------------------------------------------------------------------------------------


def split_by_tokens(rollout: Rollout, pattern: StepPattern, span: tuple[int, int] | None = None) -> Split:
    """The steps of a rollout's text, or of its characters ``span`` (start, end); all of it is in some step.

    - ``surprise``, "p n": a step ends before the first and then before each n-th token whose probability is below p.
      SPO (arXiv 2505.23564): ``cutpoints`` in ``math_episode_generator_with_mc_advantages.py`` of
      https://github.com/AIFrameResearch/SPO, where p is 0.9 and n ``cutpoint_interval``, 5.
    - ``entropy``, "h n": a step ends before a token whose distribution has an entropy of at least h nats, at least n
      tokens behind the last such end. As PRPO cuts (arXiv 2601.07182; ``entropy_segmentation`` in its reward managers,
      https://github.com/SchumiDing/srpocode), which takes an answer's highest entropies for h, n = 10.
    - ``tokens``, "n": every n tokens.

    Probabilities and entropies are those the policy sampled with.
    Where there is no cut, it is one unmatched step. Raises PatternError where the pattern's numbers are wrong or the
    rollout does not have what they are compared with. Over 1,000 steps are one, ``failed``.
    """
    start, end = (0, len(rollout.text)) if span is None else span
    texts = rollout.texts[:-1] if rollout.finished else rollout.texts
    begins = [0, *accumulate(map(len, texts))]  # of each token's characters, and the text's end
    first = next((t for t, begin in enumerate(begins) if begin >= start), len(texts))
    cuts = list(_cuts(rollout, pattern, range(first, len(texts))))
    borders = sorted({begins[t] for t in cuts if start < begins[t] < end})
    if len(borders) >= MAX_STEPS:
        return unsplit(rollout.text[start:end]).moved(start)
    if start >= end or (not borders and pattern.kind != "tokens"):
        whole = unsplit(rollout.text[start:end]).moved(start)
        return Split(whole.steps if start < end else [], [])
    steps = [Step(*piece) for piece in pairwise([start, *borders, end])]
    return Split(steps, [(begins[t], begins[t + 1]) for t in cuts if begins[t] in borders])


def _cuts(rollout: Rollout, pattern: StepPattern, tokens: range) -> Iterator[int]:
    """The tokens that a step begins with."""
    number, count = pattern.numbers
    if pattern.kind == "tokens":
        yield from tokens[count::count]
    elif pattern.kind == "surprise":
        logprobs = _known(rollout.logprobs, "log-probabilities", pattern)
        unlikely = [t for t in tokens if rollout.is_sampled(t) and math.exp(logprobs[t]) < number]
        yield from unlikely[::count]
    else:
        entropies, last = _known(rollout.entropies, "entropies", pattern), tokens.start
        for t in tokens:
            if rollout.is_sampled(t) and entropies[t] >= number and t - last >= count:
                yield t
                last = t


def _known(values: Sequence[float] | None, what: str, pattern: StepPattern) -> Sequence[float]:
    if values is None:
        raise PatternError(
            f"the step pattern of kind {pattern.kind!r} needs the {what} of a completion's tokens and they are not "
            "known; sample it in the workbench, or choose a kind that reads text"
        )
    return values
