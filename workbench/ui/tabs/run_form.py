"""Train's form: the fields of a run, of whichever method is chosen, as one element that the page's script draws.

Its value holds what every field does, by path, those of methods that are not chosen too, so that nothing is lost when
one switches back and forth; ``spec`` says what fields there are (``run_fields``), and its ``rows`` what the data comes
to.
"""

from __future__ import annotations

from collections.abc import Iterable

import gradio as gr

from workbench.config.run import METHODS
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.run_fields import LINES, PAIRS, TEXT, Field, run_fields
from workbench.ui.payloads import FieldPayload, RunFormPayload
from workbench.ui.tabs.common import drawn
from workbench.ui.tabs.form import packed_run


def build_run_form(draft: Draft) -> gr.HTML:
    return drawn("run-form", "runForm", packed_run(draft), constant=spec(), rows="")


def spec() -> RunFormPayload:
    """What the script draws Train's form of."""
    return spec_of("run", run_fields().values())


def spec_of(form: str, fields: Iterable[Field]) -> RunFormPayload:
    """What the script draws a form of, whose values go by that name."""
    return {
        "form": form,
        "fields": [_payload(field) for field in fields],
        "methods": {name: f"{method.summary} {method.when}" for name, method in METHODS.items()},
    }


def _payload(field: Field) -> FieldPayload:
    listed = not isinstance(field.kind, str)
    typed = TEXT if field.kind in (LINES, PAIRS) else field.kind
    return {
        "path": field.path,
        "id": field.elem_id,
        "label": field.label,
        "help": field.help,
        "kind": "choice" if listed else str(typed),
        "choices": list(field.kind) if listed else [],
        "whole": field.whole,
        "optional": field.optional,
        "methods": field.methods,
        "folded": field.folded,
        "placeholder": field.placeholder,
    }
