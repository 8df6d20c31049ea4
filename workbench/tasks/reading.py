"""Data → a task: rows of a file, a folder or a data set of the Hub, read as a task's section says.

Rows that nothing is said of are taken as they are; the last tenth of a file's (at least one) is held out, where it has
no split to hold out. Rows of a file are all looked at, those of the Hub when they are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.config import RewardConfig, TaskSection
from workbench.errors import TaskError
from workbench.rollouts import Row, read_splits, row_of
from workbench.rollouts.folders import HELD_OUT
from workbench.rollouts.labelled import stepwise_rows
from workbench.schema import Example
from workbench.tasks.hub import hub_rows
from workbench.tasks.kinds import READERS, Kind, kind_of, prompt_of
from workbench.tasks.mapping import RowMapping, drawn, taken
from workbench.tasks.task import Examples, Task, answer_columns, worked_answers


@dataclass(frozen=True)
class Rows:
    """Mapped rows of one split, those of ``indices`` being taken. ``prefix`` is how messages call their origin."""

    rows: Sequence[Row]
    indices: Sequence[int]
    prefix: str

    def __len__(self) -> int:
        return len(self.indices)

    def row(self, i: int) -> Row:
        row = self.rows[self.indices[i]]
        return replace(row, where=f"{self.prefix} {row.where}")

    def example(self, i: int) -> Example:
        row = self.row(i)
        name, prompt = prompt_of(row.where, row.values)
        columns = {column: value for column, value in row.values.items() if column != name}
        if "answer" in columns:
            columns |= answer_columns(columns)
        return Example(prompt, columns)

    def typed(self, kind: Kind) -> Examples[Any]:
        def read(i: int) -> Any:
            row = self.row(i)
            return READERS[kind](row.where, row.values)

        return Examples(len(self), read)

    def part(self, indices: Sequence[int]) -> Rows:
        return replace(self, indices=indices)


def task_of_rows(rows: Iterable[Mapping[str, Any]], section: TaskSection) -> Task:
    """Rows that are there already: a list of objects, or a data set of ``datasets``. Raises as ``task_of_path``."""
    read = [row_of("rows", f"row {number}", row) for number, row in enumerate(rows, 1)]
    return _task(section.name, _expanded(read), [], section, section.name, lazy=False)


def task_of_path(path: Path, section: TaskSection) -> Task:
    """Every row is looked at. Raises TaskError naming the first that is wrong."""
    held_out = section.held_out_split or (HELD_OUT if path.is_dir() else None)
    splits = [section.split or "", *([] if held_out is None else [held_out])]
    train, *measured = map(_expanded, read_splits(path, splits))
    return _task(str(path), train, measured[0] if measured else [], section, path.name, lazy=False)


def _expanded(rows: Sequence[Row]) -> list[Row]:
    return [Row(row.where, values) for row in rows for values in stepwise_rows(row.where, row.values)]


def task_of_hub(name: str, section: TaskSection) -> Task:
    """Rows are read when they are asked for, all of them where some may be left out, or become several, as those of
    data sets with labelled steps do. Raises TaskError."""
    dataset = hub_rows(name, section.split, section.held_out_split)
    train, held_out = dataset.rows, dataset.held_out or ()
    if len(train) and stepwise_rows(train[0].where, train[0].values) != [train[0].values]:
        train, held_out = _expanded(train), _expanded(held_out)
    return _task(name, train, held_out, section, name, lazy=True)


def _task(
    name: str, train: Sequence[Row], held_out: Sequence[Row], section: TaskSection, prefix: str, *, lazy: bool
) -> Task:
    mapping = RowMapping(section)
    if not len(train):
        raise TaskError(f"{name} has no rows")
    layout = mapping.layout(train[0])
    skipped = Counter[str]()
    splits = []
    for rows in (train, held_out):
        mapped: Sequence[Row] = Examples(len(rows), lambda i, rows=rows: mapping.row(rows[i]))  # type: ignore[misc]
        mapped = mapped if lazy else list(mapped)
        indices, left_out = taken(mapped, mapping)
        skipped += left_out
        splits.append(Rows(mapped, indices, prefix))
    if not len(splits[0]):
        reasons = " and ".join(f"task.{reason}" for reason in skipped)
        raise TaskError(f"{reasons}: none of the {len(train):,} rows of {name} is left; allow more")
    training, measured = _drawn(splits[0], splits[1], section)
    examples: Sequence[Example] = Examples(len(training), training.example)
    held: Sequence[Example] = Examples(len(measured), measured.example)
    looked_at = [(rows[0],) if lazy and len(rows) else list(rows) for rows in (examples, held)]
    golds = [[row.columns.get("answer") for row in rows] for rows in looked_at]
    unchecked = next(filter(None, map(_unchecked, (training, measured), golds)), "")
    worked = not unchecked and "answer" in training.row(0).values and "####" in str(training.row(0).values["answer"])
    if not lazy:
        examples, held = looked_at
    task = _with_defaults(name, examples, held, worked, unchecked, str(golds))
    task = replace(task, layout=layout, skipped=dict(skipped), checker=section.checker or task.checker)
    kind = kind_of(training.row(0).values)
    if kind == "prompts":
        return task
    return replace(task, kind=kind, data={kind: training.typed(kind)}, held_out_data={kind: measured.typed(kind)})


def _drawn(train: Rows, held_out: Rows, section: TaskSection) -> tuple[Rows, Rows]:
    """The rows to train on and those to measure on. Raises TaskError where the second leave none to the first."""
    count, held, seed = section.rows, section.held_out_rows, section.sample_seed
    if len(held_out):
        return (
            train.part(drawn(train.indices, count, seed, "rows")),
            held_out.part(drawn(held_out.indices, held, seed, "held-out rows")),
        )
    indices, total = train.indices, len(train)
    if total == 1:
        return train, train.part([])  # measured on what it is trained on, accuracy would say nothing
    if (count, held) != (None, None):
        indices = drawn(indices, total, seed, "rows")
    kept = kept_for_training(total) if held is None else total - held
    if kept < 1:
        raise TaskError(f"task.held_out_rows: {held} leaves none of {total} rows to train on; lower it")
    return train.part(indices[:kept][:count]), train.part(indices[kept:])


def kept_for_training(count: int) -> int:
    """Number of a file's rows that are not held out, the first ones of ``count``."""
    return count - max(1, count // 10)


def _unchecked(rows: Rows, golds: Sequence[Any]) -> str:
    """Why answers to these rows cannot be checked; "" if each has a right one that is text."""
    for i, gold in enumerate(golds):
        if gold is None or gold == []:
            return f"{rows.row(i).where} has no 'answer'"
        if any(isinstance(one, dict) for one in (gold if isinstance(gold, list) else [gold])):
            return f"the 'answer' of {rows.row(i).where} is an object, which no text can be compared with"
    return ""


def _with_defaults(
    name: str, examples: Sequence[Example], held_out: Sequence[Example], worked: bool, unchecked: str, golds: str
) -> Task:
    """Pattern and rewards by whether rows have an ``answer``, and whether that is worked as GSM8K's or holds LaTeX."""
    if worked:
        return worked_answers(name, examples, held_out)
    checker = "math_equality" if "\\" in golds else "answer_correctness"
    return Task(
        name,
        examples,
        held_out,
        rewards=() if unchecked else (RewardConfig(name=checker, kind="outcome"),),
        scheme="process" if unchecked else "outcome",
        max_completion_length=256,
        unchecked=unchecked,
        checker=checker,
    )
