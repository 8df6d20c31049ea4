"""A task whose prompts are as a configuration's ``prompt`` section has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.config import PromptSection
from workbench.config.task import joined
from workbench.schema import Example
from workbench.tasks.kinds import Demonstration, Kind, Pair
from workbench.tasks.task import Examples, Task


def prompted(task: Task, section: PromptSection) -> Task:
    """The task with its prompts, those of demonstrations and pairs too, put as ``section`` says.

    Labelled steps stay: they are read by a reward model, in a format of its own.
    """

    def example(row: Example) -> Example:
        return replace(row, prompt=section.of(row.prompt))

    def demonstration(row: Demonstration) -> Demonstration:
        return replace(row, prompt=section.of(row.prompt), completion=answer(row.completion))

    def pair(row: Pair) -> Pair:
        chosen, rejected = answer(row.chosen), answer(row.rejected)
        return replace(row, prompt=section.of(row.prompt), chosen=chosen, rejected=rejected)

    def answer(text: Any) -> Any:
        return joined(text) if section.apply_template == "never" else text

    if section == PromptSection(template_kwargs=section.template_kwargs):
        return task
    change: dict[Kind, Callable[[Any], Any]] = {"demonstrations": demonstration, "pairs": pair}

    def data(kinds: Mapping[Kind, Sequence[Any]]) -> dict[Kind, Sequence[Any]]:
        return {kind: _each(rows, change[kind]) if kind in change else rows for kind, rows in kinds.items()}

    return replace(
        task,
        examples=_each(task.examples, example),
        held_out=_each(task.held_out, example),
        data=data(task.data),
        held_out_data=data(task.held_out_data),
    )


def _each(rows: Sequence[Any], change: Callable[[Any], Any]) -> Sequence[Any]:
    """Rows changed when they are asked for."""
    return Examples(len(rows), lambda i: change(rows[i]))
