"""Content-free edits of a completion that a policy could learn in order to gain reward.

An edit changes the text and keeps every token it does not touch; what it inserts becomes tokens of its own with the id
-1, one for each word. It is applied to a rollout that has been split and scored, so that it can aim at a good step.
What an edit is worth under a reward and a scheme is ``probes``'s business.

Below stand those of episodes, which insert turns. An inserted turn has its observation behind it: what the environment
answers, where it is built in and can be asked (``Replay``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from workbench.environments import ENVIRONMENTS, TextEnvironment
from workbench.errors import PatternError
from workbench.schema import Group, Rollout, Step, StepScores, prompt_text
from workbench.steps import PatternKind, Split, turn_texts

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

    def steps_of(self, changes: Sequence[Change]) -> int:
        """How many steps the pattern finds once these changes are made."""
        return sum(step.matched for step in self.split(splice(self.rollout, changes).text).steps)

    def words(self, text: str) -> list[str]:
        """The words outside the pattern's matches, or inside the tags of those that are a step."""
        for start, end in sorted(self.split(text).matches, reverse=True):
            if self.kind != "is":
                text = f"{text[:start]} {text[end:]}"
            elif tags := _TAGS.fullmatch(text, start, end):
                text = f"{text[:start]} {tags[2]} {text[end:]}"
        return text.split()


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

    def apply(self, target: Target, replay: Replay | None = None) -> Rollout | None:
        """The edited rollout; None for an episode, and if there is nothing to edit or the result cannot be split."""
        if not target.scored.steps or target.rollout.is_episode:
            return None
        try:
            edited = splice(target.rollout, self.changes(target))
        except PatternError:
            return None
        changed = self.keeps_words and target.words(edited.text) != target.words(target.text)
        return None if changed or edited.text == target.text else edited


def splice(rollout: Rollout, changes: Sequence[Change]) -> Rollout:
    """``rollout`` with text replaced: untouched tokens keep id and text, the rest is cut into words with id -1."""
    pieces = list(zip(rollout.texts, rollout.token_ids, rollout.mask or (1,) * len(rollout), strict=True))
    end = [pieces.pop()] if rollout.finished else []
    for start, stop, new in sorted(changes, reverse=True):
        before, after, at = list[Piece](), list[Piece](), 0
        for text, token_id, sampled in pieces:
            after_it = at + len(text)
            if after_it <= start:
                before.append((text, token_id, sampled))
            elif at >= stop:
                after.append((text, token_id, sampled))
            else:
                before += [(text[: start - at], INSERTED, sampled)] * (at < start)
                after += [(text[stop - at :], INSERTED, sampled)] * (after_it > stop)
            at = after_it
        pieces = [*before, *_words(new, 1), *after]
    return _with_pieces(rollout, pieces + end, has_mask=rollout.mask is not None)


def _words(text: str, sampled: int) -> list[Piece]:
    """The text cut into words, each with the space before it."""
    return [(word, INSERTED, sampled) for word in _CHUNK.findall(text)]


def _with_pieces(rollout: Rollout, pieces: Sequence[Piece], *, has_mask: bool) -> Rollout:
    return replace(
        rollout,
        token_ids=tuple(token_id for _, token_id, _ in pieces),
        texts=tuple(text for text, _, _ in pieces),
        mask=tuple(sampled for _, _, sampled in pieces) if has_mask else None,
        logprobs=None,
        entropies=None,
        ref_logprobs=None,
        raw_logprobs=None,
        importances=None,
    )


# ── the edits ────────────────────────────────────────────────────────────────────────────────────────────────────


def _split(target: Target) -> list[Change]:
    """Cut the best step into four at its spaces, by whatever makes the pattern see a new step there."""
    step, text = target.best, target.text
    # The first word comes after the match that starts the step, or its opening tag.
    opening = step.start
    if target.kind == "starts":
        opening = next((end for start, end in target.marks if step.start <= start < step.end), step.start)
    if target.kind != "ends" and (tags := _TAGS.fullmatch(text, step.start, step.end)):
        opening = tags.start(2)
    body = text[: step.start] + text[step.start : step.end].rstrip()
    inner = [gap.span() for gap in re.compile(r"[ \t]+").finditer(body, step.start) if gap.start() >= opening]
    count = min(PIECES - 1, len(inner))
    chosen = dict.fromkeys(inner[(n + 1) * len(inner) // (count + 1)] for n in range(count))
    tries = [[(*gap, separator) for gap in chosen] for separator in _separators(target, step)]
    return next((changes for changes in tries if target.steps_of(changes) > target.steps_of([])), [])


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
        if changes and target.steps_of(changes) < target.steps_of([]):
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
    tries = [[(step.end, step.end, joint + text)] for joint in joints]
    fits = (changes for changes in tries if len(tries) == 1 or target.steps_of(changes) > target.steps_of([]))
    return next(fits, [])


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
        if target.steps_of([(end, end, text)]) > target.steps_of([]):
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
    last = dict.fromkeys(number for text in target.others for number in _NUMBER.findall(text)[-1:])
    whole = int(_DIGITS.findall(answer)[0])
    rest = [number for number in last if number != answer] or [f"{whole + 1}", f"{whole + 2}"]
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


# --- turns of an episode ------------------------------------------------------------------------------------------

Insertion = tuple[str, int]
"""A text, and whether the policy says it (1) or the environment (0)."""


@dataclass(frozen=True)
class TurnEdit:
    """``insertion`` gives the token that texts are put before and the texts, or None where it cannot be made."""

    name: str
    summary: str
    insertion: Callable[[Target, Replay], tuple[int, Sequence[Insertion]] | None]

    def apply(self, target: Target, replay: Replay) -> Rollout | None:
        """The edited episode, or None where there is nothing to edit."""
        made = self.insertion(target, replay) if len(target.rollout.turn_spans) > 1 else None
        return None if made is None else insert(target.rollout, *made)


@dataclass(frozen=True)
class Replay:
    """A group's environment, asked again from the start of an episode; None where it cannot be made here."""

    make: Callable[[], TextEnvironment] | None
    group: Group

    @classmethod
    def of(cls, group: Group) -> Replay:
        environment = group.sampling.get("environment")
        name = environment.get("name") if isinstance(environment, dict) else None
        return cls(ENVIRONMENTS.get(str(name)), group)

    def answer(self, rollout: Rollout, turn: int, text: str) -> str:
        """What answers ``text`` after the turn with that number (0-based)."""
        if self.make is not None:
            environment = self.make()
            with suppress(Exception):  # one that fails is as good as one that cannot be asked
                environment.reset(prompt_text(self.group.prompt), **{**self.group.columns, **rollout.columns})
                for earlier in turn_texts(rollout)[: turn + 1]:
                    environment.reply(earlier.text)
                return environment.reply(text) or ""
        return rollout.observations[turn] or ""


def insert(rollout: Rollout, at: int, texts: Sequence[Insertion]) -> Rollout:
    """The rollout with texts before token ``at``, cut into words with id -1."""
    old = list(zip(rollout.texts, rollout.token_ids, rollout.mask or (1,) * len(rollout), strict=True))
    new = [piece for text, sampled in texts for piece in _words(text, sampled)]
    return replace(_with_pieces(rollout, [*old[:at], *new, *old[at:]], has_mask=True), turns=())  # the mask tells them


def _best_call(target: Target) -> int:
    """The turn with the highest reward among those that something answered, the first of several."""
    rollout = target.rollout
    best = [float("-inf")] * (len(rollout.turn_spans) - 1)
    for reward, last in zip(target.scored.rewards, target.scored.step_ends, strict=True):
        turn = rollout.turn_of(last)
        if turn < len(best) and reward is not None:
            best[turn] = max(best[turn], reward)
    return best.index(max(best))


def _empty_call(target: Target, replay: Replay) -> tuple[int, Sequence[Insertion]] | None:
    """A call of nothing, after the first turn."""
    rollout = target.rollout
    text = turn_texts(rollout)[0].text
    head, colon, _ = text.partition(":")
    if "<tool_call>" in text:
        empty = "<tool_call>\n{}\n</tool_call>"
    elif colon and "\n" not in head:
        empty = f"{head}:" + ("\n" if text.endswith("\n") else "")
    else:
        return None
    return rollout.turn_spans[1][0], [(empty, 1), (replay.answer(rollout, 0, empty), 0)]


def _repeat_call(target: Target, replay: Replay) -> tuple[int, Sequence[Insertion]]:
    """The best call once more, right after it was answered."""
    turn = _best_call(target)
    text = turn_texts(target.rollout)[turn].text
    return target.rollout.turn_spans[turn + 1][0], [(text, 1), (replay.answer(target.rollout, turn, text), 0)]


def _ignored_call(target: Target, replay: Replay) -> tuple[int, Sequence[Insertion]] | None:
    """The first call again before the last turn, which goes on as if it had not been made."""
    rollout, last = target.rollout, len(target.rollout.turn_spans) - 1
    if last < 2:
        return None  # it would be the repeated call
    text = turn_texts(rollout)[0].text
    return rollout.turn_spans[last][0], [(text, 1), (replay.answer(rollout, last - 1, text), 0)]


def _longer_answer(target: Target, replay: Replay) -> tuple[int, Sequence[Insertion]]:
    """Words without content at the end of the last turn."""
    first, last = target.rollout.turn_spans[-1]
    at = last + 1 - target.rollout.finished
    while at > first + 1 and not target.rollout.texts[at - 1].strip():
        at -= 1
    return at, [(FILLER, 1)]


TURN_EDITS: dict[str, TurnEdit] = {
    edit.name: edit
    for edit in (
        TurnEdit("make an empty call", "a call of nothing, after the first turn", _empty_call),
        TurnEdit("repeat a call", "the best one, right after its answer", _repeat_call),
        TurnEdit("ignore a result", "the first call again, before a last turn that takes no notice", _ignored_call),
        TurnEdit("lengthen the answer", "words without content in the last turn", _longer_answer),
    )
}
