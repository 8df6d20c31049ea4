"""Setup of the run that Start would start: its settings from Inspect, its estimate and its code.

Training itself is a process of its own that this one only starts.
"""

from __future__ import annotations

from workbench.config import TaskSection
from workbench.config.run import METHODS
from workbench.data import HUB
from workbench.errors import WorkbenchError, redact
from workbench.runs import default_workspace
from workbench.runs.check import with_absolute_paths
from workbench.ui.handlers.credit import summary
from workbench.ui.handlers.example import find_task
from workbench.ui.handlers.fields import takes
from workbench.ui.handlers.metrics_cache import estimate, measured_pace
from workbench.ui.handlers.notebook import train_code
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.reward_rows import RewardRow
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.views.heatmap import to_json


def inherited(draft: PageState) -> list[tuple[str, str]]:
    """What Train takes over from Inspect, as (label, value): what the method chosen has of it."""
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
    """Whether a run of the method chosen trains on groups that it samples."""
    return METHODS[draft.method].has_rollouts


def rows_found(draft: PageState) -> Note | None:
    """How many rows the method chosen would train on, or why there are none; None for one that samples."""
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
    """What the run that Start would start will take; nothing while a field is not as it should be."""
    try:
        config = draft.config()
    except WorkbenchError:  # Start says what is wrong
        return []
    status = services.models.status()
    parameters = status.parameters if status.policy == config.policy.path else None
    stored_path = with_absolute_paths(config).policy.path
    return estimate(config, measured_pace(services.workspace, config.method.name, stored_path), parameters)


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


def start_run(draft: PageState, services: Services) -> tuple[str | None, Note | None]:
    """Start a run; its name, or what to put right."""
    try:
        return services.start(draft.config()).name, None
    except WorkbenchError as error:
        return None, Note(str(error))


def notebook(draft: PageState, services: Services) -> str:
    """What Start would start as Python, or why there is none, as the page's script takes it."""
    usual = default_workspace().resolve() == services.workspace
    try:
        return to_json({"code": train_code(draft.config(), None if usual else services.workspace)})
    except WorkbenchError as error:
        return to_json({"problem": redact(f"There is no code for this yet: {error}")})
