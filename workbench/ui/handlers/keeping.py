"""What outlives a reload of Inspect: its controls, the group on screen, and links that show the same to others.

A browser tab keeps its controls itself (``share.js``), as the JSON made here; a link holds the few that fit into an
address, and never code. Groups are kept in the workspace under the hash of what they hold: ``groups/`` those that a
link or a notebook points at, for good, and ``groups/recent/`` the latest others. What comes back, from a browser or an
address, is not trusted: what does not fit is left out and said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from pydantic import ValidationError

from workbench.config import RewardConfig
from workbench.credit import SCHEMES, Option
from workbench.errors import WorkbenchError
from workbench.schema import Group
from workbench.steps import PRESETS, PatternKind
from workbench.tasks import TASKS
from workbench.ui.handlers.credit import FIELDS, CreditForm, default_values
from workbench.ui.handlers.groups import GroupStore
from workbench.ui.handlers.inspect import CUSTOM, choose_example, find_task, first_session, preset_of
from workbench.ui.handlers.rewards import EMPTY_SLOT, builtin_slot, task_slots
from workbench.ui.handlers.sampling import SamplingForm
from workbench.ui.handlers.scoring import ScoringForm, SlotValues, is_builtin
from workbench.ui.handlers.session import SLOTS, RewardSlot, Session

LONGEST_REGEX = 300
"""Characters of a pattern that go into a link."""
LARGEST_KEPT = 2_000_000
"""Characters of a browser's own copy that are read."""


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────────────


def scoring_kept(session: Session, form: ScoringForm, saved: str) -> dict[str, Any]:
    """The session and the scoring controls as plain values. ``saved`` names the kept group, "" for the page's first."""
    group = session.group
    return {
        "task": session.task,
        "index": session.index,
        "saved": saved,
        "imported": group is not None and _is_of(session, group),
        "edited": session.edited is not None,
        "regex": form.regex,
        "kind": form.kind,
        "credit": _credit_kept(form.credit),
        "other": None if form.other is None else _credit_kept(form.other),
        "slots": [_slot_kept(values) for values in form.slots],
    }


def sampling_kept(form: SamplingForm) -> dict[str, Any]:
    numbers = ("num_generations", "temperature", "max_completion_length", "seed")
    texts = {name: getattr(form, name) for name in _TEXTS}
    return texts | {name: getattr(form, name) for name in numbers}


def link_of(session: Session, form: ScoringForm, saved: str) -> dict[str, str]:
    """The parameters of a link to what is on screen, as far as they fit into an address."""
    preset = preset_of(form.regex, form.kind)
    pattern = {"regex": form.regex, "kind": form.kind} if len(form.regex) <= LONGEST_REGEX else {}
    link = {"task": session.task, "example": str(session.index), "saved": saved}
    link |= pattern if preset == CUSTOM else {"preset": preset}
    link |= {"scheme": form.credit.scheme, "options": _compact(form.credit.changed)}
    if form.other is not None:
        link |= {"compare": form.other.scheme, "compare-options": _compact(form.other.changed)}
    return {name: value for name, value in link.items() if value}


def _is_of(session: Session, group: Group) -> bool:
    return (session.prompt, dict(session.columns)) == (group.prompt, dict(group.columns))


def _compact(changed: Mapping[str, Any]) -> str:
    return json.dumps(changed, separators=(",", ":")) if changed else ""


def _credit_kept(form: CreditForm) -> dict[str, Any]:
    return {"scheme": form.scheme, "options": form.changed}


def _slot_kept(values: SlotValues) -> dict[str, Any] | None:
    if values.slot is None:
        return None
    slot: dict[str, Any] = {"name": values.slot.name, "kind": values.slot.kind, "builtin": values.slot.builtin}
    if values.slot.given is not None:
        given = {"given": values.slot.given.model_dump(), "in_run": values.slot.in_run}
        return {**slot, "on": values.on, "weight": values.weight, **given}
    code = {} if is_builtin(values) else {"code": values.code}
    return {**slot, "on": values.on, "weight": values.weight, **code}


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Restored:
    """The page as it was, or as a link shows it; ``problems`` are what could not be had."""

    session: Session
    scoring: ScoringForm
    sampling: SamplingForm
    problems: tuple[str, ...] = ()


def restore(
    kept: str, query: Mapping[str, str], scoring: ScoringForm, sampling: SamplingForm, store: GroupStore
) -> Restored | None:
    """The page that a browser kept, changed to what a link's parameters say; None where there is neither.

    ``scoring`` and ``sampling`` are the controls as the page opens without.
    """
    memory = _memory(kept)
    named = {name for name in ("task", "example", "saved", "preset", "regex", "scheme", "compare") if query.get(name)}
    if not memory and not named:
        return None
    found = _Restoring(store, first_session(), scoring, sampling)
    found.remember(memory)
    found.follow(query, kept=_text(_table(memory.get("scoring")).get("saved")))
    return Restored(found.session, found.scoring, found.sampling, tuple(found.problems))


class _Restoring:
    """The page while it is put together, from what was kept first and from the link then."""

    def __init__(self, store: GroupStore, session: Session, scoring: ScoringForm, sampling: SamplingForm) -> None:
        self.store, self.session, self.scoring, self.sampling = store, session, scoring, sampling
        self.problems: list[str] = []

    def remember(self, memory: Mapping[str, Any]) -> None:
        scoring, sampling = _table(memory.get("scoring")), _table(memory.get("sampling"))
        if scoring:
            self._example(_text(scoring.get("task")), _whole(scoring.get("index")))
            self._group(_text(scoring.get("saved")))
            self._whose(bool(scoring.get("imported")), bool(scoring.get("edited")))
            self._pattern(_text(scoring.get("regex")), _text(scoring.get("kind")))
            self._credit(_table(scoring.get("credit")), _table(scoring.get("other")))
            if isinstance(scoring.get("slots"), list):
                self._slots(scoring["slots"])
        prompt = _text(sampling.get("prompt"))
        numbers = {name: _number(sampling.get(name)) for name in sampling_kept(self.sampling) if name not in _TEXTS}
        self.sampling = replace(
            self.sampling,
            prompt=prompt if prompt is not None else self.sampling.prompt,
            policy=_text(sampling.get("policy")) or self.sampling.policy,
            reference=_text(sampling.get("reference")) or self.sampling.reference,
            **{name: value for name, value in numbers.items() if value is not None},
        )

    def follow(self, query: Mapping[str, str], *, kept: str | None) -> None:
        """``kept`` names the group that the tab kept: a link to that one, and to its example, is the tab's own address
        read again, and its prompt stays as it was edited or imported."""
        task = query.get("task")
        if task and task not in TASKS and task != self.session.task:
            # A link may come from anybody; it opens nothing that the page would not offer by itself.
            self.problems.append(f"the link's task {task[:80]!r} is not built in; choose it under Task if you know it")
            task = None
        before = (self.session.task, self.session.index)
        wanted = (task or self.session.task, _whole(query.get("example")) or 0)
        if (task or query.get("example")) and not (wanted == before and query.get("saved") in (None, "", kept)):
            self._example(*wanted)
        if (self.session.task, self.session.index) != before:
            self._from_task(keep_rewards=self.session.task == before[0])
        if query.get("saved"):
            self._group(query["saved"])
        preset = PRESETS.get(query.get("preset", ""))
        if preset is not None:
            self._pattern(preset.pattern.regex, preset.pattern.kind)
        elif query.get("regex"):
            self._pattern(query["regex"][:LONGEST_REGEX], query.get("kind"))
        if query.get("scheme"):
            first = {"scheme": query["scheme"], "options": _memory(query.get("options", ""))}
            other = {"scheme": query.get("compare"), "options": _memory(query.get("compare-options", ""))}
            self._credit(first, other)

    def _example(self, task: str | None, index: int | None) -> None:
        if task is None:
            return
        try:
            view = choose_example(self.session, index if index is not None else 0, task=find_task(task))
        except WorkbenchError as error:
            self.problems.append(str(error))
            return
        self.session = view.session
        self.sampling = replace(self.sampling, prompt=view.prompt)

    def _from_task(self, *, keep_rewards: bool) -> None:
        """A link to another task brings what choosing the task would."""
        if keep_rewards:
            return
        task = find_task(self.session.task)
        self._pattern(task.pattern.regex, task.pattern.kind)
        self._placed(task_slots(self.scoring.slots, task))
        self.sampling = replace(self.sampling, max_completion_length=task.max_completion_length)

    def _group(self, saved: str | None) -> None:
        if not saved:
            return
        group = self.store.find(saved)
        if group is None:
            self.problems.append(f"the group {saved[:20]!r} is not kept in this workspace (any more)")
        else:
            self.session = replace(self.session, group=group)

    def _whose(self, imported: bool, edited: bool) -> None:
        group = self.session.group
        if group is None:
            return
        if imported:
            self.session = replace(self.session, prompt=group.prompt, columns=group.columns)
        if edited:
            self.session = replace(self.session, edited=group.prompt)

    def _pattern(self, regex: str | None, kind: str | None) -> None:
        kinds: tuple[PatternKind, ...] = get_args(PatternKind)
        known = next((one for one in kinds if one == kind), self.scoring.kind)
        self.scoring = replace(self.scoring, regex=self.scoring.regex if regex is None else regex, kind=known)

    def _credit(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
        self.scoring = replace(
            self.scoring, credit=_credit_form(first) or self.scoring.credit, other=_credit_form(second)
        )

    def _slots(self, rows: Sequence[Any]) -> None:
        self._placed(tuple([_slot_values(row) for row in rows[:SLOTS]] + [EMPTY_SLOT] * (SLOTS - len(rows))))

    def _placed(self, slots: tuple[SlotValues, ...]) -> None:
        self.scoring = replace(self.scoring, slots=slots)
        self.session = replace(self.session, slots=tuple(one.slot for one in slots))


_TEXTS = ("prompt", "policy", "reference")


def _credit_form(kept: Mapping[str, Any]) -> CreditForm | None:
    scheme = kept.get("scheme")
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        return None
    options = _table(kept.get("options"))
    defaults = default_values(scheme)
    values = (
        _fitting(field, options.get(field.name), default) for field, default in zip(FIELDS, defaults, strict=True)
    )
    return CreditForm(scheme, tuple(values))


def _fitting(field: Option, value: Any, default: Any) -> Any:
    if field.kind == "switch":
        return value if isinstance(value, bool) else default
    if field.kind == "choice":
        return value if value in field.choices else default
    return default if _number(value) is None else value


def _slot_values(row: Any) -> SlotValues:
    """A row of the list of rewards; an empty one for what is none."""
    if not isinstance(row, dict) or row.get("kind") not in ("step", "outcome") or not isinstance(row.get("name"), str):
        return EMPTY_SLOT
    code, builtin = row.get("code"), row.get("builtin")
    weight = _number(row.get("weight"))
    on = row.get("on") is not False
    if "given" in row:
        return _given_values(row, on, weight)
    if not isinstance(code, str):
        try:
            return replace(builtin_slot(str(builtin)), on=on, weight=weight)
        except WorkbenchError:
            return EMPTY_SLOT
    slot = RewardSlot(row["name"], row["kind"], builtin if isinstance(builtin, str) else None)
    return SlotValues(slot, on, weight, code)


def _given_values(row: Mapping[str, Any], on: bool, weight: float | None) -> SlotValues:
    """A row of a reward model or of Monte-Carlo values. Consent to run a model's own code is not kept."""
    try:
        given = RewardConfig.model_validate(row["given"])
    except ValidationError:
        return EMPTY_SLOT
    if given.code is not None or given.is_builtin:
        return EMPTY_SLOT
    if given.model is not None:
        given = given.model_copy(update={"model": given.model.model_copy(update={"trust_remote_code": False})})
    slot = RewardSlot(given.name, given.kind, given=given, in_run=row.get("in_run") is not False)
    return SlotValues(slot, on, weight, "")


def _memory(text: str) -> dict[str, Any]:
    if not text or len(text) > LARGEST_KEPT:
        return {}
    try:
        return _table(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9 else None


def _whole(value: Any) -> int | None:
    try:
        return max(0, min(int(value), 10**9))
    except (TypeError, ValueError, OverflowError):
        return None
