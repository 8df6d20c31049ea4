"""What all pages share: the workspace, the model worker that everybody asks in turn, and a sandbox for each tab, which
runs the code of the tab's own editor.

``Services`` is the one object with state; what a tab itself holds is its ``Draft``.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

from workbench.checks import ProbeReport
from workbench.config.run import RunConfig
from workbench.places import is_of_run
from workbench.policies.client import ModelWorker
from workbench.rewards import Sandbox, SandboxPool
from workbench.rewards.judges import Judges
from workbench.rewards.watch import CallTimes
from workbench.runs import Run, default_workspace, find_checkpoint, start
from workbench.schema import Credit
from workbench.ui.handlers.background_jobs import Recent, Works
from workbench.ui.handlers.groups import GroupStore

KEPT_PROBES = 8
"""Tabs whose probes are remembered, each with the credit of every cell's worst case."""
KEPT_CREDITS = 64
"""Tabs whose drawn credit is remembered."""
_RUNS = "patterns of runs"  # no tab is called this


class Services:
    """Workers and workspace of this process. Safe to use from any thread."""

    def __init__(
        self,
        workspace: Path | None = None,
        *,
        models: type[ModelWorker] = ModelWorker,
        judges: type[Judges] = Judges,
        sandbox: type[Sandbox] = Sandbox,
    ) -> None:
        self.workspace = (workspace if workspace is not None else default_workspace()).resolve()
        self.models = models(self.path_of)
        self.judges = judges(self.workspace)
        self.groups = GroupStore(self.workspace)
        self._lock = threading.Lock()
        self._warming: threading.Thread | None = None
        self._rewards = SandboxPool(make=partial(sandbox, judges=self.judges))
        self.sampling, self.preflight = Works(), Works()
        self.estimating = Works()
        """Estimating step values, or loading a reward model."""
        self._credits: Recent[str, tuple[Credit, Credit | None]] = Recent(KEPT_CREDITS)
        self._probes: Recent[str, ProbeReport] = Recent(KEPT_PROBES)
        self._call_times: Recent[str, CallTimes] = Recent(KEPT_CREDITS)

    def start(self, config: RunConfig) -> Run:
        """Start a run in the workspace. Raises as ``runs.start``."""
        return start(config, self.workspace)

    def path_of(self, name: str) -> str:
        """The folder of a checkpoint where ``name`` is run:NAME of this workspace; any other name as it is."""
        return str(find_checkpoint(name, self.workspace)) if is_of_run(name) else name

    def reward_worker(self, tab: str, deadline: float | None = None, *, isolate: bool | None = None) -> Sandbox:
        """The sandbox of a tab, with the deadline of its configuration, and isolated or not."""
        worker = self._rewards.of(tab)
        if deadline is not None:
            worker.deadline = deadline
        if isolate is not None:
            worker.set_isolated(isolate)
        return worker

    @property
    def pattern_worker(self) -> Sandbox:
        """Where the patterns of stored runs match: no tab's own, and no reward runs in it."""
        return self._rewards.of(_RUNS)

    def warm(self) -> None:
        """Load the embedded policy in the background, where no policy is loaded or the last one could not be."""
        with self._lock:
            if self.models.status().state in ("off", "failed") and not (self._warming and self._warming.is_alive()):
                self._warming = threading.Thread(target=self.models.warm, name="warm policy", daemon=True)
                self._warming.start()

    def keep_credit(self, tab: str, credit: Credit | None, other: Credit | None = None) -> None:
        """Remember what a tab has drawn, to explain its tokens when asked; None leaves the last one."""
        if credit is None:
            return
        with self._lock:
            self._credits[tab] = (credit, other)

    def keep_probes(self, tab: str, report: ProbeReport) -> None:
        """Remember what a tab's probes gave, to draw a cell of the table when asked."""
        with self._lock:
            self._probes[tab] = report

    def probes(self, tab: str) -> ProbeReport | None:
        with self._lock:
            return self._probes.get(tab)

    def credit(self, tab: str, *, second: bool = False) -> Credit | None:
        """What a tab has drawn last, or the second scheme's credit of it."""
        with self._lock:
            return self._credits.get(tab, (None, None))[1 if second else 0]

    def call_times(self, tab: str) -> CallTimes:
        """How long the calls of a tab's reward functions took."""
        with self._lock:
            times = self._call_times[tab] = self._call_times.get(tab) or CallTimes()
            return times

    def leave(self, tab: str) -> None:
        """A tab was closed: what it was at is cancelled and its worker ends."""
        for works in (self.sampling, self.preflight, self.estimating):
            works.cancel(tab)
        with self._lock:
            self._credits.pop(tab, None)
            self._probes.pop(tab, None)
            self._call_times.pop(tab, None)
        self._rewards.end(tab)

    def close(self) -> None:
        self._rewards.close()
        self.models.close()
        self.judges.close()
