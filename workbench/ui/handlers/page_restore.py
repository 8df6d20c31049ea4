"""The page restored: from what a browser tab kept, of any version, or from a link.

What comes back, from a browser or an address, is not trusted: what does not fit is left out and said. ``page_state``
says what a tab keeps and what a link holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from workbench.config import RewardConfig
from workbench.data import TASKS
from workbench.errors import WorkbenchError
from workbench.steps import PRESETS
from workbench.ui.handlers.credit import read_section
from workbench.ui.handlers.draft import PAGE_FIELDS, Draft
from workbench.ui.handlers.example import choose_example, find_task, first_draft
from workbench.ui.handlers.fields import fits, paths_of, task_form
from workbench.ui.handlers.page_state import LINK, LONGEST_REGEX, is_linked
from workbench.ui.handlers.reward_rows import RewardRow, row_of
from workbench.ui.handlers.rewards import keep_written, with_task
from workbench.ui.handlers.session import GroupStore
from workbench.ui.handlers.tree import leaves, value_at, with_path

LARGEST_KEPT = 2_000_000
"""Characters of a browser's own copy that are read."""


@dataclass(frozen=True)
class Restored:
    """The draft as it was, or as a link shows it; ``problems`` are what could not be had."""

    draft: Draft
    problems: tuple[str, ...] = ()


def restore(stored: str, query: Mapping[str, str], store: GroupStore) -> Restored | None:
    """The page that a browser tab kept, or the one of a link's parameters; None where there is neither.

    A tab keeps its own address, too: any other one is a link, and shows the same page whatever tab it is opened in.
    Functions that somebody wrote in the tab stay, switched off.
    """
    memory = _json(stored)
    link = {name: query[name] for name in LINK if query.get(name)}
    if not memory and not link:
        return None
    restoring = _Restoring(store)
    if link in ({}, _table(memory.get("address"))):
        restoring.remember(memory)
    else:
        restoring.follow(link)
        restoring.keep_written(_table(memory.get("page")).get("rewards"))
    return Restored(restoring.draft, tuple(restoring.problems))


class _Restoring:
    """The draft while it is put together, from what was kept or from a link."""

    def __init__(self, store: GroupStore) -> None:
        self.store, self.draft = store, first_draft()
        self.problems: list[str] = []

    def remember(self, memory: Mapping[str, Any]) -> None:
        page = _table(memory.get("page"))
        tree = _table(page.get("config"))
        read_as = {path: value_at(tree, path) for path in paths_of(task_form())}
        self._fields({path: value for path, value in read_as.items() if value is not None})
        self._example(_text(value_at(tree, "task.name")), _index(page.get("index")))
        self._settings(tree)
        self._group(_text(page.get("saved")))
        self._whose(bool(page.get("imported")), bool(page.get("edited")))
        credit = read_section(_table(page.get("credit"))) or self.draft.credit
        self.draft = replace(self.draft, credit=credit, compare=read_section(_table(page.get("compare"))))
        if isinstance(page.get("rewards"), list):
            self.draft = replace(self.draft, rows=self._rows(page["rewards"]))
        self._fields(
            {
                path: value
                for path, value in _table(page.get("fields")).items()
                if path.removeprefix("page.") in PAGE_FIELDS
            }
        )

    def follow(self, query: Mapping[str, str]) -> None:
        task = query.get("task")
        if task and task not in TASKS and task != self.draft.task:
            # A link may come from anybody; it opens nothing that the page would not offer by itself.
            self.problems.append(f"the link's task {task[:80]!r} is not built in; choose it under Task if you know it")
            task = None
        before = self.draft.task
        if task or query.get("example"):
            self._example(task or before, _index(query.get("example")) or 0)
        if self.draft.task != before:  # a link to another task brings what choosing the task would
            self.draft = with_task(self.draft, find_task(self.draft.task_section()))
        if query.get("saved"):
            self._group(query["saved"])
        preset = PRESETS.get(query.get("preset", ""))
        if preset is not None:
            self.draft = self.draft.with_pattern(preset.pattern.regex, preset.pattern.kind)
        elif query.get("regex"):
            pattern = {"method.pattern.regex": query["regex"][:LONGEST_REGEX], "method.pattern.kind": query.get("kind")}
            self._fields({path: value for path, value in pattern.items() if value is not None})
        if query.get("scheme"):
            first = {"scheme": query["scheme"], "options": _json(query.get("options", ""))}
            second = {"scheme": query.get("compare"), "options": _json(query.get("compare-options", ""))}
            self.draft = replace(
                self.draft, credit=read_section(first) or self.draft.credit, compare=read_section(second)
            )
        settings = _json(query.get("settings", ""))
        rows = settings.pop("rewards", None)
        if isinstance(rows, list):
            self.draft = replace(self.draft, rows=self._rows([row for row in rows if _is_builtin(row)]))
        known = dict(leaves(self.draft.tree))
        tree: dict[str, Any] = {}
        for path, value in settings.items():
            if path in known and is_linked(path):
                tree = with_path(tree, path, value)
        self._settings(tree)

    def _example(self, task: str | None, index: int | None) -> None:
        if task is None:
            return
        try:
            self.draft = choose_example(
                self.draft, index if index is not None else 0, task=find_task(self.draft.task_section(task))
            )
        except WorkbenchError as error:
            self.problems.append(str(error))

    def _settings(self, tree: Mapping[str, Any]) -> None:
        """What a tree sets, where it fits; the task is not among it. Consent to run a policy's own code is not kept."""
        values = {path: value for path, value in leaves(tree) if path != "task.name"}
        if values.pop("policy.trust_remote_code", False):
            self.problems.append("consent to run the policy's own code is not kept; open its configuration again")
        self._fields(values)

    def _fields(self, values: Mapping[str, Any]) -> None:
        for path, value in values.items():
            if value == value_at(self.draft.tree, path):
                continue
            if fits(path, value):
                self.draft = self.draft.with_value(path, value)
            else:
                self.problems.append(_left_out(path, value))

    def _group(self, saved: str | None) -> None:
        if not saved:
            return
        group = self.store.find(saved)
        if group is None:
            self.problems.append(f"the group {saved[:20]!r} is not kept in this workspace (any more)")
        else:
            self.draft = replace(self.draft, group=group)

    def _whose(self, imported: bool, edited: bool) -> None:
        group = self.draft.group
        if group is None:
            return
        if imported:
            self.draft = replace(self.draft, prompt=group.prompt, columns=group.columns)
        if edited:
            self.draft = replace(self.draft, edited=group.prompt)

    def keep_written(self, rows: Any) -> None:
        """What somebody wrote in the tab that a link was opened in."""
        if isinstance(rows, list):
            kept, said = keep_written(self.draft.rows, self._rows(rows))
            self.draft = replace(self.draft, rows=kept)
            self.problems += [said] if said else []

    def _rows(self, rows: list[Any]) -> tuple[RewardRow, ...]:
        """The rows that can be read; older pages kept their empty places, too."""
        return tuple(row for row in map(self._row, rows) if row is not None)

    def _row(self, data: Any) -> RewardRow | None:
        """A row of the list of rewards. Consent to run a reward model's own code is not kept."""
        if data is None:
            return None
        try:
            fields = dict(data["fields"])
            weight = _number(fields.pop("weight", 1.0))
            row = row_of(RewardConfig.model_validate(fields))
            assert row.code is not None  # of a built-in reward that exists
        except (KeyError, TypeError, ValueError, WorkbenchError):
            self.problems.append(f"a reward function was left out: {str(data)[:80]!r} is none")
            return None
        settled = dict(row.fields) | ({"code": fields["code"]} if isinstance(fields.get("code"), str) else {})
        if row.model is not None:
            settled["model"] = {name: held for name, held in settled["model"].items() if name != "trust_remote_code"}
        settled |= {} if weight == 1 else {"weight": weight}
        on, in_run = (data.get(name) is not False for name in ("on", "in_run"))
        return RewardRow(settled, on, in_run, unfed=data.get("unfed") is True)


def _is_builtin(row: Any) -> bool:
    fields = _table(_table(row).get("fields"))
    return fields.keys() <= {"name", "kind", "weight", "schedule", "options"}


def _left_out(path: str, value: Any) -> str:
    return f"{path[:80]}: {str(value)[:80]!r} does not fit and was left out"


# ── plain values ─────────────────────────────────────────────────────────────────────────────────────────────────


def _json(text: str) -> dict[str, Any]:
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


def _index(value: Any) -> int | None:
    try:
        return max(0, min(int(value), 10**9))
    except (TypeError, ValueError, OverflowError):
        return None
