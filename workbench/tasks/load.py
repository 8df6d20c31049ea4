"""``load_task``: an embedded task by name, or one made of a data file, a folder or a data set of the Hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from workbench.config import TaskSection
from workbench.config.task import DRAWN
from workbench.errors import TaskError, did_you_mean, shown
from workbench.places import local_path
from workbench.tasks.hub import PREFIX
from workbench.tasks.mapping import drawn
from workbench.tasks.reading import task_of_hub, task_of_path, task_of_rows
from workbench.tasks.task import TASKS, Examples, Task

T = TypeVar("T")
_KEPT: ContextVar[dict[str, Task] | None] = ContextVar("kept tasks", default=None)
"""Of files, by their sections."""


def load_task(task: str | Path | TaskSection | Iterable[Mapping[str, Any]], **how: Any) -> Task:
    """An embedded task by name, a data file or a folder by path, or a data set of the Hub: ``hub:openai/gsm8k``.

    Also rows that are in memory: a list of objects, or a ``datasets.Dataset``. A run needs them in a file.

    ``how`` says which rows are taken and what their columns become, as the fields of a run's section ``task`` do
    (``columns={"answer": "reward_model.ground_truth"}``, ``split="test"``); such a section is taken in place of a name.
    A data set's rows are read when they are asked for (see ``tasks.hub`` for the forms of its name). One whose answers
    are worked as GSM8K's are gets the rewards and the step pattern of the task ``gsm8k``.

    Raises:
        TaskError: if there is none of these, or a row has no ``prompt``; of the Hub's rows, when it is read.
        ConfigError: for a field of ``how`` that there is not, or that does not fit.
    """
    if not isinstance(task, str | Path | TaskSection):
        return task_of_rows(task, TaskSection.parse({"name": "rows", **how}))
    section = task if isinstance(task, TaskSection) else TaskSection.parse({"name": str(task), **how})
    name = section.name
    if name in TASKS:
        return _embedded(TASKS[name](), section)
    if name.startswith(PREFIX):
        return task_of_hub(name, section)
    path, kept = local_path(name), _KEPT.get()
    if path is None:
        raise TaskError(
            f"no task or file called {shown(name)}{did_you_mean(name, TASKS)}; tasks are {', '.join(TASKS)}, or give a "
            f"data file's path, or {PREFIX}OWNER/NAME for a data set of the Hub"
        )
    key = section.model_dump_json()
    if kept is not None and key in kept:
        return kept[key]
    read = task_of_path(path, section)
    if kept is not None:
        kept[key] = read
    return read


@contextmanager
def tasks_kept() -> Iterator[None]:
    """Within it, a task that was loaded is not read again."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def load_rows(section: TaskSection) -> Task:
    """The task with the rows to train on: that of ``data``, where there is such a file. Raises as ``load_task``."""
    if section.data is None:
        return load_task(section)
    try:
        return load_task(TaskSection(name=section.data, columns=section.data_columns))
    except TaskError as error:
        raise TaskError(str(error).replace("task.columns", "task.data_columns")) from error


def _embedded(task: Task, section: TaskSection) -> Task:
    """The task with the rows that are drawn. Raises TaskError for fields that its rows, which are made, do not take."""
    if others := section.reads(but=DRAWN):
        raise TaskError(
            f"task.{others[0]}: the embedded task {task.name!r} has its own columns and splits; leave "
            f"{others[0]} out, or give a file"
        )
    task = replace(task, checker=section.checker or task.checker)
    if (section.rows, section.held_out_rows) == (None, None):
        return task

    def part(rows: Sequence[T], count: int | None, what: str) -> Sequence[T]:
        if count is None:
            return rows
        indices = drawn(range(len(rows)), count, section.sample_seed, what)
        return Examples(len(indices), lambda i: rows[indices[i]])

    return replace(
        task,
        examples=part(task.examples, section.rows, "rows"),
        held_out=part(task.held_out, section.held_out_rows, "held-out rows"),
        data={kind: part(rows, section.rows, "rows") for kind, rows in task.data.items()},
        held_out_data={
            kind: part(rows, section.held_out_rows, "held-out rows") for kind, rows in task.held_out_data.items()
        },
    )
