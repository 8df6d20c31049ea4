"""A completion's tokens → the character spans of its steps, for the kinds of pattern that read no text.

- ``surprise``, "p n": a step ends before the first and then before each n-th token whose probability is below p. SPO
  (arXiv 2505.23564): ``cutpoints`` in ``math_episode_generator_with_mc_advantages.py`` of
  https://github.com/AIFrameResearch/SPO, where p is 0.9 and n ``cutpoint_interval``, 5.
- ``entropy``, "h n": a step ends before a token whose distribution has an entropy of at least h nats, at least n tokens
  behind the last such end. As PRPO cuts (arXiv 2601.07182; ``entropy_segmentation`` in its reward managers,
  https://github.com/SchumiDing/srpocode), which takes an answer's highest entropies for h, n = 10.
- ``tokens``, "n": every n tokens.

Probabilities and entropies are those the policy sampled with. Nothing is looked for in text, so there is no time limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from workbench.errors import PatternError
from workbench.schema import Rollout, Step
from workbench.steps.pattern import StepPattern
from workbench.steps.split import MAX_STEPS, Split, unsplit


def split_by_tokens(rollout: Rollout, pattern: StepPattern, span: tuple[int, int] | None = None) -> Split:
    """The steps of a rollout's text, or of its characters ``span`` (start, end); all of it is in some step.

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
