"""Services that all pages share: the workspace, the model worker that everybody asks in turn, and a sandbox for each
tab, which runs the code of the tab's own editor.

``Services`` is the one object with state; what a tab itself holds is its ``PageState``. Below it is what it is made of:
the groups stored in the workspace, what is kept by tab, and work on a thread that tells how far it is.
"""

from __future__ import annotations

import contextvars
import queue
import re
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from pydantic import ConfigDict

from workbench.checks import ProbeReport
from workbench.errors import WorkbenchError
from workbench.places import is_of_run
from workbench.policies.client import ModelWorker
from workbench.rewards import Sandbox, SandboxPool
from workbench.rewards.judges import Judges
from workbench.runs import Run, default_workspace, find_checkpoint, start
from workbench.schema import Credit, Group, say_count
from workbench.training.methods import RunConfig
from workbench.views.page_link import GROUPS, group_name, read_group, write_group

KEPT_PROBES = 8
"""Tabs whose probes are remembered, each with the credit of every cell's worst case."""
KEPT_FILES = 16
"""Tabs whose opened file is remembered."""
KEPT_CREDITS = 64
"""Tabs whose drawn credit is remembered."""
KEPT_ESTIMATES = 32
"""Groups whose estimated step values are remembered, of all tabs."""
UPLOADS = "uploads"
"""Folder of the workspace, with one folder an upload."""
CHECKED = ConfigDict(arbitrary_types_allowed=True)
"""Of functions that the page's scripts ask: what comes from a browser is not trusted."""
RUNS = "patterns of runs"
"""In place of a tab: whose sandbox matches the patterns of stored runs, and runs no reward."""


class Services:
    """Workers and workspace of this process. Safe to use from any thread."""

    reward_forms: Collection[str] = ("model", "judge", "belief", "monte_carlo", "file")
    """The forms of rewards that are no code (``reward_forms.PARTS``); with the last one's, code can be written, too."""

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
        self.sampling, self.preflight, self.clinic, self.probing, self.beside = (Works() for _ in range(5))
        self.opening, self.estimating = Works(pause=0.25), Works(pause=0.25)
        """Opening a file or holding rewards against its labels, and estimating step values or loading a reward model:
        each tells thousands of times how far it is."""
        self.opened: Recent[Any] = Recent(KEPT_FILES)
        """What each tab has opened (``opening.Opening``), its groups on disk."""
        self.probed: Recent[ProbeReport] = Recent(KEPT_PROBES)
        self.preflighted: Recent[dict[int, Group]] = Recent(KEPT_PROBES)
        """The groups that each tab's pre-flight sampled, by example."""
        self.drawn: Recent[tuple[Credit, Credit | None]] = Recent(KEPT_CREDITS)
        """What each tab has drawn last, to explain its tokens when asked, and the second scheme's credit of it."""
        self.estimates: Recent[Any] = Recent(KEPT_ESTIMATES)
        """Step values (``page_state.Estimated``) by the key of their row."""

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

    def warm(self) -> None:
        """Load the embedded policy in the background, where no policy is loaded or the last one could not be."""
        with self._lock:
            if self.models.status().state in ("off", "failed") and not (self._warming and self._warming.is_alive()):
                self._warming = threading.Thread(target=self.models.warm, name="warm policy", daemon=True)
                self._warming.start()

    def credit(self, tab: str, *, second: bool = False) -> Credit | None:
        """Return what a tab has drawn last, or the second scheme's credit of it."""
        return self.drawn.get(tab, (None, None))[1 if second else 0]

    def leave(self, tab: str) -> None:
        """A tab was closed: what it was at is cancelled and its worker ends."""
        for works in vars(self).values():
            if isinstance(works, Works):
                works.cancel(tab)
        if (opening := self.opened.pop(tab, None)) is not None:
            self.drop_upload(opening.ask.path)
        for kept in (self.probed, self.preflighted, self.drawn):
            kept.pop(tab, None)
        self._rewards.end(tab)

    def drop_upload(self, path: str) -> None:
        """Remove an upload that no tab has open. Any other file stays."""
        is_open = any(one.ask.path == path and one.look is not None for one in self.opened.values())
        if not is_open and (folder := Path(path).parent).parent == self.workspace / UPLOADS:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self._rewards.close()
        self.models.close()
        self.judges.close()


# ── what is kept by tab ──────────────────────────────────────────────────────────────────────────────────────────────

V = TypeVar("V")
T = TypeVar("T")
Work = Callable[[Callable[[Any], None], Callable[[], bool]], T]
"""What is called with a function that reports progress, and one that says whether it was cancelled."""


class Recent(OrderedDict[str, V]):
    """A dictionary of the ``most`` entries that were set last; setting one again makes it the newest.

    Safe to use from any thread.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._lock = most, threading.Lock()

    def __setitem__(self, key: str, value: V) -> None:
        with self._lock:
            super().__setitem__(key, value)
            self.move_to_end(key)
            while len(self) > self._most:
                self.popitem(last=False)


class Cancelled(WorkbenchError):
    """Somebody cancelled the work."""


class Busy(WorkbenchError):
    """The tab is at such a work already."""


class Works:
    """One kind of work, by tab. Safe to use from any thread."""

    def __init__(self, pause: float = 0.0) -> None:
        self._lock, self._pause = threading.Lock(), pause
        self._running: dict[str, threading.Event] = {}

    @contextmanager
    def run(self, tab: str, work: Work[T], first: Any, cancelled: str = "Cancelled.") -> Iterator[BackgroundWork[T]]:
        """Do a tab's work in the background while the block lasts.

        Raises Busy if the tab is at one already; ``cancelled`` is what its result raises if the tab cancels it.
        """
        running = BackgroundWork(work, first, cancelled, self._pause)
        with self._lock:
            if tab in self._running:
                raise Busy("This page is at that already; cancel it first.")
            self._running[tab] = running.cancel
        try:
            with running:
                yield running
        finally:
            with self._lock:
                del self._running[tab]

    def going(self, tab: str) -> bool:
        return tab in self._running

    def cancel(self, tab: str) -> bool:
        """Return whether there was something to cancel."""
        cancel = self._running.get(tab)
        if cancel is not None:
            cancel.set()
        return cancel is not None


# ── work on a thread ─────────────────────────────────────────────────────────────────────────────────────────────────

REPEAT_SECONDS = 1.0
NO_EVENT: dict[str, Any] = {}
"""Of a worker that has not said anything yet."""


class BackgroundWork(Generic[T]):
    """``with BackgroundWork(work, first) as running``: iterate for its progress, then ask for ``running.result()``.

    ``work`` is called on a thread; its progress is ``first`` until it reports some. Of several reports that wait, only
    the newest is passed on, and none within ``pause`` seconds of the last one: a browser would be at those it has yet
    to draw long after the work was cancelled. It comes again after every ``REPEAT_SECONDS`` without another, as the
    page may show something else by then: the answer to what was changed just before. Leaving the block before the work
    is over cancels it.
    """

    def __init__(self, work: Work[T], first: Any, cancelled: str = "Cancelled.", pause: float = 0.0) -> None:
        self.cancel = threading.Event()
        self._first, self._cancelled, self._pause = first, cancelled, pause
        self._reports: queue.SimpleQueue[tuple[Any] | None] = queue.SimpleQueue()  # None ends them
        self._done: Future[T] = Future()

        def run() -> None:
            try:
                self._done.set_result(work(lambda report: self._reports.put((report,)), self.cancel.is_set))
            except Exception as error:
                self._done.set_exception(error)
            self._reports.put(None)

        # In the context of the event whose work it is, by which it is known who asks.
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=[run], name="work of a page", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if not self._done.done():
            self.cancel.set()

    def __iter__(self) -> Iterator[Any]:
        newest, going, due = (self._first,), True, 0.0
        yield self._first
        while going:
            heard = self._heard()
            newest = next(filter(None, reversed(heard)), newest)
            going = None not in heard
            if heard != [None] and time.monotonic() >= due:
                due = time.monotonic() + self._pause
                yield newest[0]

    def _heard(self) -> list[tuple[Any] | None]:
        """The reports since the last ones; none after a silence."""
        try:
            heard = [self._reports.get(timeout=REPEAT_SECONDS)]
        except queue.Empty:
            return []
        while not self._reports.empty():
            heard.append(self._reports.get())
        return heard

    def result(self) -> T:
        """Return what the work returned, once it is over. Raises what it raised, or Cancelled."""
        wait([self._done])
        if self.cancel.is_set():
            raise Cancelled(self._cancelled)
        return self._done.result()


def progress_text(event: dict[str, Any]) -> str:
    """Return what an event of the model worker says."""
    if "texts" in event:
        tokens, took = event["tokens"], event["seconds"]
        rate = f", {tokens / took:.0f} a second" if took > 0.2 else ""
        done = sum(event["finished"])
        return f"sampling: {say_count(tokens, 'token')}{rate}, {done} of {len(event['texts'])} finished"
    if "waiting" in event:
        return f"waiting while the model worker {event['waiting']}"
    return f"loading policy {event['loading']}" if "loading" in event else "asking the policy"


# ── stored groups ────────────────────────────────────────────────────────────────────────────────────────────────────

NAME = re.compile(r"[0-9a-f]{16}")
RECENT = 20
"""Groups kept that nothing points at."""


class GroupStore:
    """Groups in the workspace by the hash of what they hold. Safe to use from any thread.

    ``groups/`` has those that a link or a notebook points at, for good, and ``groups/recent/`` the latest others. What
    a file holds is ``page_link``'s, as notebooks keep groups there too.
    """

    def __init__(self, workspace: Path) -> None:
        self.folder = workspace / GROUPS
        self._named: tuple[Group | None, str] = (None, "")

    def name(self, group: Group) -> str:
        named = self._named
        if named[0] is not group:  # asked at every change of a control
            named = self._named = (group, group_name(group))
        return named[1]

    def keep(self, group: Group) -> Path:
        """Keep a group for good. Raises RunError where the disk refuses."""
        return write_group(self.folder, self.name(group), group)

    def keep_recent(self, group: Group) -> str:
        """Keep a group until RECENT others came; its name. Raises RunError where the disk refuses."""
        name, recent = self.name(group), self.folder / "recent"
        if any((folder / f"{name}.json").exists() for folder in (self.folder, recent)):
            return name
        write_group(recent, name, group)
        paths = sorted(recent.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in paths[:-RECENT]:
            path.unlink(missing_ok=True)
        return name

    def find(self, name: str) -> Group | None:
        """The group of that name; None where there is none (any more), or its file is no group."""
        folders = (self.folder, self.folder / "recent") if NAME.fullmatch(name) else ()
        return next(filter(None, (read_group(folder, name) for folder in folders)), None)
