"""The widgets of a credit form: a scheme, its options as the scheme's signature has them, and its formula."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.credit import SCHEMES, Option
from workbench.ui.handlers.credit import FIELDS, LABELS, NONE, carried_over, default_values, visible_fields
from workbench.ui.handlers.draft import credit_paths
from workbench.ui.tabs.common import PRIVATE
from workbench.ui.tabs.widgets import CreditWidgets


def build_credit_form(scheme: str, *, prefix: str = "", optional: bool = False) -> CreditWidgets:
    """``prefix`` comes before every elem_id; an ``optional`` form may name no scheme, and then shows nothing else."""
    choices = [NONE, *SCHEMES] if optional else list(SCHEMES)
    chosen = gr.Dropdown(
        choices,
        value=scheme,
        label="Compare with" if optional else "Scheme",
        elem_id=f"{prefix}scheme",
        filterable=False,
        min_width=0,
    )
    listed = zip(FIELDS, default_values(scheme), visible_fields(scheme), strict=True)
    with gr.Row(
        elem_classes=["fields", "credit-options"], visible=scheme in SCHEMES, elem_id=f"{prefix}options"
    ) as options:
        fields = tuple(_widget(field, prefix, default, visible) for field, default, visible in listed)
    return CreditWidgets(chosen, fields, options, gr.State(scheme))


def bound_credit(prefix: str, widgets: CreditWidgets) -> dict[str, Any]:
    """The form's widgets by their paths in the draft."""
    return dict(zip(credit_paths(prefix), (widgets.scheme, *widgets.fields), strict=True))


def wire_credit(widgets: CreditWidgets) -> None:
    """Another scheme shows its own options, with its own defaults where nobody set them."""

    def choose(before: str, scheme: str, *values: Any) -> list[Any]:
        options = zip(carried_over(before, scheme, values), visible_fields(scheme), strict=True)
        updates = [gr.update(value=value, visible=visible) for value, visible in options]
        return [scheme, gr.update(visible=scheme in SCHEMES), *updates]

    widgets.scheme.change(
        choose,
        [widgets.before, widgets.scheme, *widgets.fields],
        [widgets.before, widgets.options, *widgets.fields],
        queue=False,
        **PRIVATE,
    )


def _widget(field: Option, prefix: str, value: Any, visible: bool) -> Any:
    elem_id = f"{prefix}credit-{field.name.replace('_', '-')}"
    label = LABELS.get(field.name, field.name)
    common: dict[str, Any] = {"label": label, "elem_id": elem_id, "min_width": 0, "visible": visible}
    if field.kind == "switch":
        return gr.Checkbox(bool(value), elem_classes=["inline"], **common)
    if field.kind == "choice":
        choices = [(name.replace("_", " "), name) for name in field.choices]
        return gr.Dropdown(choices, value=value, filterable=False, **common)
    return gr.Number(value, step=0.1, **common)
