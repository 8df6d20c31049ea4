"""The button that opens a configuration file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.handlers.sharing import open_config
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
    return ConfigImportWidgets(opener, note("open-note"))


def wire_import(
    widgets: ConfigImportWidgets, form: Form, services: Services, then_score: Callable[[Any], None]
) -> None:
    def open_file(file: str, *held: Any) -> Updates:
        before, name = read(*held), Path(file).name
        try:
            after, said = open_config(before, name, Path(file).read_bytes())
        except ConfigError as error:
            return {widgets.note: note_value(Note(str(error)))}
        replaced = f"loaded {name}"
        return shown(form, before, after, undo=replaced) | {widgets.note: note_value(said)}

    outputs = [widgets.note, *form.outputs]
    then_score(widgets.opener.upload(open_file, [widgets.opener, *form.inputs], outputs, queue=False, **PRIVATE))
