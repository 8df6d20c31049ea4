"""One input of an event in place of many: a field nobody sees that always holds the values of a whole form.

Gradio's page visits every input of an event several times per call, and once more per later call of any event; for the
widgets of Inspect that takes longer than scoring does. What the values mean is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.ui.tabs.common import PRIVATE

PACK = "(...values) => JSON.stringify(values)"


def pack(widgets: Sequence[Any]) -> gr.Textbox:
    """The widgets' form, which changes whenever one of them does: one event, however many an event has set at once.

    An event that has it as an input gets a list: what it would get from each widget, in order.
    """

    def values(packed: str | None) -> list[Any]:
        return [widget.preprocess(value) for widget, value in zip(widgets, json.loads(packed or ""), strict=True)]

    form = gr.Textbox(json.dumps([widget.value for widget in widgets]), visible=False, max_lines=1)
    form.preprocess = values  # on the instance: Gradio writes a file beside the source of a subclass
    for widget in widgets:  # an event of its own each: Gradio visits every trigger of an event, too
        widget.change(None, list(widgets), form, js=PACK, **PRIVATE)
    return form
