"""The parent's side of the processes that speak to judges: one for each endpoint and model."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from workbench.errors import ChildError, RewardError
from workbench.rewards.judges.judge import Judged, Question
from workbench.rewards.judges.reading import Verdict
from workbench.sandbox.child import Child
from workbench.sections import JudgeConfig

SILENCE_SECONDS = 120.0
"""Most seconds a process may stay silent. It speaks every second while it waits for an endpoint."""
RUN, WORKSPACE = "WORKBENCH_RUN", "WORKBENCH_WORKSPACE"
"""Environment variables that name the run that this process belongs to, and the workspace."""


class JudgeWorker:
    """Asks judges, in processes that are started when first needed. Safe from any thread.

    ``folder`` is where answers are kept; by default the workspace of this process's run, or the default one. ``busy``
    says what it waits for. What ``max_calls`` limits is this process's run, with all its ranks and after a resume, or
    this object's own questions.
    """

    def __init__(self, folder: Path | None = None) -> None:
        run = os.environ.get(RUN)
        self._folder = folder or (Path(run).parents[1] if run else Path(os.environ.get(WORKSPACE) or "workspace"))
        self._scope = run or f"session {secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._children: dict[tuple[str, str], Child] = {}
        self._busy: dict[str, str] = {}
        self._asked: list[Child] = []
        self._cancelled: set[Child] = set()

    @property
    def busy(self) -> str:
        """What judges are at; "" while none is asked."""
        return ", ".join(self._busy.values())

    def judged(self, name: str, config: JudgeConfig, questions: Sequence[Question]) -> Judged:
        """As ``judge.judged``. Raises RewardError, also where the process died."""
        request = {
            "do": "judge",
            "name": name,
            "folder": str(self._folder.absolute()),
            "scope": self._scope,
            "questions": [[question.text, question.steps] for question in questions],
        }
        try:
            reply = self._ask(name, config, request)
            verdicts = [[Verdict(*verdict) for verdict in of] for of in reply["verdicts"]]
            return Judged(verdicts, reply["calls"])
        finally:
            self._busy.pop(name, None)

    def reach(self, config: JudgeConfig) -> None:
        """Raises RewardError where nothing listens at the endpoint, as far as a connection tells."""
        self._ask("", config, {"do": "reach"})

    def _ask(self, name: str, config: JudgeConfig, request: dict[str, Any]) -> dict[str, Any]:
        def on_event(event: dict[str, Any]) -> None:
            asked = f"{event['done']} of {event['total']} answers"
            self._busy[name] = f"judge {config.model}: {asked}, {event['seconds']:.0f} s"

        place = (config.base_url, config.model)
        with self._lock:
            if place not in self._children:
                self._children[place] = Child("workbench.rewards.judges.worker", name="the judges' process")
            child = self._children[place]
            self._asked.append(child)
        try:
            return child.call({**request, "config": config.model_dump()}, deadline=SILENCE_SECONDS, on_event=on_event)
        except ChildError as error:
            with self._lock:
                cancelled = child in self._cancelled
            said = "cancelled; what was answered is kept, and is not asked again" if cancelled else str(error)
            raise RewardError(said) from error
        finally:
            with self._lock:
                self._asked.remove(child)
                if child not in self._asked:
                    self._cancelled.discard(child)

    def cancel(self) -> bool:
        """End what is being asked; whether there was anything. Whoever asked gets a RewardError.

        The processes end at once, as a request that is under way cannot be called back; a later question starts others.
        """
        with self._lock:
            self._cancelled |= set(self._asked)
            asked = list(self._cancelled)
        for child in asked:
            child.kill()
        return bool(asked)

    def close(self) -> None:
        """End the processes. A later question starts new ones."""
        with self._lock:
            children, self._children = self._children, {}
        for child in children.values():
            child.close()

    def __enter__(self) -> JudgeWorker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@cache
def shared_judges() -> JudgeWorker:
    """That of whoever brings none of their own."""
    return JudgeWorker()
