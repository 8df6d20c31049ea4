"""Estimate of a run's time and memory: from earlier runs of the same policy, and from its size.

Rough on purpose, and says what it is made of. Where nothing was measured it says that there is no estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.config import RunConfig
from workbench.errors import WorkbenchError
from workbench.runs import list_runs
from workbench.schema.wording import counted
from workbench.ui.handlers.metrics_cache import kept

LOOKED_AT = 30
"""Newest runs among which one of the same policy is sought."""
LEAST_STEPS = 3
BYTES_A_PARAMETER = 16
"""float32 weights, gradients and Adam's two moments."""


@dataclass(frozen=True)
class Pace:
    """What an earlier run took: seconds a step, and completions in a step."""

    run: str
    seconds: float
    completions: int


def measured_pace(workspace: Path, policy: str) -> Pace | None:
    """That of the newest run of ``policy`` in the workspace that got a few steps far."""
    for run in list_runs(workspace)[:LOOKED_AT]:
        try:
            config = run.config()
            if config.policy.path != policy or not completions(config):
                continue
            with kept(run) as known:
                clock = known.columns["seconds"]
                if len(clock) >= LEAST_STEPS and clock.steps[-1] >= LEAST_STEPS:
                    return Pace(run.name, clock.values[-1] / clock.steps[-1], completions(config))
        except WorkbenchError:  # a run that cannot be read tells nothing; the Runs tab says why
            continue
    return None


def completions(config: RunConfig) -> int:
    """Completions of one generation."""
    return config.method.rollouts_per_step


def estimate(config: RunConfig, pace: Pace | None, parameters: int | None) -> list[tuple[str, str]]:
    """(label, value) for time and memory. ``parameters`` of the policy, if it has been loaded."""
    return [("time", _time(config, pace)), ("memory", _memory(config, parameters))]


def _time(config: RunConfig, pace: Pace | None) -> str:
    if pace is None:
        return "no estimate yet; the first run of this policy here gives one"
    planned = completions(config)
    step = pace.seconds * planned / pace.completions
    scaled = (
        "" if planned == pace.completions else f", scaled from {pace.completions} to {counted(planned, 'completion')}"
    )
    steps = config.run.steps
    return f"about {duration(steps * step)}: {counted(steps, 'step')} of {step:.2g} s, the pace of {pace.run}{scaled}"


def _memory(config: RunConfig, parameters: int | None) -> str:
    if not parameters:
        return "no estimate yet; known once the policy has been loaded"
    copies = BYTES_A_PARAMETER + (4 if config.method.has_reference else 0)  # a reference policy beside it
    return (
        f"at least {_size(copies * parameters)} for weights, gradients and Adam"
        + (" and the reference" if config.method.has_reference else "")
        + f"; activations of {completions(config)} completions come on top"
    )


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 600 and whole % 60:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
