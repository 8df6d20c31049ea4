"""What a run sampled: its stored groups, its held-out problems, and two runs' answers side by side.

All of it is read from the run's directory when it is asked for; the groups looked at last are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict

from pydantic import validate_call

from workbench.credit import GradientShare, gradient_shares, pass_losses
from workbench.errors import PatternError, RunError, WorkbenchError
from workbench.runs import Run, open_run
from workbench.runs.index import RolloutIndex, RolloutPage
from workbench.schema import Credit, HeldOutAnswer, LossPass
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
    """Return shares of the first pass over a stored generation; none where no pass is stored."""
    passes = () if watched else _passes(run, step)
    return gradient_shares(credits, pass_losses(credits, passes[0])) if passes else []


def _passes(run: Run, step: int) -> tuple[LossPass, ...]:
    stored = run.dir.passes.steps()
    return _read_passes(run, step, sum(step <= other for other in stored))


@lru_cache(maxsize=32)
def _read_passes(run: Run, step: int, later: int) -> tuple[LossPass, ...]:
    """``later`` is how many steps from this one on are stored: with one more, there may be one more pass."""
    return tuple(run.passes(step))


_indexes: Recent[str, RolloutIndex] = Recent(INDEXED_RUNS)


@of_run
def all_rollouts(run: Run, search: str, order: str, offset: int) -> RolloutPage:
    """A page of every rollout of a run that has the text ``search``, by ``order``: a column, with "-" the lowest first,
    or "disagreement": how far a rollout's step reward and its outcome lie apart, in standard deviations over the run.
    """
    _indexes[str(run.path)] = index = _indexes.get(str(run.path)) or RolloutIndex()
    with index.lock:
        return index.page(run, search.casefold(), order, max(0, offset))


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
