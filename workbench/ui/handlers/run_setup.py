"""Setup of the run that Start would start: its settings from Inspect, its estimate and its code.

Training itself is a process of its own that this one only starts.
"""

from __future__ import annotations

from workbench.errors import WorkbenchError
from workbench.figures.heatmap import to_json
from workbench.redact import redact
from workbench.runs import default_workspace, start
from workbench.runs.check import with_absolute_paths
from workbench.ui.handlers.credit import summary
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.notebook import train_code
from workbench.ui.handlers.reward_rows import RewardRow
from workbench.ui.handlers.run_estimate import estimate, measured_pace
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services


def inherited(draft: Draft) -> list[tuple[str, str]]:
    """What Train takes over from Inspect, as (label, value)."""
    rewards = [_reward_line(row) for row in draft.rows if row is not None and row.on]
    sampling = draft.tree["method"]["sampling"]
    size, length, temperature = (sampling[name] for name in ("num_generations", "max_completion_length", "temperature"))
    incomplete = None in (size, length, temperature)
    return [
        ("task", draft.task),
        ("policy", draft.policy),
        ("pattern", f"{draft.regex}  ({draft.kind})"),
        ("rewards", ", ".join(rewards) or "none is on"),
        ("credit", summary(draft.credit)),
        ("sampling", "incomplete" if incomplete else f"G {size:g}, {length:g} tokens, T {temperature:g}"),
    ]


def estimated(draft: Draft, services: Services) -> list[tuple[str, str]]:
    """What the run that Start would start will take; nothing while a field is not as it should be."""
    try:
        config = draft.config()
    except WorkbenchError:  # Start says what is wrong
        return []
    status = services.policy.status()
    parameters = status.parameters if status.policy == config.policy.path else None
    stored_path = with_absolute_paths(config).policy.path
    return estimate(config, measured_pace(services.workspace, stored_path), parameters)


def _reward_line(row: RewardRow) -> str:
    if row.monte_carlo is not None:
        name = f"{row.name} (k={row.monte_carlo.continuations})"
        if not row.in_run:
            return f"without {name}"
    elif row.model is not None:
        name = f"{row.name} (model)"
    else:
        name = f"{row.name}{'' if row.is_builtin else ' (edited)'}"
    return name + (f" × {row.weight:g}" if row.weight not in (None, 1.0) else "")


def start_run(draft: Draft, services: Services) -> tuple[str | None, Note | None]:
    """Start a run; its name, or what to put right. Code that was typed here is trusted from now on."""
    try:
        config = draft.config()
        for reward in config.method.reward_functions:
            if reward.foreign is not None:
                services.trust.trust(reward.foreign)
        run = start(config, services.workspace)
    except WorkbenchError as error:
        return None, Note(str(error))
    return run.name, None


def notebook(draft: Draft, services: Services) -> str:
    """What Start would start as Python, or why there is none, as the page's script takes it."""
    usual = default_workspace().resolve() == services.workspace
    try:
        return to_json({"code": train_code(draft.config(), None if usual else services.workspace)})
    except WorkbenchError as error:
        return to_json({"problem": redact(f"There is no code for this yet: {error}")})
