"""One row of the list of reward functions: a reward's configuration, and what only the page knows of it.

A row's editor holds source code. While that is a built-in reward's own source, its name says what the reward is; once
it is edited the code does. A row that is a reward model, a judge, Monte-Carlo values or a belief has no editor.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from workbench.config import BeliefConfig, JudgeConfig, ModelConfig, MonteCarloConfig, RewardConfig
from workbench.config.rewards import read_schedule, schedule_text, weight_at
from workbench.errors import ConfigError, RewardError
from workbench.policies.step_values import StepValues
from workbench.rewards import BUILTINS, find_builtin
from workbench.rewards.source import functions_in, kind_in, reward_functions
from workbench.schema import Group, RewardKind


@dataclass(frozen=True)
class Estimated:
    """Monte-Carlo values, the group they are of, and the outcome reward they are values of."""

    group: Group
    values: StepValues
    outcome: RewardConfig

    def fits(self, group: Group | None, pattern: tuple[Any, ...]) -> bool:
        """Whether they are still those of the group on screen, cut by a pattern of these ``parts``."""
        same = group is not None and (group.prompt, group.rollouts) == (self.group.prompt, self.group.rollouts)
        return same and self.values.pattern == pattern


@dataclass(frozen=True)
class RewardRow:
    """``fields`` are those of a ``RewardConfig``, as far as they are set, and may not be valid.

    Monte-Carlo values score the group on screen where they were ``estimated``, and are part of a run's configuration if
    ``in_run``. ``unfed``: it is off for the data on screen alone, which lacks a column that it reads.

    ``key`` names the row on the page, whose fields send what somebody changes under it (``with_edits``). What is
    changed otherwise gets a new one (``but``), so that an older edit of the row does not come back.
    """

    fields: Mapping[str, Any]
    on: bool = True
    in_run: bool = True
    estimated: Estimated | None = None
    unfed: bool = False
    key: str = field(default_factory=lambda: secrets.token_hex(4), compare=False)

    def but(self, **changes: Any) -> RewardRow:
        """Return the row with these changes, which the page's fields have yet to show."""
        return replace(self, key=secrets.token_hex(4), **changes)

    def to_json(self) -> dict[str, Any]:
        """Return what a page that is restored needs of it: neither estimated values nor the key."""
        switches = {"on": (self.on, True), "in_run": (self.in_run, True), "unfed": (self.unfed, False)}
        unusual = {name: value for name, (value, usual) in switches.items() if value != usual}
        return {"fields": dict(self.fields), **unusual}

    @property
    def name(self) -> str:
        return str(self.fields["name"])

    @property
    def kind(self) -> RewardKind:
        return "outcome" if self.fields.get("kind") == "outcome" else "step"

    @property
    def weight(self) -> float | None:
        """None where the field is empty, which counts as 1; that of step 0 where a schedule says it."""
        weight: float | None = self.fields.get("weight", self._usual_weight)
        return weight

    @property
    def _usual_weight(self) -> float:
        schedule = self.fields.get("schedule")
        return weight_at(schedule, 0) if schedule else 1.0

    @property
    def is_scheduled(self) -> bool:
        return bool(self.fields.get("schedule"))

    @property
    def schedule(self) -> str:
        """Its weights by the step of training, as their field holds them; "" where it is always the same."""
        return schedule_text(self.fields.get("schedule", ()))

    @property
    def has_editor(self) -> bool:
        return all(self.fields.get(part) is None for part in ("model", "judge", "monte_carlo", "belief"))

    @property
    def is_builtin(self) -> bool:
        """Whether the name alone says what it is."""
        return self.has_editor and self.fields.get("code") is None

    @property
    def code(self) -> str:
        """What the editor holds."""
        if not self.has_editor:
            return ""
        code: str | None = self.fields.get("code")
        return builtin_source(self.name, tuple(self.fields.get("options", {}).items())) if code is None else code

    @property
    def model(self) -> ModelConfig | None:
        return None if self.fields.get("model") is None else self.unweighted().model

    @property
    def judge(self) -> JudgeConfig | None:
        return None if self.fields.get("judge") is None else self.unweighted().judge

    @property
    def monte_carlo(self) -> MonteCarloConfig | None:
        return None if self.fields.get("monte_carlo") is None else self.unweighted().monte_carlo

    @property
    def belief(self) -> BeliefConfig | None:
        return None if self.fields.get("belief") is None else self.unweighted().belief

    def config(self) -> RewardConfig:
        """Raises RewardError for a weight out of range."""
        weight = self.fields.get("weight", 1.0)
        try:
            return RewardConfig.parse({**self.fields, "weight": 1.0 if weight is None else weight})
        except ConfigError as error:
            raise RewardError(f"{self.name!r}: {error}", reward=self.name) from error

    def unweighted(self) -> RewardConfig:
        """The reward with weight 1, whatever the field holds."""
        return RewardConfig.model_validate({**self.fields, "weight": 1.0})

    def for_data(self, columns: Collection[str]) -> RewardRow:
        """The row with these columns: a built-in reward that lacks one is off until data comes that has it."""
        if not self.is_builtin:
            return self
        if set(columns).issuperset(find_builtin(self.name).columns):
            return self.but(on=True, unfed=False) if self.unfed else self
        return self.but(on=False, unfed=self.on or self.unfed)

    def with_schedule(self, text: str) -> RewardRow:
        """The row with the weights that ``0:1,60:0`` says; without a text, always with the weight that its field shows.

        Raises ConfigError for a text that says none.
        """
        weight = self.weight
        fields = {name: value for name, value in self.fields.items() if name not in ("weight", "schedule")}
        if not text.strip():
            return self.but(fields=fields | ({} if weight in (None, 1.0) else {"weight": weight}))
        try:
            config = RewardConfig.parse({**fields, "schedule": read_schedule(text)})
        except ValueError as error:  # ConfigError is one
            raise ConfigError(str(error)) from error
        return self.but(fields=fields | {"schedule": config.model_dump(mode="json")["schedule"]})

    def with_edits(self, edits: Mapping[str, Any]) -> RewardRow:
        """Return the row with what its fields ``on``, ``weight`` and ``code`` hold, as far as they were changed."""
        row, fields = self, self.fields
        if "on" in edits and bool(edits["on"]) != self.on:
            row = replace(self, on=bool(edits["on"]), unfed=False)
        if "weight" in edits and edits["weight"] != self.weight:
            fields = {name: value for name, value in fields.items() if name != "weight"}
            fields |= {} if edits["weight"] == self._usual_weight else {"weight": edits["weight"]}
        if "code" in edits and self.has_editor and (edits["code"] or "") != self.code:
            kept = {name: fields[name] for name in ("weight", "schedule", "folder") if name in fields}
            fields = self._of_code(edits["code"] or "") | kept
        return row if fields is self.fields else replace(row, fields=fields)

    def _of_code(self, code: str) -> dict[str, Any]:
        """The reward that an edited source describes: its name and kind are what the code says, or as before."""
        defined = [function.name for function in functions_in(code)]
        name = self.name
        if defined and name not in defined:
            name = (reward_functions(code) or defined)[-1]
        for builtin in (self.name, name, f"trl:{name}"):
            if builtin in BUILTINS and code.strip() == builtin_source(builtin).strip():
                return {"name": builtin, "kind": find_builtin(builtin).kind}
        return {"name": name, "kind": kind_in(code, name) or self.kind, "code": code}


def set_fields(config: RewardConfig) -> dict[str, Any]:
    """What a reward is, without what is so by default; its kind always."""
    return {"name": config.name, "kind": config.kind} | config.model_dump(mode="json", exclude_defaults=True)


def row_of(config: RewardConfig) -> RewardRow:
    return RewardRow(set_fields(config))


def builtin_row(name: str, weight: float = 1.0) -> RewardRow:
    return row_of(RewardConfig(name=name, kind=find_builtin(name).kind, weight=weight))


def code_row(name: str, kind: RewardKind, code: str) -> RewardRow:
    return RewardRow({"name": name, "kind": kind, "code": code})


@lru_cache(maxsize=256)
def builtin_source(name: str, options: tuple[tuple[str, Any], ...] = ()) -> str:
    """A built-in reward's source, with its options written in. Raises RewardError where there is no such reward."""
    builtin = find_builtin(name)
    return builtin.source_with(dict(options)) if options else builtin.source
