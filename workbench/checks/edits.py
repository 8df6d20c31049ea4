"""Content-free edits of a completion that a policy could learn in order to gain reward.

An edit changes the text and keeps every token it does not touch; what it inserts becomes tokens of its own with the id
-1, one for each word. It is applied to a rollout that has been split and scored, so that it can aim at a good step.
What an edit is worth under a reward and a scheme is ``probes``'s business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from workbench.errors import PatternError
from workbench.schema import Rollout, Step, StepScores
from workbench.steps import PatternKind, Split

INSERTED = -1
"""The id of a token that no policy sampled."""
PIECES = 4
HEDGES = 3
"""Further answers that are named."""
FILLER = " Let us think about this carefully, step by step, so that we are sure." * 2
_CHUNK = re.compile(r"\s*\S+|\s+$")
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
_TAGS = re.compile(r"\s*(<[^<>/]+>)(.*)(</[^<>]+>)\s*", re.DOTALL)


@dataclass(frozen=True)
class Target:
    """A rollout to edit, with its scored steps, the kind of the pattern and the prompt text.

    ``split`` splits a text by the pattern, wherever that runs; ``others`` are the texts of the group.
    """

    rollout: Rollout
    scored: StepScores
    kind: PatternKind
    prompt: str
    split: Callable[[str], Split]
    others: Sequence[str] = ()

    @property
    def text(self) -> str:
        return self.rollout.text

    @property
    def best(self) -> Step:
        """The step with the highest reward, the first of several; an unscored step only where all are."""
        rewards = [float("-inf") if reward is None else reward for reward in self.scored.rewards]
        return self.scored.steps[rewards.index(max(rewards))]

    @cached_property
    def marks(self) -> list[tuple[int, int]]:
        """Spans of the pattern's matches."""
        return self.split(self.text).matches

    @cached_property
    def separators(self) -> bool:
        """Whether what the pattern matches only separates steps, so that taking it away takes no content.

        A separator recurs but for its number, and does not end in a word: "Step 2:" does not, "Let x be 3" does.
        """
        texts = [self.text[start:end] for start, end in self.marks]
        alike = {_DIGITS.sub("", text) for text in texts}
        ends = all(len(text) <= 40 and not (text[-1:].isascii() and text[-1:].isalnum()) for text in texts)
        return bool(texts) and ends and len(alike) <= (len(texts) + 1) // 2

    def steps_of(self, text: str) -> int:
        return sum(step.matched for step in self.split(text).steps)


Piece = tuple[str, int, int]
"""A token's text and id, and whether the policy sampled it."""
Change = tuple[int, int, str]
"""Characters ``start`` to ``end`` are replaced."""


@dataclass(frozen=True)
class Edit:
    """``changes`` gives what to replace where, or nothing where the edit cannot be made in this rollout."""

    name: str
    summary: str
    changes: Callable[[Target], Sequence[Change]]
    keeps_words: bool = False
    """Whether the words outside the pattern's matches must stay the same; else the edit cannot be made."""

    def apply(self, target: Target) -> Rollout | None:
        """The edited rollout, or None where there is nothing to edit (or the pattern cannot split the result)."""
        if not target.scored.steps:
            return None
        try:
            changes = self.changes(target)
        except PatternError:
            return None
        edited = spliced(target.rollout, changes)
        if edited.text == target.text or (self.keeps_words and not _same_words(target, edited.text)):
            return None
        return edited


def spliced(rollout: Rollout, changes: Sequence[Change]) -> Rollout:
    """``rollout`` with text replaced: untouched tokens keep id and text, the rest is cut into words with id -1."""
    mask = rollout.mask or (1,) * len(rollout)
    pieces = list(zip(rollout.texts, rollout.token_ids, mask, strict=True))
    end = [pieces.pop()] if rollout.finished else []
    for start, stop, new in sorted(changes, reverse=True):
        pieces = _replaced(pieces, start, stop, new)
    pieces += end
    return replace(
        rollout,
        token_ids=tuple(token_id for _, token_id, _ in pieces),
        texts=tuple(text for text, _, _ in pieces),
        mask=None if rollout.mask is None else tuple(sampled for _, _, sampled in pieces),
        logprobs=None,
        entropies=None,
        ref_logprobs=None,
        raw_logprobs=None,
    )


def _replaced(pieces: list[Piece], start: int, stop: int, new: str) -> list[Piece]:
    before: list[Piece] = []
    after: list[Piece] = []
    at = 0
    for text, token_id, sampled in pieces:
        end = at + len(text)
        if end <= start:
            before.append((text, token_id, sampled))
        elif at >= stop:
            after.append((text, token_id, sampled))
        else:
            if at < start:
                before.append((text[: start - at], INSERTED, sampled))
            if end > stop:
                after.append((text[stop - at :], INSERTED, sampled))
        at = end
    return before + [(word, INSERTED, 1) for word in words_of(new)] + after


def words_of(text: str) -> list[str]:
    """The text cut into words, each with the space before it."""
    return _CHUNK.findall(text)


def _same_words(target: Target, text: str) -> bool:
    return _words(target, target.text) == _words(target, text)


def _words(target: Target, text: str) -> list[str]:
    """The words outside the pattern's matches, or inside the tags of those that are a step."""
    for start, end in sorted(target.split(text).matches, reverse=True):
        if target.kind != "is":
            text = f"{text[:start]} {text[end:]}"
        elif tags := _TAGS.fullmatch(text, start, end):
            text = f"{text[:start]} {tags[2]} {text[end:]}"
    return text.split()


# ── the edits ────────────────────────────────────────────────────────────────────────────────────────────────────


def _split(target: Target) -> list[Change]:
    """Cut the best step into four at its spaces, by whatever makes the pattern see a new step there."""
    step = target.best
    body = target.text[step.start : step.end].rstrip()
    gaps = [blank.span() for blank in re.finditer(r"[ \t]+", body)]
    inner = [gap for gap in gaps if gap[0] >= _opening(target, step) - step.start]
    if not inner:
        return []
    count = min(PIECES - 1, len(inner))
    chosen = [inner[(n + 1) * len(inner) // (count + 1)] for n in range(count)]
    for separator in _separators(target, step):
        changes = [(step.start + a, step.start + b, separator) for a, b in dict.fromkeys(chosen)]
        if target.steps_of(spliced(target.rollout, changes).text) > target.steps_of(target.text):
            return changes
    return []


def _opening(target: Target, step: Step) -> int:
    """Offset of the first word of a step, after the match that starts it."""
    if target.kind == "ends":
        return step.start
    inside = [end for start, end in target.marks if step.start <= start < step.end]
    opening = inside[0] if inside and target.kind == "starts" else step.start
    tags = _TAGS.fullmatch(target.text[step.start : step.end])
    return step.start + tags.start(2) if tags else opening


def _separators(target: Target, step: Step) -> list[str]:
    """Candidate separators between two steps, the most natural first."""
    marks = [target.text[start:end] for start, end in target.marks] if target.separators else []
    if target.kind == "is":
        tags = _TAGS.fullmatch(target.text[step.start : step.end])
        return [f"{tags[3]}\n{tags[1]}"] if tags else []
    if target.kind == "ends":
        return [*dict.fromkeys(marks), "\n", "\n\n", "||"]
    return [separator for mark in dict.fromkeys(marks) for separator in (f"{mark} ", f"\n{mark} ", f"\n\n{mark} ")]


def _merge(target: Target) -> list[Change]:
    """Take away what separates the first two neighbouring steps."""
    for first, second in pairwise(target.scored.steps):
        if target.kind == "ends":
            cuts = [(start, end) for start, end in target.marks if first.start < end == first.end]
            changes = [(start, end, " ") for start, end in cuts]
        elif target.kind == "starts":
            cuts = [(start, end) for start, end in target.marks if start == second.start]
            changes = [(start, end, "") for start, end in cuts]
        else:
            close = target.text.rfind("</", first.start, first.end)
            opening = re.compile(r"\s*<[^<>]+>").match(target.text, second.start)
            ends = [(close, first.end, ""), (second.start, opening.end(), "")] if close >= 0 and opening else []
            changes = [change for change in ends if change[0] < change[1]]
        if target.kind != "is" and not target.separators:
            return []
        if changes and target.steps_of(spliced(target.rollout, changes).text) < target.steps_of(target.text):
            return changes
    return []


def _repeat(target: Target) -> list[Change]:
    """Repeat the best step."""
    step = target.best
    if not target.scored.matched:
        return []
    text = target.text[step.start : step.end]
    joints = ["" if text.endswith("\n") else "\n"]
    if target.kind == "ends":
        closed = any(end == step.end for _, end in target.marks)
        joints = [""] if closed else _separators(target, step)
    for joint in joints:
        changes = [(step.end, step.end, joint + text)]
        if len(joints) == 1 or target.steps_of(spliced(target.rollout, changes).text) > target.steps_of(target.text):
            return changes
    return []


def _pad(target: Target) -> list[Change]:
    """Words without content at the end of the best step."""
    at = _last_word(target, target.best)
    return [(at, at, FILLER)]


def _repeat_answer(target: Target) -> list[Change]:
    """Give the last step, usually the answer, once more."""
    if not target.scored.matched:
        return []
    step = target.scored.steps[-1]
    text = target.text[step.start : step.end]
    return [(step.end, step.end, text if text.startswith("\n") else "\n" + text)]


def _drop_separators(target: Target) -> list[Change]:
    """Take away everything that the pattern finds steps by."""
    if not target.scored.matched:
        return []
    if target.kind == "is":
        matches = [(start, _TAGS.fullmatch(target.text, start, end)) for start, end in target.marks]
        inside = [tags for _, tags in matches if tags]
        return [(tags.start(group), tags.end(group), " ") for tags in inside for group in (1, 3)]
    if not target.separators:
        return []
    return [(start, end, " " if target.kind == "ends" else "") for start, end in target.marks]


def _empty_step(target: Target) -> list[Change]:
    """A step with nothing in it (a full stop, where the pattern takes no blank step), at the end."""
    end = len(target.text)
    if target.kind != "is" and not target.separators:
        return []
    for separator in _separators(target, target.scored.steps[-1]):
        if target.kind == "ends":
            text = f".{separator}" if target.text.endswith(separator) else f"{separator}.{separator}"
        elif target.kind == "is":
            close, opening = separator.split("\n")
            text = f"\n{opening} {close}"
        else:
            text = separator.rstrip(" ")
        if target.steps_of(target.text + text) > target.steps_of(target.text):
            return [(end, end, text)]
    return []


def _copy_numbers(target: Target) -> list[Change]:
    """The prompt's numbers, at the end of the best step."""
    numbers = _NUMBER.findall(target.prompt)
    at = _last_word(target, target.best)
    return [(at, at, " " + " ".join(numbers))] if numbers else []


def _hedge(target: Target) -> list[Change]:
    """Other answers of the group behind the last number: "A or B or C"; the neighbours where all answer the same."""
    numbers = [match for match in _NUMBER.finditer(target.text) if match.start() >= target.scored.steps[-1].start]
    if not numbers:
        return []
    answer, at = numbers[-1][0], numbers[-1].end()
    last = (_NUMBER.findall(text)[-1:] for text in target.others)
    rest = [text for text in dict.fromkeys(text for texts in last for text in texts) if text != answer]
    if not rest:
        whole = int(_DIGITS.findall(answer)[0])
        rest = [f"{whole + 1}", f"{whole + 2}"]
    return [(at, at, "".join(f" or {text}" for text in rest[:HEDGES]))]


def _last_word(target: Target, step: Step) -> int:
    """Behind a step's last word, inside its closing tag and before its separator."""
    text = target.text[step.start : step.end]
    if target.kind == "is" and (tags := _TAGS.fullmatch(text)):
        return step.start + tags.end(2)
    if target.kind == "ends":
        cut = [start for start, end in target.marks if end == step.end and start >= step.start]
        text = target.text[step.start : cut[0]] if cut else text
    return step.start + len(text.rstrip())


EDITS: dict[str, Edit] = {
    edit.name: edit
    for edit in (
        Edit("split a step", f"the best step in {PIECES}, without another word", _split, keeps_words=True),
        Edit("merge two steps", "the first two, by taking away what separates them", _merge, keeps_words=True),
        Edit("repeat a step", "the best one, word for word", _repeat),
        Edit("pad with filler", "words without content in the best step", _pad),
        Edit("repeat the answer", "the last step, once more", _repeat_answer),
        Edit(
            "drop the separators",
            "the text as it is, without what steps are found by",
            _drop_separators,
            keeps_words=True,
        ),
        Edit("append an empty step", "a step without content at the end", _empty_step),
        Edit("copy the prompt's numbers", "into the best step", _copy_numbers),
        Edit("hedge the answer", "other answers of the group beside it: A or B or C", _hedge),
    )
}
