"""The parent's side of the reward worker, where users' code and patterns run, with a deadline and checked replies.

The trust model: this is your own code on your own machine, like Jupyter. The worker's processes (``sealed``) can be
killed, which limits accidents; they are no sandbox for strangers' code. A layer of the seal that this system lacks is
in ``RewardWorker.reduced_isolation()``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from workbench.config import RewardConfig
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
from workbench.rewards.judges import Judges
from workbench.rewards.logged import ARGUMENTS
from workbench.rewards.protocol import Batch, form_of
from workbench.rewards.returned import Score, check_outcome, check_steps
from workbench.rewards.sealed import MOST, Key, SealedChildren
from workbench.rewards.wire import (
    FILENAME,
    NonsenseError,
    check_error,
    checked_isolation,
    packed_batch,
    read_log,
    read_signature_reply,
    read_split_reply,
)
from workbench.steps import Split, StepPattern, unsplit
from workbench.steps.split import PREVIEW_TIMEOUT, TIMEOUT

DEADLINE = 30.0
"""Seconds one call may take, loading of its code and start-up of the worker apart: that of a run by default."""
LOADING = 60.0
"""Seconds that loading a function's code (its imports, say) may take, or ``deadline`` where that is longer."""
PATTERN_MARGIN = 1.0
"""Seconds for compiling a pattern and what the ``regex`` package's own time limit misses, over that limit."""
_HANG_REPORT = re.compile(r"Timeout \([\d:.]+\)!\n(?:(?:Thread|Current thread) .*\n(?: +.*\n)*\n?)*")
"""What a process writes when a call has nearly used up its time, also one that then ends well."""


class RewardWorker:
    """Runs reward code and patterns in sealed child processes: each reward function in one, patterns in another.

    A process is started at the first call and again after it died. Safe between threads, which wait for each other only
    where they call the same function. ``deadline`` is for a call of a reward, ``loading`` for its code's imports and
    top level, ``pattern_margin`` what a pattern gets over its own time limits. ``output`` is what the last call
    printed, at most 64 KB of it. ``most_functions`` have a process at a time. ``agreed`` raises RewardError for a
    reward that leaves the seal unless somebody agreed to it; without it any may, as in a notebook. Judges among the
    rewards are asked through ``judges``, by default those that this process shares.
    """

    def __init__(
        self,
        deadline: float = DEADLINE,
        *,
        loading: float = LOADING,
        pattern_margin: float = PATTERN_MARGIN,
        most_functions: int = MOST,
        agreed: Callable[[RewardConfig], None] | None = None,
        judges: Judges | None = None,
        unsealed: bool = False,
    ) -> None:
        self.deadline, self.loading = deadline, loading
        self.pattern_margin = pattern_margin
        self.output = ""
        self._agreed = agreed
        self.judges = judges
        self._children = SealedChildren(most_functions, unsealed=unsealed)
        self._missing: tuple[str, ...] | None = None
        self._unsealed = (
            None if unsealed else RewardWorker(deadline, loading=loading, most_functions=most_functions, unsealed=True)
        )

    def start(self) -> None:
        """Start the process for patterns now, and what forks all others, so that the first calls need not wait."""
        with self._children.held(None):
            pass

    def unsealed_for(self, reward: RewardConfig) -> RewardWorker:
        """Where a trusted reward's code runs. Raises RewardError as ``require`` does."""
        self.require(reward)
        if self._unsealed is not None:
            self._unsealed.deadline = self.deadline
        return self._unsealed or self

    def require(self, reward: RewardConfig) -> None:
        """Raises RewardError for a reward that leaves the seal where nobody agreed to it."""
        if self._agreed is not None:
            self._agreed(reward)

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._children.busy or (self._unsealed is not None and self._unsealed.busy)

    @property
    def pids(self) -> dict[Key, int]:
        """The process of each function, by its code and name, and of patterns (None)."""
        return self._children.pids

    def reduced_isolation(self) -> tuple[str, ...]:
        """A sentence for each layer of the seal that this system lacks; none where all are in force.

        Starts a process if there is none. Raises RewardError when that fails.
        """
        if self._missing is None:
            try:
                self._missing = checked_isolation(self._ask_for_patterns({"do": "isolation"}, self.deadline))
            except (ChildError, NonsenseError) as error:
                raise RewardError(f"the reward worker does not say how it is isolated: {error}") from error
        return self._missing

    # -- patterns ------------------------------------------------------------------------------------------------------

    def split(self, texts: Sequence[str], pattern: StepPattern, *, leniently: bool = False) -> list[Split]:
        """Each text's steps and matches, by a pattern that never runs in this process.

        A preview (the default) has 0.25 s a text and 1 s for all, and raises PatternTooSlow for the first text that is
        too slow. ``leniently`` only a pattern that cannot be used at all raises; a text that is too slow is one
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
            reply = self._ask_for_patterns(request, limit)
            with self._ended_if_unsound(None):
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

        Raises as ``function`` does.
        """
        return self.function(code, name).signature

    def function(self, code: str, name: str, folder: str | None = None) -> WorkerFunction:
        """The function ``name`` of ``code`` (or the only one, or ``reward``), to be called here and to run there.

        It may import modules that lie in ``folder``. Raises RewardCodeError for code that does not compile, fails on
        import or defines no such function, with its line; RewardTimeout for code that does not end.
        """
        if folder is not None and self._children.folders.get((code, name)) != folder:
            self._children.end((code, name))
            self._children.folders[code, name] = folder
        reply, _ = self._ask({"do": "describe", "code": code, "name": name})
        try:
            with self._ended_if_unsound((code, name)):
                return WorkerFunction(name, code, read_signature_reply(reply), self, reply.get("async") is True)
        except NonsenseError as error:
            raise RewardError(f"reward {name!r}: {error}", reward=name) from error

    def score_outcome(self, code: str, name: str, batch: Batch) -> tuple[list[Score], str]:
        """One score a completion, and what the code printed. Raises RewardError and the errors under it."""
        reply, printed = self._score(code, name, batch)
        with self._ended_if_unsound((code, name)):
            scores = check_outcome(name, reply.get("scores"), len(batch))
            read_log(reply, batch, name)
            return scores, printed

    def score_steps(self, code: str, name: str, batch: Batch) -> tuple[list[list[Score]], str]:
        """One score a step of each completion, and what the code printed. Raises RewardError and those under it."""
        reply, printed = self._score(code, name, batch)
        with self._ended_if_unsound((code, name)):
            scores = check_steps(name, reply.get("scores"), batch.steps)
            read_log(reply, batch, name)
            return scores, printed

    @contextmanager
    def _ended_if_unsound(self, key: Key) -> Iterator[None]:
        """The process has made the same checks: one that let something through was tampered with, and is replaced."""
        try:
            yield
        except (RewardError, NonsenseError):
            self._children.end(key)
            raise

    def _score(self, code: str, name: str, batch: Batch) -> tuple[dict[str, Any], str]:
        sent, texts, left_out = packed_batch(batch)
        try:
            return self._ask({"do": "score", "code": code, "name": name, "batch": sent, "texts": texts}, len(batch))
        except RewardError as error:
            if missed := [column for column in left_out if column in str(error)]:
                error.args = (f"{error} (not passed to it, as it is not JSON: {', '.join(missed)})",)
            raise

    def _ask(self, request: dict[str, Any], count: int = 0) -> tuple[dict[str, Any], str]:
        """The reply of the request's function, and what it printed. A process that has not loaded it does so first."""
        code, name, printed, doing = request["code"], request["name"], "", "loaded its code"
        deadline = self.deadline
        limit = max(self.loading, deadline)
        try:
            with self._children.held((code, name)) as sealed:
                try:
                    if request["do"] == "describe" or not sealed.has_loaded:
                        loading = {"do": "describe", "code": code, "name": name, "deadline": limit}
                        reply = self._children.ask(sealed, loading, limit)
                        sealed.loaded = sealed.child.pid
                    if request["do"] != "describe":
                        limit, doing = deadline, "ran"
                        reply = self._children.ask(sealed, {**request, "deadline": limit}, limit)
                finally:
                    printed = sealed.child.output
                    self.output = _HANG_REPORT.sub("", printed)
            return reply, _HANG_REPORT.sub("", printed)
        except ChildTimeout as error:
            if error.seconds != limit:  # it did not even start
                raise RewardError(f"reward {name!r}: {error}", reward=name) from error
            line = _line_in(printed)
            raise RewardTimeout(
                f"reward {name!r} {doing} over its deadline of {limit:g} s{_at(line)} and was stopped; make it "
                "faster, or raise method.reward_deadline (in Python: RewardWorker(deadline=…))",
                reward=name,
                line=line,
            ) from error
        except ChildDied as error:
            line = _line_in(printed)
            raise RewardError(f"reward {name!r}{_at(line)}: {error}", reward=name, line=line) from error
        except WorkbenchError as error:
            checked = check_error(error, name, count)
            if checked is error:
                raise
            raise checked from error

    # -- environments --------------------------------------------------------------------------------------------------

    def environment(
        self, code: str, name: str, request: Mapping[str, Any], deadline: float, lane: int = 0
    ) -> tuple[dict[str, Any], str]:
        """The reply of the environment that ``code`` defines (``environments.hosted``), and what it printed.

        Its process is its own, one a ``lane``, and is replaced where a call has not ended in ``deadline`` seconds.
        Raises EpisodeError, whose ``printed`` is what the code printed.
        """
        printed = ""
        key = code, f"environment {name}" + (f", lane {lane}" if lane else "")
        asked = {**request, "do": "environment", "code": code, "name": name}
        try:
            with self._children.held(key) as sealed:
                if not sealed.has_loaded:
                    deadline = max(self.loading, deadline)
                try:
                    reply = self._children.ask(sealed, {**asked, "deadline": deadline}, deadline)
                    sealed.loaded = sealed.child.pid
                    return reply, _HANG_REPORT.sub("", sealed.child.output)
                finally:
                    printed = sealed.child.output
        except ChildTimeout as error:
            line = _line_in(printed)
            slow = error.seconds == deadline  # or it did not even start
            message = (
                f"ran over its deadline of {deadline:g} s{_at(line)} and was stopped; make it faster, or raise "
                "environment.deadline"
            )
            raise _episode_error(f"environment {name!r} {message if slow else error}", printed, line) from error
        except EpisodeError as error:
            line = error.line if type(error.line) is int else None
            raise _episode_error(str(error), printed, line) from error
        except WorkbenchError as error:
            line = _line_in(printed)
            raise _episode_error(f"environment {name!r}{_at(line)}: {error}", printed, line) from error

    def _ask_for_patterns(self, request: dict[str, Any], deadline: float) -> dict[str, Any]:
        """The reply of the process in which patterns match. Raises ChildError, or whatever that process raised."""
        with self._children.held(None) as sealed:
            return self._children.ask(sealed, request, deadline)

    def close(self) -> None:
        """End all processes. A later call starts new ones."""
        self._children.close()
        if self._unsealed is not None:
            self._unsealed.close()

    def __enter__(self) -> RewardWorker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@cache
def shared_worker() -> RewardWorker:
    """The worker of whoever brings none of their own; it ends with this process."""
    return RewardWorker()


@dataclass(frozen=True)
class WorkerFunction:
    """A user's function that runs in the worker: called like the function itself, with the same arguments.

    Columns that are not JSON stay behind. ``concurrent`` if it is a coroutine function there.
    """

    name: str
    code: str
    signature: inspect.Signature
    worker: RewardWorker
    concurrent: bool = False

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
        state, *loggers = (values.pop(argument, None) for argument in ARGUMENTS)
        form = form_of(self.signature)
        of_turns = {name: values.pop(name) for name in ("turn", "observation") if name in values}
        if form == "step":
            of_turns = {name: [[value]] for name, value in of_turns.items()}
            columns = {name: [value] for name, value in values.items() if name not in ("prompt", "step")}
            batch = Batch(
                [values["prompt"]], [values["step"]], columns, [[values["step"]]], trainer_state=state, **of_turns
            )
            scores: Any = self.worker.score_steps(self.code, self.name, batch)[0][0][0]
        else:
            arguments = {name: values.pop(name, ()) for name in ("prompts", "completions", "steps")}
            ids = values.pop("completion_ids", None)
            batch = Batch(**arguments, completion_ids=ids, columns=values, trainer_state=state, **of_turns)
            score = self.worker.score_outcome if form == "outcome" else self.worker.score_steps
            scores = score(self.code, self.name, batch)[0]
        batch.log.tell(*loggers)
        return scores


def _episode_error(message: str, printed: str, line: int | None) -> EpisodeError:
    return EpisodeError(message, line=line, printed=_HANG_REPORT.sub("", printed))


def _line_in(output: str) -> int | None:
    """The innermost line of the user's code in the last of Python's own fault reports."""
    report = max(output.rfind("Timeout ("), output.rfind("Fatal Python error"))
    match = re.search(rf'File "{re.escape(FILENAME)}", line (\d+)', output[report:]) if report >= 0 else None
    return int(match[1]) if match else None


def _at(line: int | None) -> str:
    return "" if line is None else f" at line {line}"
