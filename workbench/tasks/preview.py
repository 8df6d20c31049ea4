"""What a task's section makes of its data, to be looked at before a run: a few rows, and how many are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from workbench.schema import Example
from workbench.schema.numbers import counted
from workbench.tasks.kinds import Kind
from workbench.tasks.task import Task


@dataclass(frozen=True)
class Preview:
    """``rows`` are the first ones to train on: their ``prompt`` and what else their kind has, ``columns`` the others'
    names and values. ``layout`` is the one that was recognised, ``skipped`` how many rows are left out, by field.
    """

    name: str
    kind: Kind
    layout: str
    training_rows: int
    held_out_rows: int
    skipped: Mapping[str, int]
    unchecked: str
    rows: tuple[Mapping[str, Any], ...]

    @property
    def said(self) -> str:
        """How many rows there are, in a line."""
        words = {"prompts": "prompt", "labelled_steps": "labelled answer"}
        noun = words.get(self.kind, self.kind.removesuffix("s"))
        parts = [f"{counted(self.training_rows, noun)} to train on, {self.held_out_rows:,} held out"]
        parts += [f"{count:,} left out by {field}" for field, count in self.skipped.items() if count]
        parts += [f"layout {self.layout}"] if self.layout else []
        if self.unchecked and self.kind == "prompts":
            parts.append(f"{self.unchecked}: accuracy is not measured, and a reward must be chosen")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def preview_of(task: Task, count: int = 5) -> Preview:
    """Raises TaskError for a row among the first ``count`` that is not of its kind."""
    rows = task.rows(task.kind)
    return Preview(
        task.name,
        task.kind,
        task.layout,
        len(rows),
        len(task.rows(task.kind, held_out=True)),
        dict(task.skipped),
        task.unchecked,
        tuple(_shown(task, rows[i], i) for i in range(min(count, len(rows)))),
    )


def _shown(task: Task, row: Any, i: int) -> Mapping[str, Any]:
    example = task[i]
    fields = {} if isinstance(row, Example) else asdict(row)
    fields.pop("prompt", None)
    columns = {name: value for name, value in example.columns.items() if name not in fields}
    answer = {"answer": columns.pop("answer")} if "answer" in columns else {}
    return {
        "prompt": example.prompt if isinstance(row, Example) else row.prompt,
        **fields,
        **answer,
        "columns": columns,
    }
