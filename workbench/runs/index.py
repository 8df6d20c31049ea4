"""Every rollout that a run has stored, by numbers and text: search, order and pages of a list."""

import json
import threading
import time
from typing import Any, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.runs.run import Run
from workbench.schema import prompt_text

PAGE = 30
"""Rollouts on a page of the list."""
READING = 1.0
"""Seconds in which a question reads on in a run's rollouts."""
SHOWN = 240
"""Characters of a text in a list."""


class RolloutRow(TypedDict):
    """A rollout in the list: where it is stored, the beginnings of its texts, and its numbers, None for none.

    ``reward`` is the mean of its steps', ``advantage`` that of its tokens'.
    """

    step: int
    group: int
    rollout: int
    prompt: str
    text: str
    outcome: float | None
    reward: float | None
    advantage: float
    tokens: int


class RolloutPage(TypedDict):
    """Up to ``length`` rows from ``offset`` on of the ``found`` ones among ``total``; ``read`` of so many ``files`` are
    read by now, and the page is preliminary until all are."""

    rows: list[RolloutRow]
    length: int
    offset: int
    found: int
    total: int
    read: int
    files: int


_COLUMNS = ["step", "group", "rollout", "outcome", "reward", "advantage", "tokens"]


class RolloutIndex:
    """The numbers of every stored rollout of a run, 7 a rollout, and which match the search that was asked for last.

    Texts are read for a search and for the page that is shown, a file at a time, and not kept.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._numbers: dict[tuple[int, int], pd.DataFrame] = {}
        self._matches: dict[tuple[int, int], NDArray[np.bool_]] = {}
        self._search = ""

    def page(self, run: Run, search: str, order: str, offset: int) -> RolloutPage:
        """Read on for about ``READING`` seconds, the newest steps first, and return a page of what is read by then."""
        stored = run.dir.rollouts
        files = [(step, stored.write_time(step)) for step in reversed(stored.steps())]  # which a resume writes anew
        if search != self._search:
            self._search, self._matches = search, {}
        self._numbers = {file: self._numbers[file] for file in files if file in self._numbers}
        until = time.monotonic() + READING
        read = 0
        for file in files:
            if time.monotonic() > until:
                break
            if file not in self._numbers:
                self._numbers[file] = _numbers(run, file[0])
            if search and file not in self._matches:
                texts = _texts(run, file[0]).values()
                self._matches[file] = np.array([search in "\n".join(both).casefold() for both in texts], dtype=bool)
            read += 1
        frames = [self._numbers[file] for file in files[:read]]
        numbers = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_COLUMNS, dtype=float)
        found = _ordered(numbers, order)
        if search and frames:
            found = found[np.concatenate([self._matches[file] for file in files[:read]])[found.index]]
        offset = min(offset, max(0, len(found) - 1)) // PAGE * PAGE
        return {
            "rows": _rows(run, found.iloc[offset : offset + PAGE]),
            "length": PAGE,
            "offset": offset,
            "found": len(found),
            "total": len(numbers),
            "read": read,
            "files": len(files),
        }


def _numbers(run: Run, step: int) -> pd.DataFrame:
    """Return ``_COLUMNS`` of a step's rollouts, NaN for what was not scored."""
    columns = ("group", "rollout", "outcome", "rewards", "advantages")
    frame: pd.DataFrame = run.dir.rollouts.table(step, columns).to_pandas()
    frame["outcome"] = frame["outcome"].astype(float)  # of nulls alone
    for name, lists in (("reward", "rewards"), ("advantage", "advantages")):
        frame[name] = frame[lists].explode().astype(float).groupby(level=0).mean()
    frame["advantage"] = frame["advantage"].fillna(0.0)  # of a completion without tokens
    return frame.assign(step=step, tokens=frame["advantages"].map(len))[_COLUMNS]


def _texts(run: Run, step: int) -> dict[tuple[int, int], tuple[str, str]]:
    """The prompt and the completion of each of a step's rollouts, by group and rollout."""
    columns = ("group", "rollout", "texts", "finished")
    table = run.dir.rollouts.table(step, columns)
    prompts = [prompt_text(head["prompt"]) for head in json.loads(table.schema.metadata[b"groups"])]
    return {
        (group, rollout): (prompts[group], "".join(pieces[:-1] if finished else pieces))  # as Rollout.text
        for group, rollout, pieces, finished in zip(*(table[name].to_pylist() for name in columns), strict=True)
    }


def _ordered(numbers: pd.DataFrame, order: str) -> pd.DataFrame:
    """Return the rows by ``order``, the largest first; those that have no such number come last."""
    name = order.removeprefix("-")
    key = numbers[name if name in numbers else "step"]
    if order == "disagreement":
        both = numbers[["reward", "outcome"]]
        apart = (both - both.mean()) / both.std(ddof=0).replace(0.0, 1.0)
        key = (apart["reward"] - apart["outcome"]).abs()
    return numbers.loc[key.sort_values(ascending=order.startswith("-"), kind="stable").index]


def _rows(run: Run, numbers: pd.DataFrame) -> list[RolloutRow]:
    texts = {step: _texts(run, int(step)) for step in set(numbers["step"])}
    rows: list[Any] = numbers.astype(object).where(numbers.notna(), None).to_dict("records")
    for row in rows:
        prompt, text = texts[row["step"]][row["group"], row["rollout"]]
        row |= {"prompt": prompt.strip()[:SHOWN], "text": text.strip()[:SHOWN]}
    return rows
