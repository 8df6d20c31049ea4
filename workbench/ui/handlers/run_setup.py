"""Setup of the run that Start would start: its settings from Inspect, its estimate and its code.

Training itself is a process of its own that this one only starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from workbench.checks.alarms import FAR_OFF
from workbench.config import EngineSection, OptimiserSection, TaskSection
from workbench.data import HUB
from workbench.errors import WorkbenchError, redact
from workbench.policies.find import policy_path
from workbench.policies.served import check_connection
from workbench.runs import default_workspace, list_runs
from workbench.runs.check import with_absolute_paths
from workbench.schema import counted
from workbench.training.methods import METHODS, RunConfig
from workbench.ui.handlers.example import find_task
from workbench.ui.handlers.fields import summary, takes
from workbench.ui.handlers.page_state import PageState, RewardRow
from workbench.ui.handlers.run_follow import kept
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.handlers.sharing import train_code
from workbench.views.heatmap import to_json
from workbench.views.panels import LARGE, panels_of


def inherited(draft: PageState) -> list[tuple[str, str]]:
    """Return what Train takes over from Inspect, as (label, value): what the method chosen has of it."""
    rewards = [_reward_line(row) for row in draft.rows if row.on]
    sampling = draft.tree["method"]["sampling"]
    size, length, temperature = (sampling[name] for name in ("num_generations", "max_completion_length", "temperature"))
    if None in (size, length, temperature):
        sampled = "incomplete"
    else:
        group = f"G {size:g}, " if samples(draft) else ""  # of held-out prompts there is one answer each
        sampled = f"{group}{length:g} tokens, T {temperature:g}"
    parts = {
        "pattern": f"{draft.regex}  ({draft.kind})",
        "rewards": ", ".join(rewards) or "none is on",
        "credit": summary(draft.credit),
        "sampling": sampled,
    }
    taken = [(part, line) for part, line in parts.items() if takes(draft.method, part)]
    return [("task", draft.task), ("policy", draft.policy), *taken]


def samples(draft: PageState) -> bool:
    """Return whether a run of the method chosen trains on groups that it samples."""
    return METHODS[draft.method].has_rollouts


def planned_charts(draft: PageState) -> list[tuple[str, str]]:
    """The charts that Train shows first of a run by the method chosen, as (title, what it shows)."""
    charts = []
    for panel in panels_of(METHODS[draft.method].metrics)[:LARGE]:
        meaning = re.sub(r"^[\w, ]+: ", "", panel.metrics[0].meaning)  # the methods that have it
        first, *_ = re.split(r"[.;](?: |$)", meaning)
        charts.append((panel.title, first[:1].upper() + first[1:]))
    return charts


def rows_found(draft: PageState) -> Note | None:
    """Return how many rows the method chosen would train on, or why there are none; None for one that samples."""
    kind = METHODS[draft.method].section.kind
    if kind is None:
        return None
    data = draft.tree["task"]["data"]
    name, words = data or draft.task, kind.replace("_", " ")
    if name.startswith(HUB):
        return Note(f"{words} of {name.removeprefix(HUB)}: counted when the run reads them", level="info")
    try:
        columns = draft.tree["task"]["data_columns"]
        section = TaskSection.parse({"name": data, "columns": columns}) if data else draft.task_section()
        task = find_task(section)
        rows, held_out = (len(task.rows(kind, held_out=held)) for held in (False, True))  # type: ignore[arg-type]
    except WorkbenchError as error:
        return Note(f"{error}; give a file of {words} as data, or choose another task")
    return Note(f"{rows:,} {words} to train on, {held_out:,} held out", level="info")


def estimated(draft: PageState, services: Services) -> list[tuple[str, str]]:
    """Return what the run that Start would start will take; nothing while a field is not as it should be."""
    try:
        config = draft.config()
    except WorkbenchError:  # Start says what is wrong
        return []
    status = services.models.status()
    known = (status.parameters, status.vocabulary) if status.policy == config.policy.path else (None, 0)
    stored_path = with_absolute_paths(config).policy.path
    return estimate(config, measured_pace(services.workspace, config.method.name, stored_path), *known)


def _reward_line(row: RewardRow) -> str:
    if row.monte_carlo is not None:
        name = f"{row.name} (k={row.monte_carlo.continuations})"
        if not row.in_run:
            return f"without {name}"
    elif row.model is not None:
        name = f"{row.name} (model)"
    elif row.judge is not None:
        name = f"{row.name} (judge)"
    elif row.belief is not None:
        name = f"{row.name} ({row.belief.form} of the {row.belief.of})"
    else:
        name = f"{row.name}{'' if row.is_builtin else ' (edited)'}"
    if row.is_scheduled:
        return name + row.unweighted().weight_text
    return name + (" (watched)" if row.weight == 0 else f" × {row.weight:g}" if row.weight not in (None, 1.0) else "")


def asked_engine(draft: PageState) -> Note:
    """Ask the server of the engine section whether a run could train on it."""
    try:
        section = EngineSection.parse(draft.tree["engine"], "engine")
        return Note(check_connection(section, section.base_model or policy_path(draft.policy)), level="info")
    except WorkbenchError as error:
        return Note(redact(str(error)))


def start_run(draft: PageState, services: Services) -> tuple[str | None, Note | None]:
    """Start a run; its name, or what to put right."""
    try:
        return services.start(draft.config()).name, None
    except WorkbenchError as error:
        return None, Note(str(error))


def notebook(draft: PageState, services: Services) -> str:
    """Return what Start would start as Python, or why there is none, as the page's script takes it."""
    usual = default_workspace().resolve() == services.workspace
    try:
        return to_json({"code": train_code(draft.config(), None if usual else services.workspace)})
    except WorkbenchError as error:
        return to_json({"problem": redact(f"There is no code for this yet: {error}")})


# ── time and memory ──────────────────────────────────────────────────────────────────────────────────────────────

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
    scaled = "" if planned == pace.rows else f", scaled from {pace.rows} to {_batch(config)}"
    steps = config.run.steps
    return f"about {duration(steps * step)}: {counted(steps, 'step')} of {step:.2g} s, the pace of {pace.run}{scaled}"


def _memory(config: RunConfig, parameters: int | None, vocabulary: int) -> str:
    if not parameters:
        return "no estimate yet; known once the policy has been loaded"
    policy, method = config.policy, config.method
    on_top = "activations"
    if vocabulary and method.rollouts_per_step:
        rows = min(config.run.micro_batch_size or method.rows_per_step, method.rows_per_step)
        logits = _size(rows * config.sampled.sampling.max_completion_length * vocabulary * LOGITS_BYTES)
        on_top = f"up to {logits} of logits, plus activations"
    quantised = {"8bit": 1, "4bit": 0.5}.get(policy.quantisation)  # and a little more, for their constants
    plain = 2 if policy.dtype in ("bfloat16", "float16") else 4
    weights = (plain if quantised is None else quantised) * parameters
    if config.policy.lora is not None or config.policy.adapter is not None:
        return f"≥ {_size(weights)} plus the adapter, {on_top}"
    copies = COPIES + config.method.has_reference  # a reference policy beside it
    return f"≥ {_size(copies * weights)} plus {on_top}"


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


def _batch(config: RunConfig) -> str:
    """Return what a step's batch holds, in words."""
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
