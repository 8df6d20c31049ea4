"""The page's widgets, as records: what the tabs build, and their events read and set. No tab knows another's module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr


@dataclass(frozen=True)
class RewardWidgets:
    """The list of rewards, drawn in ``rows``, and the ``editor`` of one of them.

    Fields that nobody sees: ``listed`` says which rows there are (``handlers.rewards.listed``), ``edits`` holds what
    their own fields were changed to since, by key; ``editing`` and ``removing`` are keys.
    """

    rows: gr.Column
    editor: gr.Column
    listed: gr.Textbox
    edits: gr.Textbox
    editing: gr.Textbox
    removing: gr.Textbox
    add: gr.Dropdown
    add_note: gr.HTML
    said: gr.HTML
    watch: gr.HTML


@dataclass(frozen=True)
class UndoWidgets:
    """What was replaced or removed last, said beside each tab's buttons with one that brings it back.

    ``before`` is the draft before that.
    """

    before: gr.State
    notes: tuple[gr.HTML, ...]

    @property
    def outputs(self) -> list[Any]:
        return [self.before, *self.notes]

    def values(self, before: Any, said: str) -> dict[Any, Any]:
        """What these are set to; ``said`` is the value of the notes."""
        return {self.before: before} | dict.fromkeys(self.notes, said)


@dataclass(frozen=True)
class Form:
    """The draft and the widgets bound to paths of it, with all that shows a part of it.

    ``draft`` holds the ``Tab``, ``bound`` has the fields that stand in the page as it is built, by path, and ``forms``
    those that are drawn: ``task_rows`` says how the task's rows are read, the first of which ``task_preview`` shows;
    they are folded away in ``task_fold``, which is in ``more``.
    """

    draft: gr.State
    task: gr.Dropdown
    example: gr.Number
    columns: gr.HTML
    preset: gr.Dropdown
    bound: Mapping[str, Any]
    rewards: RewardWidgets
    pattern: Any
    credit: Any
    compare: Any
    sampling: Any
    isolation: Any
    task_rows: Any
    run: Any
    task_preview: gr.HTML
    task_fold: gr.Accordion
    more: gr.Accordion
    undo: UndoWidgets

    @property
    def inputs(self) -> list[Any]:
        """What ``form.read`` takes."""
        return [self.draft]

    @property
    def forms(self) -> list[Any]:
        """Those that are drawn (``form.DrawnForm``); all but the last two as the page opens."""
        inspected = [self.pattern, self.credit, self.compare, self.sampling, self.isolation]
        return [*inspected, self.task_rows, self.run]

    @property
    def outputs(self) -> list[Any]:
        """What ``form.shown`` may set."""
        example = [self.task, self.example, self.columns, self.preset, self.task_preview]
        versions = [part for form in self.forms for part in (form.version, form.news)]
        return [*example, *self.bound.values(), self.rewards.listed, *versions, *self.undo.outputs]


@dataclass(frozen=True)
class DoorWidgets:
    """The box that takes somebody's own data; what is known of an opened file is drawn in ``details``."""

    upload: gr.UploadButton
    path: gr.Dropdown
    note: gr.HTML
    cancel: gr.Button
    details: gr.Column


@dataclass(frozen=True)
class ShareWidgets:
    kept: gr.HTML
    notebook: gr.Button
    code: gr.HTML
    problem: gr.HTML


@dataclass(frozen=True)
class ProbeWidgets:
    go: gr.Button
    cancel: gr.Button
    demo: gr.Button
    note: gr.HTML
    table: gr.HTML


@dataclass(frozen=True)
class FindingsWidgets:
    """Of pre-flight and of the clinic."""

    go: gr.Button
    cancel: gr.Button
    note: gr.HTML
    findings: gr.HTML


@dataclass(frozen=True)
class InspectWidgets:
    """What the Inspect tab has beside the fields of the draft."""

    previous: gr.Button
    following: gr.Button
    chance: gr.Button
    pattern_note: gr.HTML
    presets: gr.HTML
    isolation: gr.HTML
    credit_note: gr.HTML
    formula: gr.HTML
    strip: gr.HTML
    drawing: gr.HTML
    sample: gr.Button
    cancel: gr.Button
    train: gr.Button
    sample_note: gr.HTML
    undo_note: gr.HTML
    start_over: gr.Button
    probes: ProbeWidgets
    clinic: FindingsWidgets
    door: DoorWidgets
    share: ShareWidgets


@dataclass(frozen=True)
class TrainWidgets:
    """What the Train tab has beside the fields of the draft."""

    inherited: gr.HTML
    rows: gr.HTML
    estimate: gr.HTML
    preflight: FindingsWidgets
    start: gr.Button
    start_note: gr.HTML
    undo_note: gr.HTML
    notebook: gr.Button
    code: gr.HTML
    live: gr.HTML
