"""The page's widgets, which the tabs add as they are built. No tab knows another's module."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Form(SimpleNamespace):
    """The draft and the page's widgets by name; those of a part of the page are a namespace of their own.

    ``draft`` holds the ``Tab``, ``bound`` has the fields that stand in the page as it is built, by path. Drawn forms
    (``form.DrawnForm``) are ``pattern``, ``credit``, ``compare``, ``sampling``, ``isolation``, ``run``, and
    ``task_rows``, which says how the task's rows are read, the first of which ``task_preview`` shows; they are folded
    away in ``task_fold``, which is in ``more``.

    ``rewards`` is the list of rewards, drawn in ``rows``, and the ``editor`` of one of them. Nobody sees some of its
    fields: ``listed`` says which rows there are (``handlers.rewards.listed``), ``edits`` holds what their own fields
    were changed to since, by key; ``editing`` and ``removing`` are keys.

    What was replaced or removed last is said in ``undo_notes``, beside each tab's buttons, with one that brings it
    back; ``undo_before`` is the draft before that.
    """

    @property
    def inputs(self) -> list[Any]:
        """What ``form.read`` takes."""
        return [self.draft]

    @property
    def forms(self) -> list[Any]:
        """Those that are drawn; all but the last two as the page opens."""
        inspected = [self.pattern, self.credit, self.compare, self.sampling, self.isolation]
        return [*inspected, self.task_rows, self.run]

    @property
    def outputs(self) -> list[Any]:
        """What ``form.shown`` may set."""
        example = [self.task, self.example, self.columns, self.preset, self.task_preview]
        versions = [part for form in self.forms for part in (form.version, form.news)]
        undo = [self.undo_before, *self.undo_notes]
        return [*example, *self.bound.values(), self.rewards.listed, *versions, *undo]

    def undo_values(self, before: Any, said: str) -> dict[Any, Any]:
        """What has the notes say what was replaced; ``said`` is their value."""
        return {self.undo_before: before} | dict.fromkeys(self.undo_notes, said)
