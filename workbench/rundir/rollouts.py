"""A run's store by training step: its rollouts, what each optimiser step computed its loss from, and its answers.

::

    rollouts/step-000012.parquet     a generation's groups
    rollouts/watched-000020.parquet  the policy's answers to watched prompts, or what the model makes of watched rows
    passes/step-000013.parquet       the numbers of one optimiser step over a stored generation (``schema.LossPass``)
    answers/step-000020.json         answers to the held-out rows at the first and the newest measure of accuracy

Parquet files have one row a rollout (or text), readable with any Parquet tool, every number bit for bit; what a whole
group or step shares is JSON in the file's metadata, under ``groups`` or ``pass``. Two things do not come back as they
went in: a lone surrogate in a token's text becomes U+FFFD (one for one, so that offsets hold), because Parquet's text
is UTF-8; and columns, options and sampling come back as JSON has them (a tuple as a list).
"""

import dataclasses
import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from workbench.errors import RunError
from workbench.files import encode, plain, read_json, replace_file
from workbench.schema import (
    Credit,
    CreditPart,
    Group,
    HeldOutAnswer,
    LossPass,
    LossSettings,
    RewardSummary,
    Rollout,
    RolloutPass,
    ScoredGroup,
    Step,
    StepScores,
    TokenMeasure,
    WatchedRow,
    WatchedText,
)

T = TypeVar("T")
MOST_ANSWERS = 500
"""Rows whose answers are stored, of however many are measured."""
MOST_CHARACTERS = 4000
"""Of a stored answer, and of its prompt."""
_FILE = re.compile(r"([a-z]+)-(\d{6,})\.(?:parquet|json)")
_SETTINGS = TypeAdapter(LossSettings)


class _StepFiles:
    """Files of one folder, one a training step, each written whole or not at all; ``run`` is the run's name."""

    what: ClassVar[str]
    ending: ClassVar[str] = "parquet"

    def __init__(self, folder: Path, run: str) -> None:
        self._folder, self._run = folder, run

    def _path(self, step: int, watched: bool = False) -> Path:
        return self._folder / f"{'watched' if watched else 'step'}-{step:06d}.{self.ending}"

    def steps(self, *, watched: bool = False) -> list[int]:
        """Return the training steps that are stored, or those of which watched rollouts are, ascending."""
        kind = "watched" if watched else "step"
        names = (_FILE.fullmatch(name) for name in (os.listdir(self._folder) if self._folder.is_dir() else ()))
        return sorted(int(match[2]) for match in names if match and match[1] == kind)

    def drop(self, after: int) -> None:
        """Remove the files of later steps than ``after``."""
        for path in self._folder.glob("*-*.*"):
            if (match := _FILE.fullmatch(path.name)) and int(match[2]) > after:
                path.unlink(missing_ok=True)

    def _store(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        replace_file(path, data)

    def _load(self, step: int, read: Callable[[Path], T], watched: bool = False) -> T:
        path = self._path(step, watched)
        try:
            return read(path)
        except FileNotFoundError as error:
            steps, kinds = self.steps(watched=watched), "watched " * watched
            stored = f"stored are {len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "none are stored yet"
            raise RunError(f"run {self._run!r} has no {kinds}{self.what} of step {step}; {stored}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{self.what} of run {self._run!r} at step {step} cannot be read ({path}): {error}"
            ) from error


class Rollouts(_StepFiles):
    """The stored rollouts; ``watched`` ones, of the watched prompts or rows, are kept apart."""

    what = "rollouts"

    def write(self, step: int, credits: Sequence[Credit], *, watched: bool = False) -> None:
        """Store the groups of one generation; ``read`` gives them back equal, floats bit for bit. Raises RunError."""
        packed = pack([_head(credit) for credit in credits], [_credit_rows(credit) for credit in credits])
        self._store(self._path(step, watched), packed)

    def write_rows(self, step: int, rows: Sequence[WatchedRow]) -> None:
        """Store what the model makes of the watched rows after a step; ``read_rows`` gives it back equal."""
        heads = [
            {
                "prompt": row.prompt,
                "step": row.step,
                "numbers": dict(row.numbers),
                "measures": [dataclasses.asdict(measure) for measure in row.measures],
                "texts": [{"name": text.name, "numbers": dict(text.numbers)} for text in row.texts],
            }
            for row in rows
        ]
        texts = [
            [{**_row(text.rollout, text.scored), "values": list(text.values.items())} for text in row.texts]
            for row in rows
        ]
        self._store(self._path(step, watched=True), pack(heads, texts))

    def write_time(self, step: int, *, watched: bool = False) -> int:
        """Return when a step's rollouts were last written, in nanoseconds; 0 if never. A resume writes again."""
        try:
            return self._path(step, watched).stat().st_mtime_ns
        except OSError:
            return 0

    def read(self, step: int, *, watched: bool = False) -> list[Credit]:
        """Return the groups stored for one training step, in the order they were written. Raises RunError."""
        return self._load(step, read, watched)

    def table(self, step: int, columns: Sequence[str]) -> pa.Table:
        """Some columns of a step's rollouts, one row a rollout, without the others being read. Raises RunError."""

        return self._load(step, lambda path: pq.ParquetFile(path).read(columns=list(columns)))

    def read_rows(self, step: int) -> list[WatchedRow]:
        """Return the watched rows stored after one training step. Raises RunError."""
        return self._load(
            step,
            lambda path: [_watched_row(*row) for row in _read(path, "measures", "watched rows; read rollouts")],
            watched=True,
        )


class Answers(_StepFiles):
    """The answers to held-out rows at a run's first and newest measure of accuracy; those between are removed."""

    what = "answers"
    ending = "json"

    def write(self, step: int, answers: Sequence[HeldOutAnswer]) -> None:
        """Store a measure beside the first one, in place of those since. Raises RunError."""
        rows = [
            HeldOutAnswer(
                row.prompt[:MOST_CHARACTERS],
                row.text[:MOST_CHARACTERS],
                row.right,
                row.answer and row.answer[:MOST_CHARACTERS],
            )
            for row in answers[:MOST_ANSWERS]
        ]
        data = encode([vars(row) for row in rows])
        self._store(self._path(step), data)
        for between in self.steps()[1:]:
            if between != step:
                self._path(between).unlink(missing_ok=True)

    def read(self, step: int) -> list[HeldOutAnswer]:
        """Return the stored answers after a step. Raises RunError where there are none, or the file is damaged."""
        return self._load(step, lambda path: [HeldOutAnswer(**row) for row in read_json(path)])


class Passes(_StepFiles):
    """The numbers that every optimiser step over a stored generation computed its loss from."""

    what = "loss"

    def write(self, seen: LossPass) -> None:
        """Store a step. Raises RunError."""
        head = {name: getattr(seen, name) for name in _PASS_HEAD} | {"settings": dataclasses.asdict(seen.settings)}
        schema = _PASS_SCHEMA.with_metadata({b"pass": json.dumps(head).encode()})
        table = pa.Table.from_pylist([vars(row) for row in seen.rollouts], schema=schema)
        self._store(self._path(seen.step), _parquet(table))

    def read(self, step: int) -> LossPass:
        """Return a stored step. Raises RunError where there is none, or the file is damaged."""
        return self._load(step, _read_pass)

    def of_generation(self, step: int) -> list[LossPass]:
        """Return the stored passes over the generation of a step, in order; none for a run of an earlier version."""
        passes: list[LossPass] = []
        while self._path(step).is_file():
            read = self.read(step)
            if passes and read.generation != passes[0].generation:
                break
            passes.append(read)
            step += 1
        return passes


def _parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    # No dictionaries: they compare floats by value, and -0.0 == 0.0.
    pq.write_table(table, file, use_dictionary=False, compression="zstd")
    return file.getvalue()


# -- passes ------------------------------------------------------------------------------------------------------------

_OF_ROLLOUTS = ("logprobs", "old_logprobs", "weights", "bonus")
_PASS_HEAD = ("step", "generation", "number", "tokens", "loss", "router")
_PASS_SCHEMA = pa.schema([("micro_batch", pa.int32()), *((name, pa.list_(pa.float32())) for name in _OF_ROLLOUTS)])


def _read_pass(path: Path) -> LossPass:
    table = pq.ParquetFile(path).read()
    head: dict[str, Any] = json.loads((table.schema.metadata or {})[b"pass"])
    rows = [
        RolloutPass(
            row["micro_batch"],
            *(None if row.get(name) is None else np.array(row[name], np.float32) for name in _OF_ROLLOUTS),
        )
        for row in table.to_pylist()
    ]
    known = {name: head[name] for name in _PASS_HEAD if name in head}  # files of version 0.4 lack the router
    return LossPass(**known, settings=_SETTINGS.validate_python(head["settings"]), rollouts=tuple(rows))


# -- groups and watched rows -------------------------------------------------------------------------------------------

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
        ("importances", _numbers),
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


def read(path: Path) -> list[Credit]:
    """Raises OSError or ValueError for a file that ``Rollouts.write`` did not make."""
    return [_credit(head, rows) for head, rows in _read(path, "scheme", "credited groups; read watched_rows")]


def pack(heads: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[Mapping[str, Any]]]) -> bytes:
    rows = [
        {"group": number, "rollout": i, **row} for number, group in enumerate(groups) for i, row in enumerate(group)
    ]
    schema = SCHEMA.with_metadata({b"groups": json.dumps(heads, default=plain).encode()})
    return _parquet(pa.Table.from_pylist(rows, schema=schema))


def _read(path: Path, key: str, kind: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the heads, which must have ``key``, each with its rows."""
    table = pq.ParquetFile(path).read()
    heads: list[dict[str, Any]] = json.loads((table.schema.metadata or {})[b"groups"])
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
            {"source": p.kind, "carry": p.carry, "gamma": p.gamma, "unit": p.unit, "centre": p.centre}
            for p in credit.parts
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
        "importances": rollout.importances,
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
    by_name = [dict(row.get("values") or ()) for row in rows]  # files of earlier versions have none
    names = by_name[0] if by_name else {}
    longest = max((len(row["advantages"]) for row in rows), default=0)
    advantages = np.zeros((len(rows), longest), dtype=np.float32)  # files of earlier versions are padded already
    for padded, row in zip(advantages, rows, strict=True):
        padded[: len(row["advantages"])] = row["advantages"]
    parts = []
    for n, part in enumerate(head["parts"]):
        of_rows = [row["parts"][n] for row in rows]
        arrays = {name: np.array([x for of in of_rows for x in of[name]], dtype=np.float64) for name in PART_ARRAYS}
        offsets = np.cumsum([0, *(len(of["raw"]) for of in of_rows)], dtype=np.int64)
        unit, centre = part.get("unit", "step"), part.get("centre", "mean")
        parts.append(
            CreditPart(part["source"], part["carry"], offsets, gamma=part["gamma"], unit=unit, centre=centre, **arrays)
        )
    return Credit(
        scored=ScoredGroup(
            group=group,
            scored=tuple(_step_scores(row) for row in rows),
            rewards=tuple(RewardSummary(**reward) for reward in head["reward_functions"]),
        ),
        scheme=head["scheme"],
        options=head["options"],
        advantages=advantages,
        normalised=tuple(tuple(row["normalised"]) for row in rows),
        mean=head["mean"],
        std=head["std"],
        warnings=tuple(head["warnings"]),
        parts=tuple(parts),
        values={name: tuple(np.array(row[name], dtype=np.float32) for row in by_name) for name in names},
    )


def _step_scores(row: Mapping[str, Any]) -> StepScores:
    steps = zip(row["step_starts"], row["step_ends"], row["step_matched"], strict=True)
    packed: dict[str, dict[str, Any]] = json.loads(row.get("logged") or "{}")  # files of earlier versions have none
    logged = {
        name: {column: tuple(value) if isinstance(value, list) else value for column, value in columns.items()}
        for name, columns in packed.items()
    }
    return StepScores(
        steps=tuple(Step(*step) for step in steps),
        spans=tuple(zip(row["first_tokens"], row["last_tokens"], strict=True)),
        scores={name: tuple(values) for name, values in row["scores"]},
        rewards=tuple(row["rewards"]),
        outcome_scores=dict(row["outcome_scores"]),
        outcome=row["outcome"],
        logged=logged,
        unsplit=bool(row.get("unsplit")),
    )
