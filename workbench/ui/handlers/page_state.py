"""What a browser tab keeps of the page, and the link to it: a tab's draft as plain values.

A browser tab keeps its draft itself (``share.js``) as ``page``, and as ``address`` the link that its address is. A link
holds the draft as far as it fits into an address, and never code, a policy, a file's path nor a Hub id. Groups are kept
in the workspace under the hash of what they hold. ``page_restore`` reads all of it back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from workbench.config.run import METHODS
from workbench.data import TASKS
from workbench.schema import Group
from workbench.ui.handlers.credit import changed
from workbench.ui.handlers.draft import PAGE_FIELDS, Draft
from workbench.ui.handlers.example import CUSTOM, find_task, first_draft, preset_of
from workbench.ui.handlers.reward_rows import RewardRow
from workbench.ui.handlers.rewards import with_task
from workbench.ui.handlers.tree import leaves, value_at

LONGEST_REGEX = 300
"""Characters of a pattern that go into a link."""
LONGEST_SETTINGS = 1_500
"""Characters of the settings in a link."""
LINK = (
    *("task", "example", "saved", "preset", "regex", "kind"),
    *("scheme", "options", "compare", "compare-options", "settings"),
)
"""The parameters of a link."""
_LINKED = ("method.", "optimiser.", "prompt.", "run.", *(f"{name}." for name in METHODS))
_NOT_LINKED = (
    "method.pattern.regex",
    "method.pattern.kind",
    "run.report_to",
    "run.device",
    *(f"{name}.trl" for name in METHODS),
)


def dump(draft: Draft, saved: str) -> dict[str, Any]:
    """The draft as plain values. ``saved`` names the kept group, "" for the page's first."""
    group = draft.group
    return {
        "config": draft.tree,
        "credit": draft.credit,
        "compare": draft.compare,
        "rewards": [_row_dump(row) for row in draft.rows],
        "fields": {f"page.{name}": getattr(draft, name) for name in PAGE_FIELDS},
        "index": draft.index,
        "saved": saved,
        "imported": group is not None and _is_example_of(draft, group),
        "edited": draft.edited is not None,
    }


def link_of(draft: Draft, saved: str) -> dict[str, str]:
    """The parameters of a link to what is on screen, as far as they fit into an address."""
    preset = preset_of(draft.regex, draft.kind)
    pattern = {"regex": draft.regex, "kind": draft.kind} if len(draft.regex) <= LONGEST_REGEX else {}
    link = {"task": draft.task, "example": str(draft.index), "saved": saved}
    link |= pattern if preset == CUSTOM else {"preset": preset}
    link |= {"scheme": draft.credit["scheme"], "options": _compact(changed(draft.credit))}
    if draft.compare is not None:
        link |= {"compare": draft.compare["scheme"], "compare-options": _compact(changed(draft.compare))}
    settings = _compact(_linked_settings(draft))
    link["settings"] = settings if len(settings) <= LONGEST_SETTINGS else ""
    return {name: value for name, value in link.items() if value}


def _linked_settings(draft: Draft) -> dict[str, Any]:
    """What differs from how the task opens, by path; of the rewards, those that are built in."""
    usual = _usual(draft.task)
    settings = {
        path: value for path, value in leaves(draft.tree) if is_linked(path) and value != value_at(usual.tree, path)
    }
    listed = _builtin_rows(draft)
    if listed and listed != _builtin_rows(usual):
        settings["rewards"] = listed
    return settings


def _builtin_rows(draft: Draft) -> list[dict[str, Any]]:
    return [_row_dump(row) for row in draft.rows if row.is_builtin]


@lru_cache(maxsize=8)
def _usual(task: str) -> Draft:
    """The page as a task opens it; as it opens first for a task that would have to be read."""
    return with_task(first_draft(), find_task(task)) if task in TASKS else first_draft()


def _is_example_of(draft: Draft, group: Group) -> bool:
    return (draft.prompt, dict(draft.columns)) == (group.prompt, dict(group.columns))


def _compact(values: Mapping[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":")) if values else ""


_USUAL_ROW = {"on": True, "in_run": True, "unfed": False}


def _row_dump(row: RewardRow) -> dict[str, Any]:
    unusual = {name: getattr(row, name) for name, usual in _USUAL_ROW.items() if getattr(row, name) != usual}
    return {"fields": dict(row.fields), **unusual}


def is_linked(path: str) -> bool:
    """Whether a link may hold the setting of a path."""
    return path.startswith(_LINKED) and not path.startswith(_NOT_LINKED)
