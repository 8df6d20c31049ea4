"""A first look at somebody's file: whether it holds problems or rollouts, and which of its columns is what.

``look_at`` decides by the first rows. Rollouts have the columns of a format of ``data.formats`` and come in groups or
with scores; what a task can be made of is problems. Columns of other names ("Problem Text", ``gold_value``) are guessed
by the words in them (``kinds.guess``), but not where two fit; what somebody chose goes before any guess. Nothing is
tokenised or scored here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from workbench.credit import assign_credit
from workbench.data.engines import conversation_turns
from workbench.data.formats import FORMATS, recognise
from workbench.data.kinds import PROMPTS, columns_of, guess, names_of
from workbench.data.read import EVERY, resolve, rows_and_faults
from workbench.data.records import is_number
from workbench.data.rollouts import UntokenizedGroup, is_of_a_run
from workbench.errors import TaskError
from workbench.rewards.others import Role
from workbench.schema import Group

ROLES: tuple[Role, ...] = get_args(Role)
LIKE_DEMONSTRATIONS = frozenset({"plain", "messages", "openrlhf"})
"""Formats that rows to learn from have as well. Those are of a prompt each, and nothing scores them."""
OF_ROLLOUTS = frozenset({"reward", "score", "correct", "is_correct", "labels", "token_ids"})
"""Columns that rows to learn from do not have."""
LOOKED_AT = 64
"""Rows that are looked at."""


@dataclass(frozen=True)
class Look:
    """A file at first sight; ``names`` are its columns, and ``columns`` says what is known of which of them is what.

    ``mapping`` is that of it which a reader has to be told. ``missing`` has to be chosen before the file can be read.
    """

    holds: Literal["problems", "rollouts"]
    names: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    mapping: Mapping[str, str] = field(default_factory=dict)
    missing: Role | None = None


def look_at(path: str | Path, chosen: Mapping[str, str] | None = None) -> Look:
    """Find out what a file or folder holds. ``chosen`` says of columns what they are, "" that there is none.

    Raises TaskError for a file without a row that can be read, and for a chosen column that is not there.
    """
    file, chosen = resolve(path), chosen or {}
    if is_of_a_run(file):
        return Look("rollouts")
    read = [row for row in islice(rows_and_faults(file, EVERY), LOOKED_AT) if not row.left_out]
    rows = [row for row in read if not row.fault]
    if not rows:
        raise TaskError(read[0].fault if read else f"{file.name} has no rows")
    values = rows[0].values
    names = tuple(dict.fromkeys(name for row in rows for name in names_of(row.values)))
    mapping = {role: name for role, name in chosen.items() if name}
    columns_of(f"{file.name} {rows[0].where}", values, mapping, "columns")
    columns: dict[str, str] = {role: role for role in ROLES if role in values}
    columns |= [("prompt", name) for name in reversed(PROMPTS) if name in values]
    columns = {role: name for role, name in (columns | mapping).items() if chosen.get(role) != ""}

    def guess_columns(*roles: Role) -> None:
        for role in roles:
            found = (
                [] if role in columns or role in chosen else guess(role, [row.values for row in rows], columns.values())
            )
            if len(found) == 1:
                columns[role] = mapping[role] = found[0]

    format = next((format.name for format in FORMATS.values() if format.fits(values)), None)
    if format is not None and not chosen.keys() & {"prompt", "completion"}:
        if format not in LIKE_DEMONSTRATIONS:
            return Look("rollouts", names)
        prompts = {
            json.dumps(row.values.get("prompt", row.values.get("input", (conversation_turns(row.values) or ())[:-1])))
            for row in rows
        }
        if OF_ROLLOUTS & values.keys() or len(prompts) < len(rows):
            guess_columns("answer", "reward")
            return Look("rollouts", names, columns, mapping)
        columns.pop("completion", None)
    layout, as_task = recognise(values)
    if not layout and not {"messages", "chosen"} & values.keys():
        guess_columns("prompt")
        if "prompt" not in columns:
            return Look("problems", names, columns, mapping, "prompt")
        if format is None:
            guess_columns("completion")
    if "answer" not in as_task:
        guess_columns("answer")
    if "completion" not in columns:
        return Look("problems", names, columns, mapping)
    guess_columns("reward")
    return Look("rollouts", names, columns, columns)


# --- advantages that a file logged ------------------------------------------------------------------------------

OUTCOMES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("`outcome` ÷ std", {"scale": True}),
    ("`outcome`, not ÷ std", {"scale": False}),
    ("`outcome`, each against the others (RLOO)", {"normalise": "leave_one_out", "scale": False}),
)
"""How trainers make advantages of outcome rewards: in words, and as options of the scheme."""
SAME = 0.01
"""Largest difference of advantages that are the same; logs are rounded."""


@dataclass(frozen=True)
class LoggedAdvantages:
    """The way in which a file's own advantages follow from its rewards, and how far they are off at most."""

    said: str
    options: Mapping[str, Any]
    within: float


def recognise_advantages(groups: Iterable[UntokenizedGroup | Group]) -> LoggedAdvantages | None:
    """Find out how the advantages that a file logged were made of its rewards. None where that is not known."""
    logged = [
        (rewards, advantages)
        for group in groups
        if (rewards := [rollout.columns.get("reward") for rollout in group.rollouts])
        and all(map(is_number, advantages := [rollout.columns.get("logged_advantage") for rollout in group.rollouts]))
        and len([reward for reward in rewards if reward is not None]) > 1
    ]
    if not logged:
        return None
    found = []
    for said, options in OUTCOMES:
        off = 0.0
        for rewards, advantages in logged:
            rows: list[list[Any]] = [[]] * len(rewards)
            ours = assign_credit(rows, rows, [1] * len(rewards), "outcome", outcome_rewards=rewards, **options)
            off = max(off, *(abs(a - b) for a, b in zip(ours[:, 0].tolist(), advantages, strict=True)))
        found.append(LoggedAdvantages(said, options, off))
    best = min(found, key=lambda way: way.within)
    return best if best.within <= SAME else None
