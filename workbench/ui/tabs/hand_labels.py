"""What the page's scripts ask to label steps by hand, on Inspect and on Train."""

from __future__ import annotations

from typing import Any

from workbench.data.hand_labels import HandLabels
from workbench.ui.handlers import hand_labels
from workbench.ui.handlers.session import Services
from workbench.ui.payloads import HandLabelsPayload, LabelsFile


def labelling(services: Services) -> list[Any]:
    """The functions of ``LabelServer`` in the scripts' types."""

    def labels_of(payload: dict[str, Any]) -> HandLabelsPayload:
        return hand_labels.labels_of(HandLabels(services.workspace), payload)

    def mark_step(payload: dict[str, Any]) -> HandLabelsPayload:
        return hand_labels.mark_step(HandLabels(services.workspace), payload)

    def labels_file(payload: dict[str, Any]) -> LabelsFile:
        return hand_labels.labels_file(HandLabels(services.workspace), payload)

    return [labels_of, mark_step, labels_file]
