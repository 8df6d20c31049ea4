"""The button that opens a configuration file, and the one that trusts the code it brings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.ui.handlers.config_import import Opened, open_config, opened_note, take_over, trust_opened
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, note, note_value
from workbench.ui.tabs.form import Updates, read, shown
from workbench.ui.tabs.widgets import ConfigImportWidgets, Form


def build_import() -> ConfigImportWidgets:
    with gr.Row(elem_classes=["fields"]):
        opener = gr.UploadButton(
            "Open a configuration …",
            file_types=[".yaml", ".yml"],
            elem_id="open-config",
            elem_classes=["small"],
            min_width=0,
        )
        trust = gr.Button("Trust", visible=False, elem_id="trust-config", elem_classes=["small"], min_width=0)
    return ConfigImportWidgets(opener, trust, note("open-note"))


def wire_import(
    widgets: ConfigImportWidgets, form: Form, services: Services, then_score: Callable[[Any], None]
) -> None:
    waiting = gr.State(None)
    outputs = [waiting, widgets.note, widgets.trust, *form.outputs]

    def result(opened: Opened | None, note: Note) -> Updates:
        waits = opened is not None and bool(opened.foreign)
        return {
            waiting: opened if waits else None,
            widgets.note: note_value(note),
            widgets.trust: gr.update(visible=waits),
        }

    def show(opened: Opened, held: tuple[Any, ...]) -> Updates:
        if opened.foreign:
            return result(opened, opened_note(opened))
        before = read(*held)
        after, note = take_over(before, opened)
        replaced = f"{opened.name} has taken the settings' place"
        return shown(form, before, after, whole=True, undo=replaced) | result(opened, note)

    def open_file(file: str, *held: Any) -> Updates:
        try:
            services.refuse_visitors("open no files")
            return show(open_config(Path(file).name, Path(file).read_bytes(), services.trust), held)
        except ConfigError as error:
            return result(None, Note(str(error)))

    def trust(opened: Opened | None, *held: Any) -> Any:
        if opened is None:
            return gr.skip()
        try:
            return show(trust_opened(opened, services.trust), held)
        except ConfigError as error:
            return result(None, Note(str(error)))

    then_score(widgets.opener.upload(open_file, [widgets.opener, *form.inputs], outputs, queue=False, **PRIVATE))
    then_score(widgets.trust.click(trust, [waiting, *form.inputs], outputs, queue=False, **PRIVATE))
