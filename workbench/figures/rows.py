"""A watched row's tokens coloured by what the model makes of them, as it was before and as it is now."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.credit import Comparison
from workbench.figures.heatmap import Drawn, Heatmap, Payload, Spans, group_payload, rounded, utf16_offsets
from workbench.figures.loss import DrawnLoss
from workbench.figures.payloads import BeforePayload, FactPayload
from workbench.schema import Credit, Group, WatchedRow, WatchedText


class RowHeatmap(Drawn):
    """A drawn watched row: a card for each of its texts, which has it before and now."""

    def __init__(self, row: WatchedRow) -> None:
        self.row = row

    @property
    def title(self) -> str:
        return f"{self.row.measures[0].label} at step {self.row.step}"

    def payload(self) -> Payload:
        return row_payload(self.row)

    def __repr__(self) -> str:
        return f"<RowHeatmap of {self.row!r}>"


def heatmap(
    shown: Credit | Comparison | WatchedRow,
    matches: Sequence[Spans] | None = None,
    *,
    other: Credit | None = None,
    loss: DrawnLoss | None = None,
) -> Heatmap | RowHeatmap:
    """Draw a credit, two of one group, or a watched row; a notebook cell shows it, ``.html()`` gives a page to keep.

    ``loss`` is what the advantages are put into, by default dapo on policy.
    """
    if isinstance(shown, WatchedRow):
        return RowHeatmap(shown)
    if isinstance(shown, Comparison):
        return Heatmap(shown.a, matches, shown.b, loss)
    return Heatmap(shown, matches, other, loss)


def row_payload(row: WatchedRow) -> Payload:
    """Everything the drawing needs of a watched row, as plain JSON values."""
    before = row.before
    payload: Payload = {
        **group_payload(Group(row.prompt, tuple(text.rollout for text in row.texts))),
        "measures": [dataclasses.asdict(measure) for measure in row.measures],
        "facts": _facts(row.numbers, None if before is None else before.numbers),
        "step": row.step,
        "before": None if before is None else before.step,
    }
    for i, text in enumerate(row.texts):
        payload["rollouts"][i].pop("copyOf", None)  # chosen and rejected may be cut to the same tokens
        payload["rollouts"][i] |= _text(text, None if before is None else before.texts[i])
    return payload


def _text(text: WatchedText, before: WatchedText | None) -> Payload:
    offset, scored = utf16_offsets(text.rollout.text), text.scored
    payload: Payload = {
        "name": text.name,
        "values": _values(text),
        "facts": _facts(text.numbers, None if before is None else before.numbers),
        "matched": scored.matched,
        "outcome": None,
        "outcomes": {},
        "matches": [],
        "steps": [
            {
                "start": offset(row["start"]),
                "end": offset(row["end"]),
                "first": row["first_token"],
                "last": row["last_token"],
                "reward": row["reward"],
                "normalised": None,
                "scores": {},
            }
            for row in scored.rows(text.rollout.text)
        ],
    }
    if before is not None:
        payload["before"] = _before(before)
    return payload


def _before(text: WatchedText) -> BeforePayload:
    payload: BeforePayload = {"values": _values(text), "logprobs": rounded(text.rollout.logprobs)}
    if payload["logprobs"] and (reference := rounded(text.rollout.ref_logprobs)):
        payload |= {"reference": reference, "raw": payload["logprobs"]}
    return payload


def _values(text: WatchedText) -> dict[str, Any]:
    return {key: rounded(values) for key, values in text.values.items()}


def _facts(numbers: Mapping[str, float], before: Mapping[str, float] | None) -> list[FactPayload]:
    return [
        {"name": name, "value": value, "before": None if before is None else before.get(name)}
        for name, value in numbers.items()
    ]
