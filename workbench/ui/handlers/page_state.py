"""The state of one browser tab: a draft of the configuration, and the little that is the page's own.

A ``PageState`` has a plain tree of a ``RunConfig``, not yet checked, so that it can hold whatever a field holds while
somebody types. Widgets are bound to paths of it (``method.sampling.temperature``); paths under ``page`` are the page's
own. Opening a file, reloading, a link, notebook code and Start read and write this one object (``sharing``), and a
field that has no widget stays as it is.

A row of the list of rewards is a reward's configuration, and what only the page knows of it. A row's editor holds
source code. While that is a built-in reward's own source, its name says what the reward is; once it is edited the code
does. A row that is a reward model, a judge, Monte-Carlo values or a belief has no editor.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer

from workbench.config import (
    BeliefConfig,
    CreditConfig,
    EnvironmentSection,
    JudgeConfig,
    ModelConfig,
    MonteCarloConfig,
    PolicySection,
    PromptSection,
    SamplingConfig,
    TaskSection,
)
from workbench.config.rewards import RewardSection, read_schedule, schedule_text, weight_at
from workbench.config.task import READING
from workbench.credit import SCHEMES
from workbench.errors import ConfigError, PatternError, RewardError, quote
from workbench.policies.step_values import NAMES, StepValues
from workbench.rewards import BUILTINS, RewardConfig, find_builtin, source, statistics
from workbench.sandbox.client import DEADLINE
from workbench.schema import Group, Prompt, RewardKind
from workbench.steps import PatternKind, StepPattern
from workbench.training.methods import RunConfig
from workbench.ui.handlers.fields import (
    AS_INSPECT,
    COMPARE,
    CREDIT,
    ISOLATE,
    KIND,
    NONE,
    REGEX,
    Section,
    configuration,
    credit_section,
    default_tree,
    every_leaf,
    for_scheme,
    get,
    may_be_empty,
    number_in,
    option_values,
    own_settings,
    section_of,
    settings_of,
    shared_settings,
    show_value,
    takes,
    with_path,
    with_settings,
)

LARGEST_SEED = 2**31 - 1
"""The largest seed, of a run as of a group."""
LONGEST_PATTERN = 10_000
PAGE_DEADLINE = 5.0
ROWS = "method.rewards"
PAGE_FIELDS = ("run_scheme", "seed", "reference", "text")
"""What fields hold of the page's own, at ``page.NAME``."""


# ── a row of the list of rewards ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Estimated:
    """Monte-Carlo values, the group they are of, and the outcome reward they are values of."""

    group: Group
    values: StepValues
    outcome: RewardConfig

    def fits(self, group: Group | None, pattern: StepPattern) -> bool:
        """Return whether they are still those of the group on screen, cut by this pattern."""
        same = group is not None and (group.prompt, group.rollouts) == (self.group.prompt, self.group.rollouts)
        return same and self.values.pattern == pattern


@dataclass(frozen=True)
class RewardRow:
    """``fields`` are those of a ``RewardConfig``, as far as they are set, and may not be valid.

    Monte-Carlo values score the group on screen where they were ``estimated``, and are part of a run's configuration if
    ``in_run``. ``unfed``: it is off for the data on screen alone, which lacks a column that it reads.

    ``key`` names the row on the page, which owns the list. A row that an event of the server's changed gets a new key
    (``but``): the page keeps its own version of each key it knows.
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

    @classmethod
    def of_page(cls, sent: Mapping[str, Any], estimates: Mapping[str, Estimated]) -> RewardRow:
        """Return the row that the page's list holds; its estimated values are kept by key.

        ``sent`` has the row as the page was told of it, and what its fields say now: on, weight, schedule, code.
        """
        fields, key = dict(sent["fields"]), str(sent["key"])
        if how := fields.get("monte_carlo"):
            fields["name"] = NAMES["progress" if how.get("progress") else "value"]
        switches = {name: bool(sent[name]) for name in ("on", "in_run", "unfed")}
        row = cls(fields, estimated=estimates.get(key), key=key, **switches)
        return row.with_edits({name: sent[name] for name in ("weight", "schedule", "code") if name in sent})

    def to_json(self) -> dict[str, Any]:
        """Return what a page that is restored needs of it: neither estimated values nor the key."""
        return {"fields": dict(self.fields), "on": self.on, "in_run": self.in_run, "unfed": self.unfed}

    @property
    def name(self) -> str:
        return str(self.fields["name"])

    @property
    def kind(self) -> RewardKind:
        return "outcome" if self.fields.get("kind") == "outcome" else "step"

    @property
    def weight(self) -> float | None:
        """None where the field is empty, which counts as 1; that of step 0 where a schedule says it."""
        return self.fields.get("weight", self._usual_weight)  # type: ignore[no-any-return]

    @property
    def _usual_weight(self) -> float:
        return weight_at(self.fields["schedule"], 0) if self.is_scheduled else 1.0

    @property
    def is_scheduled(self) -> bool:
        """Return whether its weight changes by the step of training; a schedule that cannot be read is a text."""
        return isinstance(self.fields.get("schedule", ""), list) and self.fields["schedule"] != []

    @property
    def schedule(self) -> str:
        """Its weights by the step of training, as their field holds them; "" where it is always the same."""
        schedule = self.fields.get("schedule", ())
        return schedule if isinstance(schedule, str) else schedule_text(schedule)

    @property
    def for_run(self) -> bool:
        """Return whether a run can have it; step values only of built-in outcome rewards, which the run can ask too."""
        return self.in_run and (self.estimated is None or self.estimated.outcome.is_builtin)

    @property
    def has_editor(self) -> bool:
        return all(self.fields.get(part) is None for part in ("model", "judge", "monte_carlo", "belief"))

    @property
    def is_builtin(self) -> bool:
        """Return whether the name alone says what it is."""
        return self.has_editor and self.fields.get("code") is None

    @property
    def code(self) -> str:
        """Return what the editor holds."""
        if not self.is_builtin:
            return str(self.fields["code"]) if self.has_editor else ""
        return builtin_source(self.name, tuple(self.fields.get("options", {}).items()))

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
        weight, schedule = self.fields.get("weight", 1.0), self.fields.get("schedule", [])
        fields = {**self.fields, "weight": 1.0 if weight is None else weight}
        try:
            if isinstance(schedule, str):
                fields["schedule"] = read_schedule(schedule)
            return RewardConfig.parse(fields)
        except ValueError as error:  # ConfigError is one
            raise RewardError(f"{self.name!r}: {error}", reward=self.name) from error

    def unweighted(self) -> RewardConfig:
        """The reward with weight 1, whatever the field holds, and the schedule if that can be read."""
        return RewardConfig.model_validate(
            {**self.fields, **({} if self.is_scheduled else {"schedule": []}), "weight": 1.0}
        )

    def for_data(self, columns: Collection[str]) -> RewardRow:
        """The row with these columns: a built-in reward that lacks one is off until data comes that has it."""
        if not self.is_builtin:
            return self
        if set(columns).issuperset(find_builtin(self.name).columns):
            return self.but(on=True, unfed=False) if self.unfed else self
        return self.but(on=False, unfed=self.on or self.unfed)

    def with_edits(self, edits: Mapping[str, Any]) -> RewardRow:
        """Return the row with what its fields ``on``, ``weight``, ``schedule`` and ``code`` hold, where they differ."""
        row, fields = self, dict(self.fields)
        if "on" in edits and bool(edits["on"]) != self.on:
            row = replace(self, on=bool(edits["on"]), unfed=False)
        if edits.get("schedule", self.schedule).strip() != self.schedule.strip():
            fields = self._scheduled(edits["schedule"].strip())
        elif "weight" in edits and edits["weight"] != self.weight:
            fields.pop("weight", None)
            fields |= {} if edits["weight"] == self._usual_weight else {"weight": edits["weight"]}
        if "code" in edits and self.has_editor and (edits["code"] or "") != self.code:
            kept = {name: fields[name] for name in ("weight", "schedule", "folder") if name in fields}
            fields = self._of_code(edits["code"] or "") | kept
        return row if fields == self.fields else replace(row, fields=fields)

    def _scheduled(self, text: str) -> dict[str, Any]:
        """The fields with the weights that ``0:1,60:0`` says; without a text, always with the weight that is shown.

        A text that says none is kept as it is, and is an error of the reward.
        """
        fields = {name: value for name, value in self.fields.items() if name not in ("weight", "schedule")}
        if not text:
            return fields | ({} if self.weight in (None, 1.0) else {"weight": self.weight})
        with suppress(ValueError):  # ConfigError is one
            reward = RewardConfig.parse({**fields, "schedule": read_schedule(text)})
            return fields | reward.model_dump(mode="json", include={"schedule"})
        return fields | {"schedule": text}

    def _of_code(self, code: str) -> dict[str, Any]:
        """The reward that an edited source describes: its name and kind are what the code says, or as before."""
        defined = [function.name for function in source.functions_in(code)]
        name = self.name
        if defined and name not in defined:
            name = (source.reward_functions(code) or defined)[-1]
        for builtin in (self.name, name, f"trl:{name}"):
            if builtin in BUILTINS and code.strip() == builtin_source(builtin).strip():
                return {"name": builtin, "kind": find_builtin(builtin).kind}
        return {"name": name, "kind": source.kind_in(code, name) or self.kind, "code": code}


def set_fields(config: RewardSection) -> dict[str, Any]:
    """Return what a reward is, without what is so by default; its kind always."""
    return {"name": config.name, "kind": config.kind} | config.model_dump(mode="json", exclude_defaults=True)


def row_of(config: RewardSection) -> RewardRow:
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


# ── the state ────────────────────────────────────────────────────────────────────────────────────────────────────


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

    def but(self, **changes: Any) -> PageState:
        """Return the state with these changes."""
        return self.model_copy(update=changes)

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
        return draft.but(
            tree=tree
            | {
                "method": {
                    **self.tree["method"],
                    "name": name,
                    **method.model_dump(include={"pattern", "sampling", "isolate_rewards"}),
                }
            }
        )

    def config(self) -> RunConfig:
        """The run that Start would start, its pattern untried.

        Raises PatternError, RewardError, or ConfigError with a line for every path that does not fit.
        """
        tree = configuration(self.tree)
        if takes(self.method, "pattern"):
            self.pattern()
        if takes(self.method, "rewards"):
            rewards = [config for row, config in self.switched_on() if not row.monte_carlo or row.for_run]
            tree = with_path(tree, ROWS, [reward.model_dump() for reward in rewards])
        if takes(self.method, "credit"):  # Inspect's, or another scheme with what somebody set on Inspect
            as_inspect = self.run_scheme == AS_INSPECT
            tree = with_path(
                tree, CREDIT, settings_of(self.credit if as_inspect else for_scheme(self.credit, self.run_scheme))
            )
        return RunConfig.parse(tree)

    # ── what the widgets hold ────────────────────────────────────────────────────────────────────────────────────

    def value(self, path: str) -> Any:
        """Return what is held of a field, by its path; None of an option that the scheme lacks. Raises KeyError."""
        section, _, name = path.rpartition(".")
        if section in (CREDIT, COMPARE):
            credit = self.credit if section == CREDIT else self.compare
            return (credit or {"scheme": NONE})["scheme"] if name == "scheme" else option_values(credit).get(name)
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
        if isinstance(value, str) and path in every_leaf() and may_be_empty(every_leaf()[path]):
            value = number_in(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if section == "page":
            return self.but(**{name: value})
        if path == "policy.path":
            value = str(value or "").strip() or PolicySection().path
        if value == "" and get(default_tree(), path) is None:
            value = None
        return self.but(tree=with_path(self.tree, path, value))

    def with_rewards(self, sent: Mapping[str, Any], estimates: Mapping[str, Estimated]) -> PageState:
        """Return the draft with the list of rewards as the page holds it."""
        return self.but(rows=tuple(RewardRow.of_page(row, estimates) for row in sent["rows"])).with_outcome_weight(
            sent["outcome_weight"]
        )

    def with_outcome_weight(self, weight: float | None) -> PageState:
        """Return the draft with this weight of the final answer, under a scheme that has one."""
        has_one = not SCHEMES[self.credit["scheme"]].counts_outcome
        return self.but(credit=with_settings(self.credit, {"outcome_weight": weight})) if has_one else self

    def row(self, key: str) -> RewardRow | None:
        return next((row for row in self.rows if row.key == key), None)

    def with_row(self, row: RewardRow, instead_of: str = "") -> PageState:
        """Return the draft with a reward in place of the one with that key, or at the end if there is none."""
        if self.row(instead_of) is None:
            return self.but(rows=(*self.rows, row))
        return self.but(rows=tuple(row if other.key == instead_of else other for other in self.rows))

    def with_scheme_for_rewards(self) -> PageState:
        """Return the draft with the scheme ``outcome`` if it has outcome rewards alone and its scheme reads none."""
        kinds = {row.kind for row in self.rows if row.on}
        reads_outcomes = SCHEMES[self.credit["scheme"]].counts_outcome or self.credit.get("outcome_weight")
        is_blind = kinds == {"outcome"} and not reads_outcomes
        return self.but(credit=for_scheme(self.credit, "outcome")) if is_blind else self

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
        """Return how to read the rows of the task, or of another. Raises ConfigError for a field that does not fit."""
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
        return self.tree["method"]["pattern"]["kind"]  # type: ignore[no-any-return]

    @property
    def pattern_as_typed(self) -> StepPattern:
        """Its step pattern, which may be empty or too long."""
        return StepPattern(**self.tree["method"]["pattern"])

    @property
    def reward_deadline(self) -> float:
        """Seconds that one call of a reward's code may take; a run's default where the method has no rewards."""
        return float(self.tree[self.method].get("reward_deadline") or DEADLINE)

    @property
    def page_deadline(self) -> float:
        """Seconds that one such call may take where the page waits for it, if code was written that may loop.

        A function of TRL imports TRL at its first call, which takes longer.
        """
        on = [row for row in self.rows if row.on]
        waits = all(row.fields.get("code") is None for row in on) or any(row.name.startswith("trl:") for row in on)
        return self.reward_deadline if waits else min(PAGE_DEADLINE, self.reward_deadline)

    @property
    def isolates(self) -> bool:
        """Return whether own code is isolated."""
        return bool(get(self.tree, ISOLATE))

    def pattern(self) -> StepPattern:
        """Raises PatternError for one that is empty or too long; it is compiled in the sandbox only."""
        if not self.regex and self.kind != "turns":
            raise PatternError("the pattern is empty and would match empty text; write what a step begins with")
        if len(self.regex) > LONGEST_PATTERN:
            raise PatternError(f"the pattern has {len(self.regex):,} characters; the limit is {LONGEST_PATTERN:,}")
        return self.pattern_as_typed

    def sampling(self) -> tuple[SamplingConfig, int]:
        """The options of sampling on Inspect, and its seed. Raises ConfigError with the field's path."""
        sampling, seed = SamplingConfig.parse(self.tree["method"]["sampling"], "method.sampling"), self.seed or 0
        if not isinstance(seed, int | float) or not 0 <= seed <= LARGEST_SEED or seed != int(seed):
            raise ConfigError(f"seed {quote(seed)} is out of range; give a whole number from 0 to {LARGEST_SEED:,}")
        return sampling, int(seed)

    def prompting(self) -> PromptSection:
        """Return how a prompt is put to the policy. Raises ConfigError with the field's path."""
        return PromptSection.parse(self.tree["prompt"], "prompt")

    def environment(self) -> EnvironmentSection | None:
        """Return the environment, None for answers of one turn. Raises ConfigError with the field's path."""
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
    """A browser tab as the server keeps it: its group, the values that it sent last, what was answered and undone.

    The browser's fields own their values: each event sends them, and what replaces some sets exactly those. Safe to
    use from any thread.
    """

    def __init__(self, draft: PageState) -> None:
        self._lock = threading.Lock()
        self.draft = draft
        self._asked: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._holds, self._replaced = 0, dict[str, int]()
        self.answered: dict[str, PageState] = {}
        """The draft that was scored last, and the one that Train described last."""
        self.undo: PageState | None = None
        """What was held before fields were replaced last."""
        self.watched = ""
        """The run that Train shows."""
        self.task_asked = ""
        """The task that somebody typed last, which may be one that cannot be read yet."""
        self.editing = ""
        """The key of the reward in the editor."""
        self.rewards_told = 0
        """The number of the page's last change of the list of rewards."""
        self.outcome_weight: float | None = None
        """The weight of the final answer in the page's list of rewards, also while the scheme has none."""
        self.call_times = statistics.CallTimes()
        """How long the calls of its reward functions took."""
        self.listed: Group | None = None
        """The group that its table of presets is of."""
        self.opening: Any = None
        """What was opened last (``opening.Opening``), and below the group of it that is on screen."""
        self.place = 0
        self.mistakes: Sequence[tuple[int, int]] = ()
        """Group and rollout of each disagreement of a reward with the file's labels."""

    def __deepcopy__(self, memo: Any) -> Tab:
        """One of its own for each session, which opens as the first did."""
        return Tab(self.draft)

    def choose(self, path: str, value: Any) -> bool:
        """Set a field that others follow, a scheme or a method, and say whether it is news."""
        with self._lock:
            before, draft = self.draft, self.draft.with_value(path, value)
            if self.outcome_weight is not None and path == f"{CREDIT}.scheme":
                draft = draft.with_outcome_weight(self.outcome_weight)
            self.draft = draft
            return before != draft

    def set_all(self, changes: Mapping[str, tuple[int, int, Any]], replaced: int) -> None:
        """Set what fields were changed to, by path: (turn, replaced, value), as the page sends them.

        ``turn`` counts the page's changes: what a later one overtook stays. So does what was replaced (``hold``) since
        the field showed what it was set to in answer to ``replaced``. Raises ConfigError for a page that was told what
        this tab was not: the tab was forgotten meanwhile.
        """
        with self._lock:
            if replaced > self._holds:
                raise ConfigError("the app no longer knows what this page shows; load the page anew")
            draft = self.draft
            for path, (turn, shown, value) in changes.items():
                if turn > self._turns.get(path, 0) and shown >= self._replaced.get(path, 0):
                    self._turns[path] = turn
                    draft = draft.with_value(path, value) if is_news(draft, path, value) else draft
            self.draft = draft

    def set_rewards(self, sent: Mapping[str, Any], estimates: Mapping[str, Estimated]) -> None:
        """Set the list of rewards as the page holds it, unless that is known, or a later one overtook it on its way.

        Gradio sends two changes of one moment side by side, also where it is told to keep the last; a button sends the
        list, too.
        """
        with self._lock:
            if "editing" not in sent or sent["number"] <= self.rewards_told:
                return
            self.rewards_told = sent["number"]
            self.editing, self.outcome_weight = sent["editing"], sent["outcome_weight"]
            self.draft = self.draft.with_rewards(sent, estimates)

    def hold(self, before: PageState, after: PageState, changed: Iterable[str] = ()) -> int:
        """Hold what an event made of ``before``; rows that it changed get keys that the page has yet to show.

        Return its number, which the page sends once it shows it. Until then the fields ``changed`` stay as they are.
        """
        rows = tuple(row if row == before.row(row.key) else row.but() for row in after.rows)
        with self._lock:
            self.draft, self._holds = after.but(rows=rows), self._holds + 1
            self._replaced |= dict.fromkeys(changed, self._holds)
            return self._holds

    def asks(self, what: str = "scores") -> Callable[[], bool]:
        """Return a function that says whether the tab was not asked for the same since this call."""
        with self._lock:
            self._asked[what] = asked = self._asked.get(what, 0) + 1
        return lambda: self._asked[what] == asked


def is_news(draft: PageState, path: str, value: Any) -> bool:
    """Return whether a field holds another value than the one that it shows of a draft."""
    held = draft.value(path)
    if path.startswith((f"{CREDIT}.", f"{COMPARE}.")):
        return held is not None and value != held
    leaf = every_leaf()[path]
    return bool(value) != bool(held) if leaf.kind is bool else value != show_value(leaf, held)
