"""Trackers beside a run: transformers' own callbacks give them the metrics, this module the heatmaps and alarms.

What a tracker does with what it gets, and where it keeps it, is the tracker's own affair; a run's directory stays the
truth about it. TensorBoard gets metrics alone: it shows no HTML.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from workbench.checks import alarms
from workbench.config import SharedConfig
from workbench.rundir import RunDir
from workbench.schema import Credit, WatchedRow
from workbench.views.heatmap import heatmap

_ROWS = 240  # four times what an alarm looks at, because not every row has every metric
_NOT_METRICS = ("step", "time")


class Tracking:
    """Gives the trackers of a run its new alarms, and heatmaps in the steps in which watched prompts are looked at."""

    def __init__(self, run: RunDir, config: SharedConfig) -> None:
        self._names, self._every, self._config = config.run.report_to, config.run.watch_every, config
        self._rows: deque[Mapping[str, Any]] = deque(maxlen=_ROWS)
        self._raised: set[str] = set()
        # Where trackers look for what transformers does not tell them; a resumed run goes on in wandb.
        os.environ.setdefault("WANDB_PROJECT", config.run.project)
        os.environ.setdefault("WANDB_RUN_ID", hashlib.sha256(str(run.path).encode()).hexdigest()[:12])
        os.environ.setdefault("WANDB_RESUME", "allow")
        os.environ.setdefault("WANDB_DIR", str(run.path))
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(run.path / "tensorboard"))

    def row(self, row: Mapping[str, Any]) -> None:
        """Tell of the alarms that this row of ``metrics.jsonl`` raises."""
        self._rows.append(row)
        present = {alarm.name: alarm.text for alarm in alarms(list(self._rows))}
        for name in present.keys() - self._raised:
            text = f"step {row.get('step')}: {present[name]}"
            self._each(lambda tracker, name=name, text=text: tracker.alert(title=name, text=text))  # type: ignore[misc]
        self._raised = set(present)

    def rollouts(self, step: int, credits: Sequence[Credit]) -> None:
        """Show the heatmap of a generation's first group."""
        if credits and (step - 1) % self._every == 0:
            self._html("heatmap/rollouts", heatmap(credits[0]).html())

    def watched(self, values: Sequence[Credit | WatchedRow]) -> None:
        """Show the heatmaps of watched prompts or rows."""
        for number, value in enumerate(values, start=1):
            self._html(f"heatmap/watched-{number}", heatmap(value).html())

    def _html(self, name: str, document: str) -> None:
        self._each(lambda tracker: tracker.log({name: tracker.Html(document)}))

    def _each(self, tell: Callable[[Any], object]) -> None:
        for tracker in self._trackers():
            try:
                tell(tracker)
            except Exception as error:  # of somebody's network or disk; the run's directory has it all
                print(f"run.report_to: {tracker.__name__} did not take it: {error}", flush=True)

    def _trackers(self) -> Iterator[Any]:
        """Yield the packages, whose ``log``, ``alert`` and ``Html`` are alike, and which know the run that is open."""
        if "wandb" in self._names:
            import wandb

            yield wandb
        if "trackio" in self._names:
            import trackio

            yield trackio


def track_run(run: RunDir, config: SharedConfig) -> None:
    """Give the trackers in ``run.report_to`` a whole run from its directory, as they would have got it."""
    from transformers import TrainerControl, TrainerState, TrainingArguments
    from transformers.integrations import get_reporting_integration_callbacks

    tracking, names = Tracking(run, config), config.run.report_to
    callbacks = [kind() for kind in get_reporting_integration_callbacks(names)]
    args: Any = TrainingArguments(
        output_dir=str(run.path), run_name=run.name, project=config.run.project, report_to="none", use_cpu=True
    )
    state, control = TrainerState(), TrainerControl()
    for callback in callbacks:
        callback.on_train_begin(args, state, control)
    looks, generations = run.rollouts.steps(watched=True), run.rollouts.steps()
    rows = {int(row.get("step") or 0): row for row in run.read_metrics()[0]}
    for step in sorted({*rows, *looks, *generations}):
        state.global_step = step
        if step in looks:
            stored = config.method.kind is not None
            tracking.watched(run.rollouts.read_rows(step) if stored else run.rollouts.read(step, watched=True))
        if step in generations:
            tracking.rollouts(step, run.rollouts.read(step))
        if step in rows:
            numbers = {name: value for name, value in rows[step].items() if type(value) in (int, float)}
            logs = {name: n for name, n in numbers.items() if name not in _NOT_METRICS and math.isfinite(n)}
            for callback in callbacks:
                callback.on_log(args, state, control, logs=logs)
            tracking.row(rows[step])
    for callback in callbacks:
        callback.on_train_end(args, state, control)
