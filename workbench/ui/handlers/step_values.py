"""Monte-Carlo values on Inspect: estimated for the group on screen, a row of the list, and labels to take away.

The model worker estimates them, on a thread of its own. They are of one group and one pattern; the row says so when
either has changed. A run estimates its own, with the policy as it then is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, get_args

from workbench.config import LabelFormat, MonteCarloConfig, RewardConfig
from workbench.errors import ConfigError, WorkbenchError
from workbench.policies.step_values import NAMES, Estimation, label_rows
from workbench.rewards import BUILTINS, split_group
from workbench.schema import Group
from workbench.schema.numbers import counted
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.models import estimate_values
from workbench.ui.handlers.reward_rows import Estimated, RewardRow, set_fields
from workbench.ui.handlers.scoring import Note, message, split
from workbench.ui.handlers.session import Services

Rows = Sequence[RewardRow]
LABEL_CHOICES: tuple[tuple[str, str], ...] = (
    ("TRL stepwise", "trl"),
    ("Math-Shepherd", "math-shepherd"),
    ("ProcessBench", "processbench"),
)
"""Label and value of each format that labels are written in."""
ESTIMATION_CHOICES: tuple[tuple[str, str], ...] = (
    ("any succeeds", "hard"),
    ("most succeed (trl: the share)", "soft"),
)
"""Label and value of when a step counts as good."""


@dataclass(frozen=True)
class EstimatedRow:
    """What came of estimating: the row's configuration, and the values with their group."""

    config: RewardConfig
    estimated: Estimated


@dataclass(frozen=True)
class EstimateView:
    """One thing to show while values are estimated, and at the end the row."""

    note: Note | None
    running: bool
    row: EstimatedRow | None = None


def outcome_choices(rows: Rows) -> list[tuple[str, str]]:
    """The outcome rewards a value can be of, as (label, value): the list's own first, then those built in."""
    listed = [row.name for row in rows if row.kind == "outcome"]
    rest = [name for name, builtin in BUILTINS.items() if builtin.kind == "outcome" and name not in listed]
    return [(name, name) for name in (*listed, *rest)]


def estimate(draft: Draft, k: float | None, outcome: str, services: Services, tab: str) -> Iterator[EstimateView]:
    """Estimate the values of the group on screen, telling how far it is. Nothing on screen changes meanwhile."""
    try:
        group, how, reward = _asked(draft, k, outcome)
        pattern = draft.pattern()
        split(group, pattern, services.reward_worker(tab))  # where a bad pattern harms nobody
    except WorkbenchError as error:
        yield EstimateView(Note(str(error)), False)
        return
    cancel = services.estimating.begin(tab)
    if cancel is None:
        yield EstimateView(Note("This page is estimating or loading already; cancel that first."), False)
        return
    config = RewardConfig(name=NAMES["value"], kind="step", monte_carlo=how)
    try:
        views = estimate_values(
            services.models, draft.policy, group, pattern, reward, cancel,
            k=how.continuations, options=draft.policy_options,
        )  # fmt: skip
        with closing(views):
            for view in views:
                if view.note:
                    yield EstimateView(Note(view.note, level="info" if cancel.is_set() else "error"), False)
                elif view.values is not None:
                    row = EstimatedRow(config, Estimated(group, view.values, reward))
                    yield EstimateView(Note(view.status, level="info"), False, row)
                else:
                    yield EstimateView(Note(view.status, level="info"), True)
    finally:
        services.estimating.end(tab)


def _asked(draft: Draft, k: float | None, outcome: str) -> tuple[Group, MonteCarloConfig, RewardConfig]:
    if draft.group is None:
        raise ConfigError("there is no group whose steps have a value; sample one first")
    if k is None or k != int(k):
        raise ConfigError("give a whole number of continuations, 8 say")
    how = MonteCarloConfig.parse({"continuations": int(k), "outcome": outcome})
    return draft.group, how, _outcome_reward(draft.rows, outcome)


def _outcome_reward(rows: Rows, name: str) -> RewardConfig:
    for row in rows:
        if (row.name, row.kind) == (name, "outcome"):
            return row.config()
    if name not in BUILTINS:
        raise ConfigError(f"there is no outcome reward {name!r} any more; choose another")
    return RewardConfig(name=name, kind="outcome")


# ── the row ──────────────────────────────────────────────────────────────────────────────────────────────────────


def with_values_row(draft: Draft, row: EstimatedRow, progress: bool, in_run: bool) -> Draft:
    """Return the draft with new values, in place of the old ones if there are any."""
    before = values_row(draft.rows)
    new = RewardRow(set_fields(row.config), estimated=row.estimated)
    if before is None:
        return draft.with_row(_changed(new, progress, in_run))
    weighted = new.with_edits({"weight": before.weight})
    return draft.with_row(_changed(weighted, progress, in_run), before.key)


def change_row(draft: Draft, progress: bool, in_run: bool) -> Draft:
    """Return the draft with these choices about its row of Monte-Carlo values."""
    row = values_row(draft.rows)
    return draft if row is None else draft.with_row(_changed(row, progress, in_run), row.key)


def values_row(rows: Rows) -> RewardRow | None:
    """The row that holds Monte-Carlo values."""
    return next((row for row in rows if row.monte_carlo is not None), None)


def run_note(row: RewardRow | None, asked: bool) -> Note | None:
    """Why a run cannot use the values although it was asked to; None where it can or was not."""
    if not asked or row is None or _fits_a_run(row):
        return None
    return Note("a run can only estimate values of built-in outcome rewards as they are; choose one and estimate again")


def _fits_a_run(row: RewardRow) -> bool:
    return row.estimated is None or row.estimated.outcome.is_builtin


def _changed(row: RewardRow, progress: bool, in_run: bool) -> RewardRow:
    values = {name: value for name, value in row.fields["monte_carlo"].items() if name != "progress"}
    values |= {"progress": True} if progress else {}
    fields = {**row.fields, "name": NAMES["progress" if progress else "value"], "monte_carlo": values}
    return replace(row, fields=fields, in_run=in_run and _fits_a_run(row))


def values_facts(row: RewardRow) -> list[tuple[str, str]]:
    """What a row of Monte-Carlo values shows, as (label, value)."""
    how = row.monte_carlo
    assert how is not None
    score = "what it adds to the value before it" if how.progress else "its value"
    facts = [
        ("value of a step", f"mean {how.outcome} of {how.continuations} continuations from its end"),
        ("a step scores", score),
    ]
    if row.estimated is not None:
        values = row.estimated.values
        known = [error for errors in values.errors for error in errors if error is not None]
        spread = f", standard error {sum(known) / len(known):.2f} on average" if known else ""
        facts.append(("estimated", f"{counted(values.tokens, 'token')} in {values.seconds:.1f} s{spread}"))
    else:
        facts.append(("estimated", "not yet"))
    facts.append(("in a run", "estimated anew at each step of training" if row.in_run else "left out"))
    return facts


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────


def labels_file(rows: Rows, form: str, estimation: str, services: Services, tab: str) -> tuple[str, Note]:
    """The estimated group's steps as labels: what the page's script saves as a file ("" if nothing), and a note."""
    row = values_row(rows)
    if row is None or row.estimated is None:
        return "", Note("Estimate step values first; the labels are made of them.", level="info")
    if form not in get_args(LabelFormat) or estimation not in get_args(Estimation):
        return "", Note("Choose a format and when a step counts as good.", level="info")
    group, values = row.estimated.group, row.estimated.values
    texts = [rollout.text for rollout in group.rollouts]
    try:
        splits = split_group(group, values.cutter, worker=services.reward_worker(tab))
    except WorkbenchError as error:
        return "", Note(str(error))
    steps = [
        [text[step.start : step.end] for step in text_split.steps]
        for text, text_split in zip(texts, splits, strict=True)
    ]
    labels: list[dict[str, Any]] = label_rows(group, values, form, estimation=estimation, step_texts=steps)  # type: ignore[arg-type]
    if not labels:
        return "", Note("Every completion has a step without a value; there is nothing to write.", level="info")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in labels)
    said = f"{len(labels)} of {len(group)} completions written"
    return message(name=f"labels-{form}.jsonl", text=text, once=secrets.token_hex(8)), Note(said, level="info")
