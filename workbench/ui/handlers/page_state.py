"""The state of one browser tab: a draft of the configuration, and the little that is the page's own.

A ``PageState`` has a plain tree of a ``RunConfig``, not yet checked, so that it can hold whatever a field holds while
somebody types. Widgets are bound to paths of it (``method.sampling.temperature``); paths under ``page`` are the page's
own. Opening a file, reloading, a link, notebook code and Start read and write this one object (``sharing``), and a
field that has no widget stays as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_serializer

from workbench.config import (
    CreditConfig,
    EnvironmentSection,
    PolicySection,
    PromptSection,
    RewardConfig,
    SamplingConfig,
    TaskSection,
)
from workbench.config.run import METHODS, RunConfig
from workbench.config.task import READING
from workbench.credit import SCHEMES
from workbench.errors import ConfigError, PatternError, RewardError, shown
from workbench.rewards.sandbox import DEADLINE
from workbench.schema import Group, Prompt
from workbench.steps import PatternKind, StepPattern
from workbench.ui.handlers.fields import (
    AS_INSPECT,
    COMPARE,
    CREDIT,
    FIRST,
    ISOLATE,
    KIND,
    LORA_RANK,
    NONE,
    REGEX,
    Section,
    credit_section,
    for_scheme,
    own_settings,
    section_of,
    settings_of,
    shared_settings,
    shown_values,
    takes,
    with_settings,
)
from workbench.ui.handlers.reward_rows import RewardRow, row_of

LARGEST_SEED = 2**31 - 1
"""The largest seed, of a run as of a group."""
LONGEST_PATTERN = 10_000
ROWS = "method.rewards"
TABLES = ("prompt.template_kwargs", "policy.merge", *(f"{name}.trl" for name in METHODS))
"""Paths of values by name that one field holds."""
PAGE_FIELDS = ("run_scheme", "seed", "reference", "text")
"""What fields hold of the page's own, at ``page.NAME``."""


class PageState(BaseModel):
    """``tree`` is that of a ``RunConfig`` but for the method's section.

    Of that, ``tree["method"]`` has the name and what Inspect edits, but for credit and rewards, which are ``credit``
    and the ``rows``; every method's own settings stand beside it under the method's name, so that they outlast the
    choice of another.

    The group on screen answers ``edited``, or the example's own ``prompt`` where that is None; ``text`` is what the
    prompt's editor holds. ``seed`` and ``reference`` are those of sampling on Inspect, ``compare`` the second scheme.

    ``model_dump`` has all but the group and its example, which a page that is restored reads where they are kept.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    tree: Mapping[str, Any]
    credit: Section
    rows: tuple[RewardRow, ...] = ()
    compare: Section | None = None
    run_scheme: str = AS_INSPECT
    seed: float | None = 1
    reference: str = ""
    text: str = ""
    index: int = 0
    prompt: Prompt = Field(default="", exclude=True)
    columns: Mapping[str, Any] = Field(default_factory=dict, exclude=True)
    edited: Prompt | None = Field(default=None, exclude=True)
    group: Group | None = Field(default=None, exclude=True)
    _tab: Tab | None = PrivateAttr(default=None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PageState) and vars(self) == vars(other)  # whatever tab holds them

    def but(self, **changes: Any) -> PageState:
        """Return the state with these changes."""
        return self.model_copy(update=changes)

    @property
    def tab(self) -> Tab:
        """The tab whose state it is or was."""
        assert self._tab is not None
        return self._tab

    @field_serializer("rows")
    def _plain_rows(self, rows: tuple[RewardRow, ...]) -> list[dict[str, Any]]:
        return [row.to_json() for row in rows]

    # ── from and to a configuration ──────────────────────────────────────────────────────────────────────────────

    @classmethod
    def of(cls, config: RunConfig) -> PageState:
        return cls(tree=default_tree(), credit=section_of(CreditConfig())).with_config(config)

    def with_config(self, config: RunConfig) -> PageState:
        """The page with another configuration; what its method does not have stays."""
        method, name = config.method, config.method.name
        draft = self.but(run_scheme=AS_INSPECT)
        if takes(name, "rewards"):
            draft = draft.but(rows=tuple(map(row_of, method.reward_functions)))
        if takes(name, "credit"):
            draft = draft.but(credit=section_of(getattr(method, "credit")))  # noqa: B009  # a field of some methods
        tree = {**self.tree, **shared_settings(config), name: own_settings(method)}
        inspected = method.model_dump(include={"pattern", "sampling", "isolate_rewards"})
        return draft.but(tree=tree | {"method": {**self.tree["method"], "name": name, **inspected}})

    def config(self) -> RunConfig:
        """The run that Start would start, its pattern untried.

        Raises PatternError, RewardError, or ConfigError with a line for every path that does not fit.
        """
        tree = configuration(self.tree)
        if takes(self.method, "pattern"):
            self.pattern()
        if takes(self.method, "rewards"):
            rewards = [config for row, config in self.switched_on() if not row.monte_carlo or row.in_run]
            tree = with_path(tree, ROWS, [reward.model_dump() for reward in rewards])
        if takes(self.method, "credit"):  # Inspect's, or another scheme with what somebody set on Inspect
            as_inspect = self.run_scheme == AS_INSPECT
            credit = self.credit if as_inspect else for_scheme(self.credit, self.run_scheme)
            tree = with_path(tree, CREDIT, settings_of(credit))
        return RunConfig.parse(tree)

    # ── what the widgets hold ────────────────────────────────────────────────────────────────────────────────────

    def value(self, path: str) -> Any:
        """What is held of a field, by its path. Raises KeyError for what has none."""
        section, _, name = path.rpartition(".")
        if section == CREDIT:
            return self.credit["scheme"] if name == "scheme" else shown_values(self.credit)[name]
        if section == COMPARE:
            compare = self.compare or {"scheme": NONE}
            return compare["scheme"] if name == "scheme" else shown_values(compare)[name]
        return getattr(self, name) if section == "page" else get(self.tree, path)

    def with_value(self, path: str, value: Any) -> PageState:
        """The draft with what somebody set a field to."""
        section, _, name = path.rpartition(".")
        if section == CREDIT:
            return self.but(credit=with_settings(self.credit, {name: value}))
        if section == COMPARE:
            if name == "scheme":
                compare = self.compare or credit_section(value) if value != NONE else None
                return self.but(compare=compare and for_scheme(compare, value))
            return self.but(compare=self.compare and with_settings(self.compare, {name: value}))
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if section == "page":
            return self.but(**{name: value})
        if path == "policy.path":
            value = str(value or "").strip() or PolicySection().path
        if value == "" and value_at(default_tree(), path) is None:
            value = None
        return self.but(tree=with_path(self.tree, path, value))

    def with_values(self, values: Mapping[str, Any]) -> PageState:
        draft = self
        for path, value in values.items():
            draft = draft.with_value(path, value)
        return draft

    def with_edits(self, edits: Mapping[str, Mapping[str, Any]]) -> PageState:
        """Return the draft with what the fields of its rewards hold, by the rows' keys; other keys mean nothing."""
        rows = tuple(row.with_edits(edits.get(row.key, {})) for row in self.rows)
        return self.but(rows=rows)

    def row(self, key: str) -> RewardRow | None:
        return next((row for row in self.rows if row.key == key), None)

    def with_row(self, row: RewardRow, instead_of: str = "") -> PageState:
        """Return the draft with a reward in place of the one with that key, or at the end if there is none."""
        if self.row(instead_of) is None:
            return self.but(rows=(*self.rows, row.but()))
        return self.but(rows=tuple(row.but() if other.key == instead_of else other for other in self.rows))

    def with_scheme_for_rewards(self) -> PageState:
        """Return the draft with the scheme ``outcome`` if it has outcome rewards alone and its scheme reads none."""
        kinds = {row.kind for row in self.rows if row.on}
        reads_outcomes = (
            "outcome" in SCHEMES[self.credit["scheme"]].needs or shown_values(self.credit)["outcome_weight"]
        )
        if kinds != {"outcome"} or reads_outcomes:
            return self
        return self.but(credit=for_scheme(self.credit, "outcome"))

    def with_pattern(self, regex: str, kind: str) -> PageState:
        return self.but(tree=with_path(with_path(self.tree, REGEX, regex), KIND, kind))

    # ── its parts ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def method(self) -> str:
        return str(self.tree["method"]["name"])

    @property
    def task(self) -> str:
        return str(self.tree["task"]["name"])

    def task_section(self, name: str | None = None) -> TaskSection:
        """How the rows of the task, or of another, are read. Raises ConfigError for a field that does not fit."""
        fields = {field: value for field, value in self.tree["task"].items() if field in READING}
        return TaskSection.parse({**fields, "name": (name or self.task).strip()}, "task")

    def with_rows_as_they_are(self) -> PageState:
        """Without what says how a task's rows are read, which is about the task chosen."""
        default = default_tree()["task"]
        return self.but(tree=with_path(self.tree, "task", self.tree["task"] | {n: default[n] for n in READING}))

    @property
    def policy(self) -> str:
        return str(self.tree["policy"]["path"])

    @property
    def policy_options(self) -> dict[str, Any]:
        """The adapter on the policy and how its weights are held, as the model worker takes them."""
        section = PolicySection.parse({**self.tree["policy"], "lora": None}, "policy")
        return {"adapter": section.adapter, "loading": section.loading}

    @property
    def regex(self) -> str:
        return str(self.tree["method"]["pattern"]["regex"])

    @property
    def kind(self) -> PatternKind:
        kind: PatternKind = self.tree["method"]["pattern"]["kind"]
        return kind

    @property
    def pattern_parts(self) -> tuple[Any, ...]:
        """The arguments of its ``StepPattern``, as ``StepPattern.parts`` has them."""
        return StepPattern(**self.tree["method"]["pattern"]).parts

    @property
    def reward_deadline(self) -> float:
        """Seconds that one call of a reward's code may take; a run's default where the method has no rewards."""
        return float(self.tree[self.method].get("reward_deadline") or DEADLINE)

    @property
    def isolates(self) -> bool:
        """Whether own code is isolated."""
        return bool(get(self.tree, ISOLATE))

    def pattern(self) -> StepPattern:
        """Raises PatternError for one that is empty or too long; it is compiled in the sandbox only."""
        if not self.regex and self.kind != "turns":
            raise PatternError("the pattern is empty and would match empty text; write what a step begins with")
        if len(self.regex) > LONGEST_PATTERN:
            raise PatternError(f"the pattern has {len(self.regex):,} characters; the limit is {LONGEST_PATTERN:,}")
        return StepPattern(**self.tree["method"]["pattern"])

    def sampling(self) -> tuple[SamplingConfig, int]:
        """The options of sampling on Inspect, and its seed. Raises ConfigError with the field's path."""
        options = self.tree["method"]["sampling"]
        defaults = SamplingConfig()
        empty = [name for name, value in options.items() if value is None and getattr(defaults, name) is not None]
        if empty:
            raise ConfigError(f"{empty[0].replace('_', ' ')} is empty; give a number")
        sampling = SamplingConfig.parse(options, "method.sampling")
        seed = self.seed or 0
        if not isinstance(seed, int | float) or not 0 <= seed <= LARGEST_SEED or seed != int(seed):
            raise ConfigError(f"seed {shown(seed)} is out of range; give a whole number from 0 to {LARGEST_SEED:,}")
        return sampling, int(seed)

    def prompting(self) -> PromptSection:
        """How a prompt is put to the policy. Raises ConfigError with the field's path."""
        return PromptSection.parse(self.tree["prompt"], "prompt")

    def environment(self) -> EnvironmentSection | None:
        """Who answers the policy's turns; None for answers of one turn. Raises ConfigError with the field's path."""
        section = EnvironmentSection.parse(self.tree["environment"], "environment")
        return section if section.name else None

    def switched_on(self) -> Iterator[tuple[RewardRow, RewardConfig]]:
        """Raises RewardError for two of one name, or a weight out of range."""
        names: set[str] = set()
        for row in self.rows:
            if not row.on:
                continue
            config = row.config()
            if config.name in names:
                raise RewardError(
                    f"{config.name!r} is there twice; rename one of the two functions", reward=config.name
                )
            names.add(config.name)
            yield row, config


class Tab:
    """What one browser tab holds, on the server: an event changes it, and no answer to an earlier event undoes that.

    Safe to use from any thread.
    """

    def __init__(self, draft: PageState) -> None:
        self._lock = threading.Lock()
        self._draft = self._own(draft)
        self._asked: dict[str, int] = {}
        self.task_asked = ""
        """The task that somebody typed last, which may be one that cannot be read yet."""
        self.drawn: set[Any] = set()
        """The forms that were drawn."""
        self.news: dict[Any, set[str]] = {}
        """Paths of fields that were set otherwise than in the field, by form."""
        self.editing = ""
        """The key of the reward in the editor."""
        self.scored: tuple[RewardRow, ...] = ()
        """The rewards that were scored last."""

    def __deepcopy__(self, memo: Any) -> Tab:
        """One of its own for each session, which opens as the first did."""
        return Tab(self._draft)

    def _own(self, draft: PageState) -> PageState:
        """Return a copy of the state that names this tab as its own."""
        draft = draft.but()
        draft._tab = self
        return draft

    @property
    def draft(self) -> PageState:
        return self._draft

    def change(self, changed: Callable[[PageState], PageState]) -> bool:
        """Change what is held by now, and say whether it differs."""
        with self._lock:
            before = self._draft
            self._draft = self._own(changed(before))
            return before != self._draft

    def set(self, path: str, value: Any) -> bool:
        """Set what a field holds, and say whether it is news."""
        return self.change(lambda draft: draft.with_value(path, value))

    def put(self, before: PageState, after: PageState) -> None:
        """Take over what an event changed from ``before`` to ``after``; what was changed meanwhile stays."""
        self.change(lambda now: after if now is before else _merged(now, before, after))

    def asks(self, what: str = "scores") -> Callable[[], bool]:
        """Return a function that says whether the tab was not asked for the same since this call."""
        with self._lock:
            self._asked[what] = asked = self._asked.get(what, 0) + 1
        return lambda: self._asked[what] == asked


def _merged(now: PageState, before: PageState, after: PageState) -> PageState:
    changes: dict[str, Any] = {}
    for name in PageState.model_fields:
        old, new = getattr(before, name), getattr(after, name)
        if old is not new and (name == "rows" or old != new):
            changes[name] = new
    tree = now.tree
    for path, value in leaves(changes.pop("tree", {})):
        if value != value_at(before.tree, path):
            tree = with_path(tree, path, value)
    if "rows" in changes:
        stays = {row.key: now.row(row.key) or row for row in before.rows if row == after.row(row.key)}
        changes["rows"] = tuple(stays.get(row.key, row) for row in after.rows)
    return now.but(tree=tree, **changes)


# ── trees ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def get(tree: Mapping[str, Any], path: str) -> Any:
    """A value of a tree by its dotted path. Raises KeyError."""
    for name in path.split("."):
        if not isinstance(tree, Mapping):
            raise KeyError(path)
        tree = tree[name]
    return tree


def with_path(tree: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a tree with one value set."""
    name, _, inner = path.partition(".")
    return {**tree, name: with_path(tree.get(name) or {}, inner, value) if inner else value}


def configuration(tree: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """A draft's tree as that of a ``RunConfig`` of the method chosen, or of ``name``; without credit and rewards."""
    inspected = tree["method"]
    name = name or inspected["name"]
    method = {**tree[name], **{part: value for part, value in inspected.items() if takes(name, part)}, "name": name}
    task = tree["task"]
    if METHODS[name].section.kind is None:  # which takes no rows
        task = {**task, "data": None, "data_columns": ""}
    policy = tree["policy"] if get(tree, LORA_RANK) is not None else {**tree["policy"], "lora": None}
    shared = {part: value for part, value in tree.items() if part not in METHODS}
    return shared | {"policy": policy, "method": method, "task": task}


@cache
def default_tree() -> Mapping[str, Any]:
    """Every setting as it is by default, of every method."""
    inspected: dict[str, Any] = {
        "name": FIRST,
        "pattern": asdict(StepPattern()),
        "sampling": SamplingConfig().model_dump(),
        "isolate_rewards": False,
    }
    own = {name: own_settings(known.section()) for name, known in METHODS.items()}  # type: ignore[call-arg]  # has a name
    return {**shared_settings(RunConfig()), "method": inspected, **own}


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree with its dotted path; what one field holds is one value."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path not in TABLES:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def value_at(tree: Mapping[str, Any], path: str) -> Any:
    """The value at a path; None where there is none."""
    try:
        return get(tree, path)
    except KeyError:
        return None
