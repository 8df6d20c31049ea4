"""The page's side of the reward-model worker. Imports no torch: the models live in a child process of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from workbench.config import ModelConfig
from workbench.errors import ChildError, RewardError
from workbench.places import checkpoint_or
from workbench.rewards.returned import Score, check_outcome, check_steps
from workbench.sandbox.child import Child
from workbench.schema import Prompt

OnEvent = Callable[[dict[str, Any]], None]
SILENCE_SECONDS = 300.0
"""Most seconds the worker may stay silent. It speaks every second while a model loads and scores."""


class ModelWorker:
    """Client of ``python -m workbench.rewards.models.worker``, started when first needed and again after it died.

    ``busy`` is the model a call is about and for how many seconds it has been, None between calls. Safe to use from
    any thread.
    """

    def __init__(self, path_of: Callable[[str], str] = checkpoint_or) -> None:
        """``path_of`` gives the path that a model's name stands for."""
        self._path_of = path_of
        self.busy: tuple[str, float] | None = None
        self._child: Child | None = None
        self._lock = threading.Lock()

    def prepare(self, config: ModelConfig) -> None:
        """Nothing: the model loads with its first scores, which say what is wrong with it."""

    def load(self, config: ModelConfig, on_event: OnEvent | None = None) -> None:
        """Load it now. ``on_event`` gets ``{"busy": path, "seconds": s}`` every second. Raises as ``score_steps`` does.

        It can only be given up by ``close``, from another thread.
        """
        self._ask({"config": self._dumped(config)}, on_event)

    def score_steps(
        self, config: ModelConfig, prompts: Sequence[Prompt], steps: Sequence[Sequence[str]]
    ) -> list[list[Score]]:
        """As ``LocalModels.score_steps``. Raises RewardError, also where the worker died or fell silent."""
        returned = self._ask({"config": self._dumped(config), "prompts": list(prompts), "steps": [*map(list, steps)]})
        return check_steps(config.path, returned, steps)

    def score_texts(self, config: ModelConfig, prompts: Sequence[Prompt], completions: Sequence[Any]) -> list[Score]:
        """As ``LocalModels.score_texts``. Raises as ``score_steps`` does."""
        request = {"config": self._dumped(config), "prompts": list(prompts), "completions": list(completions)}
        return check_outcome(config.path, self._ask(request), len(completions))

    def _ask(self, request: dict[str, Any], on_event: OnEvent | None = None) -> Any:
        with self._lock:
            if self._child is None:
                self._child = Child("workbench.rewards.models.worker", name="reward-model worker")
            child = self._child

        def pass_on(event: dict[str, Any]) -> None:
            self.busy = (event["busy"], event["seconds"])
            if on_event is not None:
                on_event(event)

        try:
            return child.call(request, deadline=SILENCE_SECONDS, on_event=pass_on).get("scores")
        except ChildError as error:
            raise RewardError(str(error)) from error
        finally:
            self.busy = None

    def _dumped(self, config: ModelConfig) -> dict[str, Any]:
        return config.model_dump() | {"path": self._path_of(config.path)}

    def close(self) -> None:
        """End the worker. A later call starts another."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.close()
