"""The state of training that reward functions are told, and the values that they log beside their scores.

As TRL 1.16 has it (``GRPOTrainer._calculate_rewards``): ``trainer_state`` is the trainer's state, ``log_metric(name,
value)`` logs a number whose mean becomes a curve, and ``log_extra(column, values)`` keeps a value for each completion,
which is stored and shown with it. Here a function that scores steps may log a list for each completion, one value a
step; one that is called for each step logs that step's value. Outside training the state is that before a first step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

ARGUMENTS = ("trainer_state", "log_extra", "log_metric")
"""What TRL's trainer passes by name beside the data's columns."""
LONGEST_TEXT = 2000
"""Characters of a logged value that are kept."""
Extra = Mapping[str, Any]
"""What one function logged of one completion, by column: a value, or a tuple with one a step."""


def preview_state(max_steps: int = 1) -> SimpleNamespace:
    """The fields of transformers' ``TrainerState`` as they are before a run's first step."""
    return SimpleNamespace(
        epoch=0.0, global_step=0, max_steps=max_steps, logging_steps=1, eval_steps=500, save_steps=500,
        num_train_epochs=1, train_batch_size=None, num_input_tokens_seen=0, total_flos=0, log_history=[],
        best_metric=None, best_global_step=None, best_model_checkpoint=None, is_local_process_zero=True,
        is_world_process_zero=True, is_hyper_param_search=False, trial_name=None, trial_params=None,
    )  # fmt: skip


@dataclass
class Log:
    """Values that one call of a reward function logged; ``extra[column]`` has a value, or a list of them, a completion.

    ``read_as`` says how one that was written for another tool, or other data, was called.
    """

    extra: dict[str, list[Any]] = field(default_factory=dict)
    metrics: list[tuple[str, float]] = field(default_factory=list)
    read_as: str = ""

    def arguments(self, state: Any, count: int) -> dict[str, Any]:
        """TRL's arguments for a function that sees ``count`` completions at once."""

        def log_extra(column: str, values: Sequence[Any]) -> None:
            listed = as_list(values)
            if listed is None or len(listed) != count:
                got = type(values).__name__ if listed is None else f"{len(listed)} values"
                raise ValueError(f"log_extra({column!r}) got {got} for {count} completions; give a list of {count}")
            self.extra[column] = [plain(value) for value in listed]

        return {"trainer_state": state, "log_extra": log_extra, "log_metric": self.log_metric}

    def arguments_of_step(self, state: Any, steps: Sequence[Sequence[str]], place: tuple[int, int]) -> dict[str, Any]:
        """TRL's arguments for a function that sees one step, the one at ``place``."""

        def log_extra(column: str, values: Any) -> None:
            listed = as_list(values)
            if listed is not None and len(listed) != 1:
                raise ValueError(f"log_extra({column!r}) got {len(listed)} values for one step; give one")
            rows = self.extra.setdefault(column, [[None] * len(texts) for texts in steps])
            rows[place[0]][place[1]] = plain(values if listed is None else listed[0], nested=False)

        return {"trainer_state": state, "log_extra": log_extra, "log_metric": self.log_metric}

    def log_metric(self, name: str, value: float) -> None:
        number: Any = value.item() if hasattr(value, "item") else value
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise ValueError(f"log_metric({name!r}) got {number!r}; give a finite number")
        self.metrics.append((name, float(number)))

    def of(self, completion: int, steps: int) -> dict[str, Any]:
        """Return what was logged of one completion with so many steps, without columns that hold nothing of it."""
        logged = {column: values[completion] for column, values in self.extra.items()}
        return {
            column: (tuple(value) if len(value) == steps else ", ".join(map(str, value)))
            if isinstance(value, list)
            else value
            for column, value in logged.items()
            if (any(entry is not None for entry in value) if isinstance(value, list) else value is not None)
        }


def plain(value: Any, *, nested: bool = True) -> Any:
    """A logged value as it is kept: text, a number, True, False, None, or a list of those."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value if not isinstance(value, int) or value.bit_length() < 64 else str(value)[:LONGEST_TEXT]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if nested and (listed := as_list(value)) is not None:
        return [plain(entry, nested=False) for entry in listed]
    return str(value)[:LONGEST_TEXT]


def as_list(values: Any) -> list[Any] | None:
    """Return a list of a list, a tuple or an array (numpy, torch, pandas); None for anything else."""
    if isinstance(values, list | tuple):
        return list(values)
    return list(values.tolist()) if getattr(values, "ndim", 0) >= 1 and hasattr(values, "tolist") else None
