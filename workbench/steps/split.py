"""Text and a step pattern → the character spans of its steps.

Steps are ordered, do not overlap and are never empty; text outside them stays outside. The one exception is text in
which the pattern finds nothing: it is a single step that spans it all and is marked ``matched=False``. This module
does not know in which process it runs: the page has it run in the sandbox.

A rollout is split turn by turn (``Rollout.turn_spans``), so that no step reaches into an observation; a plain
completion is a rollout of one turn. Patterns of some kinds read no text: ``split_by_tokens`` compares them with the
sampled tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from workbench.errors import PatternError, PatternTooSlow, TooManySteps
from workbench.schema import Rollout, Step, answer_span, ends_in_thinking
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
        """Return whether the pattern found a step."""
        return any(step.matched for step in self.steps)

    def move(self, by: int) -> Split:
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
    compiled = pattern.compiled
    limit = 20 * MAX_STEPS if pattern.kind == "ends" else MAX_STEPS  # blank pieces end in a mark and are no steps
    matches, marks = list[tuple[int, int]](), list[tuple[int, int]]()
    try:
        for match in compiled.finditer(text, timeout=timeout, concurrent=True):
            named = match.span("step") if "step" in compiled.groupindex else (-1, -1)
            matches.append(match.span())
            marks.append(match.span() if named == (-1, -1) else named)
            if len(marks) > limit:
                return unsplit(text)
    except TimeoutError as error:
        raise PatternTooSlow(f"the step pattern is too slow ({timeout:g} s)") from error
    if pattern.kind == "starts":
        starts = sorted({start for start, _ in marks if start < len(text)})
        spans = list(pairwise([*starts, len(text)]))
    elif pattern.kind == "ends":
        spans = _cut_at_ends(text, marks)
    else:
        spans, taken = [], 0
        for start, end in sorted(marks):
            if max(start, taken) < end:
                spans.append((max(start, taken), end))
                taken = end
    if len(spans) > MAX_STEPS:
        return unsplit(text)
    return Split([Step(*span) for span in spans] or [Step(0, len(text), matched=False)], matches)


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
            of_all = f"the step pattern is too slow ({total:g} s for all rollouts), at rollout {sample + 1}"
            said = of_all if left < timeout else f"{error} on rollout {sample + 1}"
            raise PatternTooSlow(said, sample=sample) from error
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
    return Split([Step(0, len(text), matched=False)], [], failed=True)


def step_texts(text: str, steps: Sequence[Step]) -> list[str]:
    """Return what reward functions read of each step of a text."""
    return [text[step.start : step.end] for step in steps]


def _cut_at_ends(text: str, marks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    spans, start = list[tuple[int, int]](), 0
    for end in sorted({end for _, end in marks if end > 0}):
        if text[start:end].strip():
            spans.append((start, end))
        elif spans:
            spans[-1] = spans[-1][0], end
        start = end
    return [*spans, (start, len(text))] if start and text[start:].strip() else spans


# --- rollouts ----------------------------------------------------------------------------------------------------

Cut = Callable[[list[str], StepPattern], list[Split]]
"""Splits texts by a pattern, in this process or in the sandbox."""


@dataclass(frozen=True)
class TurnText:
    """One turn: its (first, last) tokens, where its text begins in the completion's, and that text.

    ``opened``: the turn begins inside a ``<think>`` block.
    """

    first: int
    last: int
    start: int
    text: str
    opened: bool

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def turn_texts(rollout: Rollout, opened: bool = False) -> list[TurnText]:
    """Return the policy's turns in a rollout's text, without an end-of-sequence token that closes it.

    ``opened``: the prompt ends inside a ``<think>`` block.
    """
    texts = [*rollout.texts[:-1], ""] if rollout.finished else rollout.texts
    begins = [0, *accumulate(map(len, texts))]
    before = [opened, *(ends_in_thinking(text or "") for text in rollout.observations)]
    return [
        TurnText(first, last, begins[first], rollout.text[begins[first] : begins[last + 1]], inside)
        for (first, last), inside in zip(rollout.turn_spans, before, strict=False)
    ]


def split_rollouts(
    rollouts: Sequence[Rollout], pattern: StepPattern, cut: Cut, *, opened: Sequence[bool] | None = None
) -> list[Split]:
    """Split each of the policy's turns by itself. A completion without turns has no step.

    With over 1,000 steps, or a turn that could not be split, a rollout is one unmatched step a turn, ``failed``. If no
    turn has a match, each is one unmatched step. If some have, a turn without one is a step if the pattern says what
    ends steps, and is in no step if it says what starts them or what they are. ``opened`` says which prompts end inside
    a ``<think>`` block.
    """
    turns = [turn_texts(*each) for each in zip(rollouts, opened or [False] * len(rollouts), strict=True)]
    flat = [turn for row in turns for turn in row]
    texts, flags = [turn.text for turn in flat], [turn.opened for turn in flat]
    spans = iter(answer_spans(texts, pattern, flags))
    found = iter(() if pattern.by_tokens else split_answers(texts, pattern, cut, opened=flags))
    splits = []
    for rollout, row in zip(rollouts, turns, strict=True):
        parts = [Step(turn.start + a, turn.start + b, matched=False) for turn, (a, b) in zip(row, spans, strict=False)]
        if pattern.by_tokens:
            of_turns = [split_by_tokens(rollout, pattern, (part.start, part.end)) for part in parts]
        else:
            of_turns = [split.move(turn.start) for turn, split in zip(row, found, strict=False)]
        matched = any(split.matched for split in of_turns)
        every = [step for split in of_turns for step in split.steps]
        steps = [step for step in every if step.start < step.end] or every[:1]  # one without text has one step
        if matched and pattern.kind in ("starts", "is"):
            steps = [step for step in steps if step.matched]
        if len(steps) > MAX_STEPS or any(split.failed for split in of_turns):
            splits.append(Split([part for part in parts if part.start < part.end], [], failed=True))
        else:
            matches = [match for split in of_turns for match in split.matches]
            splits.append(Split([replace(step, matched=matched) for step in steps], matches))
    return splits


def split_answers(
    texts: Sequence[str], pattern: StepPattern, cut: Cut, *, opened: Sequence[bool] | None = None
) -> list[Split]:
    """``cut(texts, pattern)``, of the answers alone if the pattern leaves thinking out; a text without one has no step.

    ``opened`` says which texts begin inside a ``<think>`` block.
    """
    if not pattern.leave_out_thinking:
        return cut(list(texts), pattern)
    spans = answer_spans(texts, pattern, opened)
    splits = cut([text[start:end] for text, (start, end) in zip(texts, spans, strict=True)], pattern)
    return [
        found.move(start) if start < end else Split([], []) for found, (start, end) in zip(splits, spans, strict=True)
    ]


def answer_spans(
    texts: Sequence[str], pattern: StepPattern | None, opened: Sequence[bool] | None = None
) -> list[tuple[int, int]]:
    """Return the part of each text that has steps and that reward functions read."""
    if pattern is None or not pattern.leave_out_thinking:
        return [(0, len(text)) for text in texts]
    flags = opened or [False] * len(texts)
    return [answer_span(text, opened=flag) for text, flag in zip(texts, flags, strict=True)]


def answer_texts(texts: Sequence[str], pattern: StepPattern | None, opened: Sequence[bool] | None = None) -> list[str]:
    """Return what reward functions read of each text."""
    return [text[start:end] for text, (start, end) in zip(texts, answer_spans(texts, pattern, opened), strict=True)]


def rollout_texts(
    rollouts: Sequence[Rollout], pattern: StepPattern | None, opened: Sequence[bool] | None = None
) -> list[str]:
    """Return what reward functions read of each rollout: all of it, or all but the thinking of each turn."""
    if pattern is None or not pattern.leave_out_thinking:
        return [rollout.text for rollout in rollouts]
    texts = []
    for rollout, flag in zip(rollouts, opened or [False] * len(rollouts), strict=True):
        turns = turn_texts(rollout, flag)
        said = answer_texts([turn.text for turn in turns], pattern, [turn.opened for turn in turns])
        pairs = zip(said, rollout.observations, strict=True)
        texts.append("".join(text + (observation or "") for text, observation in pairs))
    return texts


def align_rollout(rollout: Rollout, steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Return the (first, last) token of each step, within the turn that it lies in.

    The end-of-sequence token belongs to the last step. Raises ValueError for a step that lies in no turn.
    """
    spans: list[tuple[int, int]] = []
    for turn in turn_texts(rollout):
        here = [step for step in steps[len(spans) :] if turn.start <= step.start and step.end <= turn.end]
        own = [Step(step.start - turn.start, step.end - turn.start, step.matched) for step in here]
        aligned = align_steps(rollout.texts[turn.first : turn.last + 1], own)
        spans += [(turn.first + first, turn.first + last) for first, last in aligned]
    if len(spans) != len(steps):
        raise ValueError(f"{len(steps) - len(spans)} of {len(steps)} steps lie in no turn of the policy's")
    if spans and rollout.finished and spans[-1][1] >= rollout.turn_spans[-1][0]:
        spans[-1] = (spans[-1][0], len(rollout) - 1)
    return spans


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
        return unsplit(rollout.text[start:end]).move(start)
    if start >= end or (not borders and pattern.kind != "tokens"):
        whole = unsplit(rollout.text[start:end]).move(start)
        return Split(whole.steps if start < end else [], [])
    steps = [Step(*piece) for piece in pairwise([start, *borders, end])]
    return Split(steps, [(begins[t], begins[t + 1]) for t in cuts if begins[t] in borders])


def _cuts(rollout: Rollout, pattern: StepPattern, tokens: range) -> Iterator[int]:
    """Yield the tokens that a step begins with."""

    def require(values: Sequence[float] | None, what: str) -> Sequence[float]:
        if values is None:
            raise PatternError(
                f"the step pattern of kind {pattern.kind!r} needs the {what} of a completion's tokens and they are not "
                "known; sample it in the workbench, or choose a kind that reads text"
            )
        return values

    number, count = pattern.numbers
    if pattern.kind == "tokens":
        yield from tokens[count::count]
    elif pattern.kind == "surprise":
        logprobs = require(rollout.logprobs, "log-probabilities")
        unlikely = [t for t in tokens if rollout.is_sampled(t) and math.exp(logprobs[t]) < number]
        yield from unlikely[::count]
    else:
        entropies, last = require(rollout.entropies, "entropies"), tokens.start
        for t in tokens:
            if rollout.is_sampled(t) and entropies[t] >= number and t - last >= count:
                yield t
                last = t
