"""The widgets of a credit form: a scheme, its options as the scheme's signature has them, and its formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from workbench.credit import SCHEMES, Option
from workbench.ui.handlers.credit import (
    FIELDS,
    LABELS,
    NOTHING,
    CreditForm,
    carried_over,
    default_values,
    visible_fields,
)
from workbench.ui.tabs.common import PRIVATE

PER_FORM = 1 + len(FIELDS)


@dataclass(frozen=True)
class CreditWidgets:
    scheme: gr.Dropdown
    fields: tuple[Any, ...]
    options: gr.Row
    before: gr.State
    """The scheme that the fields' defaults are those of."""

    @property
    def outputs(self) -> list[Any]:
        """What ``shown`` sets."""
        return [self.before, self.options, self.scheme, *self.fields]

    def shown(self, form: CreditForm | None) -> list[Any]:
        """What to set ``outputs`` to, so that the widgets hold ``form``."""
        scheme = NOTHING if form is None else form.scheme
        values = default_values(scheme) if form is None else form.values
        pairs = zip(values, visible_fields(scheme), strict=True)
        updates = [gr.update(value=value, visible=visible) for value, visible in pairs]
        return [scheme, gr.update(visible=form is not None), scheme, *updates]

    @property
    def inputs(self) -> list[Any]:
        return [self.scheme, *self.fields]

    def wire(self) -> None:
        """Another scheme shows its own options, with its own defaults where nobody set them."""

        def choose(before: str, scheme: str, *values: Any) -> list[Any]:
            kept = carried_over(before, scheme, values)
            shown = visible_fields(scheme)
            updates = [gr.update(value=value, visible=visible) for value, visible in zip(kept, shown, strict=True)]
            return [scheme, gr.update(visible=scheme in SCHEMES), *updates]

        self.scheme.change(
            choose,
            [self.before, *self.inputs],
            [self.before, self.options, *self.fields],
            queue=False,
            **PRIVATE,
        )


def read_credit(values: Sequence[Any]) -> CreditForm | None:
    """The form that ``CreditWidgets.inputs`` hold; None where no scheme is chosen."""
    scheme, *fields = values
    return None if scheme not in SCHEMES else CreditForm(scheme, tuple(fields))


def build_credit_form(scheme: str, *, prefix: str = "", optional: bool = False) -> CreditWidgets:
    """``prefix`` comes before every elem_id; an ``optional`` form may name no scheme, and then shows nothing else."""
    choices = [NOTHING, *SCHEMES] if optional else list(SCHEMES)
    chosen = gr.Dropdown(
        choices,
        value=scheme,
        label="Compare with" if optional else "Scheme",
        elem_id=f"{prefix}scheme",
        filterable=False,
        min_width=0,
    )
    shown, defaults = visible_fields(scheme), default_values(scheme)
    with gr.Row(
        elem_classes=["fields", "credit-options"], visible=scheme in SCHEMES, elem_id=f"{prefix}options"
    ) as options:
        fields = tuple(
            _widget(field, prefix, default, visible)
            for field, default, visible in zip(FIELDS, defaults, shown, strict=True)
        )
    return CreditWidgets(chosen, fields, options, gr.State(scheme))


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
