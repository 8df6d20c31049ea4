"""The three trackers by one small protocol. Each imports its package when it is opened."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from workbench.config.reading import write_yaml

LONGEST_TITLE = 63
"""Characters of an alert's title that wandb takes."""


@dataclass(frozen=True)
class Tracked:
    """What a tracker is told of a run when it is opened; ``folder`` is where it may keep files of its own."""

    name: str
    project: str
    config: Mapping[str, Any]
    folder: Path

    @property
    def id(self) -> str:
        """The same for a run and for what it resumes, and another for a run of the same name elsewhere."""
        return hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]


class Tracker(Protocol):
    """An opened tracker. ``step`` is the run's optimiser step."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...
    def html(self, name: str, step: int, document: str) -> None: ...
    def alarm(self, step: int, title: str, text: str) -> None: ...
    def finish(self) -> None: ...


class TrackioTracker:
    """https://huggingface.co/docs/trackio: a data base on this machine, or a Space named by TRACKIO_SPACE_ID."""

    def __init__(self, run: Tracked) -> None:
        import trackio

        self._trackio = trackio
        self._run = trackio.init(project=run.project, name=run.name, config=dict(run.config), resume="allow")

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def html(self, name: str, step: int, document: str) -> None:
        self._run.log({name: self._trackio.Html(document)}, step=step)

    def alarm(self, step: int, title: str, text: str) -> None:
        self._run.alert(title=title, text=text, level=self._trackio.AlertLevel.WARN)

    def finish(self) -> None:
        self._trackio.finish()


class WandbTracker:
    """https://docs.wandb.ai: its server, or files under the run's directory where WANDB_MODE is offline."""

    def __init__(self, run: Tracked) -> None:
        import wandb

        self._wandb = wandb
        run.folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=run.project, name=run.name, id=run.id, resume="allow", config=dict(run.config), dir=str(run.folder)
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")  # a run that is resumed logs some of its steps again

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step})

    def html(self, name: str, step: int, document: str) -> None:
        self._run.log({name: self._wandb.Html(document), "step": step})

    def alarm(self, step: int, title: str, text: str) -> None:
        self._run.alert(title=title[:LONGEST_TITLE], text=f"step {step}: {text}", level=self._wandb.AlertLevel.WARN)

    def finish(self) -> None:
        self._run.finish()


class TensorboardTracker:
    """Event files in the run's directory. TensorBoard shows no HTML: heatmaps are files beside them, named as text."""

    def __init__(self, run: Tracked) -> None:
        self._folder = run.folder
        self._writer = _summary_writer(str(run.folder))
        self._writer.add_text("run", f"{run.name} of project {run.project}", 0)
        self._writer.add_text("config", f"```yaml\n{write_yaml(dict(run.config))}```", 0)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def html(self, name: str, step: int, document: str) -> None:
        file = self._folder / "heatmaps" / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-step-{step}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document, encoding="utf-8")
        self._writer.add_text(name, f"`{file}`", step)

    def alarm(self, step: int, title: str, text: str) -> None:
        self._writer.add_text(f"alarms/{title}", text, step)

    def finish(self) -> None:
        self._writer.close()


def _summary_writer(folder: str) -> Any:
    try:
        from torch.utils import tensorboard
    except ImportError:
        import tensorboardX as tensorboard  # type: ignore[no-redef]  # noqa: N813
    return tensorboard.SummaryWriter(folder)


BACKENDS: Mapping[str, Callable[[Tracked], Tracker]] = {
    "trackio": TrackioTracker,
    "wandb": WandbTracker,
    "tensorboard": TensorboardTracker,
}
