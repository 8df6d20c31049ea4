"""Labelling steps by hand on the page: a group's labels, one more of them, and all of them as a file to train on.

What arrives is text of the browser's and is not trusted; ``data.hand_labels`` checks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.data.hand_labels import HandLabelled, HandLabels
from workbench.errors import TaskError, WorkbenchError
from workbench.ui.handlers.session import Services
from workbench.ui.payloads import HandLabelsPayload, LabelsFile

MOST_COMPLETIONS = 1024
"""Of a group whose labels are asked for."""


def labelling(services: Services) -> list[Any]:
    """Return what the page's scripts ask, on Inspect and on Train: ``LabelServer`` in their types."""

    def asked_of(answer: Any) -> Any:
        def asked(payload: dict[str, Any]) -> Any:
            return answer(HandLabels(services.workspace), payload)

        asked.__name__ = answer.__name__
        return asked

    return [asked_of(answer) for answer in (labels_of, mark_step, labels_file)]


def labels_of(labels: HandLabels, asked: Any) -> HandLabelsPayload:
    """The labels of each completion of a group, the error "" where they were read."""
    prompt, completions = _field(asked, "prompt", str), _field(asked, "completions", list)[:MOST_COMPLETIONS]
    return _answer(labels, [labels.of(prompt, text) if isinstance(text, str) else None for text in completions])


def mark_step(labels: HandLabels, asked: Any) -> HandLabelsPayload:
    """Label one step; what is answered is its completion's labels, or why there is none."""
    try:
        spans = [(int(start), int(end)) for start, end in _field(asked, "steps", list)]
        prompt, completion = _field(asked, "prompt", str), _field(asked, "completion", str)
        marked = labels.mark(prompt, completion, spans, _field(asked, "k", int), asked.get("label"))
    except (WorkbenchError, TypeError, ValueError) as error:
        return _answer(labels, [], str(error))
    return _answer(labels, [marked])


def labels_file(labels: HandLabels, asked: Any) -> LabelsFile:
    """All labelled completions in one of the layouts, for the page's script to save."""
    layout = _field(asked, "layout", str)
    return {"name": f"hand-labels-{layout}.jsonl", "text": labels.text(layout)}


def _answer(labels: HandLabels, completions: Sequence[HandLabelled | None], error: str = "") -> HandLabelsPayload:
    return {
        "completions": [
            [{"start": start, "end": end, "label": label} for start, end, label in labelled.labels] if labelled else []
            for labelled in completions
        ],
        "table": str(labels.table),
        "error": error,
    }


def _field(asked: Any, name: str, kind: type) -> Any:
    value = asked.get(name) if isinstance(asked, Mapping) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TaskError(f"{name} is missing or no {kind.__name__}; reload the page")
    return value
