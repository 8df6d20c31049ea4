"""A pipeline's stages as rows of a table, for notebooks and terminals."""

from __future__ import annotations

from typing import Any

from workbench.display.tables import number, visible
from workbench.runs.pipelines import StageProgress

PROGRESS_COLUMNS = ("stage", "kind", "state", "step", "measure", "before → after", "rows")
_NAMES = {"accuracy": "accuracy", "pair_accuracy": "pair accuracy", "step_accuracy": "step accuracy"}


def stage_row(stage: StageProgress) -> tuple[Any, ...]:
    """What ``PROGRESS_COLUMNS`` name."""
    step = f"{stage.step} of {stage.total}" if stage.total else ""
    state = f"{stage.state}: {stage.reason}" if stage.reason and stage.state not in ("finished",) else stage.state
    shown = visible(state, one_line=True)
    return stage.name, stage.kind, shown, step, _NAMES.get(stage.metric or "", ""), _change(stage), stage.rows


def measured(stage: StageProgress) -> str:
    """The held-out measure before and after the stage, in words; "" where it has none."""
    return "" if stage.metric is None else f"{_NAMES[stage.metric]} {_change(stage)}"


def _change(stage: StageProgress) -> str:
    return "" if stage.metric is None else f"{number(stage.before)} → {number(stage.after)}"
