"""Estimates before a run is started: time by an earlier run's pace, memory, and a learning rate that is too high."""

from dataclasses import dataclass
from pathlib import Path

from workbench.checks.alarms import FAR_OFF
from workbench.config import OptimiserSection
from workbench.errors import WorkbenchError
from workbench.runs import list_runs
from workbench.schema import say_count
from workbench.training.methods import RunConfig
from workbench.views.log import open_log

LOOKED_AT = 30
"""Newest runs among which one of the same policy is sought."""
LEAST_STEPS = 3
PRETRAINED = 50_000_000
"""Parameters from which a policy is taken for a pretrained one."""
ADAPTER_FACTOR = 10
"""How much higher an adapter's rate is than that of all weights (Schulman et al., LoRA Without Regret, 2025)."""
SUSPICIOUS = 15
"""Times the usual rate that are let be: the recipe ``text-to-sql-dpo`` trains at 10 times TRL's default."""
LOGITS_BYTES = 8
"""Of a logit and its gradient, in float32; half of it in 16 bits."""
COPIES = 4
"""Weights, gradients and Adam's two moments, all in the weights' number format."""


@dataclass(frozen=True)
class Pace:
    """The pace of an earlier run: seconds a step, and what a step's batch held (``MethodSection.rows_per_step``)."""

    run: str
    seconds: float
    rows: int


def measured_pace(workspace: Path, method: str, policy: str) -> Pace | None:
    """Return the pace of the newest run of ``policy`` by ``method`` in the workspace that got a few steps far."""
    for run in list_runs(workspace)[:LOOKED_AT]:
        try:
            config = run.config()
            if (config.method.name, config.policy.path) != (method, policy) or not config.method.rows_per_step:
                continue
            with open_log(run) as known:
                steps, seconds = known.columns["seconds"]
                if len(steps) >= LEAST_STEPS and steps[-1] >= LEAST_STEPS:
                    return Pace(run.name, seconds[-1] / steps[-1], config.method.rows_per_step)
        except WorkbenchError:  # a run that cannot be read tells nothing; the Runs tab says why
            continue
    return None


def estimate(
    config: RunConfig, pace: Pace | None, parameters: int | None, vocabulary: int = 0
) -> list[tuple[str, str]]:
    """(label, value) for time and memory, and for a learning rate that is too high, or too low for bfloat16 weights.

    ``parameters`` and ``vocabulary`` of the policy, if it has been loaded.
    """
    warnings = [_rate_warning(config, parameters), config.lost_updates]
    rates = [("rate", warning) for warning in warnings if warning is not None]
    return [*rates, ("time", _time(config, pace)), ("memory", _memory(config, parameters, vocabulary))]


def _time(config: RunConfig, pace: Pace | None) -> str:
    if config.run.epochs is not None:
        return "no estimate yet; how many steps the epochs are is counted when the run starts"
    if pace is None:
        return f"estimate after your first {config.method.name.upper()} run of this policy"
    planned = config.method.rows_per_step
    step = pace.seconds * planned / pace.rows
    rows = (config.method.kind or "completions").replace("_", " ")
    scaled = "" if planned == pace.rows else f", scaled from {pace.rows} to {planned:,} {rows}"
    steps = config.run.steps
    return f"about {duration(steps * step)}: {say_count(steps, 'step')} of {step:.2g} s, the pace of {pace.run}{scaled}"


def _memory(config: RunConfig, parameters: int | None, vocabulary: int) -> str:
    if not parameters:
        return "no estimate yet; known once the policy has been loaded"
    policy, method = config.policy, config.method
    on_top = "activations"
    if vocabulary and method.rollouts_per_step:
        rows = min(config.run.micro_batch_size or method.rows_per_step, method.rows_per_step)
        logits = _size(rows * config.sampling_section.sampling.max_completion_length * vocabulary * LOGITS_BYTES)
        on_top = f"up to {logits} of logits, plus activations"
    quantised = {"8bit": 1, "4bit": 0.5}.get(policy.quantisation)  # and a little more, for their constants
    plain = 2 if policy.dtype in ("bfloat16", "float16") else 4
    weights = (plain if quantised is None else quantised) * parameters
    if config.policy.lora is not None or config.policy.adapter is not None:
        return f"≥ {_size(weights)} plus the adapter, {on_top}"
    # A reference policy stands beside it.
    return f"≥ {_size((COPIES + config.method.has_reference) * weights)} plus {on_top}"


def _rate_warning(config: RunConfig, parameters: int | None) -> str | None:
    """Warning of a learning rate far above the usual of such a policy; None without.

    Of a pretrained one that is the trainer's default, of a small one, or one not loaded yet, a run's.
    """
    rate, usual, most, whose = config.optimiser.learning_rate, OptimiserSection().learning_rate, FAR_OFF, "the default"
    if parameters and parameters >= PRETRAINED:
        usual, most, whose = config.method.usual_learning_rate, SUSPICIOUS, "the trainer's default"
        if config.policy.lora is not None or config.policy.adapter is not None:
            usual, whose = ADAPTER_FACTOR * usual, "what is usual for an adapter"
    if rate <= most * usual:
        return None
    times = float(f"{rate / usual:.2g}")
    return f"{rate:g} is {times:,.0f} times {whose} ({usual:g}), which such a policy may not survive; lower it"


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
