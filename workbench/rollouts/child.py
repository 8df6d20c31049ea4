"""The process that reads data files: ``python -m workbench.rollouts.child``, so that a hostile one crashes only it.

It answers ``{"rows": path, "splits": …}`` with the rows of each split and ``{"groups": path, …}`` with groups or
drafts, as events of a few rows each and a reply with the ``Facts``. Its memory is limited.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.errors import TaskError
from workbench.files import opened
from workbench.rollouts.files import read_rows, rows_and_faults
from workbench.rollouts.folders import EVERY, HELD_OUT, held_out_of
from workbench.rollouts.groups import Builder, Facts, read_drafts
from workbench.rollouts.tokens import load_tokeniser
from workbench.rollouts.values import Row
from workbench.sandbox.child import Emitter, serve
from workbench.schema import Group

MAX_MEMORY = 4 * 2**30
"""Bytes of address space."""
AT_ONCE = 16
"""Rows or groups in one event."""


def handle(request: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    path = Path(request.get("rows") or request["groups"])
    try:
        if "rows" in request:
            return _send_splits(path, request["splits"], request["max_bytes"], emit)
        return _send_groups(path, request, emit)
    except MemoryError as error:
        raise TaskError(f"{path.name} needs more than {MAX_MEMORY / 2**30:g} GB of memory to read; split it") from error


def _send_splits(path: Path, splits: list[str], max_bytes: int, emit: Emitter) -> dict[str, Any]:
    for number, split in enumerate(splits):
        name = held_out_of(path, splits[0] or None) if split == HELD_OUT else split
        if name is None:
            continue
        waiting: list[list[Any]] = []
        for row in read_rows(path, max_bytes, name or None):
            waiting.append([row.where, row.values])
            if len(waiting) == AT_ONCE:
                emit({"split": number, "rows": waiting})
                waiting = []
        emit({"split": number, "rows": waiting})
    return {}


def _send_groups(path: Path, request: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    emit({"phase": "reading"})
    limit = request["limit"]
    of_a_run = request["format"] in (None, "run") and not request["columns"]
    if of_a_run and (stored := _of_a_run(path, request["max_bytes"])) is not None:
        groups = stored[:limit]
        for first in range(0, len(groups), AT_ONCE):
            some = groups[first : first + AT_ONCE]
            emit({"groups": [group.to_json() for group in some], "done": first + len(some), "of": len(groups)})
        return {"facts": Facts("run", sum(map(len, groups)), tokenizer="the run's own").to_json()}
    rows = _heard(rows_and_faults(path, request["max_bytes"], EVERY), emit)
    how = (request["format"], request["columns"])
    drafts, facts = read_drafts(rows, path.name, *how, skip_bad_rows=request["skip_bad_rows"])
    drafts = drafts[:limit]
    if request["drafts"]:
        for first in range(0, len(drafts), AT_ONCE):
            some_drafts = drafts[first : first + AT_ONCE]
            emit({"drafts": [draft.to_json() for draft in some_drafts], "done": first, "of": len(drafts)})
        return {"facts": facts.to_json()}
    emit({"phase": "loading the tokenizer"})
    builder = Builder(load_tokeniser(request["tokenizer"]), facts, path.name)
    for first in range(0, len(drafts), AT_ONCE):
        if emit.cancelled():
            break
        built = [builder.build(draft).to_json() for draft in drafts[first : first + AT_ONCE]]
        emit({"groups": built, "done": first + len(built), "of": len(drafts)})
    return {"facts": builder.facts().to_json()}


def _heard(rows: Iterator[Row], emit: Emitter) -> Iterator[Row]:
    """The rows, with a progress event now and then."""
    for number, row in enumerate(rows, start=1):
        if number % 1000 == 0:
            emit({"phase": f"reading, {number:,} rows"})
            if emit.cancelled():
                return
        yield row


def _of_a_run(path: Path, max_bytes: int) -> list[Group] | None:
    """The groups of a run's own rollouts file, or None where it is something else."""
    from workbench.rundir.rollouts import read

    try:
        with opened(path) as stream:
            if stream.read(4) != b"PAR1" or path.stat().st_size > max_bytes:
                return None
        import pyarrow.parquet as pq

        if b"groups" not in (pq.read_schema(path).metadata or {}):
            return None
        return [credit.scored.group for credit in read(path)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # read as any other file, which says what is wrong with it


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not a Unix
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MAX_MEMORY if hard == resource.RLIM_INFINITY else min(MAX_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _limit_memory()
    serve(handle)
