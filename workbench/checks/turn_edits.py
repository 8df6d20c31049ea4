"""Edits of an episode that add turns or words without content: what a policy of several turns could learn to gain by.

An inserted turn has its observation behind it: what the environment answers, where it is built in and can be asked
again, else an observation that the episode has. As with ``edits``, every token that is not touched stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from workbench.checks.edits import FILLER, INSERTED, Target, words_of
from workbench.environments import ENVIRONMENTS, TextEnvironment
from workbench.schema import Group, Rollout
from workbench.schema.rollouts import prompt_text

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
        return None if made is None else inserted(target.rollout, *made)


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
                for earlier in range(turn + 1):
                    environment.reply(said(rollout, earlier))
                return environment.reply(text) or ""
        return rollout.observations[turn] or ""


def said(rollout: Rollout, turn: int) -> str:
    """The text of one of ``turn_spans``."""
    first, last = rollout.turn_spans[turn]
    return "".join(rollout.texts[first : last + 1])


def inserted(rollout: Rollout, at: int, texts: Sequence[Insertion]) -> Rollout:
    """The rollout with texts before token ``at``, cut into words with id -1."""
    mask = rollout.mask or (1,) * len(rollout)
    new = [(word, INSERTED, sampled) for text, sampled in texts for word in words_of(text)]
    old = list(zip(rollout.texts, rollout.token_ids, mask, strict=True))
    pieces = old[:at] + new + old[at:]
    return replace(
        rollout,
        token_ids=tuple(token_id for _, token_id, _ in pieces),
        texts=tuple(text for text, _, _ in pieces),
        mask=tuple(sampled for _, _, sampled in pieces),
        turns=(),  # the mask tells them
        logprobs=None,
        entropies=None,
        ref_logprobs=None,
        raw_logprobs=None,
    )


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
    text = said(rollout, 0)
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
    text = said(target.rollout, turn)
    return target.rollout.turn_spans[turn + 1][0], [(text, 1), (replay.answer(target.rollout, turn, text), 0)]


def _ignored_call(target: Target, replay: Replay) -> tuple[int, Sequence[Insertion]] | None:
    """The first call again before the last turn, which goes on as if it had not been made."""
    rollout, last = target.rollout, len(target.rollout.turn_spans) - 1
    if last < 2:
        return None  # it would be the repeated call
    text = said(rollout, 0)
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
