"""The widgets of the part of Inspect that imports rollouts; ``rollout_import_events`` wires them."""

from __future__ import annotations

import gradio as gr

from workbench.data import LABELLED
from workbench.data.read import SUFFIXES
from workbench.ui.handlers import rollout_import as handlers
from workbench.ui.tabs.common import note, table
from workbench.ui.tabs.widgets import RolloutImportWidgets


def build_rollout_import() -> RolloutImportWidgets:
    """The widgets, closed until somebody wants them."""
    with gr.Accordion("Your own rollouts", open=False, elem_id="importing", elem_classes=["fold"]):
        path = gr.Dropdown(
            list(LABELLED),
            value=LABELLED[-1],
            allow_custom_value=True,
            label="Data that comes along, or a file in the workspace",
            elem_id="import-path",
            min_width=0,
        )
        upload = gr.File(
            label="or upload JSONL or Parquet",
            file_types=[*SUFFIXES, ".gz"],
            elem_id="import-upload",
            height=62,
        )
        with gr.Row(elem_classes=["fields"]):
            format = gr.Dropdown(
                list(handlers.FORMAT_CHOICES),
                value=handlers.AUTO,
                label="Format",
                elem_id="import-format",
                filterable=False,
                min_width=0,
            )
            tokenizer = gr.Dropdown(
                list(handlers.TOKENIZER_CHOICES),
                value="tiny",
                allow_custom_value=True,
                label="Tokenizer",
                elem_id="import-tokenizer",
                min_width=0,
            )
        columns = gr.Textbox(
            label="Column mapping",
            placeholder="prompt=input,completion=output,reward=score",
            elem_id="import-columns",
            max_lines=1,
            min_width=0,
        )
        with gr.Row(elem_classes=["fields"]):
            skip_bad_rows = gr.Checkbox(label="Skip bad rows", elem_id="import-skip-bad-rows", min_width=0)
            opened = gr.Button("Open", elem_id="import-open", min_width=0, elem_classes=["small"])
            cancel = gr.Button("Cancel", elem_id="import-cancel", min_width=0, interactive=False)
        said = note("import-note")
        with gr.Column(visible=False, elem_id="import-found", min_width=0) as shown:
            with gr.Row(elem_classes=["fields"]):
                previous = gr.Button("‹", elem_id="import-previous", min_width=0, elem_classes=["small"])
                following = gr.Button("›", elem_id="import-next", min_width=0, elem_classes=["small"])
                where = note("import-where")
            groups = table("import-groups", "groups", handlers.GROUP_HEADINGS, picks=True)
            with gr.Row(elem_classes=["fields"]):
                threshold = gr.Textbox(
                    label="Right if reward ≥", placeholder="the best", elem_id="check-threshold", min_width=0
                )
                check = gr.Button("Check rewards", elem_id="check-rewards", min_width=0, elem_classes=["small"])
            check_note = note("check-note")
            checks = table("check-table", "rewards against labels", handlers.CHECK_HEADINGS)
            worst = table("check-worst", "worst disagreements", handlers.WORST_HEADINGS, picks=True)
    return RolloutImportWidgets(
        path, upload, format, tokenizer, columns, skip_bad_rows, opened, cancel, said, shown, groups, previous,
        following, where, threshold, check, checks, worst, check_note,
    )  # fmt: skip
