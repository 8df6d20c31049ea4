"""The parent's side of the reward worker, where users' code and patterns run, with a deadline and checked replies.

The trust model: this is your own code on your own machine, like Jupyter. The worker is sealed (``seal``) and can be
killed, which limits accidents; it is no sandbox for strangers' code. A layer of the seal that this system lacks is in
``RewardWorker.reduced_isolation()``.
"""

from __future__ import annotations

import inspect
import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from workbench.child import Child, child_environment
from workbench.errors import (
    ChildDied,
    ChildError,
    ChildFailed,
    ChildTimeout,
    PatternError,
    PatternTooSlow,
    RewardError,
    RewardTimeout,
    WorkbenchError,
)
from workbench.rewards.protocol import Batch, Score, check_outcome, check_steps, form_of
from workbench.rewards.scratch import MAX_BYTES, MAX_FILES, Scratch
from workbench.rewards.seal import sealed_environment
from workbench.rewards.wire import (
    FILENAME,
    NonsenseError,
    check_error,
    checked_isolation,
    packed_batch,
    read_signature_reply,
    read_split_reply,
)
from workbench.steps import Split, StepPattern, unsplit
from workbench.steps.split import PREVIEW_TIMEOUT, TIMEOUT

DEADLINE = 5.0
"""Seconds one call may take, start-up of the worker apart."""
PATTERN_MARGIN = 1.0
"""Seconds for compiling a pattern and what the ``regex`` package's own time limit misses, over that limit."""
MAX_REPLY = 64 * 2**20
_HANG_REPORT = re.compile(r"Timeout \([\d:.]+\)!\n(?:(?:Thread|Current thread) .*\n(?: +.*\n)*\n?)*")
"""What the worker writes when a call has nearly used up its time, also one that then ends well."""


class RewardWorker:
    """Runs reward code and patterns in a sealed child process, started at the first call and again after it died.

    Safe between threads. ``deadline`` is for a call of a reward, ``pattern_margin`` what a pattern gets over its own
    time limits. ``output`` is what the last call printed, at most 64 KB of it.
    """

    def __init__(self, deadline: float = DEADLINE, *, pattern_margin: float = PATTERN_MARGIN) -> None:
        self.deadline = deadline
        self.pattern_margin = pattern_margin
        self.output = ""
        self._child: Child | None = None
        self._scratch: Scratch | None = None
        self._lock = threading.Lock()
        self._printed = ""
        self._missing: tuple[str, ...] | None = None

    def start(self) -> None:
        """Start the process now, so that the first call need not wait for it."""
        with self._lock:
            self._started()

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._lock.locked()

    def reduced_isolation(self) -> tuple[str, ...]:
        """A sentence for each layer of the seal that this system lacks; none where all are in force.

        Starts the process if there is none. Raises RewardError when that fails.
        """
        if self._missing is None:
            try:
                reply, _ = self._call({"do": "isolation"}, self.deadline)
                self._missing = checked_isolation(reply)
            except (ChildError, NonsenseError) as error:
                raise RewardError(f"the reward worker does not say how it is isolated: {error}") from error
        return self._missing

    # -- patterns ------------------------------------------------------------------------------------------------------

    def split(self, texts: Sequence[str], pattern: StepPattern, *, leniently: bool = False) -> list[Split]:
        """Each text's steps and matches, by a pattern that never runs in this process.

        A preview (the default) has 0.25 s a text and 1 s for all, and raises PatternTooSlow or TooManySteps for the
        first text that fails. ``leniently`` only a pattern that cannot be used at all raises; a text that fails is one
        unmatched step. Raises PatternError and those under it.
        """
        texts = list(texts)
        limit = (TIMEOUT * len(texts) if leniently else PREVIEW_TIMEOUT) + self.pattern_margin
        try:
            return self._split(texts, pattern, leniently, limit)
        except PatternTooSlow:
            if not leniently or not texts:
                raise
        self._split([], pattern, leniently, PREVIEW_TIMEOUT + self.pattern_margin)  # does it compile at all?
        return [self._split_or_give_up(text, pattern) for text in texts]

    def _split(self, texts: list[str], pattern: StepPattern, leniently: bool, limit: float) -> list[Split]:
        request = {
            "do": "split", "texts": texts, "regex": pattern.regex, "kind": pattern.kind, "leniently": leniently,
        }  # fmt: skip
        try:
            reply, _ = self._call(request, limit)
            with self._ended_if_unsound():
                return read_split_reply(reply, texts)
        except ChildTimeout as error:
            if error.seconds != limit:  # it did not even start
                raise PatternError(f"the step pattern was not tried: {error}") from error
            raise PatternTooSlow(
                f"the step pattern is too slow ({limit:g} s to compile and match) and was stopped"
            ) from error
        except ChildDied as error:
            raise PatternError(f"the step pattern cannot be used: {error} while it compiled or matched") from error
        except (ChildError, NonsenseError) as error:
            raise PatternError(f"the step pattern was not tried: {error}") from error

    def _split_or_give_up(self, text: str, pattern: StepPattern) -> Split:
        try:
            return self._split([text], pattern, True, TIMEOUT + self.pattern_margin)[0]
        except PatternTooSlow:
            return unsplit(text)

    # -- reward code ---------------------------------------------------------------------------------------------------

    def describe(self, code: str, name: str) -> inspect.Signature:
        """The signature of the function ``name`` of ``code``, or of the only one or ``reward`` if none has that name.

        Raises RewardCodeError for code that does not compile, fails on import or defines no such function, with its
        line; RewardTimeout for code that does not end.
        """
        reply, _ = self._ask({"do": "describe", "code": code, "name": name})
        try:
            with self._ended_if_unsound():
                return read_signature_reply(reply)
        except NonsenseError as error:
            raise RewardError(f"reward {name!r}: {error}", reward=name) from error

    def score_outcome(self, code: str, name: str, batch: Batch) -> tuple[list[Score], str]:
        """One score a completion, and what the code printed. Raises RewardError and the errors under it."""
        reply, printed = self._score(code, name, batch)
        with self._ended_if_unsound():
            return check_outcome(name, reply.get("scores"), len(batch)), printed

    def score_steps(self, code: str, name: str, batch: Batch) -> tuple[list[list[Score]], str]:
        """One score a step of each completion, and what the code printed. Raises RewardError and those under it."""
        reply, printed = self._score(code, name, batch)
        with self._ended_if_unsound():
            return check_steps(name, reply.get("scores"), batch.steps), printed

    @contextmanager
    def _ended_if_unsound(self) -> Iterator[None]:
        """The worker has made the same checks: one that let something through was tampered with, and is replaced."""
        try:
            yield
        except (RewardError, NonsenseError):
            self.close()
            raise

    def _score(self, code: str, name: str, batch: Batch) -> tuple[dict[str, Any], str]:
        sent, left_out = packed_batch(batch)
        try:
            return self._ask({"do": "score", "code": code, "name": name, "batch": sent}, len(batch))
        except RewardError as error:
            if missed := [column for column in left_out if column in str(error)]:
                error.args = (f"{error} (not passed to it, as it is not JSON: {', '.join(missed)})",)
            raise

    def _ask(self, request: dict[str, Any], count: int = 0) -> tuple[dict[str, Any], str]:
        name = request["name"]
        with self._lock:
            try:
                return self._exchange(request, self.deadline)
            except ChildTimeout as error:
                if error.seconds != self.deadline:  # it did not even start
                    raise RewardError(f"reward {name!r}: {error}", reward=name) from error
                line = _line_in(self._printed)
                raise RewardTimeout(
                    f"reward {name!r} ran over its deadline of {self.deadline:g} s{_at(line)} and was stopped; make it "
                    "faster, or in a run raise method.reward_deadline",
                    reward=name,
                    line=line,
                ) from error
            except ChildDied as error:
                line = _line_in(self._printed)
                raise RewardError(f"reward {name!r}{_at(line)}: {error}", reward=name, line=line) from error
            except WorkbenchError as error:
                checked = check_error(error, name, count)
                if checked is error:
                    raise
                raise checked from error

    def _call(self, request: dict[str, Any], deadline: float) -> tuple[dict[str, Any], str]:
        with self._lock:
            return self._exchange(request, deadline)

    def _exchange(self, request: dict[str, Any], deadline: float) -> tuple[dict[str, Any], str]:
        """The reply, and what was printed meanwhile. Raises ChildError, or whatever the worker raised."""
        child = self._started()
        request = {**request, "deadline": deadline}
        try:
            try:
                reply = child.call(request, deadline=deadline, cancelled=self._over_quota)
            except ChildFailed:
                # An earlier call has worn it out, or broken what the worker itself is made of: builtins.len, say.
                child.close()
                reply = child.call(request, deadline=deadline, cancelled=self._over_quota)
            self._over_quota()
        except _QuotaError as error:
            self.close()
            raise ChildDied(str(error)) from None
        except OSError as error:  # closed by another thread meanwhile, its folder is gone
            raise ChildDied(f"its process cannot be started ({error.strerror or error}); try again") from error
        finally:
            self._printed = child.output
            self.output = _HANG_REPORT.sub("", self._printed)
        return reply, self.output

    def _over_quota(self) -> bool:
        """Never True: such a worker is not asked to end but ended. Raises _QuotaError.

        Asked every 50 ms of a call and after it.
        """
        if self._scratch is not None and self._scratch.is_over_quota():
            raise _QuotaError(
                f"the worker's folder held over {MAX_BYTES >> 20} MB or {MAX_FILES:,} files, and it was ended; "
                "let the code write less, or remove what it wrote"
            )
        return False

    def _started(self) -> Child:
        if self._child is None:
            self._scratch = Scratch()
            folder = self._scratch.path
            child = Child(
                "workbench.rewards.worker",
                name="worker",
                options=["-P"],  # the folder it works in is no place to import from
                environment=sealed_environment(child_environment(), folder),
                folder=folder,
                events=False,
                max_frame=MAX_REPLY,
            )
            self._clean_up = weakref.finalize(child, self._scratch.remove)
            self._child = child
        return self._child

    def close(self) -> None:
        """End the process. A later call starts a new one."""
        child, self._child = self._child, None
        if child is not None:
            clean_up = self._clean_up
            child.close()
            clean_up()

    def __enter__(self) -> RewardWorker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _QuotaError(Exception):
    """The worker's folder holds more than it may; says how much that is."""


@cache
def shared_worker() -> RewardWorker:
    """The worker of whoever brings none of their own; it ends with this process."""
    return RewardWorker()


@dataclass(frozen=True)
class WorkerFunction:
    """A user's function that runs in the worker: called like the function itself, with the same arguments.

    Arguments that are not JSON (TRL's ``trainer_state``, ``log_extra``, ``log_metric``) stay behind.
    """

    name: str
    code: str
    signature: inspect.Signature
    worker: RewardWorker

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __signature__(self) -> inspect.Signature:
        return self.signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self.signature.bind(*args, **kwargs).arguments
        for parameter in self.signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                values |= values.pop(parameter.name, {})
        form = form_of(self.signature)
        if form == "step":
            columns = {name: [value] for name, value in values.items() if name not in ("prompt", "step")}
            batch = Batch([values["prompt"]], [values["step"]], columns, [[values["step"]]])
            return self.worker.score_steps(self.code, self.name, batch)[0][0][0]
        arguments = {name: values.pop(name, ()) for name in ("prompts", "completions", "steps")}
        batch = Batch(completion_ids=values.pop("completion_ids", None), columns=values, **arguments)
        if form == "outcome":
            return self.worker.score_outcome(self.code, self.name, batch)[0]
        return self.worker.score_steps(self.code, self.name, batch)[0]


def _line_in(output: str) -> int | None:
    """The innermost line of the user's code in the last of Python's own fault reports."""
    report = max(output.rfind("Timeout ("), output.rfind("Fatal Python error"))
    match = re.search(rf'File "{re.escape(FILENAME)}", line (\d+)', output[report:]) if report >= 0 else None
    return int(match[1]) if match else None


def _at(line: int | None) -> str:
    return "" if line is None else f" at line {line}"
