"""One input of an event in place of many: a field nobody sees that always holds the values of a whole form.

Gradio's page visits every input of an event several times per call, and once more per later call of any event; for the
widgets of Inspect that takes longer than scoring does. What the values mean is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import gradio as gr

from workbench.ui.tabs.common import PRIVATE


def packed(widgets: Sequence[Any]) -> gr.Textbox:
    """The widgets' form. An event that has it as an input gets a list: what it would get from each widget, in order.

    ``join`` makes it follow its widgets.
    """

    def values(given: str | None) -> list[Any]:
        return [widget.preprocess(value) for widget, value in zip(widgets, json.loads(given or ""), strict=True)]

    form = gr.Textbox(json.dumps([widget.value for widget in widgets]), visible=False, max_lines=1)
    form.preprocess = values  # on the instance: Gradio writes a file beside the source of a subclass
    form.widgets = list(widgets)
    return form


def join(*forms: gr.Textbox) -> None:
    """Have each form change whenever one of its widgets does, and all of them at once.

    An event that sets widgets of several forms is so never heard of by halves.
    """
    widgets = [widget for form in forms for widget in form.widgets]
    ends = [sum(len(form.widgets) for form in forms[:i]) for i in range(len(forms) + 1)]
    parts = ", ".join(f"JSON.stringify(v.slice({start}, {end}))" for start, end in pairwise(ends))
    js = f"(...v) => [{parts}]" if len(forms) > 1 else "(...v) => JSON.stringify(v)"
    for widget in widgets:  # an event of its own each: Gradio visits every trigger of an event, too
        widget.change(None, widgets, list(forms), js=js, **PRIVATE)
