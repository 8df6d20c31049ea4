"""Drafts of the page as tests need them: a few rows, one scheme, and what else is said."""

import json
from collections.abc import Mapping
from typing import Any

from workbench.schema import RewardKind
from workbench.ui.handlers.example import first_draft
from workbench.ui.handlers.fields import credit_section
from workbench.ui.handlers.page_state import PageState, RewardRow, builtin_row
from workbench.ui.handlers.session import GroupStore
from workbench.ui.handlers.sharing import dump, restore, train_code

PATTERN = r"(?m)^(?:Step \d+|Answer):"


def draft_of(
    *rows: RewardRow, regex: str = PATTERN, kind: str = "starts", scheme: str = "process", **options: Any
) -> PageState:
    """The page as it opens, with these rows (its own, if none), this pattern and this scheme."""
    listed = rows or (builtin_row("step_correctness"), builtin_row("answer_correctness"))
    draft = first_draft().but(rows=tuple(listed), credit=credit_section(scheme, **options))
    return draft.with_pattern(regex, kind)


def own_row(
    code: str, name: str = "mine", kind: RewardKind = "step", weight: float | None = 1.0, *, on: bool = True
) -> RewardRow:
    """A row whose editor holds ``code``; what it is called and scores is what the code says, as after typing it."""
    row = RewardRow({"name": name, "kind": kind, "code": ""})
    return row.with_edits({"on": on, "weight": weight, "code": code})


def with_values(draft: PageState, values: Mapping[str, Any]) -> PageState:
    """Return the draft with what somebody set several fields to, by their paths."""
    for path, value in values.items():
        draft = draft.with_value(path, value)
    return draft


def assert_given_back(draft: PageState, store: GroupStore, link: Mapping[str, str]) -> None:
    """A browser's page, the ``link``, if there is one, and notebook code give back the draft's configuration."""
    for memory, query in ((json.dumps({"page": dump(draft, "")}), {}), ("", link)):
        if memory or query:
            restored = restore(memory, query, store)
            assert (restored.problems, restored.draft.config()) == ((), draft.config())
    code: dict[str, Any] = {}
    exec(train_code(draft.config()).partition("run = ")[0], code)
    assert code["config"] == draft.config()
