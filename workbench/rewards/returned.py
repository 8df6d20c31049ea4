"""What a reward function may return: finite numbers or None, one for each completion or step.

The reward worker checks with this module what users' functions return, and its parent once more what the worker
replies. In messages rollouts and steps count from 1, as they are labelled; in an error's attributes from 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from workbench.errors import RewardValueError

Score = float | None
LARGEST = 1e6
"""Largest size of a score; one beyond it would drown its whole group."""
_SHOWN = 80
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def check_outcome(name: str, returned: Any, count: int) -> list[Score]:
    """Raises RewardValueError unless ``returned`` is ``count`` finite numbers or Nones."""
    values = _as_list(returned)
    if values is None:
        raise RewardValueError(
            f"reward {name!r} returned {shown_value(returned)}; return a list with one score for each of the {count} "
            "completions",
            reward=name,
        )
    if len(values) != count:
        raise RewardValueError(
            f"reward {name!r} returned {len(values)} scores for {count} completions; return one for each", reward=name
        )
    return [score_of(name, value, i) for i, value in enumerate(values)]


def check_steps(name: str, returned: Any, steps: Sequence[Sequence[str]]) -> list[list[Score]]:
    """Raises RewardValueError unless ``returned`` has a list for each completion, and it a score for each step."""
    rows = _as_list(returned)
    if rows is None or len(rows) != len(steps):
        what = shown_value(returned) if rows is None else f"{len(rows)} lists"
        raise RewardValueError(
            f"reward {name!r} returned {what} for {len(steps)} completions; return a list for each, with one score a "
            "step",
            reward=name,
        )
    scores = []
    for i, (row, texts) in enumerate(zip(rows, steps, strict=True)):
        values = _as_list(row)
        if values is None or len(values) != len(texts):
            what = shown_value(row) if values is None else f"{len(values)} scores"
            raise RewardValueError(
                f"reward {name!r} gave {what}{place_of(i)}, which has {len(texts)} steps; give a list with one score "
                "for each step",
                reward=name,
                rollout=i,
            )
        scores.append([score_of(name, value, i, k, texts[k]) for k, value in enumerate(values)])
    return scores


def _as_list(value: Any) -> list[Any] | None:
    if isinstance(value, list | tuple):
        return list(value)
    if getattr(value, "ndim", 0) >= 1 and hasattr(value, "tolist"):  # numpy, torch, pandas
        return list(value.tolist())
    return None


def score_of(name: str, value: Any, rollout: int, step: int | None = None, text: str = "") -> Score:
    if value is None:
        return None
    number: Any = value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
    # Compared before it is converted: 10**400 does not fit a float.
    if isinstance(number, int | float) and -LARGEST <= number <= LARGEST:
        return float(number)
    raise RewardValueError(
        f"reward {name!r} gave {shown_value(value)}{place_of(rollout, step, text)}; give a finite number of at most "
        f"{LARGEST:,.0f} in size, or None for no score",
        reward=name,
        rollout=rollout,
        step=step,
    )


def shown_value(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, int) and value.bit_length() > 250:
        return f"an integer of {value.bit_length():,} bits"
    try:
        text = _ADDRESS.sub("", repr(value))  # an address says nothing, and is another one in every process
    except Exception as error:  # a user's class can fail to print itself
        text = f"(cannot be shown: {type(error).__name__})"
    if len(text) > _SHOWN:
        text = text[: _SHOWN - 1] + "…"
    return text if isinstance(value, int | float) else f"the {type(value).__name__} {text}"


def place_of(rollout: int, step: int | None = None, text: str = "") -> str:
    if step is None:
        return f" for rollout {rollout + 1}"
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return f" for rollout {rollout + 1}, step {step + 1} ({shown!r})"
