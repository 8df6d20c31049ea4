"""Every rollout that a run has stored, by numbers and text: search, order and pages of a list."""

from __future__ import annotations

import json
import math
import threading
import time
import warnings
from typing import TypedDict

import numpy as np
import pyarrow as pa
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


_COLUMNS = ("step", "group", "rollout", "outcome", "reward", "advantage", "tokens")


class RolloutIndex:
    """The numbers of every stored rollout of a run, 7 a rollout, and which match the search that was asked for last.

    Texts are read for a search and for the page that is shown, a file at a time, and not kept.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._numbers: dict[tuple[int, int], NDArray[np.float64]] = {}
        self._matches: dict[tuple[int, int], NDArray[np.bool_]] = {}
        self._search = ""

    def page(self, run: Run, search: str, order: str, offset: int) -> RolloutPage:
        """Read on for about ``READING`` seconds, the newest steps first, and return a page of what is read by then."""
        stored = run.dir.rollouts
        files = [(step, stored.written(step)) for step in reversed(stored.steps())]  # which a resume writes anew
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
        every = [self._numbers[file] for file in files[:read]]
        numbers = np.concatenate(every) if every else np.empty((0, len(_COLUMNS)))
        match = np.concatenate([self._matches[file] for file in files[:read]]) if search and every else None
        places = _ordered(numbers, order)
        places = places if match is None else places[match[places]]
        offset = min(offset, max(0, len(places) - 1)) // PAGE * PAGE
        return {
            "rows": _rows(run, numbers[places[offset : offset + PAGE]]),
            "length": PAGE,
            "offset": offset,
            "found": len(places),
            "total": len(numbers),
            "read": read,
            "files": len(files),
        }


def _numbers(run: Run, step: int) -> NDArray[np.float64]:
    """Return (N, 7): ``_COLUMNS`` of a step's rollouts, NaN for what was not scored."""
    table = run.dir.rollouts.table(step, ("group", "rollout", "outcome", "rewards", "advantages")).combine_chunks()
    plain = {name: table[name].to_numpy().astype(np.float64) for name in ("group", "rollout", "outcome")}
    reward, scored, _ = _sums(table["rewards"])
    advantage, _, tokens = _sums(table["advantages"])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = reward / scored
    first = (np.full(len(tokens), float(step)), plain["group"], plain["rollout"], plain["outcome"])
    return np.column_stack([*first, mean, advantage / np.maximum(tokens, 1), tokens])


def _sums(lists: pa.ChunkedArray) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Of each list of numbers: the sum, how many there are that are not null, and its length."""
    chunk = lists.combine_chunks()
    ends = chunk.offsets.to_numpy() - chunk.offsets[0].as_py()
    values = chunk.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    there = ~np.isnan(values)
    sums, counts = (np.concatenate([[0.0], np.cumsum(part)]) for part in (np.where(there, values, 0.0), there))
    return np.diff(sums[ends]), np.diff(counts[ends]), np.diff(ends).astype(np.float64)


def _texts(run: Run, step: int) -> dict[tuple[int, int], tuple[str, str]]:
    """The prompt and the completion of each of a step's rollouts, by group and rollout."""
    columns = ("group", "rollout", "texts", "finished")
    table = run.dir.rollouts.table(step, columns)
    prompts = [prompt_text(head["prompt"]) for head in json.loads(table.schema.metadata[b"groups"])]
    return {
        (group, rollout): (prompts[group], "".join(pieces[:-1] if finished else pieces))  # as Rollout.text
        for group, rollout, pieces, finished in zip(*(table[name].to_pylist() for name in columns), strict=True)
    }


def _ordered(numbers: NDArray[np.float64], order: str) -> NDArray[np.int64]:
    """The places of rows by ``order``; those that have no such number come last."""
    columns = dict(zip(_COLUMNS, numbers.T, strict=True))
    if order == "disagreement":
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # nothing is scored
            apart = [
                (columns[n] - np.nanmean(columns[n])) / (np.nanstd(columns[n]) or 1.0) for n in ("reward", "outcome")
            ]
        key = np.abs(apart[0] - apart[1])
    else:
        key = columns.get(order.removeprefix("-"), columns["step"]) * (-1 if order.startswith("-") else 1)
    return np.argsort(-key, kind="stable")  # NaN last


def _rows(run: Run, numbers: NDArray[np.float64]) -> list[RolloutRow]:
    texts = {step: _texts(run, int(step)) for step in set(numbers[:, 0])}
    rows: list[RolloutRow] = []
    for step, group, rollout, outcome, reward, advantage, tokens in numbers.tolist():
        prompt, text = texts[step][int(group), int(rollout)]
        rows.append(
            {
                "step": int(step),
                "group": int(group),
                "rollout": int(rollout),
                "prompt": prompt.strip()[:SHOWN],
                "text": text.strip()[:SHOWN],
                "outcome": None if math.isnan(outcome) else outcome,
                "reward": None if math.isnan(reward) else reward,
                "advantage": advantage,
                "tokens": int(tokens),
            }
        )
    return rows
