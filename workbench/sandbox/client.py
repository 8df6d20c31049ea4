"""The sandbox, where people's code and patterns run: one child process, with a deadline for each call.

The trust model is Jupyter's: your own code on your own machine. The child can be killed and has limits, so that a hang,
a crash or a memory bomb costs one call. With ``isolate`` it has neither network nor files of yours
(``sandbox.isolate``); what of that this system lacks is in ``Sandbox.missing_layers()``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

from workbench.errors import (
    ChildDied,
    ChildError,
    ChildTimeout,
    EpisodeError,
    PatternError,
    PatternTooSlow,
    RewardError,
    RewardTimeout,
    WorkbenchError,
)
from workbench.sandbox.child import Child, child_environment, read_prints
from workbench.schema import RewardKind, Step
from workbench.steps import PREVIEW_TIMEOUT, TIMEOUT, Split, StepPattern, unsplit

FILENAME = "<reward>"
"""What a user's code is called in its tracebacks."""
LOADED = 64
"""Functions that stay loaded: each edit of one is another function."""
DEADLINE = 30.0
"""Seconds one call may take, loading of its code and start-up of the process apart: that of a run by default."""
LOADING = 60.0
"""Seconds that loading a function's code (its imports, say) may take, or ``deadline`` where that is longer."""
PATTERN_MARGIN = 1.0
"""Seconds for compiling a pattern and what the ``regex`` package's own time limit misses, over that limit."""
LARGEST = 16 << 20  # bytes of one answer of the process
SPLIT_AT_ONCE = 64  # texts whose steps are one answer
_GRACE = 2.0  # seconds after its deadline in which a process must have ended itself, and said where it hangs
_HANG = re.compile(r"Timeout \([\d:.]+\)!\n")
"""What a process writes when a call has run over its deadline, before the lines that its threads are at."""


_SECRET = re.compile(r"SECRET|PASSW|CREDENTIAL|APIKEY|(^|_)(TOKEN|KEY|AUTH)S?($|_)", re.IGNORECASE)
_LOGIN = re.compile(r"://[^/@\s]*:[^/@\s]*@")


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that code may see: none named like a token, key or password, no address with a login."""
    return {name: value for name, value in environment.items() if not _SECRET.search(name) and not _LOGIN.search(value)}


class Sandbox(AbstractContextManager["Sandbox"]):
    """Runs reward functions, environments and patterns in one child process, started at the first call.

    Safe between threads, which wait for each other. ``deadline`` is for a call of a reward, ``loading`` for its code's
    imports and top level, ``pattern_margin`` what a pattern gets over its own time limits. ``output`` is what the last
    call printed, at most 64 KB of it. With ``isolate`` the code has neither network nor files. ``judges`` are those
    through which ``rewards.load_reward`` asks the judges among the rewards, None for those that this process shares.
    """

    def __init__(
        self,
        deadline: float = DEADLINE,
        *,
        loading: float = LOADING,
        pattern_margin: float = PATTERN_MARGIN,
        judges: Any = None,
        isolate: bool = False,
    ) -> None:
        self.deadline, self.loading = deadline, loading
        self.pattern_margin = pattern_margin
        self.judges = judges
        self.isolate = isolate
        self.output = ""
        self._lock = threading.RLock()
        self._call: tuple[str, float] | None = None
        self._cancelled = False
        self._child: Child | None = None
        self._remove_folder: Callable[[], object] = lambda: None
        self._importable: list[str] = []
        self._loaded: OrderedDict[tuple[int | None, str, str, RewardKind | None], dict[str, Any]] = OrderedDict()
        """What is loaded, by process, code, name and kind, and what the process said of it."""

    def set_isolated(self, isolate: bool) -> None:
        """Isolate the code from now on, or no longer, in a new process where that is another one."""
        with self._lock:
            if isolate != self.isolate:
                self.isolate = isolate
                self._end()

    def start(self) -> None:
        """Start the process now, so that the first call need not wait. Raises ChildDied where it cannot be started."""
        with self._lock:
            if self._child is not None:
                return
            environment = {
                **without_secrets(child_environment()),
                "PYTHONSAFEPATH": "1",  # what the process itself imports lies in no folder of the user's
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONIOENCODING": "utf-8:backslashreplace",
                **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")},
            }
            try:
                folder = tempfile.mkdtemp(prefix="sandbox-")
                self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                arguments = [folder, *(["--isolated"] if self.isolate else []), *self._importable]
                self._child = Child(
                    "workbench.rewards", args=arguments, name="sandbox", environment=environment, largest=LARGEST
                )
            except OSError as error:
                raise ChildDied(f"its process cannot be started ({error.strerror or error}); try again") from error

    @property
    def running(self) -> tuple[str, float] | None:
        """Return what is called now, and for how many seconds; None between two calls."""
        call = self._call
        return None if call is None else (call[0], time.monotonic() - call[1])

    def cancel(self) -> None:
        """End the call under way, which raises that it was cancelled."""
        if self._call is not None and (child := self._child) is not None:
            self._cancelled = True
            child.kill()

    @property
    def pid(self) -> int | None:
        """The process's number; None where there is none."""
        return None if self._child is None or not self._child.alive else self._child.pid

    def missing_layers(self) -> tuple[str, ...]:
        """Return a sentence for each limit or layer of isolation that this system lacks; none where all are in force.

        Starts the process if there is none. Raises RewardError when that fails.
        """
        reply, _ = self._ask({"do": "missing"}, self.deadline, "the sandbox's isolation", RewardError, RewardError)
        return tuple(reply["missing"])

    def _ask(
        self,
        request: Mapping[str, Any],
        limit: float,
        what: str,
        broken: type[WorkbenchError],
        slow: type[WorkbenchError],
        advice: str = "try again",
        **about: Any,
    ) -> tuple[dict[str, Any], str]:
        """Return the process's reply and what it printed.

        Raises the error that it told, ``slow`` if ``what`` ran over its ``limit`` of seconds, with ``advice``, and
        ``broken`` if the process ended otherwise or could not be started; both with the line and ``about``.
        """
        try:
            with self._lock:
                self.start()
                assert self._child is not None
                child, self.output, began = self._child, "", time.monotonic()
                self._call, self._cancelled = (what, began), False
                try:
                    reply = child.call({**request, "deadline": limit}, deadline=limit + _GRACE)
                except (ChildDied, ChildTimeout) as error:
                    if self._cancelled:
                        raise broken(f"{what} was cancelled", **about) from error
                    output = child.output
                    hangs = list(_HANG.finditer(output))
                    self.output = output[: hangs[-1].start()] if hangs else output
                    report = hangs[-1].start() if hangs else output.rfind("Fatal Python error")
                    line = re.compile(rf'File "{FILENAME}", line (\d+)').search(output, report) if report >= 0 else None
                    about["line"] = int(line[1]) if line else None
                    at = f" at line {line[1]}" if line else ""
                    # Where it prints without end, what it says of the hang does not last.
                    ended_itself = str(error).endswith("exited 1") and time.monotonic() - began >= limit
                    if not (hangs or ended_itself or getattr(error, "seconds", None) == limit + _GRACE):
                        raise broken(f"{what}{at}: {error}", **about) from error
                    child.start()  # while its user reads why
                    said = f"{what} ran over its deadline of {limit:g} s{at} and was stopped; {advice}"
                    raise slow(said, **about) from error
                except WorkbenchError:
                    self.output = child.output
                    raise
                finally:
                    self._call = None
                self.output = child.output
                return reply, self.output
        except ChildError as error:
            raise broken(f"{what}: {error}", **about) from error

    # -- patterns ------------------------------------------------------------------------------------------------------

    def split(self, texts: Sequence[str], pattern: StepPattern, *, leniently: bool = False) -> list[Split]:
        """Return each text's steps and matches, by a pattern that never runs in this process.

        A preview (the default) has 0.25 s a text and 1 s for all, and raises PatternTooSlow for the first text that is
        too slow. ``leniently`` only a pattern that cannot be used at all raises; a text that is too slow is one
        unmatched step. Raises PatternError and those under it.
        """
        texts = list(texts)
        if leniently and len(texts) > SPLIT_AT_ONCE:
            parts = [texts[at : at + SPLIT_AT_ONCE] for at in range(0, len(texts), SPLIT_AT_ONCE)]
            return [split for part in parts for split in self.split(part, pattern, leniently=True)]
        limit = (TIMEOUT * len(texts) if leniently else PREVIEW_TIMEOUT) + self.pattern_margin
        try:
            return self._split(texts, pattern, leniently, limit)
        except PatternTooSlow:
            if not leniently or not texts:
                raise
        self._split([], pattern, leniently, PREVIEW_TIMEOUT + self.pattern_margin)  # does it compile at all?
        splits = []
        for text in texts:
            try:
                splits += self._split([text], pattern, leniently, TIMEOUT + self.pattern_margin)
            except PatternTooSlow:
                splits.append(unsplit(text))
        return splits

    def _split(self, texts: list[str], pattern: StepPattern, leniently: bool, limit: float) -> list[Split]:
        request = {"do": "split", "texts": texts, "pattern": dataclasses.asdict(pattern), "leniently": leniently}
        what, advice = "the step pattern", "make it simpler"
        reply, _ = self._ask(request, limit, what, PatternError, PatternTooSlow, advice)
        return [
            Split([Step(*step) for step in steps], [(start, end) for start, end in matches], failed)
            for steps, matches, failed in reply["splits"]
        ]

    # -- reward code ---------------------------------------------------------------------------------------------------

    def function(
        self, code: str, name: str, folder: str | None = None, kind: RewardKind | None = None
    ) -> SandboxFunction:
        """Load the function ``name`` of ``code`` (or the only one, or ``reward``), as a reward of this ``kind``.

        It may import modules that lie in ``folder``. Raises RewardCodeError for code that does not compile, fails on
        import or defines no such function, with its line; RewardTimeout for code that does not end.
        """
        with self._lock:
            if folder is not None and folder not in self._importable:
                self._importable.append(folder)
                self._end()  # what may be imported is said when the process starts
            about = self._loaded.get((self.pid, code, name, kind))
            if about is None:
                request = {"do": "load", "code": code, "name": name, "kind": kind}
                about, _ = self._run(request, max(self.loading, self.deadline), "loading of reward")
                self._note_loaded(code, name, about, kind)
        parameters = [
            inspect.Parameter(one, inspect._ParameterKind[kind], default=... if has_default else inspect._empty)
            for one, kind, has_default in about["parameters"]
        ]
        signature = inspect.Signature(parameters, __validate_parameters__=False)
        return SandboxFunction(name, code, signature, self, about["async"])

    def _note_loaded(self, code: str, name: str, about: dict[str, Any], kind: RewardKind | None = None) -> None:
        self._loaded[self.pid, code, name, kind] = about
        if len(self._loaded) > LOADED:
            self._loaded.popitem(last=False)

    def score(
        self, code: str, name: str, batch: Mapping[str, Any], kind: RewardKind | None = None
    ) -> tuple[dict[str, Any], str]:
        """Return the ``scores`` of a batch, what the code ``logged``, and what it printed.

        Raises RewardError and the errors under it.
        """
        with self._lock:
            self.function(code, name, kind=kind)  # loads it if the process is another one by now
            try:
                request = {"do": "score", "code": code, "name": name, "kind": kind, "batch": batch}
                return self._run(request, self.deadline, "reward")
            except RewardError as error:
                error.prints = read_prints(self.output)
                raise

    def _run(self, request: dict[str, Any], limit: float, what: str) -> tuple[dict[str, Any], str]:
        name = request["name"]
        advice = "make it faster, or raise method.reward_deadline (in Python: Sandbox(deadline=…))"
        return self._ask(request, limit, f"{what} {name!r}", RewardError, RewardTimeout, advice, reward=name)

    # -- environments --------------------------------------------------------------------------------------------------

    def environment(
        self, code: str, name: str, request: Mapping[str, Any], deadline: float
    ) -> tuple[dict[str, Any], str]:
        """Return the reply of the environment that ``code`` defines (``rewards.__main__``), and what it printed.

        Raises EpisodeError, whose ``printed`` is what the code printed.
        """
        what = f"environment {name!r}"
        with self._lock:
            if (self.pid, code, what, None) not in self._loaded:
                deadline = max(self.loading, deadline)
            sent = {**request, "do": "environment", "code": code, "name": name}
            advice = "make it faster, or raise environment.deadline"
            try:
                answer = self._ask(sent, deadline, what, EpisodeError, EpisodeError, advice)
            except EpisodeError as error:
                error.printed = self.output
                raise
            self._note_loaded(code, what, {})
            return answer

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._remove_folder()
            self._child = None

    def close(self) -> None:
        """End the process, also under the call of another thread. A later call starts a new one."""
        if (child := self._child) is not None:
            child.kill()
        with self._lock:
            self._end()

    def __exit__(self, *exc: object) -> None:
        self.close()


@cache
def shared_sandbox() -> Sandbox:
    """Return the sandbox of whoever brings none of their own; it ends with this process."""
    return Sandbox()


@dataclass(frozen=True)
class SandboxFunction:
    """A user's function that runs in the sandbox. ``concurrent`` if it is a coroutine function there."""

    name: str
    code: str
    signature: inspect.Signature
    sandbox: Sandbox
    concurrent: bool = False


# --- one for each page tab --------------------------------------------------------------------------------------------

KEPT = 8


class SandboxPool:
    """Gives each page tab a sandbox of its own. Safe from any thread.

    Over ``kept`` of them, the one longest unused ends, one in the middle of a call only if there is no other. Whoever
    asks again gets a new one.
    """

    def __init__(self, kept: int = KEPT, *, make: Callable[[], Sandbox] = Sandbox) -> None:
        self._kept, self._make = kept, make
        self._lock = threading.Lock()
        self._sandboxes: dict[str, Sandbox] = {}
        """The longest unused first."""

    def of(self, tab: str) -> Sandbox:
        with self._lock:
            sandbox = self._sandboxes.pop(tab, None) or self._make()
            order = sorted(self._sandboxes, key=lambda key: self._sandboxes[key].running is not None)
            ended = [self._sandboxes.pop(key) for key in order[: max(0, len(order) + 1 - self._kept)]]
            self._sandboxes[tab] = sandbox
        for old in ended:
            old.close()
        return sandbox

    def end(self, tab: str) -> None:
        """End the sandbox of a tab."""
        with self._lock:
            sandbox = self._sandboxes.pop(tab, None)
        if sandbox is not None:
            sandbox.close()

    def close(self) -> None:
        for tab in list(self._sandboxes):
            self.end(tab)
