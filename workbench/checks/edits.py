"""Content-free edits of a completion that a policy could learn in order to gain reward.

An edit changes the text and keeps every token it does not touch; what it inserts becomes tokens of its own with the id
-1, one for each word. It is applied to a rollout that has been split and scored, so that it can aim at a good step.
What an edit is worth under a reward and a scheme is ``probes``'s business.

Those of episodes insert turns, or leave some out. An inserted turn has its observation behind it: what the environment
answers, where it is built in and can be asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from workbench.errors import PatternError
from workbench.rewards.environments import ENVIRONMENTS
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
    """A rollout of a group to edit, with its scored steps and the kind of the pattern.

    ``split`` splits a text by the pattern, wherever that runs.
    """

    group: Group
    rollout: Rollout
    scored: StepScores
    kind: PatternKind
    split: Callable[[str], Split]

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
        """Return whether what the pattern matches only separates steps, so that taking it away takes no content.

        A separator recurs but for its number, and does not end in a word: "Step 2:" does not, "Let x be 3" does.
        """
        texts = [self.text[start:end] for start, end in self.marks]
        alike = {_DIGITS.sub("", text) for text in texts}
        ends = all(len(text) <= 40 and not (text[-1:].isascii() and text[-1:].isalnum()) for text in texts)
        return bool(texts) and ends and len(alike) <= (len(texts) + 1) // 2

    def steps_of(self, changes: Sequence[Change]) -> int:
        """Return how many steps the pattern finds once these changes are made."""
        return sum(step.matched for step in self.split(splice(self.rollout, changes).text).steps)

    def answer(self, turn: int, text: str) -> str:
        """Return the reply to ``text`` after turn ``turn`` (0-based).

        It is the environment's, asked again from the start of the episode, or where that cannot be made here, what
        answered that turn.
        """
        environment = self.group.sampling.get("environment")
        name = str(environment.get("name")) if isinstance(environment, dict) else ""
        if name in ENVIRONMENTS:
            asked = ENVIRONMENTS[name]()
            with suppress(Exception):  # one that fails is as good as one that cannot be asked
                asked.reset(prompt_text(self.group.prompt), **{**self.group.columns, **self.rollout.columns})
                for earlier in turn_texts(self.rollout)[: turn + 1]:
                    asked.reply(earlier.text)
                return asked.reply(text) or ""
        return self.rollout.observations[turn] or ""

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


class Change(NamedTuple):
    """Characters ``start`` to ``end`` are replaced by what the policy, or with ``sampled`` 0 an environment, writes."""

    start: int
    end: int
    text: str
    sampled: int = 1


@dataclass(frozen=True)
class Edit:
    """``changes`` gives what to replace where, or nothing where the edit cannot be made in this rollout.

    Where the edit ``keeps_words``, those outside the pattern's matches must stay the same, or it cannot be made.
    """

    name: str
    summary: str
    changes: Callable[[Target], Sequence[Change]]
    keeps_words: bool = False
    of_turns: bool = False

    def apply(self, target: Target) -> Rollout | None:
        """The edited rollout; None if there is nothing to edit or the result cannot be split.

        Edits of turns are for episodes of several, the others for answers that are no episodes.
        """
        rollout = target.rollout
        fits = len(rollout.turn_spans) > 1 if self.of_turns else not rollout.is_episode
        if not (fits and target.scored.steps):
            return None
        try:
            edited = splice(rollout, self.changes(target))
        except PatternError:
            return None
        changed = self.keeps_words and target.words(edited.text) != target.words(target.text)
        return None if changed or edited.text == target.text else edited


def splice(rollout: Rollout, changes: Sequence[Change]) -> Rollout:
    """``rollout`` with text replaced: untouched tokens keep id and text, the rest is cut into words with id -1."""
    pieces = list(zip(rollout.texts, rollout.token_ids, rollout.mask or (1,) * len(rollout), strict=True))
    end = [pieces.pop()] if rollout.finished else []
    for start, stop, new, by_policy in sorted(changes, key=lambda change: change[:2])[::-1]:
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
        pieces = [*before, *((word, INSERTED, by_policy) for word in _CHUNK.findall(new)), *after]
    pieces += end
    return replace(
        rollout,
        token_ids=tuple(token_id for _, token_id, _ in pieces),
        texts=tuple(text for text, _, _ in pieces),
        mask=None if rollout.mask is None and not rollout.turns else tuple(sampled for _, _, sampled in pieces),
        logprobs=None,
        entropies=None,
        ref_logprobs=None,
        raw_logprobs=None,
        importances=None,
        turns=(),  # the mask tells them
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
    tries = [[Change(*gap, separator) for gap in chosen] for separator in _separators(target, step)]
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
    tries = [[Change(step.end, step.end, joint + text)] for joint in joints]
    fits = (changes for changes in tries if len(tries) == 1 or target.steps_of(changes) > target.steps_of([]))
    return next(fits, [])


def _merge(target: Target) -> list[Change]:
    """Take away what separates the first two neighbouring steps."""
    if target.kind != "is" and not target.separators:
        return []
    for first, second in pairwise(target.scored.steps):
        if target.kind == "ends":
            changes = [Change(start, end, " ") for start, end in target.marks if first.start < end == first.end]
        elif target.kind == "starts":
            changes = [Change(start, end, "") for start, end in target.marks if start == second.start]
        else:
            close = target.text.rfind("</", first.start, first.end)
            opening = re.compile(r"\s*<[^<>]+>").match(target.text, second.start)
            if close < 0 or opening is None:
                continue
            changes = [Change(close, first.end, ""), Change(second.start, opening.end(), "")]
        if changes and target.steps_of(changes) < target.steps_of([]):
            return changes
    return []


def _pad(target: Target) -> list[Change]:
    """Words without content at the end of the best step."""
    at = _find_last_word(target)
    return [Change(at, at, FILLER)]


def _repeat_answer(target: Target) -> list[Change]:
    """Give the last step, usually the answer, once more."""
    if not target.scored.matched:
        return []
    step = target.scored.steps[-1]
    text = target.text[step.start : step.end]
    return [Change(step.end, step.end, text if text.startswith("\n") else f"\n{text}")]


def _copy_numbers(target: Target) -> list[Change]:
    """The prompt's numbers, at the end of the best step."""
    numbers, at = _NUMBER.findall(prompt_text(target.group.prompt)), _find_last_word(target)
    return [Change(at, at, " ".join(["", *numbers]))] if numbers else []


def _find_last_word(target: Target) -> int:
    """Return the place behind the best step's last word, inside its closing tag and before its separator."""
    step = target.best
    if target.kind == "is" and (tags := _TAGS.fullmatch(target.text, step.start, step.end)):
        return tags.end(2)
    cut = [start for start, end in target.marks if end == step.end and start >= step.start]
    end = cut[0] if cut and target.kind == "ends" else step.end
    return step.start + len(target.text[step.start : end].rstrip())


def _drop_separators(target: Target) -> list[Change]:
    """Take away everything that the pattern finds steps by."""
    if not target.scored.matched:
        return []
    if target.kind == "is":
        inside = [tags for span in target.marks if (tags := _TAGS.fullmatch(target.text, *span))]
        return [Change(*tags.span(group), " ") for tags in inside for group in (1, 3)]
    if not target.separators:
        return []
    return [Change(start, end, " " if target.kind == "ends" else "") for start, end in target.marks]


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
        if target.steps_of([Change(end, end, text)]) > target.steps_of([]):
            return [Change(end, end, text)]
    return []


def _hedge(target: Target) -> list[Change]:
    """Other answers of the group behind the last number: "A or B or C"; the neighbours where all answer the same."""
    numbers = [match for match in _NUMBER.finditer(target.text) if match.start() >= target.scored.steps[-1].start]
    if not numbers:
        return []
    answer, at = numbers[-1][0], numbers[-1].end()
    last = dict.fromkeys(number for one in target.group.rollouts for number in _NUMBER.findall(one.text)[-1:])
    whole = int(_DIGITS.findall(answer)[0])
    rest = [number for number in last if number != answer] or [f"{whole + 1}", f"{whole + 2}"]
    return [Change(at, at, "".join(f" or {text}" for text in rest[:HEDGES]))]


# ── turns of an episode ──────────────────────────────────────────────────────────────────────────────────────────────


def _turn(target: Target, after: int, text: str) -> list[Change]:
    """Insert a turn that says ``text``, and what answers it, before the turn that follows ``after``."""
    token, _ = target.rollout.turn_spans[after + 1]
    at = sum(map(len, target.rollout.texts[:token]))
    return [Change(at, at, text), Change(at, at, target.answer(after, text), 0)]


def _empty_call(target: Target) -> list[Change]:
    """A call of nothing, after the first turn."""
    text = turn_texts(target.rollout)[0].text
    head, colon, _ = text.partition(":")
    if "<tool_call>" in text:
        return _turn(target, 0, "<tool_call>\n{}\n</tool_call>")
    if colon and "\n" not in head:
        return _turn(target, 0, f"{head}:" + ("\n" if text.endswith("\n") else ""))
    return []


def _repeat_call(target: Target) -> list[Change]:
    """Among the turns that something answered the best one once more, right after its answer."""
    rollout = target.rollout
    best = [float("-inf")] * (len(rollout.turn_spans) - 1)
    for reward, last in zip(target.scored.rewards, target.scored.step_ends, strict=True):
        turn = rollout.turn_of(last)
        if turn < len(best) and reward is not None:
            best[turn] = max(best[turn], reward)
    turn = best.index(max(best))
    return _turn(target, turn, turn_texts(rollout)[turn].text)


def _ignored_call(target: Target) -> list[Change]:
    """The first call again before the last turn, which goes on as if it had not been made."""
    last = len(target.rollout.turn_spans) - 1
    if last < 2:
        return []  # it would be the repeated call
    return _turn(target, last - 1, turn_texts(target.rollout)[0].text)


def _longer_answer(target: Target) -> list[Change]:
    """Words without content at the end of the last turn."""
    at = len(target.text.rstrip())
    return [Change(at, at, FILLER)]


def _skip_calls(target: Target) -> list[Change]:
    """The last turn alone: the answer, with nothing called for it."""
    token, _ = target.rollout.turn_spans[-1]
    return [Change(0, sum(map(len, target.rollout.texts[:token])), "")]


def _end_early(target: Target) -> list[Change]:
    """The first turn alone: what it asks for is not waited for."""
    _, token = target.rollout.turn_spans[0]
    return [Change(sum(map(len, target.rollout.texts[: token + 1])), len(target.text), "")]


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


TURN_EDITS: dict[str, Edit] = {
    edit.name: edit
    for edit in (
        Edit("make an empty call", "a call of nothing, after the first turn", _empty_call, of_turns=True),
        Edit("repeat a call", "the best one, right after its answer", _repeat_call, of_turns=True),
        Edit(
            "ignore a result",
            "the first call again, before a last turn that takes no notice",
            _ignored_call,
            of_turns=True,
        ),
        Edit("lengthen the answer", "words without content in the last turn", _longer_answer, of_turns=True),
        Edit("skip the calls", "the last turn alone: an answer with nothing called for it", _skip_calls, of_turns=True),
        Edit("end early", "the first turn alone: what it asks for is not waited for", _end_early, of_turns=True),
    )
}
