"""The sentences that page, notebook, command line and exported drawings begin with: numbers in, plain English out.

A sentence is said where the numbers bear it out, and otherwise not at all. Rollouts and steps are counted from 0 in
arguments and from 1 in what is said. "Right" and "wrong" are said only where a reward judges correctness
(``ScoredGroup.judge``, one of ``JUDGES``); of any other reward an answer "scores high" or "low". Training "pushes" a
token and does not "make it more likely": answers that begin alike push what they have in common together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from statistics import fmean
from typing import Any

import numpy as np

from workbench.schema import JUDGES, Credit, Group, say_count, two_places
from workbench.views.wording import (
    NAMED,
    SAME,
    Sentence,
    drop_none,
    is_same,
    join_words,
    names,
    number,
    percent,
    quantity,
    sentence,
    signed,
    value_range,
)

MIXED = 0.1
"""An answer is pushed "on balance" where more than this share of its advantages goes the other way."""
CARRIES = 0.6
"""One answer with more than this share of all advantages "carries" its group."""
BLAMED = 0.1
"""Right steps that are pushed down are said where they are more than this share of the right steps."""
STILL = 0.1
"""Tokens with advantage 0 are said where they are more than this share."""
HIGH = 0.25
"""Without a judge, an answer scores high in the upper, low in the lower quarter of the group's range."""
LONGEST = 36
"""Words in a sentence of two surprises; where it would be longer the larger one stands alone."""
TROUBLED, LOOPS = 0.5, 0.5
"""Answers that are empty, loop or never end are said from this share of a group on; an answer loops where more than
this share of its runs of four words was there before."""
WORTH_NAMING = 3
"""Errors in steps of one number; fewer may well be chance."""
AS_LOGGED = 0.01
"""Advantages that a file logged are "these" where they differ by no more; logs are rounded."""

_ZERO = 1e-6


# A group: how it did, what is surprising, what training would do with it


def about_group(credit: Credit, *, uncounted: bool = True) -> list[Sentence]:
    """At most three lines on a credited group: how it did and what is surprising; what training would do with it; how
    many answers and steps it would push against their verdict, as far as the first has not said so.

    ``uncounted``: also that the final answer is not counted, which ``group_facts`` say, too.
    """
    group = _Group.of(credit)
    if not any(abs(a) > _ZERO for row in group.tokens for a in row):
        lines = [[_count(group)], [_nothing(group)]]
    else:
        headline = _surprise(group)
        lines = [[_count(group), headline], [_push(group)], [_wronged(credit, headline)]]
        if uncounted and credit.scored.outcomes and credit.parts and not group.has_outcome:
            lines[1].append("the final answer is shown, not counted.")
    return [sentence(*line) for line in lines if any(line)]


def about_wronged(credit: Credit) -> Sentence:
    """Count the right answers and steps that a credit pushes down, and the wrong ones up, of how many; empty for none.

    Links name them all: ``rollout:3,7``, ``step:3.2,7.1``.
    """
    return sentence(_wronged(credit))


def _wronged(credit: Credit, already: str = "") -> str:
    judge = credit.scored.judge("outcome")
    called = {True: "right answers", False: "wrong answers"}
    if judge not in JUDGES:
        called = {True: f"answers that `{judge}` scores above 0", False: f"answers that `{judge}` scores 0 or less"}
    judged, ways = credit.judged(credit.scored.answer_verdicts), list[str]()
    for right, way in ((True, "down"), (False, "up")):
        counts = []
        for step, noun in ((False, called[right]), (True, f"{'right' if right else 'wrong'} steps")):
            of = [one for one in judged if one.right is right and (one.step is not None) is step]
            ids = [
                f"{one.rollout + 1}" + (f".{one.step + 1}" if one.step is not None else "")
                for one in of
                if one.is_wronged
            ]
            if ids and f"{len(ids)} of {len(of)} {noun}" not in str(Sentence(already)):
                counts.append(f"[{len(ids)} of {len(of)}]({'step' if step else 'rollout'}:{','.join(ids)}) {noun}")
        ways += [f"{way} {join_words(counts)}"] if counts else []
    return f"`{credit.scheme}` pushes {', and '.join(ways)}." if ways else ""


@dataclass(frozen=True)
class _Group:
    """The numbers of a group that sentences are made of; of an answer that the loss does not count there are none.

    ``everyone`` are the counted answers; ``at[i][k]`` is the advantage of step k's last token.
    """

    credit: Credit
    everyone: Sequence[int]
    pushes: Sequence[float]
    step_pushes: Sequence[Sequence[float]]
    tokens: Sequence[Sequence[float]]  # of the sampled tokens alone
    at: Sequence[Sequence[float]]
    outcomes: Sequence[float | None]
    steps: Sequence[Sequence[float | None]]
    right: Sequence[bool | None] | None
    step_right: Sequence[Sequence[bool | None]] | None
    has_steps: bool
    has_outcome: bool

    @classmethod
    def of(cls, credit: Credit) -> _Group:
        scored, rollouts, kept = credit.scored, credit.scored.group.rollouts, credit.is_counted
        rows = [credit.of(i).tolist() if is_counted else [] for i, is_counted in enumerate(kept)]

        def in_loss(values: Sequence[Any], otherwise: Any) -> list[Any]:
            return [value if is_counted else otherwise for value, is_counted in zip(values, kept, strict=True)]

        return cls(
            credit=credit,
            everyone=[i for i, is_counted in enumerate(kept) if is_counted],
            pushes=credit.pushes[0],
            step_pushes=credit.pushes[1],
            tokens=[list(compress(row, r.mask or repeat(1))) for r, row in zip(rollouts, rows, strict=True)],
            at=[[row[last] for _, last in s.spans] if row else [] for s, row in zip(scored.scored, rows, strict=True)],
            outcomes=in_loss(scored.outcomes or [None] * len(kept), None),
            steps=in_loss(scored.step_rewards, []),
            right=scored.answers_right and in_loss(scored.answers_right, None),
            step_right=scored.steps_right and in_loss(scored.steps_right, []),
            has_steps=any(p.kind == "step" for p in credit.parts),
            has_outcome=any(p.kind in ("outcome", "return", "token", "delta") for p in credit.parts),
        )

    @property
    def decided_by(self) -> str:
        """ "`length` decides alone", of answers that are all right or all wrong and trained on nevertheless; or ""."""
        names = [f"`{name}`" for name in self.credit.deciding()]
        return f"{join_words(names)} decide{'s' * (len(names) == 1)} alone" if names else ""

    def on_balance(self, ids: Sequence[int]) -> str:
        """Said of answers whose tokens go both ways."""
        mixed = any(
            sum(abs(a) for a in self.tokens[i] if a * self.pushes[i] < 0) > MIXED * sum(map(abs, self.tokens[i]))
            for i in ids
        )
        return " on balance" if mixed else ""

    def steps_that(self, *, right: bool, of: int) -> list[int]:
        """The steps of an answer that are right, or wrong."""
        return [k for k, known in enumerate(self.step_right[of]) if known is right] if self.step_right else []

    def is_cause(self, i: int, steps: Sequence[int] | None, of: int | None = None) -> bool:
        """Return whether the rewards of ``steps``, or for None the answer's own, are at least half of what answer i (or
        its step ``of``) is pushed by. Of what a scheme makes of rewards, a return say, none alone is the cause.
        """
        scored, pushed = self.credit.scored.scored[i], self.credit.of(i).astype(np.float64)
        kind, rewards = ("outcome", (scored.outcome,)) if steps is None else ("step", scored.rewards)
        part = next((part for part in self.credit.parts if (part.kind, part.unit) == (kind, "step")), None)
        raw = np.zeros(0) if part is None else part.raw[part.offsets[i] : part.offsets[i + 1]]
        if part is None or not (np.isnan(raw) | (raw == np.array(rewards, dtype=np.float64))).all():
            return False
        only = (0,) if steps is None else steps
        paid = part.laid_out(i, self.credit.spans(part, i), len(pushed), only)
        at = pushed.nonzero()[0] if of is None else scored.spans[of][1]
        return float(2 * paid[at].sum() * np.sign(pushed[at].sum())) >= abs(float(pushed[at].sum()))

    def against(self, down: bool) -> list[int]:
        """Answers that are right, or else score high among the group's that differ, and are pushed down; or the other
        way round."""
        known, well = drop_none([self.outcomes]), self.right
        if not well and not is_same(known):
            low, high, mean = min(known), max(known), fmean(known)
            least, most = min(low + HIGH * (high - low), mean), max(high - HIGH * (high - low), mean)
            well = [None if s is None or least < s < most else s >= most for s in self.outcomes]
        return [i for i, is_well in enumerate(well or ()) if is_well is down and self.pushes[i] * (-1) ** down > 0]


def _count(group: _Group) -> str:
    known: list[float] = drop_none([group.outcomes if group.right is None else group.right])
    lost, outside = len(group.everyone) - len(known), len(group.tokens) - len(group.everyone)
    if not known:
        return "no answer could be scored." if lost and (group.outcomes or group.right) else ""
    rest = f"; {lost} could not be scored" if lost else ""
    if outside:
        rest += f"; {outside} {'is' if outside == 1 else 'are'} left out of the loss"
    if group.right is not None:
        share = f"all {len(known)}" if all(known) and not lost else f"{sum(map(bool, known))} of {len(known)}"
        if decided := group.decided_by:
            options = group.credit.options
            full = " at full size" if options.get("scale", True) and options.get("normalise") != "none" else ""
            rest += f", yet training would push{full}: {decided}"
            share = share if any(known) else "no answer is"
        return f"[{share}](filter:right){' scored answers' if lost else ''} right{rest}."
    if not is_same(known):
        return f"answers score {value_range(known)}, {quantity(fmean(known))} on average{rest}."
    steps, right = drop_none(group.steps), drop_none(group.step_right or ())
    of_steps = f"; [{right.count(True)} of {len(right)}](steps:wrong) steps are right"
    if steps and not right:
        of_steps = f"; their steps score {value_range(steps)}"
    return f"all {len(known)} answers score {value_range(known)}{'' if is_same(steps) else of_steps}{rest}."


def _nothing(group: _Group) -> str:
    """Say why no token is pushed."""
    answers, steps = set(drop_none([group.outcomes])), set(drop_none(group.steps))
    verdicts, gated, total = drop_none([group.right or ()]), group.credit.gate_reason, len(group.tokens)
    cut = sum(rollout.truncated for rollout in group.credit.scored.group.rollouts)
    reasons = (
        (not group.everyone, "every answer is cut off, and the loss leaves such out."),
        (gated, f"the group is gated, since {gated}."),
        (not answers and not steps, "nothing is scored."),
        (
            len(answers) > 1 and not group.has_outcome,
            "every step scores the same; `outcome` would compare the answers.",
        ),
        (
            len(steps) > 1 and not group.has_steps,
            "no two answers score differently; `process` would compare the steps.",
        ),
        (2 * cut > total, f"{cut} of {total} answers were cut off; allow more tokens."),
        (verdicts, f"no score differs; is the problem too {'easy' if any(verdicts) else 'hard'}?"),
        (True, "no score differs."),
    )
    why = next(said for holds, said in reasons if holds)
    return f"`{group.credit.scheme}` learns nothing here: {why}"


def _surprise(group: _Group) -> str:
    weights = [sum(map(abs, row)) for row in group.tokens]
    heavy = max(range(len(weights)), key=weights.__getitem__)
    by_one = f"{names('rollout', [heavy])} alone gets {percent(weights[heavy] / sum(weights))} of the push"
    found = [
        *[by_one] * (len(group.everyone) > 2 and weights[heavy] > CARRIES * sum(weights)),
        *(everything := _everything_up(group)),
        *_against_their_answer(group, down=True),
        *([] if everything else _against_their_answer(group, down=False)),
        *_wrong_steps_up(group),
        *_right_steps_down(group),
    ]
    both = "; ".join(found[:2])
    return f"{both if len(both.split()) <= LONGEST else found[0]}." if found else ""


def _everything_up(group: _Group) -> list[str]:
    wrong = [i for i in group.everyone if group.right and group.right[i] is False]
    if not wrong or any(group.pushes[i] <= 0 for i in group.everyone):
        return []
    way = f"all {len(group.everyone)} answers up{group.on_balance(group.everyone)}"
    return [f"`{group.credit.scheme}` pushes {way}, the {number(len(wrong))} wrong one{'s' * (len(wrong) > 1)} too"]


def _against_their_answer(group: _Group, down: bool) -> list[str]:
    """Right (or high) answers that are pushed down, wrong (or low) ones that are pushed up, with a cause that holds."""
    ids = group.against(down)
    if not ids or group.decided_by:
        return []
    one = len(ids) == 1
    if group.right is not None:
        state = f"{'is' if one else 'are'} {'right' if down else 'wrong'}"
    else:
        state = f"score{'s' * one} {'high' if down else 'low'}"
    way = f"{'down' if down else 'up'}{group.on_balance(ids)}"
    pushes = f"`{group.credit.scheme}` pushes {'it' if one else 'them'} {way}"
    return [f"{names('rollout', ids)} {state}, but {_cause(group, ids, down) or pushes}".replace("…", pushes)]


def _cause(group: _Group, ids: Sequence[int], down: bool) -> str:
    """Say why answers go the other way, "…" for "the scheme pushes them"; "" where the advantages do not show it."""
    one, wrong = len(ids) == 1, [group.steps_that(right=False, of=i) for i in ids]
    if (
        one
        and not down
        and len(wrong[0]) == 1
        and all((a < 0) == (k in wrong[0]) for k, a in enumerate(group.at[ids[0]]))
    ):
        return f"only its wrong {names('step', wrong[0], ids[0])} goes down, the rest up"
    causes = wrong if down else [group.steps_that(right=True, of=i) for i in ids]
    if not all(steps and group.is_cause(i, steps) for i, steps in zip(ids, causes, strict=True)):
        return ""
    if down:
        its = f"{number(len(wrong[0]))} of its steps {'is' if len(wrong[0]) == 1 else 'are'} wrong"
        return f"{its if one else 'each has a wrong step'}, so …"
    mostly = all(2 * len(steps) > len(group.at[i]) for i, steps in zip(ids, causes, strict=True))
    return f"most of {'its' if one else 'their'} steps are right, so …" if mostly else ""


def _wrong_steps_up(group: _Group) -> list[str]:
    wrong = [(i, k) for i in group.everyone for k in group.steps_that(right=False, of=i)]
    praised = [(i, k) for i, k in wrong if group.step_pushes[i][k] > 0]
    if not praised:
        return []
    ids = sorted({i for i, _ in praised})
    if len(praised) == 1:
        which = f"{names('step', [praised[0][1]], ids[0])} of {names('rollout', ids)} is wrong, but goes up"
    else:
        which = f"{number(len(praised))} wrong steps of {names('rollout', ids)} go up"
    with_answer = group.right and all(group.right[i] and group.is_cause(i, None, of=k) for i, k in praised)
    whose = f" with {'its' if len(praised) == 1 else 'their'} right answer{'s' * (len(ids) > 1)}"
    return [which + (whose if with_answer else "")]


def _right_steps_down(group: _Group) -> list[str]:
    right = [(i, k) for i in group.everyone for k in group.steps_that(right=True, of=i)]
    blamed = [(i, k) for i, k in right if group.step_pushes[i][k] < 0]
    if len(blamed) <= BLAMED * len(right):
        return []
    why = ""
    if all(
        group.is_cause(i, [later for later in group.steps_that(right=False, of=i) if later > k], of=k)
        for i, k in blamed
    ):
        why = ", as a later step is wrong"
    elif group.right and all(group.right[i] is False and group.is_cause(i, None, of=k) for i, k in blamed):
        why = " with their wrong answers"
    ids = ",".join(f"{i + 1}.{k + 1}" for i, k in blamed)
    return [f"[{len(blamed)} of {len(right)}](step:{ids}) right steps go down{why}"]


def _push(group: _Group) -> str:
    """Say what training would do: the share of tokens each way, and where it is strongest."""
    values = [a for row in group.tokens for a in row]
    whole = all(is_same(row) for row in group.tokens)
    said: list[str] = []
    for sign, word in ((1, "up"), (-1, "down")):
        pushed = [i for i in group.everyone if group.pushes[i] * sign > 0]
        sizes = [a * sign for i in (pushed if whole else group.everyone) for a in group.tokens[i] if a * sign > _ZERO]
        if not sizes:
            continue
        most = max(sizes)
        largest, least = signed(most * sign), signed(min(sizes) * sign)
        top = [(i, k) for i, row in enumerate(group.at) for k, a in enumerate(row) if a * sign > most - SAME]
        ids, steps = sorted({i for i, _ in top}), sorted({k for _, k in top})
        strongest = f" (by up to {largest})"
        if whole or largest == least:
            strongest = f" ({least} to {largest})" if largest != least else f" ({largest} each)"
        elif top and len(ids) <= NAMED and (len(steps) == 1 or len(ids) == 1):
            strongest = f", most of all {names('step', steps, ids[0])} of {names('rollout', ids)} ({largest})"
        who = names("rollout", pushed)
        if not whole:
            who = percent(len(sizes) / len(values)) + " of the tokens" * (not said)
        said.append(f"{who} {word}{strongest}")
    still = sum(abs(a) <= _ZERO for a in values) / len(values)
    if still > STILL and not whole:
        said.append(f"{percent(still)} not at all")
    return f"training would push {join_words(said)}."


# What is drawn first: the order of the answers, what a card says of each, and where a reader is taken


@dataclass(frozen=True)
class Surprises:
    """``order``: rollouts, those whose push goes against their own answer first. ``remarks[i]``: that, in words, or "".

    ``opens`` is the (rollout, step) to look at first: the strongest of what surprises, else the strongest of all. None
    where no step has an advantage.
    """

    order: list[int]
    remarks: list[str]
    opens: tuple[int, int] | None


def find_surprises(credit: Credit) -> Surprises:
    group = _Group.of(credit)
    everyone = range(len(group.tokens))
    down, up = group.against(True), group.against(False)
    remarks = ["yet pushed down" if i in down else "yet pushed up" if i in up else "" for i in everyone]
    steps = [(i, k, group.at[i][k]) for i in everyone for k in range(len(group.at[i]))]
    against = {(one.rollout, one.step) for one in credit.judged() if one.is_wronged}
    candidates = [
        [step for step in steps if step[0] in (down or up)[:1] and step[2] * group.pushes[step[0]] > _ZERO],
        [step for step in steps if step[:2] in against and step[2]],
        [step for step in steps if step[2]],
    ]
    strongest = next((max(found, key=lambda step: abs(step[2])) for found in candidates if found), None)
    return Surprises(
        [*down, *up, *(i for i in everyone if not remarks[i])], remarks, strongest[:2] if strongest else None
    )


@dataclass(frozen=True)
class Fact:
    """A fact about a group: what it is, a detail, and what a page can do about it (``action``, called ``label``)."""

    said: Sentence
    detail: Sentence
    action: str = ""
    label: str = ""


def group_facts(credit: Credit, flipped: tuple[str, float] | None = None, *, compared: bool = False) -> list[Fact]:
    """Facts on a group, each with what can be done about it: that it trains although no answer is right, or is gated;
    what is the matter with its answers, if anything, its steps, a final answer that may count or not, and signs that
    another scheme turns.

    ``flipped`` is that scheme and the share of tokens; ``compared`` says that it is drawn beside the first.
    """
    group = _Group.of(credit)
    facts = [*_facts_of_trouble(credit.scored.group), _fact_of_steps(credit, group)]
    if credit.gate_reason:
        gated = Sentence("**Gated**: it trains nothing")
        facts.insert(0, Fact(gated, Sentence(credit.gate_reason), "ungate", "Train on it"))
    elif (decided := group.decided_by) and not any(drop_none([group.right or ()])):
        phantom = Sentence("**No answer is right**, yet it trains")
        facts.insert(0, Fact(phantom, Sentence(decided), "gate", "Gate by the outcome"))
    if weight := credit.options.get("outcome_weight"):
        facts.append(
            Fact(Sentence(f"Final answer counted **× {weight:g}**"), Sentence(""), "leave-out", "Leave it out")
        )
    elif not group.has_outcome and any(r.weight for r in credit.scored.rewards if r.kind == "outcome"):
        facts.append(
            Fact(
                Sentence("Final answer **not counted**"),
                Sentence("except as a step"),
                "count",
                "Count it too",
            )
        )
    if flipped is not None:
        action = ("uncompare", "Stop comparing") if compared else ("compare", "Compare")
        said = f"**{percent(flipped[1])}** of tokens change sign"
        facts.append(Fact(Sentence(said), Sentence(f"under `{flipped[0]}`"), *action))
    return facts


def _facts_of_trouble(group: Group) -> list[Fact]:
    """Answers that are empty, loop or never end, each with the setting of sampling that may help."""
    rollouts, how = group.rollouts, group.sampling
    looping = [i for i, rollout in enumerate(rollouts) if _loops(rollout.text)]
    empty = [i for i, rollout in enumerate(rollouts) if not rollout.truncated and not rollout.text.strip()]
    endless = [i for i, rollout in enumerate(rollouts) if rollout.truncated and i not in looping]
    template = ("template", "Use its chat template") if how.get("chat_template") == "unused" else ()
    penalty = ("penalty", "Repetition penalty 1.1") if how.get("repetition_penalty") == 1 else ()
    limit, end = how.get("max_completion_length"), how.get("turn_end")
    more = ("stop", f"Stop at {end}") if end else ("longer", f"Allow {2 * limit} tokens") if limit else ()
    found = [
        (empty, "are empty", "the policy ended at once", template),
        (looping, "repeat themselves", "the same words again and again", penalty),
        (endless, "never end", f"cut off at {limit} tokens" if limit else "cut off", more),
    ]
    facts = []
    for ids, what, why, action in found:
        if len(ids) >= TROUBLED * len(rollouts):
            which = f"rollout:{','.join(str(i + 1) for i in ids)}"
            said = f"**[{len(ids)} of {len(rollouts)}]({which})** answers {what}"
            facts.append(Fact(Sentence(said), Sentence(why), *action))
    return facts


def _loops(text: str) -> bool:
    words = text.split()
    runs = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return len(words) > 40 and len(set(runs)) < (1 - LOOPS) * len(runs)


def _fact_of_steps(credit: Credit, group: _Group) -> Fact:
    unmatched = sum(not credit.scored.scored[i].matched for i in group.everyone)
    right, scores = drop_none(group.step_right or ()), drop_none(group.steps)
    if right:
        said = f"**[{right.count(True)} of {len(right)}](steps:wrong)** steps are right"
        wrong = Counter(k for i in group.everyone for k in group.steps_that(right=False, of=i))
        most = max(wrong.values(), default=0)
        worst = sorted(k for k, count in wrong.items() if count == most)
        detail = f"most errors in {names('step', worst)}" if most >= WORTH_NAMING and len(worst) <= NAMED else ""
        if labelled := len(drop_none(credit.in_loss.labels)):
            detail = f"{number(labelled)} by your label{'s' * (labelled > 1)}"
    elif scores:
        said = f"steps score **{value_range(scores)}**"
        detail = "every one" if is_same(scores) else f"{quantity(fmean(scores))} on average"
    else:
        said, detail = "no step is scored", ""
    if unmatched:
        detail = f"no step found in {unmatched} of {len(group.everyone)} answers"
    return Fact(sentence(said), Sentence(detail), "statistics", "Reward statistics")


def about_comparison(scheme: str, flipped: Sequence[int], tokens: int, correlation: float | None) -> Sentence:
    """Say what a second scheme does to a group: the share of tokens whose sign it turns, and in which rollout most.

    ``flipped`` counts those tokens by rollout, of ``tokens`` in all; ``correlation`` is over all tokens.
    """
    alike = "one of the two is constant" if correlation is None else f"r = {two_places(correlation)}"
    if not any(flipped):
        return sentence(f"`{scheme}` turns no token's sign ({alike}).")
    share = percent(sum(flipped) / tokens)
    return sentence(f"`{scheme}` flips the sign of {share} of the tokens ({alike}){_most_in(flipped)}.")


def _most_in(flipped: Sequence[int]) -> str:
    """In which rollouts most signs change, unless they are many."""
    most = [i for i, count in enumerate(flipped) if count == max(flipped)]
    return f", most in {names('rollout', most)}" if len(most) <= NAMED and len(flipped) > 1 else ""


# Probes: edits without content that earn more


def about_probes(
    scheme: str, edits: int, paying: Sequence[tuple[str, int, float, float]], resisting: int, schemes: int
) -> Sentence:
    """Say which of ``edits`` that add no content a scheme pays for, and how many of all schemes resist all of them.

    ``paying`` are (name, rollout, advantage before, advantage after) where each gains most, rollouts from 0.
    """
    others = f"{resisting} of {schemes} schemes resist all {edits}." if schemes > 1 else ""
    if not paying:
        return sentence(f"`{scheme}` resists all {edits} edits that add no content.", others)
    name, rollout, before, after = max(paying, key=lambda row: row[3] - row[2])
    gain = f"“{name}” raises {names('rollout', [rollout])} by {two_places(after - before)}"
    games = f"`{scheme}` can be gamed by {len(paying)} of {edits} edits that add no content"
    return sentence(f"{games}: {gain} ({signed(before)} → {signed(after)}).", others)


# Rollouts of a file: what was opened, and its own advantages beside the ones drawn


def about_opened(
    groups: int,
    answers: int,
    source: str = "",
    advantages: tuple[str, float] | None = None,
    unused: Sequence[str] = (),
    tokens: str = "",
) -> Sentence:
    """Say what was read of a file of rollouts.

    ``source`` is what the file is called ("a TRL log"), ``advantages`` how its own ones follow from its rewards and how
    far they are off at most, ``unused`` names columns that nothing uses, and ``tokens`` a tokenizer.
    """
    said = [f"{say_count(groups, 'group')} ({say_count(answers, 'answer')}){f' of {source}' if source else ''}"]
    if advantages is not None:
        said.append(f"its advantages are {advantages[0]}, equal within {_bound(advantages[1])}")
    if unused:
        named = f" ({', '.join(unused)})" if len(unused) <= NAMED else ""
        said.append(f"{say_count(len(unused), 'column')} {'was' if len(unused) == 1 else 'were'} not used{named}")
    by = {"": "", "words": "Tokens are words.", "the file's own": "Tokens are the file's own."}
    by |= {"the run's own": "Tokens are the run's own."}
    return sentence(f"opened {'; '.join(said)}.", by.get(tokens, f"Tokens by `{tokens}`'s tokenizer."))


def about_logged(difference: float, flipped: Sequence[int], tokens: int) -> Sentence:
    """Say how the advantages that a file logged compare with those drawn: by ``difference`` at most, and as
    ``about_comparison`` has them."""
    if difference <= AS_LOGGED:
        return sentence(f"the file's own advantages are the same, equal within {_bound(difference)}.")
    signs = "no sign changes"
    if any(flipped):
        signs = f"{percent(sum(flipped) / tokens)} of the tokens change sign{_most_in(flipped)}"
    return sentence(f"the file's own advantages (`logged`) differ by up to {two_places(difference)}: {signs}.")


def _bound(value: float) -> str:
    """The power of ten that a difference is not above, 1e-6 at least."""
    return f"{10.0 ** math.ceil(math.log10(max(value, 1e-6)) - 1e-9):g}".replace("e-0", "e-")
