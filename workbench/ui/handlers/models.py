"""Reward models and step values on the page: forms in, configurations and progress out. Both run in children.

A reward model becomes a ``RewardConfig`` like any other reward; ``score_group(..., models=ModelWorker())`` scores with
it. Step values are asked of the policy worker on a thread of their own, so that the page can show how far they are.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from workbench.config import ModelFormat, PatternConfig, Reduction, RewardConfig
from workbench.errors import ConfigError, WorkbenchError
from workbench.policies.step_values import StepValues
from workbench.rewards.models.formats import FORMATS, guess_format
from workbench.schema import Group

FORMAT_CHOICES: tuple[tuple[str, str], ...] = (
    ("by its architecture", ""),
    ("classifier: one score a completion", "classifier"),
    ("stepwise: token classification (TRL)", "stepwise"),
    ("ки: P(+) of {+, −} (Math-Shepherd)", "ki"),
    ("<extra_0> after each step (Qwen2.5-Math-PRM)", "extra-0"),
    ("chat turns answered + or − (RLHFlow)", "turns"),
)
"""Label and value of each choice of format."""
REDUCE_CHOICES: tuple[tuple[str, str], ...] = (
    ("a score for each step", ""),
    ("outcome: the last step's", "last"),
    ("outcome: the least", "min"),
    ("outcome: the product", "product"),
)
"""Label and value of what a process reward model is used as."""


def model_reward(path: str, form: str = "", reduce: str = "", weight: float | None = 1.0) -> RewardConfig:
    """The reward that a folder or Hub id, and the choices beside it, come to.

    Raises RewardError where the format must be said, ConfigError for a field that does not fit.
    """
    path = path.strip()
    if not path:
        raise ConfigError("give a reward model's folder or Hub id")
    chosen: ModelFormat = form or guess_format(path)  # type: ignore[assignment]  # checked just below
    how: Reduction | None = reduce or None  # type: ignore[assignment]
    kind = "outcome" if chosen not in FORMATS or how else "step"
    name = re.sub(r"\W+", "_", Path(path).name).strip("_") or "model"
    model = {"path": path, "format": chosen} | ({"reduce": how} if how else {})
    try:
        return RewardConfig.model_validate(
            {"name": name, "kind": kind, "weight": 1.0 if weight is None else weight, "model": model}
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


@dataclass(frozen=True)
class ValuesView:
    """One thing to show while values are estimated: a line that says how far, and at the end the values or a note."""

    status: str
    running: bool
    note: str = ""
    values: StepValues | None = None


class Estimator(Protocol):
    """``policies.client.PolicyWorker``, as far as it is asked here."""

    def step_values(
        self,
        policy: str,
        group: Group,
        pattern: PatternConfig,
        outcome: RewardConfig,
        *,
        k: int,
        seed: int,
        on_event: Callable[[dict[str, Any]], None],
        cancelled: Callable[[], bool],
    ) -> StepValues | None: ...


def estimate_values(
    worker: Estimator,
    policy: str,
    group: Group,
    pattern: PatternConfig,
    outcome: RewardConfig,
    cancel: threading.Event,
    *,
    k: int = 8,
    seed: int = 0,
) -> Iterator[ValuesView]:
    """Monte-Carlo values of the group on screen, telling how far they are; setting ``cancel`` ends it.

    The values' ``as_reward()`` goes into ``score_group`` beside the other rewards. Whoever stops listening cancels.
    """
    heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    result: list[StepValues | WorkbenchError | None] = []

    def work() -> None:
        try:
            result.append(
                worker.step_values(
                    policy, group, pattern, outcome, k=k, seed=seed, on_event=heard.put, cancelled=cancel.is_set
                )
            )
        except WorkbenchError as error:
            result.append(error)

    thread = threading.Thread(target=work, name="step values", daemon=True)
    thread.start()
    try:
        yield ValuesView("asking the policy", True)
        while thread.is_alive() or not heard.empty():
            try:
                yield ValuesView(_status(heard.get(timeout=0.05)), True)
            except queue.Empty:
                continue
    finally:
        if thread.is_alive():
            cancel.set()
    outcome_of = result[0] if result else WorkbenchError("estimating ended without a result; try again")
    if isinstance(outcome_of, WorkbenchError):
        yield ValuesView("", False, note=str(outcome_of))
    elif outcome_of is None:
        yield ValuesView("", False, note="Cancelled; nothing was estimated.")
    else:
        done = f"{outcome_of.tokens} tokens in {outcome_of.seconds:.1f} s"
        yield ValuesView(done, False, values=outcome_of)


def _status(event: dict[str, Any]) -> str:
    if "loading" in event:
        return f"loading policy {event['loading']}"
    if "waiting" in event:
        return "waiting for another page's sampling"
    return f"{event['done']} of {event['total']} continuations, {event['tokens']} tokens, {event['seconds']:.0f} s"
