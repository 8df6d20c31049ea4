"""The nouns of scoring: the steps of each rollout with what every reward function gave them, and what a run measures
beside training: its answers to held-out rows, and what its model makes of a few watched rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from workbench.schema.numbers import say_count
from workbench.schema.rollouts import Group, Rollout, Step

EXTRACTED = "extracted_answer"
"""The column in which a reward function logs what it took for the final answer, "" if it found none."""
RewardKind = Literal["step", "outcome"]
SHARES = frozenset({"sums_hold"})
"""Built-in rewards that say how much of a step is right."""
JUDGES = SHARES | {
    "step_correctness", "calculator_notes", "given_labels", "answer_correctness", "gsm8k_answer", "math_equality"
}  # fmt: skip
"""Built-in rewards that say right or wrong: 1, 0 and -1 of any other may say something else."""


def to_verdict(score: float | None) -> bool | None:
    """Return what the score of a reward that judges says: right at 1, else wrong; None where it gave none."""
    return None if score is None else score >= 1


@dataclass(frozen=True)
class StepScores:
    """One rollout, split and scored.

    ``steps`` are character spans of ``Rollout.text``; ``spans[k]`` is the (first, last) token of step k, last
    inclusive. ``scores[name][k]`` is what step reward ``name`` gave step k and ``rewards[k]`` the weighted sum of those
    (``None`` where every function left the step unscored). ``outcome_scores[name]`` and ``outcome`` are the same for
    the whole completion, which is unscored where a function that scores others of its group could not judge it.
    ``logged[name]`` is what function ``name`` logged of it with ``log_extra``: by column a value, or a tuple with one a
    step. ``unsplit``: the pattern found over 1,000 steps or took too long, so that the completion is one unmatched step
    without a score.
    """

    steps: tuple[Step, ...]
    spans: tuple[tuple[int, int], ...]
    scores: Mapping[str, tuple[float | None, ...]]
    rewards: tuple[float | None, ...]
    outcome_scores: Mapping[str, float | None]
    outcome: float | None
    logged: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unsplit: bool = False

    @property
    def matched(self) -> bool:
        """Return whether the pattern found at least one step."""
        return any(step.matched for step in self.steps)

    @property
    def step_ends(self) -> list[int]:
        """index(k) of DeepSeekMath (arXiv 2402.03300, section 4.1.3): the last token of each step."""
        return [last for _, last in self.spans]

    @property
    def step_starts(self) -> list[int]:
        return [first for first, _ in self.spans]

    def logged_of(self, step: int | None) -> list[tuple[str, str, Any]]:
        """(function, column, value) of what was logged of a step (0-based), or of the whole completion."""
        logged = [(name, column, value) for name, of in self.logged.items() for column, value in of.items()]
        if step is None:
            return [entry for entry in logged if not isinstance(entry[2], tuple)]
        of_steps = [entry for entry in logged if isinstance(entry[2], tuple)]
        return [(name, column, values[step]) for name, column, values in of_steps if values[step] is not None]

    @property
    def extracted(self) -> dict[str, str]:
        """Return what each reward function that says so took for the final answer, "" for none found."""
        return {name: str(of[EXTRACTED]) for name, of in self.logged.items() if EXTRACTED in of}

    @property
    def extracted_said(self) -> str:
        """The same in words, "" if no function says so: one answer, or each function's where they differ."""
        said = {
            name: f"answer read: {answer[:80]}" if answer else "no answer found"
            for name, answer in self.extracted.items()
        }
        if len(set(said.values())) < 2:
            return next(iter(said.values()), "")
        return "; ".join(f"{name}: {words}" for name, words in said.items())

    def rows(self, text: str) -> list[dict[str, Any]]:
        """One row a step as plain values: its span and text (``text`` is the rollout's), tokens, scores and reward.

        ``logged`` is there where a function logged something of the step, by function and column.
        """
        logged: list[dict[str, dict[str, Any]]] = []
        for k in range(len(self.steps)):
            logged.append({})
            for name, column, value in self.logged_of(k):
                logged[k].setdefault(name, {})[column] = value
        return [
            {
                "start": step.start,
                "end": step.end,
                "matched": step.matched,
                "text": text[step.start : step.end],
                "first_token": first,
                "last_token": last,
                "scores": {name: values[k] for name, values in self.scores.items()},
                "reward": self.rewards[k],
                **({"logged": logged[k]} if logged[k] else {}),
            }
            for k, (step, (first, last)) in enumerate(zip(self.steps, self.spans, strict=True))
        ]


@dataclass(frozen=True)
class RewardSummary:
    """One reward function as a scored group remembers it: enough to explain a number, not to compute it.

    ``seconds`` is what calling it took, ``prints`` what its code printed for each rollout (under None what was for no
    one of them, as when it scores all at once), and ``metrics`` what it logged as numbers.
    ``judges_all``: it was asked about every step, so that a None of it is a step it could not judge.
    ``read_as`` says how one that was written for another tool, or other data, was called.
    """

    name: str
    kind: RewardKind
    weight: float
    seconds: float = 0.0
    prints: Mapping[int | None, str] = field(default_factory=dict)
    metrics: Mapping[str, Sequence[float]] = field(default_factory=dict)
    judges_all: bool = False
    read_as: str = ""


@dataclass(frozen=True, repr=False)
class ScoredGroup:
    """A group with one ``StepScores`` a rollout, in the rollouts' order, and the reward functions that gave them.

    ``pattern`` has the fields of the step pattern that found the steps; none if it is not known. ``labels`` are those
    that somebody gave the steps by hand, one a step and rollout, None for no label; none at all where nobody did.
    """

    group: Group
    scored: tuple[StepScores, ...]
    rewards: tuple[RewardSummary, ...]
    pattern: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[tuple[bool | None, ...], ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(reward.name for reward in self.rewards) or "no reward"
        return f"<ScoredGroup: {self.counts}, scored by {names}>"

    @property
    def counts(self) -> str:
        """Return how many rollouts and steps it has, in words."""
        steps = sum(len(step_scores.steps) for step_scores in self.scored)
        return f"{say_count(len(self.group), 'rollout')}, {say_count(steps, 'step')}"

    def judge(self, kind: RewardKind) -> str | None:
        """Return the name of the reward that says which steps or which answers are right (score 1) and wrong.

        It scores nothing but 1, 0 and -1, or shares: one of ``JUDGES``, or else the first that tells some apart from
        others.
        """
        scores = {
            reward.name: {score for score in self.scores(reward) if score is not None}
            for reward in self.rewards
            if reward.kind == kind
        }
        two_valued = [name for name, values in scores.items() if values and (name in SHARES or values <= {-1, 0, 1})]
        known = [name for name in two_valued if name in JUDGES]
        apart = [name for name in two_valued if kind == "outcome" or (1 in scores[name] and len(scores[name]) > 1)]
        return next(iter([*known, *apart]), None)

    @property
    def outcome_judge(self) -> RewardSummary | None:
        """The outcome reward that groups are gated by, whatever its weight: the first of ``JUDGES``, else the first."""
        outcomes = [reward for reward in self.rewards if reward.kind == "outcome"]
        return next((reward for reward in outcomes if reward.name in JUDGES), outcomes[0] if outcomes else None)

    def judged_outcomes(self, *, drop_duplicates: bool = False) -> list[float | None] | None:
        """Return the scores of ``outcome_judge``, None without one; ``drop_duplicates`` leaves copies unscored."""
        if (judge := self.outcome_judge) is None:
            return None
        pairs = zip(self.scores(judge), self.group.copy_of, strict=True)
        return [None if drop_duplicates and first is not None else score for score, first in pairs]

    @cached_property
    def answer_verdicts(self) -> list[bool | None]:
        """Return the verdict on each answer of the outcome reward that judges, by ``judge``; None if none does."""
        judge = self.judge("outcome")
        return [to_verdict(row.outcome_scores.get(judge or "")) for row in self.scored]

    @cached_property
    def answers_right(self) -> list[bool | None] | None:
        """Return which answers are right, by the outcome reward that judges correctness; None where none does."""
        return self.answer_verdicts if self.judge("outcome") in JUDGES else None

    @cached_property
    def steps_right(self) -> list[list[bool | None]] | None:
        """Return which steps are right, by label, else by the step reward that judges; None without both."""
        judge = self.judge("step")
        if judge not in JUDGES and not self.labels:
            return None
        unknown = [(None,) * len(row.steps) for row in self.scored]
        judged = judge if judge in JUDGES else ""
        scores = [row.scores.get(judged, none) for row, none in zip(self.scored, unknown, strict=True)]
        return [
            [to_verdict(score) if label is None else label for label, score in zip(*row, strict=True)]
            for row in zip(self.labels or unknown, scores, strict=True)
        ]

    def scores(self, reward: RewardSummary) -> list[float | None]:
        """All that a reward function gave: one score per step, or per completion."""
        if reward.kind == "outcome":
            return [row.outcome_scores.get(reward.name) for row in self.scored]
        return [score for row in self.scored for score in row.scores.get(reward.name, ())]

    def rows(self, rollout: int) -> list[dict[str, Any]]:
        """One row a step of a rollout (0-based), as ``StepScores.rows`` gives it."""
        return self.scored[rollout].rows(self.group.rollouts[rollout].text)

    @property
    def step_rewards(self) -> list[list[float | None]]:
        return [list(step_scores.rewards) for step_scores in self.scored]

    @property
    def step_ends(self) -> list[list[int]]:
        return [step_scores.step_ends for step_scores in self.scored]

    @property
    def step_starts(self) -> list[list[int]]:
        return [step_scores.step_starts for step_scores in self.scored]

    @property
    def lengths(self) -> list[int]:
        return [len(rollout) for rollout in self.group.rollouts]

    @property
    def masks(self) -> list[tuple[int, ...] | None]:
        """Return which tokens of each completion the policy sampled; None for all."""
        return [rollout.mask for rollout in self.group.rollouts]

    @cached_property
    def step_states(self) -> list[list[Hashable]]:
        """Return what stands for the state in which each step begins: its turn's, and what the turn says before."""
        states: list[list[Hashable]] = []
        for rollout, scores in zip(self.group.rollouts, self.scored, strict=True):
            begins = [sum(map(len, rollout.texts[:first])) for first, _ in rollout.turn_spans]
            of_turns = list(zip(rollout.turn_states, begins, strict=True))
            turns = [of_turns[rollout.turn_of(last)] for last in scores.step_ends]
            pairs = zip(turns, scores.steps, strict=True)
            states.append([(state, rollout.text[begin : step.start]) for (state, begin), step in pairs])
        return states

    @property
    def outcomes(self) -> list[float | None] | None:
        """R of each completion, or ``None`` when no outcome reward function was given."""
        if not any(reward.kind == "outcome" for reward in self.rewards):
            return None
        return [step_scores.outcome for step_scores in self.scored]


@dataclass(frozen=True)
class HeldOutAnswer:
    """One completion of a held-out row, and whether the task takes it for right.

    ``answer`` is what was read as its final answer: "" if none was found, None in files of earlier versions.
    """

    prompt: str
    text: str
    right: bool
    answer: str | None = None


OnAnswers = Callable[[int, list[HeldOutAnswer]], None]
"""Called with a training step and the answers of all measured rows, in their order."""


@dataclass(frozen=True)
class TokenMeasure:
    """A quantity that tokens are coloured by: ``label`` and, on chips, ``short`` name it, ``meaning`` explains it.

    ``signed``: the colours have two sides; ``additive``: a step's number is the sum of its tokens', not their mean.
    """

    key: str
    label: str
    short: str
    meaning: str
    signed: bool = False
    additive: bool = False


@dataclass(frozen=True)
class WatchedText:
    """One text of a watched row.

    ``rollout`` holds its tokens, ``scored`` its steps, whose rewards are their labels where the row has any.
    ``values[key]`` has one number a token, and ``numbers`` what is known of the whole text, by name.
    """

    name: str
    rollout: Rollout
    scored: StepScores
    values: Mapping[str, Sequence[float]]
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class WatchedRow:
    """A stored row as the model sees it after training step ``step``, beside ``before``: as it saw it at first."""

    prompt: str
    texts: tuple[WatchedText, ...]
    measures: tuple[TokenMeasure, ...]
    numbers: Mapping[str, float]
    step: int
    before: WatchedRow | None = None

    def __repr__(self) -> str:
        names = ", ".join(text.name for text in self.texts)
        since = "" if self.before is None else f" beside step {self.before.step}"
        return f"<WatchedRow: {names} at step {self.step}{since}>"


OnRows = Callable[[int, list[WatchedRow]], None]
"""Called with the optimiser step just done (0 before the first) and all watched rows as the model sees them."""
