"""What a run sampled: its stored groups, its held-out problems, and two runs' answers side by side.

All of it is read from the run's directory when it is asked for; the groups looked at last are kept.
"""

from __future__ import annotations

import json
import math
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import validate_call

from workbench.credit import GradientShare, gradient_shares, pass_losses
from workbench.errors import PatternError, RunError, WorkbenchError
from workbench.runs import Run, open_run
from workbench.schema import Credit, HeldOutAnswer, LossPass, prompt_text
from workbench.ui.handlers.run_follow import Failed, of_run
from workbench.ui.handlers.scoring import explain_token, split
from workbench.ui.handlers.session import CHECKED, Recent, Services
from workbench.views.heatmap import EXPLAINED_AT_ONCE, DrawnLoss, credit_payload, row_payload, to_json
from workbench.views.payloads import WhyPayload

DATACLASSES = {"SharePayload": GradientShare, "AnswerPayload": HeldOutAnswer}
"""Sent field by field."""
PAGE = 30
"""Rollouts on a page of the list."""
READING = 1.0
"""Seconds in which a question reads on in a run's rollouts."""
INDEXED_RUNS = 8
SHOWN = 240
"""Characters of a text in a list."""


class StoredGroup(TypedDict):
    """A stored group or watched row as the heatmap takes it (JSON), and how many the step has.

    ``awaited`` is the next optimiser step over the group that is still to come, and changes its loss; None for none.
    """

    step: int
    group: int
    groups: int
    watched: bool
    shares: Sequence[GradientShare]
    awaited: int | None
    drawing: str


@validate_call(config=CHECKED)
def rollouts(services: Services, run: str, step: int, group: int, watched: bool = False) -> StoredGroup | Failed:
    """One stored group as the heatmap takes it, with how many groups the step has; of the watched prompts if asked.

    Of a method without rollouts it is one of the watched rows.
    """
    try:
        opened = open_run(run, services.workspace)
        if opened.method.has_rollouts:
            return _stored_group(opened, step, group, watched, services)
        rows = opened.watched_rows(step)
        group = min(max(group, 0), len(rows) - 1)
        return _answered(step, group, len(rows), watched, row_payload(rows[group]))
    except WorkbenchError as error:
        return {"run": run, "error": str(error)}


def _stored_group(run: Run, step: int, group: int, watched: bool, services: Services) -> StoredGroup:
    awaited = None  # the next optimiser step over this generation; what a step computed is stored before it is logged
    if not watched:  # before the passes are read: none comes between the two unseen
        status = run.status()
        following = max(step, status.step + 1)
        if not status.final and following < step + run.config().method.iterations:
            awaited = following
    credits = stored_credits(run, step, watched)
    group = min(max(group, 0), len(credits) - 1)
    if not watched and (passes := _passes(run, step)):
        loss = DrawnLoss.of_passes(credits, group, passes)
    else:  # watched prompts, older runs, a step not yet done
        stored = run.dir.passes.steps()
        loss = DrawnLoss.on_policy(credits[group], run.dir.passes.read(stored[0]).settings if stored else None)
    drawing = drawn_credit(run, credits[group], services, loss)
    return _answered(step, group, len(credits), watched, drawing, shares(run, step, credits, watched=watched), awaited)


def _answered(
    step: int,
    group: int,
    groups: int,
    watched: bool,
    drawing: Mapping[str, Any],
    parts: Sequence[GradientShare] = (),
    awaited: int | None = None,
) -> StoredGroup:
    return {
        "step": step,
        "group": group,
        "groups": groups,
        "watched": watched,
        "shares": parts,
        "awaited": awaited,
        "drawing": to_json(drawing),
    }


@validate_call
def why(
    workspace: Path, run: str, step: int, group: int, rollout: int, token: int, watched: bool = False
) -> WhyPayload | None:
    """Say why a token of a stored group has its advantage; None where there is no such token or group."""
    try:
        credits = stored_credits(open_run(run, workspace), step, watched)
    except WorkbenchError:
        return None
    return explain_token(credits[group], rollout, token) if 0 <= group < len(credits) else None


def stored_credits(run: Run, step: int, watched: bool) -> list[Credit]:
    return _read_credits(run, step, watched, run.dir.rollouts.written(step, watched=watched))


@lru_cache(maxsize=32)
def _read_credits(run: Run, step: int, watched: bool, written: int) -> list[Credit]:
    return run.rollouts(step, watched=watched)


def drawn_credit(run: Run, credit: Credit, services: Services, loss: DrawnLoss | None = None) -> Mapping[str, Any]:
    """The credit as stored, with the run's own pattern underlined where it still works."""
    pattern = run.config().sampled.pattern
    matches: list[list[tuple[int, int]]] | None
    try:
        matches = [split_text.matches for split_text in split(credit.scored.group, pattern, services.pattern_worker)]
    except PatternError:
        matches = None
    return credit_payload(credit, matches, explain_at_most=EXPLAINED_AT_ONCE, loss=loss)


def shares(run: Run, step: int, credits: Sequence[Credit], *, watched: bool) -> list[GradientShare]:
    """Of the first pass over a stored generation; none where no pass is stored."""
    passes = () if watched else _passes(run, step)
    return gradient_shares(credits, pass_losses(credits, passes[0])) if passes else []


def _passes(run: Run, step: int) -> tuple[LossPass, ...]:
    stored = run.dir.passes.steps()
    return _read_passes(run, step, sum(step <= other for other in stored))


@lru_cache(maxsize=32)
def _read_passes(run: Run, step: int, later: int) -> tuple[LossPass, ...]:
    """``later`` is how many steps from this one on are stored: with one more, there may be one more pass."""
    return tuple(run.passes(step))


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


_indexes: Recent[str, RolloutIndex] = Recent(INDEXED_RUNS)


@of_run
def all_rollouts(run: Run, search: str, order: str, offset: int) -> RolloutPage:
    """A page of every rollout of a run that has the text ``search``, by ``order``: a column, with "-" the lowest first,
    or "disagreement": how far a rollout's step reward and its outcome lie apart, in standard deviations over the run.
    """
    _indexes[str(run.path)] = index = _indexes.get(str(run.path)) or RolloutIndex()
    with index.lock:
        return index.page(run, search.casefold(), order, max(0, offset))


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


class ProblemPayload(TypedDict):
    """A held-out row with its answers at both measures."""

    before: HeldOutAnswer
    now: HeldOutAnswer


class Problems(TypedDict):
    """The measured rows in their order, and the training steps of the two measures."""

    run: str
    before: int
    now: int
    rows: list[ProblemPayload]


@of_run
def problems(run: Run) -> Problems:
    """Every stored held-out row at the first and the newest measure; says why where there are not two."""
    steps = run.dir.answers.steps()
    if len(steps) < 2:
        raise RunError(f"run {run.name!r} has measured accuracy {len(steps)} times; answers are compared from 2 on")
    first, newest = (run.dir.answers.read(step) for step in (steps[0], steps[-1]))
    if [row.prompt for row in first] != [row.prompt for row in newest]:
        raise RunError(f"run {run.name!r} was measured on other rows at step {steps[0]} than at {steps[-1]}")
    return {
        "run": run.name,
        "before": steps[0],
        "now": steps[-1],
        "rows": [{"before": was, "now": now} for was, now in zip(first, newest, strict=True)],
    }


class Sides(TypedDict):
    """A prompt that both runs watched, ``index`` of ``count``: each run's newest step and its group, as drawings are
    sent. ``error`` says why there is none."""

    index: int
    count: int
    steps: list[int]
    drawings: list[str]
    error: str


@validate_call(config=CHECKED)
def side_by_side(services: Services, runs: Sequence[str], index: int) -> Sides:
    """Return what two runs answered the same watched prompt last."""
    try:
        first, second = (open_run(name, services.workspace) for name in runs)
        steps = []
        for run in (first, second):
            if not run.method.has_rollouts or not (stored := run.rollout_steps(watched=True)):
                raise RunError(f"run {run.name!r} has no answers to watched prompts; run.watch_prompts keeps some")
            steps.append(stored[-1])
        ours, theirs = (stored_credits(run, step, True) for run, step in zip((first, second), steps, strict=True))
        others = {str(credit.scored.group.prompt): credit for credit in theirs}
        pairs = [(credit, others[key]) for credit in ours if (key := str(credit.scored.group.prompt)) in others]
        if not pairs:
            raise RunError(f"{first.name} and {second.name} watch no prompt in common; they need the same task")
        place = index % len(pairs)
        drawings = [
            to_json(drawn_credit(run, credit, services))
            for run, credit in zip((first, second), pairs[place], strict=True)
        ]
        return {"index": place, "count": len(pairs), "steps": steps, "drawings": drawings, "error": ""}
    except (WorkbenchError, ValueError) as error:
        return {"index": 0, "count": 0, "steps": [], "drawings": [], "error": str(error)}
