"""The button that opens a configuration file, and the one that trusts the code it brings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.ui.handlers.imports import Opened, open_config, opened_note, trust_opened
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services, Session
from workbench.ui.tabs.common import PRIVATE, note, note_value

if TYPE_CHECKING:
    from workbench.ui.tabs.inspect import InspectTab


@dataclass(frozen=True)
class ImportRow:
    opener: gr.UploadButton
    trust: gr.Button
    note: gr.HTML


def build_import() -> ImportRow:
    with gr.Row(elem_classes=["fields"]):
        opener = gr.UploadButton(
            "Open a configuration …",
            file_types=[".yaml", ".yml"],
            elem_id="open-config",
            elem_classes=["small"],
            min_width=0,
        )
        trust = gr.Button("Trust", visible=False, elem_id="trust-config", elem_classes=["small"], min_width=0)
    return ImportRow(opener, trust, note("open-note"))


def wire_import(row: ImportRow, tab: InspectTab, services: Services, then_score: Callable[[Any], None]) -> None:
    held = gr.State(None)
    outputs = [held, row.note, row.trust, tab.session, tab.regex, tab.kind, *tab.rewards.outputs]

    def show(session: Session, opened: Opened) -> list[Any]:
        said = [opened, note_value(opened_note(opened)), gr.update(visible=bool(opened.foreign))]
        if opened.foreign:
            return [*said, *[gr.skip()] * (len(outputs) - len(said))]
        config, slots = opened.config, opened.slots
        return [
            *said,
            replace(session, slots=tuple(one.slot for one in slots)),
            config.pattern.regex,
            config.pattern.kind,
            *tab.rewards.values(slots),
        ]

    def refused(error: ConfigError) -> list[Any]:
        said = [None, note_value(Note(str(error))), gr.update(visible=False)]
        return [*said, *[gr.skip()] * (len(outputs) - len(said))]

    def opened(session: Session, file: str) -> list[Any]:
        try:
            return show(session, open_config(Path(file).name, Path(file).read_bytes(), services.trust))
        except ConfigError as error:
            return refused(error)

    def trusted(session: Session, opened: Opened | None) -> list[Any]:
        if opened is None:
            return [gr.skip()] * len(outputs)
        try:
            return show(session, trust_opened(opened, services.trust))
        except ConfigError as error:
            return refused(error)

    then_score(row.opener.upload(opened, [tab.session, row.opener], outputs, queue=False, **PRIVATE))
    then_score(row.trust.click(trusted, [tab.session, held], outputs, queue=False, **PRIVATE))
