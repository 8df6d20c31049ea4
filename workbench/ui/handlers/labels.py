"""Labels by hand of the steps on screen, on Inspect and on Train.

What arrives to label a step is the browser's and is not trusted; ``data.labelled`` checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import validate_call

from workbench.data.labelled import HandLabelled, HandLabels, Label, LabelLayout
from workbench.errors import WorkbenchError
from workbench.ui.payloads import HandLabelsPayload, LabelsFile

MOST_COMPLETIONS = 1024
"""Of a group whose labels are asked for."""


@validate_call
def labels_of(workspace: Path, prompt: str, completions: Sequence[str]) -> HandLabelsPayload:
    """The labels of each completion of a group, the error "" where they were read."""
    labels = HandLabels(workspace)
    return _answer(labels, [labels.of(prompt, text) for text in completions[:MOST_COMPLETIONS]])


@validate_call
def mark_step(
    workspace: Path, prompt: str, completion: str, steps: list[tuple[int, int]], k: int, label: Label | None
) -> HandLabelsPayload:
    """Label one step; what is answered is its completion's labels, or why there is none."""
    labels = HandLabels(workspace)
    try:
        return _answer(labels, [labels.mark(prompt, completion, steps, k, label)])
    except WorkbenchError as error:
        return _answer(labels, [], str(error))


@validate_call
def labels_file(workspace: Path, layout: LabelLayout) -> LabelsFile:
    """All labelled completions in one of the layouts, for the page's script to save."""
    return {"name": f"hand-labels-{layout}.jsonl", "text": HandLabels(workspace).text(layout)}


LABELLING = (labels_of, mark_step, labels_file)
"""What the page's scripts ask of the workspace, on Inspect and on Train: ``LabelServer`` in their types."""


def _answer(labels: HandLabels, completions: Sequence[HandLabelled | None], error: str = "") -> HandLabelsPayload:
    return {
        "completions": [
            [{"start": start, "end": end, "label": label} for start, end, label in labelled.labels] if labelled else []
            for labelled in completions
        ],
        "table": str(labels.table),
        "error": error,
    }
