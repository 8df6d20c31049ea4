"""The parent's side of the reward worker: users' code is sent there, with a deadline, and comes back as scores.

This is for accidents, not for strangers' code: the worker is a process that can be killed, with this user's rights.
"""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from workbench.child import Child
from workbench.errors import ChildDied, ChildFailed, ChildTimeout, RewardError, RewardTimeout
from workbench.rewards.protocol import Batch, Score, check_outcome, check_steps, form_of

DEADLINE = 5.0
"""Seconds one call may take, start-up of the worker apart."""
FILENAME = "<reward>"
"""What a user's code is called in its tracebacks."""
_HANG_REPORT = re.compile(r"Timeout \([\d:.]+\)!\n(?:(?:Thread|Current thread) .*\n(?: +.*\n)*\n?)*")
"""What the worker writes when a call has nearly used up its time, also one that then ends well."""


class RewardWorker:
    """Runs reward code in a child process, started at the first call and again after it died. Safe between threads.

    ``output`` is what the last call printed, at most 64 KB of it.
    """

    def __init__(self, deadline: float = DEADLINE) -> None:
        self.deadline = deadline
        self.output = ""
        self._child: Child | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process now, so that the first call need not wait for it."""
        with self._lock:
            self._started()

    def describe(self, code: str, name: str) -> inspect.Signature:
        """The signature of the function ``name`` of ``code``, or of the only one or ``reward`` if none has that name.

        Raises RewardCodeError for code that does not compile, fails on import or defines no such function, with its
        line; RewardTimeout for code that does not end.
        """
        reply, _ = self._ask({"do": "describe", "code": code, "name": name})
        kinds = inspect._ParameterKind
        return inspect.Signature(
            [
                inspect.Parameter(name, kinds[kind], default=... if has_default else inspect.Parameter.empty)
                for name, kind, has_default in reply["parameters"]
            ],
            __validate_parameters__=False,
        )

    def score_outcome(self, code: str, name: str, batch: Batch) -> tuple[list[Score], str]:
        """One score a completion, and what the code printed. Raises RewardError and the errors under it."""
        reply, printed = self._score(code, name, batch)
        return check_outcome(name, reply["scores"], len(batch)), printed

    def score_steps(self, code: str, name: str, batch: Batch) -> tuple[list[list[Score]], str]:
        """One score a step of each completion, and what the code printed. Raises RewardError and those under it."""
        reply, printed = self._score(code, name, batch)
        return check_steps(name, reply["scores"], batch.steps), printed

    def _score(self, code: str, name: str, batch: Batch) -> tuple[dict[str, Any], str]:
        columns, left_out = _json_columns(batch.columns)
        sent = {
            "prompts": list(batch.prompts),
            "completions": list(batch.completions),
            "columns": columns,
            "steps": [list(texts) for texts in batch.steps],
            "completion_ids": None if batch.completion_ids is None else [list(ids) for ids in batch.completion_ids],
        }
        try:
            return self._ask({"do": "score", "code": code, "name": name, "batch": sent})
        except RewardError as error:
            if missed := [column for column in left_out if column in str(error)]:
                error.args = (f"{error} (not passed to it, as it is not JSON: {', '.join(missed)})",)
            raise

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], str]:
        name = request["name"]
        with self._lock:
            child = self._started()
            try:
                reply = child.call({**request, "deadline": self.deadline}, deadline=self.deadline)
            except ChildTimeout as error:
                if error.seconds != self.deadline:  # it did not even start
                    raise RewardError(f"reward {name!r}: {error}", reward=name) from error
                line = _line_in(child.output)
                raise RewardTimeout(
                    f"reward {name!r} ran over its deadline of {self.deadline:g} s{_at(line)} and was stopped; make it "
                    "faster, or in a run raise training.reward_deadline",
                    reward=name,
                    line=line,
                ) from error
            except ChildDied as error:
                line = _line_in(child.output)
                raise RewardError(f"reward {name!r}{_at(line)}: {error}", reward=name, line=line) from error
            except ChildFailed as error:
                raise RewardError(f"reward {name!r}: {error}", reward=name) from error
            finally:
                self.output = _HANG_REPORT.sub("", child.output)
            return reply, self.output

    def _started(self) -> Child:
        if self._child is None:
            self._child = Child("workbench.rewards.worker", name="worker")
        return self._child

    def close(self) -> None:
        """End the process. A later call starts a new one."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

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
        for one in self.signature.parameters.values():
            if one.kind is inspect.Parameter.VAR_KEYWORD:
                values |= values.pop(one.name, {})
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


def _json_columns(columns: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    kept, left_out = {}, []
    for name, values in columns.items():
        try:
            json.dumps(values)
        except (TypeError, ValueError, RecursionError):
            left_out.append(name)
        else:
            kept[name] = values
    return kept, left_out


def _line_in(output: str) -> int | None:
    """The innermost line of the user's code in the last of Python's own fault reports."""
    report = max(output.rfind("Timeout ("), output.rfind("Fatal Python error"))
    found = re.search(rf'File "{re.escape(FILENAME)}", line (\d+)', output[report:]) if report >= 0 else None
    return int(found[1]) if found else None


def _at(line: int | None) -> str:
    return "" if line is None else f" at line {line}"
