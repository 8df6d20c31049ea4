"""Step values, by sampling or by belief: as rewards, as scores and as labels to write out. Knows no torch.

The value of a step is the expected outcome reward of what the policy goes on to write after it: the mean over k
continuations is Math-Shepherd's soft estimation (arXiv 2312.08935, equation 4) and VinePPO's value (arXiv 2410.01679,
section 4.2); whether any of the k succeeds is the hard estimation (equation 3). ``monte_carlo`` does the sampling.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from workbench.config import LabelFormat
from workbench.config.task import joined
from workbench.data.made import Made
from workbench.rewards import Reward, score_group, split_group
from workbench.schema import Group, ScoredGroup
from workbench.steps import StepPattern, step_texts

Estimation = Literal["soft", "hard"]
What = Literal["value", "progress", "watermark"]
NAMES: dict[What, str] = {
    "value": "monte_carlo",
    "progress": "monte_carlo_progress",
    "watermark": "monte_carlo_watermark",
}


@dataclass(frozen=True)
class StepValues:
    """The values of a group's steps, jagged: ``values[i][k]`` of step k of completion i, None where unscored.

    ``errors[i][k]`` is its standard error as ``estimate`` has it, 0 where the completion ends with the step and its own
    outcome is exact. ``counts[i][k]`` continuations were scored, ``successes[i][k]``
    of them over ``threshold``. ``start`` is the value of the prompt itself: the mean of the completions' own outcomes.
    ``tokens`` of ``continuations`` were sampled in ``seconds``. Of beliefs (``belief.beliefs``) ``k`` is 0, and they
    have neither errors nor counts.
    """

    values: tuple[tuple[float | None, ...], ...]
    errors: tuple[tuple[float | None, ...], ...]
    counts: tuple[tuple[int, ...], ...]
    successes: tuple[tuple[int, ...], ...]
    start: float | None
    k: int
    seed: int
    threshold: float
    outcome: str
    pattern: StepPattern
    tokens: int = 0
    seconds: float = 0.0
    continuations: int = 0

    def shares(self) -> list[list[float | None]]:
        """Return the share of each step's continuations that succeeded: Math-Shepherd's soft label."""
        return [
            [wins / count if count else None for count, wins in zip(counts, successes, strict=True)]
            for counts, successes in zip(self.counts, self.successes, strict=True)
        ]

    def labels(self, estimation: Estimation = "soft", cut: float = 0.5) -> list[list[bool | None]]:
        """Label each step: good if any continuation succeeded (hard), or a share over ``cut`` did (soft)."""
        return [
            [None if share is None else share > (0 if estimation == "hard" else cut) for share in shares]
            for shares in self.shares()
        ]

    def progress(self) -> list[list[float | None]]:
        """Return each step's value less that of the step before it, at first less ``start`` (2410.01679)."""
        return [differences(values, self.start) for values in self.values]

    def watermark(self) -> list[list[float | None]]:
        """Return by how much each step's value is above the best before it and ``start``, at least 0 (2602.01034)."""
        return [breakthroughs(values, self.start) for values in self.values]

    def as_reward(self, what: What = "value", weight: float = 1.0) -> Reward:
        """These as a step reward of their own group, cut as it was: ``score_group`` takes it beside any others."""
        all_values = {"value": [*map(list, self.values)], "progress": self.progress(), "watermark": self.watermark()}

        def looked_up(prompts: Any, completions: Any, steps: Any, **columns: Any) -> list[list[float | None]]:
            return all_values[what]

        name = NAMES[what] if self.k else NAMES[what].replace("monte_carlo", "belief")
        return Reward(name, "step", looked_up, weight, judges_all=self.k > 0)

    def as_scores(self, group: Group, what: What = "value") -> ScoredGroup:
        """Return the group with these as its step rewards."""
        return score_group(group, self.pattern, [self.as_reward(what)])

    def step_texts(self, group: Group) -> list[list[str]]:
        texts = [rollout.text for rollout in group.rollouts]
        return [
            step_texts(text, split.steps) for text, split in zip(texts, split_group(group, self.pattern), strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepValues:
        jagged = {name: tuple(map(tuple, data[name])) for name in ("values", "errors", "counts", "successes")}
        return cls(**{**data, **jagged, "pattern": StepPattern(**data["pattern"])})


def differences(values: Sequence[float | None], start: float | None) -> list[float | None]:
    """Return each value less the last known one before it, at first ``start``; None where either is unknown."""
    rises: list[float | None] = []
    for value in values:
        rises.append(None if value is None or start is None else value - start)
        start = start if value is None else value
    return rises


def breakthroughs(values: Sequence[float | None], start: float | None) -> list[float | None]:
    """Return by how much each value is above all before it and ``start``, at least 0; None for one that is unknown.

    g_k = max(0, l_k - h_(k-1)) with h_k = max(h_(k-1), l_k) and h_0 = l_0, the start: the rectified reward over a
    monotonic watermark of MIG (arXiv 2602.01034, section on the step-wise reward; read in a summary that quotes it).
    """
    best = accumulate((-math.inf if value is None else value for value in (start, *values)), max)
    return [None if v is None or h == -math.inf else max(0.0, v - h) for v, h in zip(values, best, strict=False)]


def estimate(outcomes: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean of the outcomes and its standard error; None where there are too few.

    Of n outcomes of 0 and 1, s of them 1, the error is the standard deviation of Beta(s + 1/2, n - s + 1/2), the
    posterior under Jeffreys' prior (Brown, Cai and DasGupta, Interval Estimation for a Binomial Proportion, 2001): n
    that agree are no proof that all would. Of other outcomes it is their deviation (ddof=1) over sqrt(n), and unknown
    where all are equal.
    """
    n = len(outcomes)
    if n == 0:
        return None, None
    mean = sum(outcomes) / n
    if n == 1:
        return mean, None
    if set(outcomes) <= {0, 1}:
        a, b = sum(outcomes) + 0.5, n - sum(outcomes) + 0.5
        return mean, math.sqrt(a * b / (n + 1) ** 2 / (n + 2))
    return mean, math.sqrt(sum((x - mean) ** 2 for x in outcomes) / (n - 1) / n) or None


# --- labels to train a reward model on ----------------------------------------------------------------------------


def label_rows(
    group: Group,
    values: StepValues,
    form: LabelFormat = "trl",
    *,
    estimation: Estimation = "hard",
    cut: float = 0.5,
    step_texts: Sequence[Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """Return the group's completions as rows of process-supervision data, a step's label from its value.

    ``trl`` is TRL's stepwise supervision (``prompt``, ``completions``, ``labels``: true or false, and with soft
    estimation the share of continuations that succeeded); ``processbench`` Qwen/ProcessBench (``problem``, ``steps``,
    ``label`` the first wrong step or -1). A completion with an unscored step gives no row. ``step_texts`` are the
    completions' steps where they are cut already.
    """
    prompt, rows = joined(group.prompt), list[dict[str, Any]]()
    soft = form == "trl" and estimation == "soft"
    labelled: Sequence[Sequence[float | None]] = values.shares() if soft else values.labels(estimation, cut)
    for texts, labels in zip(step_texts or values.step_texts(group), labelled, strict=True):
        steps = [text.strip() for text in texts]
        if None in labels:
            continue
        if form == "trl":
            rows.append({"prompt": prompt, "completions": steps, "labels": list(labels)})
        else:
            first = labels.index(False) if False in labels else -1
            rows.append({"problem": prompt.strip(), "steps": steps, "label": first})
    return rows


def labelled_rows(
    valued: Iterable[tuple[Group, StepValues]],
    form: LabelFormat = "trl",
    estimation: Estimation = "hard",
    most: int | None = None,
) -> Made:
    """``label_rows`` of several groups, with their number and what was left out.

    With ``most`` no group is asked for once so many completions were sampled, continuations included.
    """
    made = Made()
    for group, values in valued:
        rows = label_rows(group, values, form, estimation=estimation)
        made.rows += rows
        made.counts.update(
            {
                "groups": 1,
                "completions": len(group),
                "continuations": values.continuations,
                "completions with an unscored step": len(group) - len(rows),
            }
        )
        if most is not None and made.counts["completions"] + made.counts["continuations"] >= most:
            break
    made.counts["labelled completions"] = len(made.rows)
    return made
