"""Estimate of a run's time and memory: from earlier runs of the same policy, and from its size.

It warns of a learning rate that is far above what is usual for a policy of that size.

Rough on purpose, and says what it is made of. Where nothing was measured it says that there is no estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.config import PolicySection
from workbench.config.run import RunConfig
from workbench.errors import WorkbenchError
from workbench.runs import list_runs
from workbench.schema.numbers import counted
from workbench.ui.handlers.metrics_cache import kept

LOOKED_AT = 30
"""Newest runs among which one of the same policy is sought."""
LEAST_STEPS = 3
PRETRAINED = 50_000_000
"""Parameters from which a policy is taken for a pretrained one."""
ADAPTER_FACTOR = 10
"""How much higher an adapter's rate is than that of all weights (Schulman et al., LoRA Without Regret, 2025)."""
SUSPICIOUS = 15
"""Times the usual rate that are let be: the recipe ``text-to-sql-dpo`` trains at 10 times TRL's default."""
COPIES = 4
"""Weights, gradients and Adam's two moments, all in the weights' number format."""


@dataclass(frozen=True)
class Pace:
    """What an earlier run took: seconds a step, and what a step's batch held (``MethodSection.rows_per_step``)."""

    run: str
    seconds: float
    rows: int


def measured_pace(workspace: Path, method: str, policy: str) -> Pace | None:
    """That of the newest run of ``policy`` by ``method`` in the workspace that got a few steps far."""
    for run in list_runs(workspace)[:LOOKED_AT]:
        try:
            config = run.config()
            if (config.method.name, config.policy.path) != (method, policy) or not config.method.rows_per_step:
                continue
            with kept(run) as known:
                clock = known.columns["seconds"]
                if len(clock) >= LEAST_STEPS and clock.steps[-1] >= LEAST_STEPS:
                    return Pace(run.name, clock.values[-1] / clock.steps[-1], config.method.rows_per_step)
        except WorkbenchError:  # a run that cannot be read tells nothing; the Runs tab says why
            continue
    return None


def estimate(config: RunConfig, pace: Pace | None, parameters: int | None) -> list[tuple[str, str]]:
    """(label, value) for time and memory, and for a learning rate far above the usual.

    ``parameters`` of the policy, if it has been loaded.
    """
    warning = _rate_warning(config, parameters)
    first = [] if warning is None else [("rate", warning)]
    return [*first, ("time", _time(config, pace)), ("memory", _memory(config, parameters))]


def _time(config: RunConfig, pace: Pace | None) -> str:
    if config.run.epochs is not None:
        return "no estimate yet; how many steps the epochs are is counted when the run starts"
    if pace is None:
        return f"no estimate before the first run of this policy by {config.method.name} here"
    planned = config.method.rows_per_step
    step = pace.seconds * planned / pace.rows
    scaled = "" if planned == pace.rows else f", scaled from {pace.rows} to {_batch(config)}"
    steps = config.run.steps
    return f"about {duration(steps * step)}: {counted(steps, 'step')} of {step:.2g} s, the pace of {pace.run}{scaled}"


def _memory(config: RunConfig, parameters: int | None) -> str:
    if not parameters:
        return "no estimate yet; known once the policy has been loaded"
    on_top = f"activations of {_batch(config)} come on top"
    weights = _bytes_a_weight(config.policy) * parameters
    if config.policy.lora is not None or config.policy.adapter is not None:
        return f"at least {_size(weights)} for weights; the adapter and {on_top}"
    copies = COPIES + config.method.has_reference  # a reference policy beside it
    return (
        f"at least {_size(copies * weights)} for weights, gradients and Adam"
        + (" and the reference" if config.method.has_reference else "")
        + f"; {on_top}"
    )


def _rate_warning(config: RunConfig, parameters: int | None) -> str | None:
    """Warning of a learning rate far above the usual of a pretrained policy, as a run's default is; None without."""
    if not parameters or parameters < PRETRAINED:
        return None
    usual = config.method.usual_learning_rate
    adapted = config.policy.lora is not None or config.policy.adapter is not None
    if adapted:
        usual *= ADAPTER_FACTOR
    rate = config.optimiser.learning_rate
    if rate <= SUSPICIOUS * usual:
        return None
    whose = "what is usual for an adapter" if adapted else "the trainer's default"
    return (
        f"{rate:g} is {rate / usual:,.0f} times {whose} ({usual:g}), which {parameters / 1e6:,.0f}M parameters may not "
        "survive; lower it"
    )


def _bytes_a_weight(policy: PolicySection) -> float:
    """Of the weights that a run loads; quantised ones take a little more, for their constants."""
    if policy.quantisation != "none":
        return {"8bit": 1, "4bit": 0.5}[policy.quantisation]
    return 2 if policy.dtype in ("bfloat16", "float16") else 4


def _batch(config: RunConfig) -> str:
    """What a step's batch holds, in words."""
    rows = config.method.rows_per_step
    return (
        counted(rows, "completion") if config.method.kind is None else f"{rows} {config.method.kind.replace('_', ' ')}"
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
