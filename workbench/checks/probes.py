"""Exploit probes: what an edit that adds no content would earn under a reward set and a credit scheme.

Each edit of ``edits`` is made in one rollout of a frozen group at a time, the edited completion is split and scored
like any other and put in the place of the original, and the group is credited anew under every scheme. What the edit
gains is read off two places, before and after: the completion's *first token* (what the policy is told about starting
this way) and the token *at the edit*, the first that differs (what it is told about making the edit, against what it is
told about going on as it did). Where either rises by more than ``THRESHOLD`` in any rollout, the scheme pays for no
content: a policy that finds the place would be taught the edit.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from workbench.checks.edits import EDITS, TURN_EDITS, Edit, Target
from workbench.checks.findings import Finding
from workbench.credit import SCHEMES, SHARED, credit_groups
from workbench.errors import ConfigError, CreditError, PatternError
from workbench.rewards import Reward, RewardConfig, Sandbox, load_reward, score_completions, score_group
from workbench.rewards.reward import Models, settle
from workbench.schema import Credit, Group, Rollout, ScoredGroup, StepScores, say_count, signed
from workbench.steps import Split, StepPattern, split_answers, split_preview

THRESHOLD = 0.25
"""What an edit must gain to count, in standard deviations of the group's own advantages under the scheme; less comes
from the pool's own shift with one edit."""

ALL_EDITS: Mapping[str, Edit] = {**EDITS, **TURN_EDITS}
"""Of answers of one turn and of episodes."""


@dataclass(frozen=True)
class Gain:
    """One edit of one rollout under one scheme: advantages before and after, at the first token and at the edit."""

    rollout: int
    first: tuple[float, float]
    at_edit: tuple[float, float]
    flat: bool = False
    """The edit left the group without spread: it teaches nothing, and gains nothing."""

    @property
    def largest(self) -> float:
        if self.flat:
            return 0.0
        return max(self.first[1] - self.first[0], self.at_edit[1] - self.at_edit[0])


@dataclass(frozen=True)
class ProbeResult:
    """One cell of the table: an edit under a scheme, over all rollouts in which it could be made."""

    edit: str
    scheme: str
    gains: tuple[Gain, ...]
    threshold: float
    """In advantage: ``ProbeReport.threshold`` times the standard deviation of the group's advantages."""
    pair: tuple[Credit, Credit] | None = field(default=None, compare=False)
    """The group's credit before and after the edit in the rollout in which it gains most."""

    @property
    def worst(self) -> Gain | None:
        """The rollout in which the edit gains most."""
        return max(self.gains, key=lambda gain: gain.largest, default=None)

    @property
    def paid(self) -> int:
        """In how many rollouts the edit gains."""
        return sum(gain.largest > self.threshold for gain in self.gains)

    @property
    def pays(self) -> bool:
        """Return whether the scheme pays for no content."""
        return self.paid > 0

    @property
    def verdict(self) -> str:
        if self.worst is None:
            return "cannot be made here"
        if not self.pays:
            return f"no: at most {self.worst.largest:+.2f}"
        before, after = self.worst.first
        return (
            f"yes: in {self.paid} of {len(self.gains)} rollouts, most in rollout {self.worst.rollout + 1}, by "
            f"{signed(self.worst.largest)} (first token {signed(before)} to {signed(after)})"
        )


@dataclass(frozen=True)
class ProbeReport:
    """``results[edit][scheme]``; ``left_out`` says of each scheme that could not be used why."""

    results: Mapping[str, Mapping[str, ProbeResult]]
    rewards: tuple[str, ...]
    left_out: Mapping[str, str]
    rollouts: int
    threshold: float

    @property
    def schemes(self) -> list[str]:
        return list(next(iter(self.results.values()), {}))

    @property
    def suites(self) -> dict[str, list[Finding]]:
        """Return the edits that could be made, by scheme."""
        return {
            scheme: [
                Finding(edit, "check" if row[scheme].pays else "ok", signed(most.largest), row[scheme].verdict)
                for edit, row in self.results.items()
                if (most := row[scheme].worst) is not None
            ]
            for scheme in self.schemes
        }

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows(), "rewards": list(self.rewards), "left_out": dict(self.left_out)}

    def rows(self) -> list[dict[str, Any]]:
        """One plain row for each edit and scheme."""
        return [
            {
                "edit": result.edit,
                "scheme": result.scheme,
                "rollouts": len(result.gains),
                "pays_in": result.paid,
                "mean_gain": float(np.mean([gain.largest for gain in result.gains])) if result.gains else None,
                "largest_gain": result.worst.largest if result.worst else None,
                "first_token_before": result.worst.first[0] if result.worst else None,
                "first_token_after": result.worst.first[1] if result.worst else None,
                "pays_for_no_content": result.pays,
                "verdict": result.verdict,
            }
            for row in self.results.values()
            for result in row.values()
        ]


def probe(
    group: Group,
    pattern: StepPattern,
    rewards: Sequence[str | Callable[..., Any] | RewardConfig | Reward],
    schemes: Sequence[str] | None = None,
    *,
    edits: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    worker: Sandbox | None = None,
    models: Models | None = None,
    threshold: float = THRESHOLD,
    on_progress: Callable[[str], None] = lambda said: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ProbeReport:
    """Try every edit in every rollout of ``group`` under each of ``schemes`` (all by default).

    In a group of episodes the edits are those of ``TURN_EDITS``, in any other those of ``EDITS``.
    ``options`` (``normalise``, ``gamma``, …) go to every scheme that has them; on one group, ``batch`` is ``pooled``.
    Raises CreditError for an edit, a scheme or an option that there is not. All edited completions are scored in one
    call of each reward. With a ``worker`` the pattern and the rewards' code run there; reward models are held by
    ``models``, by default in this process. Raises PatternError and RewardError as ``score_group`` does.
    """
    _refuse_unknown(edits, schemes, options)
    if not rewards:
        raise ConfigError("rewards: give at least one reward function")
    if pattern.by_tokens:
        raise PatternError(
            f"probes edit text, which has no {pattern.kind} of its own; choose a step pattern of a kind that reads text"
        )
    cut = split_preview if worker is None else worker.split
    loaded = [load_reward(spec, worker, models=models, pattern=pattern) for spec in rewards]
    base = score_group(group, pattern, loaded, worker=worker)
    known = TURN_EDITS if any(r.is_episode for r in group.rollouts) else EDITS
    chosen = [ALL_EDITS[name] for name in (edits if edits is not None else known)]

    def split(text: str) -> Split:
        return split_answers([text], pattern, cut, opened=[group.thinking_open])[0]

    targets = [
        Target(group, rollout, scored, pattern.kind, split)
        for rollout, scored in zip(group.rollouts, base.scored, strict=True)
    ]
    edited = [
        (edit, i, rollout)
        for edit in chosen
        for i, target in enumerate(targets)
        if (rollout := edit.apply(target)) is not None
    ]
    on_progress(f"scoring {say_count(len(edited), 'edited answer')}")
    rollouts, count = [rollout for _, _, rollout in edited], len(edited)
    columns, opened = [{**group.columns, **rollout.columns} for rollout in rollouts], [group.thinking_open] * count
    prompts = [group.prompt] * count
    scored, _ = score_completions(prompts, rollouts, columns, pattern, loaded, opened=opened, worker=worker)
    # An edit that makes a text the pattern cannot split cannot be made.
    made = [
        (edit, i, _with(base, i, rollout, scores))
        for (edit, i, rollout), scores in zip(edited, scored, strict=True)
        if not scores.unsplit
    ]
    tried = schemes if schemes is not None else list(SCHEMES)
    credited, left_out = _credit_all(
        [base, *(variant for _, _, variant in made)], tried, options or {}, on_progress, cancelled
    )
    results: dict[str, dict[str, ProbeResult]] = {edit.name: {} for edit in chosen}
    for scheme, (before, *after) in credited.items():
        limit = threshold * _unit(before)
        gains: dict[str, list[tuple[Gain, Credit]]] = {edit.name: [] for edit in chosen}
        for (edit, i, _), credit in zip(made, after, strict=True):
            gains[edit.name].append((_gain(before, credit, i), credit))
        for name, cases in gains.items():
            most = max(cases, key=lambda case: case[0].largest, default=None)
            pair = None if most is None else (before, most[1])
            results[name][scheme] = ProbeResult(name, scheme, tuple(gain for gain, _ in cases), limit, pair)
    return ProbeReport(results, tuple(reward.name for reward in base.rewards), left_out, len(group), threshold)


def _refuse_unknown(
    edits: Sequence[str] | None, schemes: Sequence[str] | None, options: Mapping[str, Any] | None
) -> None:
    options_there_are = {*SHARED, *(option.name for scheme in SCHEMES.values() for option in scheme.options)}
    for what, names, choices in (
        ("edit", edits, ALL_EDITS.keys()),
        ("credit scheme", schemes, SCHEMES.keys()),
        ("option", options, options_there_are),
    ):
        if unknown := [name for name in names or () if name not in choices]:
            raise CreditError(f"unknown {what} {unknown[0]!r}; choose one of {', '.join(sorted(choices))}")


def _unit(credit: Credit) -> float:
    """The standard deviation of the group's token advantages: what a gain is measured against, whatever the units."""
    tokens = np.concatenate([credit.of(i) for i in range(len(credit.scored.group))])
    return float(tokens.std()) if len(tokens) and tokens.any() else 1.0


def _with(base: ScoredGroup, i: int, rollout: Rollout, scored: StepScores) -> ScoredGroup:
    """The group with its completion ``i`` replaced by the edited one."""
    rollouts = (*base.group.rollouts[:i], rollout, *base.group.rollouts[i + 1 :])
    return ScoredGroup(
        replace(base.group, rollouts=rollouts),
        settle((*base.scored[:i], scored, *base.scored[i + 1 :]), base.rewards),
        base.rewards,
    )


def _credit_all(
    groups: Sequence[ScoredGroup],
    schemes: Sequence[str],
    options: Mapping[str, Any],
    on_progress: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> tuple[dict[str, list[Credit]], dict[str, str]]:
    credited: dict[str, list[Credit]] = {}
    left_out: dict[str, str] = {}
    for number, scheme in enumerate(schemes, start=1):
        if cancelled():
            break
        on_progress(f"{scheme}, {number} of {say_count(len(schemes), 'scheme')}")
        known = {option.name for option in SCHEMES[scheme].options} if scheme in SCHEMES else set()
        # Duplicates count: one that is edited is none any more, which is not what the edit earns. Nobody has judged an
        # edit's tokens.
        applied = (known | set(SHARED)) - {"drop_duplicates", "oar"}
        fitting = {name: value for name, value in options.items() if name in applied}
        try:
            credited[scheme] = [credit for group in groups for credit in credit_groups([group], scheme, **fitting)]
        except CreditError as error:
            left_out[scheme] = str(error)
    return credited, left_out


def _gain(before: Credit, after: Credit, i: int) -> Gain:
    old, new = (credit.scored.group.rollouts[i] for credit in (before, after))
    pairs = zip(zip(old.token_ids, old.texts, strict=True), zip(new.token_ids, new.texts, strict=True), strict=False)
    at = next((t for t, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))
    x, y = before.of(i), after.of(i)
    # Beyond the end of the shorter one the last token it has; a group that stopped spreading pays for nothing.
    if not after.spread:
        return Gain(i, (float(x[0]), 0.0), (float(x[0]), 0.0), flat=True)
    return Gain(i, (float(x[0]), float(y[0])), (float(x[min(at, len(x) - 1)]), float(y[min(at, len(y) - 1)])))


# --- a demonstration: one good step, and the same words split into four -------------------------------------------

# Four answers to one question, a line a step, every line that adds up scored 1. The first answer does all its work in
# one line. Writing the same words in four lines earns its first token about five times the advantage under ``process``,
# and nothing under ``outcome``: rewards 1 0 | 1 0 | 0 1 | 0 0 have mean 3/8 and std 0.5175, so the first token gets
# 1.2075 - 0.7245 = 0.4830; 1 1 1 1 0 | 1 0 | 0 1 | 0 0 have mean 6/11 and std 0.5222, and it gets
# 4 * 0.8703 - 1.0443 = 2.4367.

_QUESTION = "A box holds 3 pens, Ann adds 4, doubles them, takes 5 away and buys 1 more. How many pens are there?\n"
_ANSWERS = (
    "3+4=7, 7*2=14, 14-5=9, 9+1=10,\nThe answer is 11\n",
    "3+4=7, then doubled 14, less 5 is 9,\nThe answer is 9\n",
    "3+4=8, doubled 16, less 5 is 11,\nThe answer is 10\n",
    "3+4=6, doubled 12, less 5 is 8,\nThe answer is 9\n",
)
_PATTERN = StepPattern(r"\n", kind="ends")


def sums_and_answer(prompt: str, step: str, **columns: object) -> float:
    """1 for a line in which every sum is right or which states the right answer, else 0."""
    import re

    sums = re.findall(r"(\d+)([+*-])(\d+)=(\d+)", step)
    if not sums:
        return float(step.strip() == "The answer is 10")
    work = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
    return float(all(work[sign](int(a), int(b)) == int(c) for a, sign, b, c in sums))


def split_step_demo() -> tuple[Group, StepPattern, list[Callable[..., Any]]]:
    """Group, pattern and rewards for ``probe``; a token is a word."""
    rollouts = []
    for n, text in enumerate(_ANSWERS):
        texts = [*re.findall(r"\S+[ \n]?", text), "<end>"]
        rollouts.append(Rollout(tuple(range(100 * n, 100 * n + len(texts))), tuple(texts), finished=True))
    return (
        Group(_QUESTION, tuple(rollouts), {"answer": "10"}),
        _PATTERN,
        [sums_and_answer, right_answer],
    )


def right_answer(prompts: list[object], completions: list[str], answer: list[str], **columns: object) -> list[float]:
    """1 for a completion that ends in the answer."""
    return [
        float(text.strip().endswith(f"The answer is {truth}")) for text, truth in zip(completions, answer, strict=True)
    ]
