"""Rows as they are → rows with the columns of ``tasks.kinds``, by a task's section: which are taken, what they become.

In this order: the layout is recognised, columns are made of others, the prompt is written by its template, and rows
that the filter or the longest prompt leaves out are counted. Nothing is known of where rows come from.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from workbench.config import TaskSection
from workbench.config.task import Condition, parse_filter
from workbench.errors import TaskError, cut, did_you_mean
from workbench.rollouts import Row
from workbench.rollouts.columns import columns_of, has, names_of, value_at
from workbench.schema import Prompt
from workbench.tasks.kinds import prompt_of
from workbench.tasks.layouts import recognised

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_INSTEAD = {"prompt", "completion", "chosen", "rejected"}
FILTERED, TOO_LONG = "filter", "max_prompt_characters"
"""The fields for which rows are left out."""


@dataclass(frozen=True)
class RowMapping:
    """What becomes of a row, by a task's section."""

    section: TaskSection

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        return parse_filter(self.section.filter) if self.section.filter else ()

    @property
    def leaves_out(self) -> bool:
        """Whether rows may be left out, so that all have to be looked at."""
        return bool(self.conditions) or self.section.max_prompt_characters is not None

    def layout(self, row: Row) -> str:
        return recognised(row.values)[0]

    def row(self, row: Row) -> Row:
        """Raises TaskError, naming the row and what it has, for a column that is not there."""
        columns, template = self.section.columns, self.section.prompt_template
        layout, values = recognised(row.values)
        values |= columns_of(row.where, row.values, columns, "task.columns")
        if layout == "messages" or (columns.keys() & _INSTEAD and "messages" not in columns):
            values.pop("messages", None)  # which would go before the others
        if template is not None:
            values["prompt"] = filled(template, row.where, values)
            values.pop("messages", None)
        return replace(row, values=values)

    def reason(self, row: Row) -> str | None:
        """Why a row that was mapped is left out; None for one that is taken. Raises TaskError as ``prompt_of``."""
        if not all(condition.holds(value_at(row.values, condition.column)) for condition in self.conditions):
            return FILTERED
        most = self.section.max_prompt_characters
        if most is not None and characters(prompt_of(row.where, row.values)[1]) > most:
            return TOO_LONG
        return None


def taken(rows: Sequence[Row], mapping: RowMapping) -> tuple[Sequence[int], Counter[str]]:
    """Which of the mapped rows are taken, and how many are left out for which reason.

    Raises TaskError for a filter on a column that no row has.
    """
    if not mapping.leaves_out:
        return range(len(rows)), Counter()
    indices, skipped = [], Counter[str]()
    missing = {condition.column for condition in mapping.conditions}
    for i, row in enumerate(rows):
        missing = {column for column in missing if not has(row.values, column)}
        reason = mapping.reason(row)
        if reason is None:
            indices.append(i)
        else:
            skipped[reason] += 1
    if rows and missing:
        column, names = sorted(missing)[0], names_of(rows[0].values)
        raise TaskError(
            f"task.filter: no row has the column {column!r}{did_you_mean(column, names)}; the first has "
            f"{cut(', '.join(names), 300)}"
        )
    return indices, skipped


def drawn(indices: Sequence[int], count: int | None, seed: int | None, what: str) -> Sequence[int]:
    """``count`` of the indices in a drawn order, the first ones without a seed; all in order without a count."""
    if count is None:
        return indices
    if seed is None:
        return indices[:count]
    return random.Random(f"{what}/{seed}").sample(indices, min(count, len(indices)))


def filled(template: str, where: str, values: dict[str, Any]) -> str:
    """The template with columns in the place of their names in braces; ``{{`` is a brace, ``\\n`` a line's end.

    Raises TaskError for a name that is no column.
    """

    def column(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name = match[1].strip()
        if not has(values, name):
            names = names_of(values)
            raise TaskError(
                f"task.prompt_template: {where} has no {name!r}{did_you_mean(name, names)}; it has "
                f"{cut(', '.join(names), 300)}. Write {{{{ for a brace"
            )
        return _as_text(value_at(values, name))

    return _FIELD.sub(column, template.replace("\\n", "\n"))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def characters(prompt: Prompt) -> int:
    """Characters of a prompt's text, or of all its messages' texts."""
    return len(prompt) if isinstance(prompt, str) else sum(len(message["content"]) for message in prompt)
