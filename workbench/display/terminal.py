"""The nouns as text for a terminal. What a model wrote is shown so that it cannot steer the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.display.tables import number, table, visible
from workbench.figures.lines import run_charts
from workbench.schema import Credit, Example, Explanation, Group, Prompt, Rollout, ScoredGroup

if TYPE_CHECKING:
    from workbench.checks import Preflight, ProbeReport
    from workbench.credit import Comparison
    from workbench.display.comparing import RunComparison
    from workbench.policies import Policy
    from workbench.policies.step_values import StepValues
    from workbench.rewards.check import RewardCheck
    from workbench.runs import Run
    from workbench.steps.split import Steps
    from workbench.tasks.task import Task


def steps(value: Steps) -> str:
    rows = [(k, one.start, one.end, visible(piece, one_line=True)) for k, one, piece in _cut(value)]
    return table(("k", "start", "end", "step"), rows)


def example(value: Example) -> str:
    return "\n".join([prompt_text(value.prompt).rstrip(), *_columns(value.columns)])


def rollout(value: Rollout) -> str:
    end = "" if value.finished else ", truncated"
    return f"{len(value)} tokens{end}\n{visible(value.text)}"


def group(value: Group) -> str:
    parts = [prompt_text(value.prompt)]
    for i, one in enumerate(value.rollouts, start=1):
        parts.append(f"— rollout {i}: {rollout(one)}")
    return "\n\n".join(parts)


def scored(value: ScoredGroup) -> str:
    """Each rollout's steps with what every reward function gave them."""
    names = [reward.name for reward in value.rewards if reward.kind == "step"]
    parts = [prompt_text(value.group.prompt)]
    for i, (one, scores) in enumerate(zip(value.group.rollouts, value.scored, strict=True), start=1):
        rows = [
            (
                k + 1,
                *(scores.scores[name][k] for name in names),
                scores.rewards[k],
                visible(one.text[step.start : step.end], one_line=True),
            )
            for k, step in enumerate(scores.steps)
        ]
        parts.append(f"— rollout {i}{_outcome(scores.outcome)}\n" + table(("k", *names, "reward", "step"), rows))
    return "\n\n".join(parts)


def credit(value: Credit) -> str:
    """Each rollout's steps with reward, normalised reward, and the advantage of the step's last token."""
    pool = f"mean {number(value.mean)}, std {number(value.std)}"
    parts = [prompt_text(value.scored.group.prompt), f"scheme {value.scheme}: {pool}"]
    if not value.spread:
        parts.append("no spread: every advantage is 0, there is nothing to learn from this group")
    parts += [f"note: {visible(warning)}" for warning in value.warnings]
    for i, one in enumerate(value.scored.group.rollouts):
        scores = value.scored.scored[i]
        end = "" if one.finished else ", truncated"
        missed = "" if scores.matched else ", no match"
        rows = [
            (
                str(k),
                *(step[name] for name in ("reward", "normalised", "advantage")),
                visible(step["text"], one_line=True),
            )
            for k, step in enumerate(step_rows(value, i), start=1)
        ]
        parts.append(
            f"— rollout {i + 1}: {len(one)} tokens{_outcome(scores.outcome)}{missed}{end}\n"
            + table(("k", "reward", "normalised", "advantage", "step"), rows)
        )
    return "\n\n".join(parts)


def step_rows(value: Credit, i: int) -> list[dict[str, Any]]:
    """Rollout ``i``'s steps as plain values, each with the advantage of its last token."""
    text, scores, advantages = value.scored.group.rollouts[i].text, value.scored.scored[i], value.of(i)
    return [
        {
            **dataclasses.asdict(step),
            "text": text[step.start : step.end],
            "first_token": first,
            "last_token": last,
            "scores": {name: values[k] for name, values in scores.scores.items()},
            "reward": scores.rewards[k],
            "normalised": value.normalised[i][k],
            "advantage": float(advantages[last]) if len(advantages) else None,
        }
        for k, (step, (first, last)) in enumerate(zip(scores.steps, scores.spans, strict=True))
    ]


def explanation(value: Explanation) -> str:
    """The terms, their sum and the advantage that it is in float32."""
    head = f"rollout {value.rollout + 1}, token {value.token}"
    rows = [
        (
            term.source if term.step is None else f"step {term.step + 1}",
            term.raw,
            term.mean,
            term.std,
            term.normalised,
            term.factor,
            term.value,
        )
        for term in value.terms
    ]
    body = table(("of", "raw", "mean", "std", "normalised", "factor", "value"), rows) if rows else "no term"
    bound = "" if value.clip is None else f", bounded by {value.clip:g}"
    return f"{head}\n{body}\nsum {value.total:+.6f}, advantage {float(value.advantage):+.6f}{bound}"


def comparison(value: Comparison) -> str:
    together = "undefined" if value.correlation is None else f"{value.correlation:.3f}"
    rows = [(s.rollout + 1, s.step + 1, s.tokens, s.mean_a, s.mean_b, s.flipped) for s in value.steps]
    names = value.a.scheme, value.b.scheme
    return (
        f"{names[0]} against {names[1]}: {value.flipped_share:.1%} of the tokens change sign, correlation {together}, "
        f"mean absolute difference {value.mean_absolute_difference:.3f}\n"
        + table(("rollout", "k", "tokens", *names, "flipped"), rows)
    )


def probes(value: ProbeReport) -> str:
    return visible(str(value))


def preflight(value: Preflight) -> str:
    return visible(str(value))


def reward_check(value: RewardCheck) -> str:
    return visible(f"{value.reward} against {value.labels}\n" + table(("", ""), value.rows()))


def step_values(value: StepValues) -> str:
    rows = [
        (i + 1, k + 1, v, error, count)
        for i, row in enumerate(value.values)
        for k, (v, error, count) in enumerate(zip(row, value.errors[i], value.counts[i], strict=True))
    ]
    head = visible(f"values by {value.outcome}, {value.k} continuations a step, prompt {number(value.start)}")
    return f"{head}\n" + table(("rollout", "k", "value", "standard error", "continuations"), rows)


def policy(value: Policy) -> str:
    return f"policy {value.name}: {_millions(value)} parameters on {value.model.device}"


def task(value: Task) -> str:
    return "\n".join(f"{name:11} {visible(fact, one_line=True)}" for name, fact in task_facts(value))


def task_facts(value: Task) -> list[tuple[str, str]]:
    return [
        ("task", value.name),
        ("examples", f"{len(value.examples):,} to train on, {len(value.held_out):,} held out"),
        ("pattern", f"{value.pattern.regex} ({value.pattern.kind})"),
        ("rewards", ", ".join(reward.name for reward in value.rewards) or "none of its own"),
        ("scheme", value.scheme),
        ("prompt", prompt_text(value[0].prompt).strip()),
    ]


def run(value: Run) -> str:
    status = value.status()
    rows, _ = value.metrics_rows()
    where = f"step {status.step} of {status.total_steps}"
    head = f"{value.name}: {status.state}{f', {status.reason}' * bool(status.reason)}, {where}"
    return f"{head}\n{run_charts(rows)}".rstrip()


def run_comparison(value: RunComparison) -> str:
    rows = [tuple(dataclasses.asdict(row).values()) for row in value.rows]
    return table([field.name for field in dataclasses.fields(value.rows[0])], rows) if rows else "no runs"


def prompt_text(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return visible(prompt)
    return "\n".join(f"{visible(message['role'], one_line=True)}: {visible(message['content'])}" for message in prompt)


def _cut(value: Steps) -> Iterable[tuple[int, Any, str]]:
    return ((k, one, value.text[one.start : one.end]) for k, one in enumerate(value, start=1))


def _columns(columns: Mapping[str, Any]) -> list[str]:
    return [f"{visible(name, one_line=True)}: {visible(str(value), one_line=True)}" for name, value in columns.items()]


def _outcome(value: float | None) -> str:
    return "" if value is None else f", outcome {value:.3f}"


def _millions(value: Policy) -> str:
    return f"{sum(p.numel() for p in value.model.parameters()) / 1e6:.1f} million"
