"""Credited groups, or watched rows, as one Parquet file and back, every number bit for bit.

One row a rollout (or text), readable with any Parquet tool; what a whole group shares is JSON in the file's metadata,
under ``groups``. Two things do not come back as they went in: a lone surrogate in a token's text becomes U+FFFD (one
for one, so that offsets hold), because Parquet's text is UTF-8; and columns, options and sampling come back as JSON has
them (a tuple as a list). This module does not know where the file lies or which step it belongs to.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.files import opened, plain
from workbench.schema import (
    Credit,
    CreditPart,
    Group,
    RewardSummary,
    Rollout,
    ScoredGroup,
    Step,
    StepScores,
    TokenMeasure,
    WatchedRow,
    WatchedText,
)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_numbers = pa.list_(pa.float64())
_integers = pa.list_(pa.int64())
PART_ARRAYS = ("raw", "mean", "std", "normalised", "factor")
SCHEMA = pa.schema(
    [
        ("group", pa.int32()),
        ("rollout", pa.int32()),
        ("token_ids", _integers),
        ("texts", pa.list_(pa.string())),
        ("finished", pa.bool_()),
        ("stop", pa.string()),
        ("columns", pa.string()),  # JSON
        ("logprobs", _numbers),
        ("entropies", _numbers),
        ("ref_logprobs", _numbers),
        ("raw_logprobs", _numbers),
        ("mask", _integers),
        ("turns", pa.string()),  # JSON
        ("step_starts", _integers),  # characters
        ("step_ends", _integers),
        ("step_matched", pa.list_(pa.bool_())),
        ("unsplit", pa.bool_()),
        ("first_tokens", _integers),
        ("last_tokens", _integers),
        ("scores", pa.map_(pa.string(), _numbers)),
        ("rewards", _numbers),
        ("outcome_scores", pa.map_(pa.string(), pa.float64())),
        ("outcome", pa.float64()),
        ("logged", pa.string()),  # JSON
        ("normalised", _numbers),
        ("advantages", pa.list_(pa.float32())),  # of each token, without padding
        ("parts", pa.list_(pa.struct([(name, _numbers) for name in PART_ARRAYS]))),  # as many as the head names
        ("values", pa.map_(pa.string(), _numbers)),  # of each token, by what they are
    ]
)


def write(path: Path, credits: Sequence[Credit]) -> None:
    _write(path, [_head(credit) for credit in credits], [_credit_rows(credit) for credit in credits])


def write_watched(path: Path, rows: Sequence[WatchedRow]) -> None:
    _write(path, [_watched_head(row) for row in rows], [[_text_row(text) for text in row.texts] for row in rows])


def read(path: Path) -> list[Credit]:
    """Raises OSError or ValueError for a file that ``write`` did not make."""
    return [_credit(head, rows) for head, rows in _read(path, "scheme", "credited groups; read watched_rows")]


def read_watched(path: Path) -> list[WatchedRow]:
    """Raises OSError or ValueError for a file that ``write_watched`` did not make."""
    return [_watched_row(head, rows) for head, rows in _read(path, "measures", "watched rows; read rollouts")]


def _write(path: Path, heads: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    rows = [
        {"group": number, "rollout": i, **row} for number, group in enumerate(groups) for i, row in enumerate(group)
    ]
    schema = SCHEMA.with_metadata({b"groups": json.dumps(heads, default=plain).encode()})
    # No dictionaries: they compare floats by value, and -0.0 == 0.0.
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, use_dictionary=False, compression="zstd")


def _read(path: Path, key: str, kind: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The heads, which must have ``key``, each with its rows."""
    with opened(path) as file:
        table = pq.ParquetFile(file).read()
    metadata = table.schema.metadata or {}
    if b"groups" not in metadata:
        raise ValueError("its metadata describe no groups")
    heads: list[dict[str, Any]] = json.loads(metadata[b"groups"])
    if not all(key in head for head in heads):
        raise ValueError(f"it holds no {kind}")
    rows: list[dict[str, Any]] = table.to_pylist()
    return [(head, [row for row in rows if row["group"] == number]) for number, head in enumerate(heads)]


def _head(credit: Credit) -> dict[str, Any]:
    group = credit.scored.group
    return {
        "prompt": group.prompt,
        "columns": dict(group.columns),
        "policy": group.policy,
        "sampling": dict(group.sampling),
        "reward_functions": [dataclasses.asdict(reward) for reward in credit.scored.rewards],
        **credit.facts(),
        "parts": [
            {"source": part.kind, "carry": part.carry, "gamma": part.gamma, "unit": part.unit} for part in credit.parts
        ],
    }


def _credit_rows(credit: Credit) -> list[dict[str, Any]]:
    return [
        {
            **_row(rollout, credit.scored.scored[i]),
            "normalised": credit.normalised[i],
            "advantages": np.asarray(credit.advantages[i, : len(rollout)], dtype=np.float32),
            "parts": [
                {name: getattr(part, name)[part.offsets[i] : part.offsets[i + 1]] for name in PART_ARRAYS}
                for part in credit.parts
            ],
            "values": [(name, values[i]) for name, values in credit.values.items()],
        }
        for i, rollout in enumerate(credit.scored.group.rollouts)
    ]


def _row(rollout: Rollout, scored: StepScores) -> dict[str, Any]:
    return {
        "token_ids": rollout.token_ids,
        "texts": [_LONE_SURROGATE.sub("\ufffd", text) for text in rollout.texts],
        "finished": rollout.finished,
        "stop": rollout.stop,
        "columns": json.dumps(dict(rollout.columns), default=plain),
        "logprobs": rollout.logprobs,
        "entropies": rollout.entropies,
        "ref_logprobs": rollout.ref_logprobs,
        "raw_logprobs": rollout.raw_logprobs,
        "mask": rollout.mask,
        "turns": json.dumps([turn.to_json() for turn in rollout.turns]) if rollout.turns else None,
        "step_starts": [step.start for step in scored.steps],
        "step_ends": [step.end for step in scored.steps],
        "step_matched": [step.matched for step in scored.steps],
        "unsplit": scored.unsplit,
        "first_tokens": scored.step_starts,
        "last_tokens": scored.step_ends,
        "scores": list(scored.scores.items()),
        "rewards": scored.rewards,
        "outcome_scores": list(scored.outcome_scores.items()),
        "outcome": scored.outcome,
        "logged": json.dumps(scored.logged, default=plain) if scored.logged else None,
    }


def _watched_head(row: WatchedRow) -> dict[str, Any]:
    return {
        "prompt": row.prompt,
        "step": row.step,
        "numbers": dict(row.numbers),
        "measures": [dataclasses.asdict(measure) for measure in row.measures],
        "texts": [{"name": text.name, "numbers": dict(text.numbers)} for text in row.texts],
    }


def _text_row(text: WatchedText) -> dict[str, Any]:
    return {**_row(text.rollout, text.scored), "values": list(text.values.items())}


def _watched_row(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> WatchedRow:
    return WatchedRow(
        prompt=head["prompt"],
        texts=tuple(
            WatchedText(
                text["name"],
                _rollout(row),
                _step_scores(row),
                {key: tuple(values) for key, values in row["values"]},
                text["numbers"],
            )
            for text, row in zip(head["texts"], rows, strict=True)
        ),
        measures=tuple(TokenMeasure(**measure) for measure in head["measures"]),
        numbers=head["numbers"],
        step=head["step"],
    )


def _rollout(row: Mapping[str, Any]) -> Rollout:
    turns = json.loads(row.get("turns") or "[]")  # files of earlier versions have none
    return Rollout.from_json({**row, "columns": json.loads(row["columns"]), "turns": turns})


def _credit(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Credit:
    group = Group(
        prompt=head["prompt"],
        rollouts=tuple(map(_rollout, rows)),
        columns=head["columns"],
        policy=head["policy"],
        sampling=head["sampling"],
    )
    return Credit(
        scored=ScoredGroup(
            group=group,
            scored=tuple(_step_scores(row) for row in rows),
            rewards=tuple(RewardSummary(**reward) for reward in head["reward_functions"]),
        ),
        scheme=head["scheme"],
        options=head["options"],
        advantages=_padded([row["advantages"] for row in rows]),
        normalised=tuple(tuple(row["normalised"]) for row in rows),
        mean=head["mean"],
        std=head["std"],
        spread=head["spread"],
        warnings=tuple(head["warnings"]),
        parts=tuple(_part(part, [row["parts"][n] for row in rows]) for n, part in enumerate(head["parts"])),
        values=_values(rows),
    )


def _values(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[npt.NDArray[np.float32], ...]]:
    """Files of earlier versions have none."""
    by_name = [dict(row.get("values") or ()) for row in rows]
    names = by_name[0] if by_name else {}
    return {name: tuple(np.array(row[name], dtype=np.float32) for row in by_name) for name in names}


def _padded(rows: Sequence[Sequence[float]]) -> npt.NDArray[np.float32]:
    """Return (G, T_max), 0 on padding. Files of earlier versions are padded already."""
    padded = np.zeros((len(rows), max(map(len, rows), default=0)), dtype=np.float32)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return padded


def _part(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> CreditPart:
    arrays = {name: np.array([x for row in rows for x in row[name]], dtype=np.float64) for name in PART_ARRAYS}
    offsets = np.cumsum([0, *(len(row["raw"]) for row in rows)], dtype=np.int64)
    return CreditPart(
        head["source"], head["carry"], offsets, gamma=head["gamma"], unit=head.get("unit", "step"), **arrays
    )


def _step_scores(row: Mapping[str, Any]) -> StepScores:
    steps = zip(row["step_starts"], row["step_ends"], row["step_matched"], strict=True)
    return StepScores(
        steps=tuple(Step(*step) for step in steps),
        spans=tuple(zip(row["first_tokens"], row["last_tokens"], strict=True)),
        scores={name: tuple(values) for name, values in row["scores"]},
        rewards=tuple(row["rewards"]),
        outcome_scores=dict(row["outcome_scores"]),
        outcome=row["outcome"],
        logged=_logged(row.get("logged")),  # files of earlier versions have none
        unsplit=bool(row.get("unsplit")),
    )


def _logged(text: str | None) -> dict[str, dict[str, Any]]:
    packed: dict[str, dict[str, Any]] = json.loads(text) if text else {}
    return {
        name: {column: tuple(value) if isinstance(value, list) else value for column, value in columns.items()}
        for name, columns in packed.items()
    }
