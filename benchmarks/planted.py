"""Answers with one planted culprit, and which tokens are to blame: what ``benchmarks blame`` measures schemes on.

A group has one answer of each kind (``CHAINS``, ``TURNS``) to one held-out problem:

========== =============================================================================
right      no error
early      a wrong result in the first half; the rest goes on from it
late       the same in the second half
two        two of them, the answer wrong
repaired   a wrong line, then the same line right; the rest goes on from the right one
detour     a right line twice, which changes nothing
lucky      two wrong results that cancel out, the answer right
========== =============================================================================

In the turns of ``calculator`` an error is a misread operand of one call, and the rest goes on from what it is answered.
A wrong step's *culprit* is the first token that would be another one, were the line right given what stands before it.
``check_culprits`` changes it and scores again, with rewards that know nothing of the plan.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any, ClassVar

from workbench.assets import EMBEDDED
from workbench.data import load_task
from workbench.data.chain_arithmetic import (
    HIGH,
    HIGHEST,
    LOW,
    SYMBOL,
    Chain,
    apply,
    call_text,
    chain,
    example,
    large_chain,
    large_example,
)
from workbench.data.rollouts import Builder, Facts, UntokenizedGroup
from workbench.data.rows import Record
from workbench.data.tokens import load_tokeniser
from workbench.rewards import score_group
from workbench.schema import ASSISTANT, ENVIRONMENT, Group, Rollout
from workbench.steps import StepPattern

CHAINS = ("right", "right", "early", "late", "two", "repaired", "detour", "lucky")
TURNS = ("right", "right", "early", "late", "repaired", "detour")
KINDS = {"chain-arithmetic": CHAINS, "calculator": TURNS}
POLICIES = {"chain-arithmetic": "tiny", "calculator": "tiny-tools"}
ERRORS = (-10, -3, -2, -1, 1, 2, 3, 10)
_MAKERS: Mapping[str, Any] = {"chain-arithmetic": (chain, example), "calculator": (large_chain, large_example)}

Plan = tuple[tuple[int, int], ...]
"""(operation, error) of each line in its order; an error is what is added to the result, or to a call's operand."""


@dataclass(frozen=True)
class Answer:
    """One planted answer.

    ``lines`` are its steps, ``right`` what each would be if it were right given those before it, ``replies`` what the
    calculator answers to each (None: nothing). ``value`` is the final answer.
    """

    kind: str
    plan: Plan
    lines: tuple[str, ...]
    right: tuple[str, ...]
    replies: tuple[str | None, ...]
    value: int

    @property
    def labels(self) -> list[bool]:
        """Which steps are right, one a line."""
        return [line == right for line, right in zip(self.lines, self.right, strict=True)]

    @property
    def written(self) -> list[str]:
        """Each line with its end and the reply to it."""
        return [f"{line}\n{reply or ''}" for line, reply in zip(self.lines, self.replies, strict=True)]

    @property
    def culprits(self) -> list[int]:
        """The character of the answer at which each wrong step goes wrong."""
        starts = accumulate(map(len, self.written), initial=0)
        pairs = zip(starts, self.lines, self.right, strict=False)
        return [start + _first_difference(line, right) for start, line, right in pairs if line != right]


@dataclass(frozen=True)
class Truth:
    """The culprits of one answer in tokens: ``spans`` and ``labels`` of its steps, the culprit token of each wrong one.

    ``sampled`` are the tokens that the policy wrote, in their order.
    """

    kind: str
    spans: tuple[tuple[int, int], ...]
    labels: tuple[bool, ...]
    culprits: tuple[int, ...]
    sampled: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Planted:
    """A group of planted answers with the truth of each."""

    task: str
    chain: Chain
    answers: tuple[Answer, ...]
    group: Group
    truths: tuple[Truth, ...]


def pattern_of(task: str) -> StepPattern:
    pattern = load_task(task).pattern
    assert pattern is not None
    return pattern


def planted_groups(task: str, count: int, seed: int = 0) -> list[Planted]:
    """Return ``count`` groups, of the task's first held-out problems that every kind can be planted in."""
    groups: list[Planted] = []
    index = 0
    while len(groups) < count:
        chain = _MAKERS[task][0](index, held_out=True)
        rng = random.Random(f"blame/{task}/{seed}/{index}")
        answers = [_draw(task, chain, kind, rng) for kind in KINDS[task]]
        index += 1
        found = [answer for answer in answers if answer is not None]
        if len(found) == len(answers):
            groups.append(_with_truth(task, chain, index - 1, found))
    return groups


def write(task: str, chain: Chain, plan: Plan, kind: str = "") -> Answer:
    """Return the answer of a plan: every line goes on from the last result of the operation before it."""
    before = [chain.start] * (len(chain.operations) + 1)  # the value that each operation begins with
    lines, right, replies = list[str](), list[str](), list[str | None]()
    for k, error in plan:
        name, operand = chain.operations[k]
        value = before[k]
        if task == "calculator":
            calls = [call_text(value, name, number) for number in (operand + error, operand)]
            result = apply(name, value, operand + error)
            line, correct = (f"call: {call}" for call in calls)
            replies.append(f"= {result}\n")
        else:
            worked = f"Step {k + 1}: {value} {SYMBOL[name]} {operand} = "
            result = apply(name, value, operand) + error
            line, correct = f"{worked}{result}", f"{worked}{result - error}"
            replies.append(None)
        lines.append(line)
        right.append(correct)
        before[k + 1] = result
    last = f"Answer: {before[-1]}"
    return Answer(kind, plan, (*lines, last), (*right, last), (*replies, None), before[-1])


def check_culprits(planted: Planted) -> Iterator[Checked]:
    """Score every wrong step again with its culprit changed: the step by itself, and the answer derived again from it.

    The rewards are the task's own (``step_correctness`` or ``call_needed``, and ``answer_correctness``).
    """
    own = "call_needed" if planted.task == "calculator" else "step_correctness"
    for answer in planted.answers:
        for number, right in enumerate(answer.labels):
            if right:
                continue
            (k, _), before = answer.plan[number], answer.plan[:number]
            derived = write(planted.task, planted.chain, (*before, (k, 0), *answer.plan[number + 1 :]))
            pair = _build(planted.task, planted.group, [answer, derived])
            scored = score_group(pair, pattern_of(planted.task), [own, "answer_correctness"])
            steps = [row.rewards[number] == 1 for row in scored.scored]
            outcomes = [row.outcome == 1 for row in scored.scored]
            yield Checked(answer.kind, (steps[0], steps[1]), (outcomes[0], outcomes[1]))


@dataclass(frozen=True)
class Checked:
    """Whether a wrong step, and its answer, are right as they stand and with the culprit changed."""

    kind: str
    step: tuple[bool, bool]
    answer: tuple[bool, bool]


@dataclass(frozen=True)
class Counterfactual:
    """All culprits of a kind: how many, and the shares of steps and answers that are right before and after."""

    TABLE: ClassVar[str] = "counterfactuals"
    task: str
    kind: str
    culprits: int
    step_before: float
    step_after: float
    answer_before: float
    answer_after: float


def counterfactuals(task: str, groups: Iterable[Planted]) -> list[Counterfactual]:
    checked = [one for planted in groups for one in check_culprits(planted)]
    rows = []
    for kind in dict.fromkeys(one.kind for one in checked):
        of_kind = [(*one.step, *one.answer) for one in checked if one.kind == kind]
        shares = [sum(column) / len(of_kind) for column in zip(*of_kind, strict=True)]
        rows.append(Counterfactual(task, kind, len(of_kind), *shares))
    return rows


# --- drawing a plan -------------------------------------------------------------------------------------------------


def _draw(task: str, chain: Chain, kind: str, rng: random.Random) -> Answer | None:
    """Draw an answer of a kind; None if none is found whose values fit the task and whose outcome is the kind's."""
    n = len(chain.operations)
    half = {"early": range(n // 2), "late": range(n - n // 2, n)}
    for _ in range(200):
        places, error = sorted(rng.sample(range(n), 2)), rng.choice(ERRORS)
        k = rng.choice(half.get(kind, range(n)))
        errors: dict[int, int] = {}
        if kind in half or kind == "repaired":
            errors = {k: error}
        elif kind in ("two", "lucky"):
            errors = {places[0]: error, places[1]: rng.choice(ERRORS)}
        if kind == "lucky":
            wrong = write(task, chain, tuple((i, error if i == places[0] else 0) for i in range(places[1] + 1)))
            errors[places[1]] = chain.values[places[1]] - int(wrong.lines[-2].rpartition(" ")[2])
        plan = [(i, errors.get(i, 0)) for i in range(n)]
        if kind in ("repaired", "detour"):
            plan.insert(k + 1, (k, 0))
        answer = write(task, chain, tuple(plan), kind)
        ends_right = kind in ("right", "repaired", "detour", "lucky")
        as_meant = (answer.value == chain.answer) is ends_right and answer.labels.count(False) == len(errors)
        if as_meant and _fits(task, answer):
            return answer
    return None


def _fits(task: str, answer: Answer) -> bool:
    low, high = (0, HIGHEST) if task == "calculator" else (LOW, HIGH)
    numbers = [reply or line for line, reply in zip(answer.lines, answer.replies, strict=True)]
    return all(low <= int(text.replace("=", " ").split()[-1]) <= high for text in numbers)


def _first_difference(line: str, right: str) -> int:
    """Return the index of the first character that differs; the end of the line where one begins with the other."""
    pairs = enumerate(zip(line, right, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(line), len(right)))


# --- tokens ---------------------------------------------------------------------------------------------------------


@cache
def _builder(task: str) -> Builder:
    return Builder(load_tokeniser(str(EMBEDDED[POLICIES[task]])), Facts("generated", 0), "planted")


def _build(task: str, about: Group, answers: Sequence[Answer]) -> Group:
    """Return the answers as a group with the prompt and columns of ``about``."""
    records = []
    for answer in answers:
        record = Record("", about.prompt, finished=True, columns={**about.columns, "kind": answer.kind})
        if task == "calculator":
            pieces = [(f"{line}\n", reply) for line, reply in zip(answer.lines, answer.replies, strict=True)]
            turns = [[(ASSISTANT, line)] + ([(ENVIRONMENT, reply)] if reply else []) for line, reply in pieces]
            flat = [piece for turn in turns for piece in turn]
            flat[-1] = (ASSISTANT, answer.lines[-1])
            records.append(replace(record, pieces=tuple(flat)))
        else:
            records.append(replace(record, completion="\n".join(answer.lines)))
    built = _builder(task).build(UntokenizedGroup(about.prompt, tuple(records)))
    return replace(built, columns={**about.columns, **built.columns})


def _with_truth(task: str, chain: Chain, index: int, answers: Sequence[Answer]) -> Planted:
    example = _MAKERS[task][1](index, held_out=True)
    group = _build(task, Group(example.prompt, (), example.columns), answers)
    scored = score_group(group, pattern_of(task), [])
    truths = []
    for answer, rollout, row in zip(answers, group.rollouts, scored.scored, strict=True):
        assert len(row.spans) == len(answer.lines), (answer, row.spans)
        culprits = tuple(_token_at(rollout, character) for character in answer.culprits)
        sampled = tuple(t for t in range(len(rollout)) if rollout.is_sampled(t))
        truths.append(Truth(answer.kind, row.spans, tuple(answer.labels), culprits, sampled))
    return Planted(task, chain, tuple(answers), group, tuple(truths))


def _token_at(rollout: Rollout, character: int) -> int:
    ends = accumulate(map(len, rollout.texts))
    return next(t for t, end in enumerate(ends) if end > character)
