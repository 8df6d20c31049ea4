"""How a task's rows are read, on Inspect: the first ones as a run would take them, and another way to read them."""

from __future__ import annotations

import re

from workbench.data import preview_of
from workbench.errors import WorkbenchError, cut, redact
from workbench.files import encode
from workbench.ui.handlers.example import choose_example, find_task
from workbench.ui.handlers.fields import label_of, task_form
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.rewards import with_task
from workbench.ui.payloads import Pairs, RowsPayload
from workbench.views.heatmap import to_json

SHOWN_ROWS = 3
LONGEST = 400
"""Characters of a value that are shown."""
_LABELS = {leaf.name: label_of(leaf) for _, part in task_form() for leaf in part}
_FIELDS = re.compile("|".join(re.escape(path) for path in sorted(_LABELS, reverse=True)))


def preview(draft: PageState) -> str:
    """The first rows of the draft's task, as the page's script draws them, or why they cannot be read."""
    try:
        found = preview_of(find_task(draft.task_section()), SHOWN_ROWS)
    except WorkbenchError as error:
        return refused(error)
    rows: list[Pairs] = []
    for row in found.rows:
        texts = {name: value if isinstance(value, str) else encode(value).decode() for name, value in row.items()}
        columns = [(name, cut(text, LONGEST)) for name, text in texts.items() if name != "columns"]
        rows.append([*columns, ("other columns", cut(", ".join(row["columns"]) or "none", LONGEST))])
    return to_json(RowsPayload(text=found.said, level="info", rows=rows))


def refused(error: WorkbenchError) -> str:
    """In place of rows, why there are none."""
    return to_json(RowsPayload(text=redact(in_page_words(error)), level="error", rows=[]))


def in_page_words(error: WorkbenchError) -> str:
    """Return an error's text with fields that say how rows are read called as on the page."""
    return _FIELDS.sub(lambda match: f"{_LABELS[match[0]]} (under Rows)", str(error))


def read_as(draft: PageState, name: str, before: PageState) -> PageState | None:
    """The draft with an example of the task ``name``, read as its fields say; None where ``before`` was read like that.

    Another task brings its own pattern, rewards and length. Raises WorkbenchError.
    """
    section = draft.task_section(name)
    if section == before.task_section():
        return None
    task = find_task(section)
    if section.name == before.task:
        return choose_example(draft, draft.index, task=task)
    return with_task(choose_example(draft, 0, task=task), task)
