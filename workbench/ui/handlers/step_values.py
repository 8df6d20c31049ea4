"""Monte-Carlo values on Inspect: estimated for the group on screen, a row of the list, and labels to take away.

The policy worker estimates them, on a thread of its own. They are of one group and one pattern; the row says so when
either has changed. A run estimates its own, with the policy as it then is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, get_args

from pydantic import ValidationError

from workbench.config import LabelFormat, MonteCarloConfig, RewardConfig
from workbench.errors import ConfigError, WorkbenchError
from workbench.policies.step_values import NAMES, Estimation, label_rows
from workbench.rewards import BUILTINS
from workbench.schema import Group
from workbench.steps import StepPattern
from workbench.ui.handlers.models import estimate_values
from workbench.ui.handlers.scoring import (
    Note,
    ScoringForm,
    SlotValues,
    function_name,
    message,
    pattern_config,
    row_config,
    slot_kind,
    split,
)
from workbench.ui.handlers.session import SLOTS, Estimated, RewardSlot, Services, Session

LABEL_CHOICES: tuple[tuple[str, str], ...] = (
    ("TRL stepwise", "trl"),
    ("Math-Shepherd", "math-shepherd"),
    ("ProcessBench", "processbench"),
)
"""Label and value of each format that labels are written in."""
ESTIMATION_CHOICES: tuple[tuple[str, str], ...] = (
    ("any succeeds", "hard"),
    ("most succeed", "soft"),
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


def outcome_choices(slots: Sequence[SlotValues]) -> list[tuple[str, str]]:
    """The outcome rewards a value can be of, as (label, value): the list's own first, then those built in."""
    own = [function_name(one) for one in slots if one.slot is not None and slot_kind(one) == "outcome"]
    rest = [name for name, one in BUILTINS.items() if one.kind == "outcome" and name not in own]
    return [(name, name) for name in (*own, *rest)]


def estimate(
    session: Session, form: ScoringForm, policy: str, k: float | None, outcome: str, services: Services, tab: str
) -> Iterator[EstimateView]:
    """Estimate the values of the group on screen, telling how far it is. Nothing on screen changes meanwhile."""
    try:
        group, how, reward = _asked(session, form, k, outcome)
        pattern = pattern_config(form)
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
            services.policy, policy.strip() or "tiny", group, pattern, reward, cancel, k=how.continuations
        )
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


def _asked(
    session: Session, form: ScoringForm, k: float | None, outcome: str
) -> tuple[Group, MonteCarloConfig, RewardConfig]:
    if session.group is None:
        raise ConfigError("there is no group whose steps have a value; sample one first")
    if k is None or k != int(k):
        raise ConfigError("give a whole number of continuations, 8 say")
    try:
        how = MonteCarloConfig(continuations=int(k), outcome=outcome)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']})") from error
    return session.group, how, _outcome_reward(form.slots, outcome)


def _outcome_reward(slots: Sequence[SlotValues], name: str) -> RewardConfig:
    for values in slots:
        if values.slot is not None and function_name(values) == name and slot_kind(values) == "outcome":
            return row_config(values)
    if name not in BUILTINS:
        raise ConfigError(f"there is no outcome reward {name!r} any more; choose another")
    return RewardConfig(name=name, kind="outcome")


# ── the row ──────────────────────────────────────────────────────────────────────────────────────────────────────


def place_row(
    slots: Sequence[SlotValues], row: EstimatedRow, progress: bool, in_run: bool
) -> tuple[int, SlotValues] | Note:
    """Where new values go, the place of the old ones if there are any, and what that row then holds."""
    place = values_place(slots)
    if place is None:
        place = next((i for i, one in enumerate(slots) if one.slot is None), None)
    if place is None:
        return Note(f"{SLOTS} functions are the most; remove one and estimate again", level="info")
    weight = slots[place].weight if slots[place].slot is not None else 1.0
    slot = RewardSlot(row.config.name, "step", given=row.config, estimated=row.estimated)
    return place, _changed(SlotValues(slot, True, weight, ""), progress, in_run)


def change_row(slots: Sequence[SlotValues], progress: bool, in_run: bool) -> tuple[int, SlotValues] | None:
    """The row of Monte-Carlo values with these choices; None where there is none."""
    place = values_place(slots)
    return None if place is None else (place, _changed(slots[place], progress, in_run))


def values_place(slots: Sequence[SlotValues]) -> int | None:
    """The row that holds Monte-Carlo values."""
    held = (i for i, one in enumerate(slots) if one.slot and one.slot.given and one.slot.given.monte_carlo)
    return next(held, None)


def run_note(values: SlotValues, asked: bool) -> Note | None:
    """Why a run cannot use the values although it was asked to; None where it can or was not."""
    if not asked or _fits_a_run(values.slot):
        return None
    return Note("a run can only estimate values of built-in outcome rewards as they are; choose one and estimate again")


def _fits_a_run(slot: RewardSlot | None) -> bool:
    return slot is not None and (slot.estimated is None or slot.estimated.outcome.is_builtin)


def _changed(values: SlotValues, progress: bool, in_run: bool) -> SlotValues:
    slot = values.slot
    assert slot is not None
    assert slot.given is not None
    assert slot.given.monte_carlo is not None
    name = NAMES["progress" if progress else "value"]
    how = slot.given.monte_carlo.model_copy(update={"progress": progress})
    given = slot.given.model_copy(update={"name": name, "monte_carlo": how})
    return replace(values, slot=replace(slot, name=name, given=given, in_run=in_run and _fits_a_run(slot)))


def values_facts(slot: RewardSlot) -> list[tuple[str, str]]:
    """What a row of Monte-Carlo values shows, as (label, value)."""
    assert slot.given is not None
    assert slot.given.monte_carlo is not None
    how = slot.given.monte_carlo
    score = "what it adds to the value before it" if how.progress else "its value"
    facts = [
        ("value of a step", f"mean {how.outcome} of {how.continuations} continuations from its end"),
        ("a step scores", score),
    ]
    if slot.estimated is not None:
        values = slot.estimated.values
        known = [error for row in values.errors for error in row if error is not None]
        spread = f", standard error {sum(known) / len(known):.2f} on average" if known else ""
        facts.append(("estimated", f"{values.tokens:,} tokens in {values.seconds:.1f} s{spread}"))
    else:
        facts.append(("estimated", "not yet"))
    facts.append(("in a run", "estimated anew at each step of training" if slot.in_run else "left out"))
    return facts


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────


def labels_file(
    slots: Sequence[SlotValues], form: str, estimation: str, services: Services, tab: str
) -> tuple[str, Note]:
    """The estimated group's steps as labels: what the page's script saves as a file ("" if nothing), and a note."""
    place = values_place(slots)
    slot = None if place is None else slots[place].slot
    if slot is None or slot.estimated is None:
        return "", Note("Estimate step values first; the labels are made of them.", level="info")
    if form not in get_args(LabelFormat) or estimation not in get_args(Estimation):
        return "", Note("Choose a format and when a step counts as good.", level="info")
    group, values = slot.estimated.group, slot.estimated.values
    texts = [rollout.text for rollout in group.rollouts]
    try:
        splits = services.reward_worker(tab).split(texts, StepPattern(*values.pattern))
    except WorkbenchError as error:
        return "", Note(str(error))
    steps = [[text[step.start : step.end] for step in one.steps] for text, one in zip(texts, splits, strict=True)]
    rows: list[dict[str, Any]] = label_rows(group, values, form, estimation=estimation, step_texts=steps)  # type: ignore[arg-type]
    if not rows:
        return "", Note("Every completion has a step without a value; there is nothing to write.", level="info")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    said = f"{len(rows)} of {len(group)} completions written"
    return message(name=f"labels-{form}.jsonl", text=text, once=secrets.token_hex(8)), Note(said, level="info")
