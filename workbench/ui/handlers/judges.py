"""Judges on the page: the form's values to a reward, and what a row of one shows.

Pressing Add is what agrees to send answers to the endpoint; a judge that came with a configuration is off until
somebody switches it on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.config import JudgeConfig, Leaf, RewardConfig, leaves
from workbench.errors import ConfigError, WorkbenchError
from workbench.rewards.judges import key_of
from workbench.ui.handlers.models import free_name
from workbench.ui.handlers.reward_rows import RewardRow, row_of
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services

FIRST = ("base_url", "model", "rubric", "key_variable")
"""Settings that the form shows first; the others are folded away."""
LEAVES: Mapping[str, Leaf] = {leaf.name: leaf for leaf in leaves(JudgeConfig) if leaf.name != "extra"}
"""The form's fields; what else a request holds is set in a file."""
KINDS = (("each step", "step"), ("whole answers", "outcome"))
"""Label and value of what a judge scores."""
NEW: Mapping[str, Any] = {
    leaf.name: "http://127.0.0.1:8000/v1" if leaf.name == "base_url" else leaf.default for leaf in LEAVES.values()
}
"""What an empty form holds."""


def judge_reward(values: Mapping[str, Any], kind: str, rows: Sequence[RewardRow], key: str = "") -> RewardRow:
    """The row that the form's values come to, in the place of the one with that key; "" adds one.

    Raises ConfigError for a value that does not fit, RewardError for a key that the environment lacks.
    """
    changed = next((row for row in rows if row.key == key and row.judge is not None), None)
    given = {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}
    judge: dict[str, Any] = {} if changed is None or changed.judge is None else {"extra": changed.judge.extra}
    judge |= {name: value for name, value in given.items() if LEAVES[name].optional or value not in (None, "")}
    if not judge.get("base_url") or not judge.get("model"):
        raise ConfigError("give the endpoint's base url and the model's name there")
    name = free_name("judge" if changed is None else changed.name, rows, key)
    reward = RewardConfig.parse({"name": name, "kind": kind, "judge": judge})
    assert reward.judge is not None
    key_of(reward.judge)
    row = row_of(reward)
    if changed is None:
        return row
    weight = {"weight": changed.fields["weight"]} if "weight" in changed.fields else {}
    return RewardRow({**row.fields, **weight}, on=changed.on)


def add_judge(
    values: Mapping[str, Any], kind: str, rows: Sequence[RewardRow], key: str, services: Services
) -> RewardRow | Note:
    """The judge as a row once something listens at its endpoint, or what to put right."""
    try:
        row = judge_reward(values, kind, rows, key)
        assert row.judge is not None
        services.judges.reach(row.judge)
    except WorkbenchError as error:
        return Note(str(error))
    return row


def form_values(row: RewardRow | None) -> dict[str, Any]:
    """What the form shows of a row, or empty."""
    if row is None or row.judge is None:
        return dict(NEW)
    held = row.judge.model_dump()
    return {name: held[name] for name in LEAVES}
