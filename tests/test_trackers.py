"""What trackers get of a run: by fakes in every place, and read back from what the real packages store where they are
installed."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.credits import make_credit, make_rollout
from workbench.config.run import RunConfig
from workbench.errors import RunError
from workbench.rundir import RunDir
from workbench.trackers import BACKENDS, Tracking, track_run
from workbench.trackers.backends import Tracked, WandbTracker

ROWS = [
    {"step": n, "time": 1.0 + n, "loss": 0.5 / n, "zero_spread_share": 0.9, "kl": math.nan, "note": "text"}
    for n in range(1, 21)
]


class FakeTracker:
    """Remembers what it is told."""

    opened: list[FakeTracker] = []  # noqa: RUF012  # emptied by the fixture

    def __init__(self, run: Tracked) -> None:
        self.run, self.told, self.ended = run, list[tuple[Any, ...]](), False
        self.opened.append(self)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.told.append(("metrics", step, dict(values)))

    def html(self, name: str, step: int, document: str) -> None:
        assert document.lstrip().lower().startswith("<!doctype html>")
        self.told.append(("html", step, name))

    def alarm(self, step: int, title: str, text: str) -> None:
        self.told.append(("alarm", step, title))

    def finish(self) -> None:
        self.ended = True


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeTracker]]:
    FakeTracker.opened = []
    for name in BACKENDS:
        monkeypatch.setitem(BACKENDS, name, FakeTracker)  # type: ignore[arg-type]
    return iter([FakeTracker.opened])


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


def config_of(run: RunDir) -> RunConfig:
    return RunConfig.from_yaml(run.config_text())


def test_a_run_s_metrics_alarms_and_heatmaps_go_to_each_tracker(fakes: Any, run: RunDir) -> None:
    track_run(run, config_of(run), ["trackio", "tensorboard"])
    first, second = next(fakes)
    assert first.told == second.told
    assert first.run.name == "first"
    assert first.run.project == "sums"
    assert first.run.config == config_of(run).model_dump(mode="json")
    assert (first.run.folder.name, second.run.folder.name) == ("trackio", "tensorboard")
    assert first.run.id != second.run.id
    assert next(told for told in first.told if told[0] == "metrics") == (
        "metrics",
        1,
        {"loss": 0.5, "zero_spread_share": 0.9},  # neither times, nor texts, nor NaN
    )
    heatmaps = [told[1:] for told in first.told if told[0] == "html"]
    assert heatmaps == [(1, "heatmap/rollouts"), (10, "heatmap/watched-1"), (11, "heatmap/rollouts")]
    assert [told for told in first.told if told[0] == "alarm"] == [
        ("alarm", 18, "zero spread")
    ]  # once, when it appears
    assert first.ended


def test_a_tracker_that_fails_is_named_once_and_the_others_go_on(fakes: Any, run: RunDir) -> None:
    said: list[str] = []
    tracking = Tracking.open(run, config_of(run), ["wandb", "trackio"], said.append)
    broken, other = next(fakes)
    broken.metrics = lambda step, values: (_ for _ in ()).throw(OSError("no network"))
    for row in ROWS[:3]:
        tracking.row(row)
    tracking.finish()
    assert said == ["run.report_to: 'wandb' failed (no network) and gets no more of this run"]
    assert [told[1] for told in other.told] == [1, 2, 3]
    assert (broken.ended, other.ended) == (False, True)


def test_a_tracker_that_cannot_be_opened_ends_the_run_before_it_trains(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(about: Tracked) -> FakeTracker:
        raise ValueError("api_key not configured\nlong story")

    monkeypatch.setitem(BACKENDS, "wandb", refuse)  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"'wandb' cannot be opened \(api_key not configured\); put that right"):
        Tracking.open(run, config_of(run), ["wandb"])


def test_wandb_gets_each_part_by_its_documented_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    class Run:
        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: calls.append((name, args, kwargs))

    wandb = ModuleType("wandb")
    started: dict[str, Any] = {}
    wandb.init = lambda **kwargs: started.update(kwargs) or Run()  # type: ignore[attr-defined]
    wandb.Html = lambda text: ("Html", text)  # type: ignore[attr-defined]
    wandb.AlertLevel = SimpleNamespace(WARN="WARN")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    about = Tracked("first", "sums", {"seed": 3}, tmp_path / "trackers" / "wandb")
    tracker = WandbTracker(about)
    tracker.metrics(1, {"loss": 0.5})
    tracker.html("heatmap/rollouts", 1, "<html>")
    tracker.alarm(1, "t" * 70, "check")
    tracker.finish()
    assert started["dir"] == str(about.folder)
    assert {name: started[name] for name in ("project", "name", "id", "resume", "config")} == {
        "project": "sums",
        "name": "first",
        "id": about.id,
        "resume": "allow",
        "config": {"seed": 3},
    }
    assert calls[2:] == [
        ("log", ({"loss": 0.5, "step": 1},), {}),
        ("log", ({"heatmap/rollouts": ("Html", "<html>"), "step": 1},), {}),
        ("alert", (), {"title": "t" * 63, "text": "step 1: check", "level": "WARN"}),
        ("finish", (), {}),
    ]


def test_a_run_tells_its_trackers_while_it_goes(fakes: Any, tmp_path: Path) -> None:
    from tests.in_this_process import trained

    section = {"steps": 2, "eval_every": 0, "save_every": 0, "watch_prompts": 1, "watch_every": 2, "device": "cpu"}
    method = {"prompts_per_step": 1, "sampling": {"num_generations": 2, "max_completion_length": 16}}
    config = RunConfig.parse({"run": {**section, "report_to": ["tensorboard"]}, "method": method})
    run = trained(config, tmp_path)
    assert run.status().state == "finished"
    (tracker,) = next(fakes)
    assert tracker.ended
    assert [(kind, step) for kind, step, _ in tracker.told if kind != "alarm"] == [
        ("html", 0),  # the watched prompt before training
        ("html", 1),
        ("metrics", 1),
        ("html", 2),
        ("metrics", 2),
    ]
    logged = {row["step"]: row["loss"] for row in run.dir.read_metrics()[0] if "loss" in row}
    assert {step: values["loss"] for kind, step, values in tracker.told if kind == "metrics"} == logged


def test_a_finished_run_is_exported_on_the_shell(
    fakes: Any, run: RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.cli import main

    workspace = str(run.path.parents[1])
    assert main(["export", "first", "--tracker", "trackio", "--project", "others", "--workspace", workspace]) == 0
    assert capsys.readouterr().out == "first: in trackio, project others\n"
    (tracker,) = next(fakes)
    assert tracker.run.project == "others"
    assert main(["export", "first", "--workspace", workspace]) == 2
    assert "--tracker NAME" in capsys.readouterr().err


# -- read back from the packages' own files ---------------------------------------------------------------------------


@pytest.mark.extras
def test_tensorboard_s_event_files_hold_the_run(run: RunDir) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    track_run(run, config_of(run), ["tensorboard"])
    folder = run.path / "trackers" / "tensorboard"
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [
        (row["step"], pytest.approx(row["loss"])) for row in ROWS
    ]

    def text(tag: str) -> list[str]:
        return [event.tensor_proto.string_val[0].decode() for event in events.Tensors(f"{tag}/text_summary")]

    assert text("run") == ["first of project sums"]
    assert "seed: 3" in text("config")[0]
    assert text("alarms/zero spread")[0].startswith("check: 90% of the groups")
    heatmaps = sorted(path.name for path in (folder / "heatmaps").iterdir())
    assert heatmaps == [
        "heatmap-rollouts-step-1.html",
        "heatmap-rollouts-step-11.html",
        "heatmap-watched-1-step-10.html",
    ]


@pytest.mark.extras
def test_trackio_s_data_base_holds_the_run(run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    import trackio

    storage = sys.modules["trackio.sqlite_storage"]
    for module in (trackio.utils, storage):  # where it was imported before, under another folder
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio", raising=False)
    track_run(run, config_of(run), ["trackio"])
    (file,) = (tmp_path / "trackio").glob("sums*.db")
    with sqlite3.connect(file) as base:
        rows = [(step, json.loads(values)) for step, values in base.execute("select step, metrics from metrics")]
        names = {name for (name,) in base.execute("select distinct run_name from metrics")}
        config = json.loads(base.execute("select config from configs").fetchone()[0])
        alerts = [title for (title,) in base.execute("select title from alerts")]
    assert names == {"first"}
    assert {step: values["loss"] for step, values in rows if "loss" in values} == {r["step"]: r["loss"] for r in ROWS}
    assert config["seed"] == 3
    assert config["run"]["project"] == "sums"
    assert alerts == ["zero spread"]
    documents = [values for _, values in rows if any(name.startswith("heatmap/") for name in values)]
    assert len(documents) == 3


@pytest.mark.extras
def test_wandb_s_offline_files_hold_the_run(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    track_run(run, config_of(run), ["wandb"])
    (stored,) = (run.path / "trackers" / "wandb").glob("wandb/offline-run-*/run-*.wandb")
    data = stored.read_bytes()
    assert b"zero_spread_share" in data
    assert len(list(stored.parent.glob("files/media/html/heatmap/*.html"))) == 3
