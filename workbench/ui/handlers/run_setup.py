"""Setup of the run that Start would start: its settings from Inspect, its estimate and its code.

Training itself is a process of its own that this one only starts.
"""

from __future__ import annotations

import re
from contextlib import suppress

from workbench.config import EngineSection, TaskSection
from workbench.data import HUB
from workbench.errors import WorkbenchError, cut, redact
from workbench.models.find import policy_path
from workbench.policies.served import check_connection
from workbench.runs import default_workspace, open_run
from workbench.runs.check import with_absolute_paths
from workbench.runs.compare import differences
from workbench.schema import counted
from workbench.training.methods import METHODS, RunConfig
from workbench.ui.handlers.example import find_task
from workbench.ui.handlers.fields import summary, takes
from workbench.ui.handlers.page_state import PageState, RewardRow
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.handlers.sharing import train_code
from workbench.views.estimate import estimate, measured_pace
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


def estimated(draft: PageState, services: Services, watched: str = "") -> list[tuple[str, str]]:
    """Return what the run that Start would start will take, and how it differs from the run that is ``watched``.

    Nothing while a field is not as it should be.
    """
    try:
        config = draft.config()
    except WorkbenchError:  # Start says what is wrong
        return []
    status = services.models.status()
    known = (status.parameters, status.vocabulary) if status.policy == config.policy.path else (None, 0)
    stored_path = with_absolute_paths(config).policy.path
    takes = estimate(config, measured_pace(services.workspace, config.method.name, stored_path), *known)
    with suppress(WorkbenchError):  # it may be gone
        if watched:
            apart = _apart(config, open_run(watched, services.workspace).config())
            same = "in nothing: it would be the run shown again"
            takes.append(("differs", f"from the run shown: {apart}" if apart else same))
    return takes


def _apart(config: RunConfig, other: RunConfig) -> str:
    """Say in which settings a run would differ from another one, in a few words; "" for none."""
    if config.method.name != other.method.name:
        return f"method {config.method.label}, not {other.method.label}"
    rows = differences({"next": with_absolute_paths(config), "other": other})
    named = [(row["field"].rpartition(".")[2].replace("_", " "), *row["values"]) for row in rows]
    parts = [f"{name} {then}, not {before}" for name, then, before in named]
    said = [cut(part, LONGEST_APART) for part in parts[:MOST_APART]]
    said += [f"{counted(len(parts) - MOST_APART, 'setting')} more"] if len(parts) > MOST_APART else []
    return "; ".join(said)


MOST_APART = 4
"""Settings in which two runs differ that are named."""
LONGEST_APART = 80
"""Characters of one."""


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
