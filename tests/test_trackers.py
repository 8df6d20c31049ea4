"""What trackers get of a run, by fakes in the place of the packages and of transformers' callbacks."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from transformers import TrainerCallback, integrations

from tests.credits import make_credit, make_rollout
from workbench.process.train import track_run
from workbench.rundir import RunDir
from workbench.training.methods import RunConfig

ROWS = [
    {"step": n, "time": 1.0 + n, "loss": 0.5 / n, "zero_spread_share": 0.9, "kl": math.nan, "note": "text"}
    for n in range(1, 21)
]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """What the fakes of trackio and of its callback are told."""
    told = list[tuple[Any, ...]]()
    trackio = ModuleType("trackio")
    trackio.Html = lambda document: ("Html", document[:15].lower())  # type: ignore[attr-defined]
    trackio.log = lambda values: told.append(("log", values))  # type: ignore[attr-defined]
    trackio.alert = lambda title, text: told.append(("alarm", title, text))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", trackio)

    class Callback(TrainerCallback):
        def on_train_begin(self, args: Any, *_: Any, **__: Any) -> None:
            told.append(("begin", args.run_name, args.project))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            told.append(("metrics", state.global_step, logs))

        def on_train_end(self, *_: Any, **__: Any) -> None:
            told.append(("end",))

    monkeypatch.setattr(integrations, "get_reporting_integration_callbacks", lambda names: [Callback for _ in names])
    return iter([told])


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run of 20 steps whose groups had no spread, with rollouts of two generations and one look."""
    config = {"name": "first", "run": {"steps": 20, "watch_every": 10, "project": "sums"}, "seed": 3}
    run = RunDir.create(tmp_path, RunConfig.parse(config))
    credit = make_credit([make_rollout("ab"), make_rollout("cd")], [[1], [1]], [[1.0], [0.0]])
    for step in (1, 2, 11):
        run.rollouts.write(step, [credit, credit])
    run.rollouts.write(10, [credit], watched=True)
    for row in ROWS:
        run.append_metrics(row)
    run.sync_metrics()
    return run


def config_of(run: RunDir, *trackers: str) -> RunConfig:
    config = RunConfig.from_yaml(run.config_text())
    config.run.report_to = list(trackers)  # type: ignore[arg-type]
    return config


def test_a_finished_run_s_metrics_alarms_and_heatmaps_go_to_a_tracker(told: Any, run: RunDir) -> None:
    track_run(run, config_of(run, "trackio"))
    told = next(told)
    assert (told[0], told[-1]) == (("begin", "first", "sums"), ("end",))
    metrics = [entry for entry in told if entry[0] == "metrics"]
    assert metrics[0] == ("metrics", 1, {"loss": 0.5, "zero_spread_share": 0.9})  # no times, no texts, no NaN
    assert len(metrics) == 20
    heatmaps = [name for kind, *values in told if kind == "log" for name in values[0]]
    assert heatmaps == ["heatmap/rollouts", "heatmap/watched-1", "heatmap/rollouts"]
    assert next(values for kind, values in [e for e in told if e[0] == "log"])["heatmap/rollouts"] == (
        "Html",
        "<!doctype html>",
    )
    assert [(title, text.partition(":")[0]) for kind, title, text in [e for e in told if e[0] == "alarm"]] == [
        ("zero spread", "step 18")
    ]  # once, when it appears
