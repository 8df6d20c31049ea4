"""Importing rollouts: a data file → groups, read in a child process that may crash, hang or run out of memory.

``load_groups`` is the public door; ``read_groups`` says besides what was decided on the way. Neither transformers nor
torch is loaded, here or in the child.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.assets import GSM8K
from workbench.child import seen_by_libraries
from workbench.errors import ChildError, ChildTimeout, TaskError
from workbench.places import local_path
from workbench.rollouts.files import MAX_BYTES
from workbench.rollouts.groups import AS_WORDS, UNKNOWN_END, Builder, Draft, Facts
from workbench.rollouts.records import Record
from workbench.rollouts.tokens import load_tokeniser
from workbench.rollouts.values import Row
from workbench.sandbox.child import Child
from workbench.schema import Group, Prompt

SHIPPED = {"gsm8k": GSM8K / "model-solutions-300.jsonl"}
"""Data that comes with the workbench, by the name it can be loaded under."""
SILENCE_SECONDS = 60.0
"""Longest the parser may take between two signs of life."""
IDLE_SECONDS = 30.0
"""How long the parser's process waits for another file."""
MODULE = "workbench.rollouts.child"
_LOGGER = logging.getLogger("workbench.rollouts")


@dataclass(frozen=True)
class Imported:
    """The groups of a file, and the facts about how it was read."""

    groups: tuple[Group, ...]
    facts: Facts

    def __len__(self) -> int:
        return len(self.groups)


def load_groups(
    path: str | Path,
    *,
    tokenizer: Any = None,
    format: str | None = None,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    skip_bad_rows: bool = False,
) -> list[Group]:
    """The groups of a data file or a folder of them, or of the data that comes along as ``"gsm8k"``.

    Completions with the same prompt are a group, in the file's order. ``tokenizer`` is ``"tiny"``, a folder, a Hub name
    or a fast tokenizer object; without one, texts are cut into words. ``token_ids`` in the file are taken as they are.
    ``format`` (see ``rollouts.formats``) is detected from the first row unless given; ``limit`` is a number of groups.
    Where columns have other names, ``columns={"prompt": "meta.question", "completion": "text"}`` says which they are.
    What the file says of one completion (``reward``, ``correct``, ``labels``) is in its ``columns``. With
    ``skip_bad_rows``, rows that cannot be read are left out. What was left out or decided is logged, a note a line
    (logger ``workbench.rollouts``).

    Raises:
        TaskError: for a file or tokenizer that cannot be read, naming the line or row.
    """
    imported = read_groups(
        path, tokenizer=tokenizer, format=format, limit=limit, columns=columns, skip_bad_rows=skip_bad_rows
    )
    for note in imported.facts.notes:
        if not note.endswith((UNKNOWN_END, AS_WORDS)):  # true of most files
            _LOGGER.warning("%s: %s", path, note)
    return list(imported.groups)


def group_of(prompt: Prompt, completions: Sequence[str], *, tokenizer: Any = None, **columns: Any) -> Group:
    """Your own answers to one prompt as a group, ``columns`` (the right ``answer``, say) being the data row's others.

    ``tokenizer`` is as in ``load_groups``; every completion is taken as finished. Raises TaskError where there is none.
    """
    if not completions:
        raise TaskError("a group needs at least one completion; two or more can be compared with each other")
    records = tuple(
        Record(f"completion {n}", prompt, text, columns=dict(columns)) for n, text in enumerate(completions, 1)
    )
    return Builder(load_tokeniser(tokenizer), Facts("texts", len(records)), "texts").build(Draft(prompt, records))


def read_groups(
    path: str | Path,
    *,
    tokenizer: Any = None,
    format: str | None = None,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    skip_bad_rows: bool = False,
    max_bytes: int = MAX_BYTES,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Imported:
    """``load_groups`` with the facts: format, tokenizer, preset, and notes on what could not be kept exactly.

    ``on_event`` hears ``{"phase": …}`` and ``{"done": n, "of": n}``; once ``cancelled`` says True, what is there by
    then is returned. Raises TaskError.
    """
    file = resolve(path)
    by_name = tokenizer is None or isinstance(tokenizer, str | Path)
    groups: list[Group] = []
    drafts: list[Draft] = []

    def pass_on(event: dict[str, Any]) -> None:
        groups.extend(map(Group.from_json, event.pop("groups", ())))
        drafts.extend(map(Draft.from_json, event.pop("drafts", ())))
        if on_event is not None:
            on_event(event)

    request = {
        "groups": os.path.abspath(file),
        "tokenizer": None if tokenizer is None or not by_name else str(tokenizer),
        "format": format,
        "limit": limit,
        "columns": dict(columns or {}),
        "skip_bad_rows": skip_bad_rows,
        "max_bytes": max_bytes,
        "drafts": not by_name,
    }
    facts = Facts.from_json(_asked(request, file, pass_on, cancelled)["facts"])
    if by_name or groups:  # a run's rollouts have their tokens already
        return Imported(tuple(groups), facts)
    builder = Builder(load_tokeniser(tokenizer), facts, file.name)
    return Imported(tuple(map(builder.build, drafts)), builder.facts())


def read_rows(path: str | Path, *, split: str | None = None, max_bytes: int = MAX_BYTES) -> list[Row]:
    """The rows of a file, or of a folder's split, as plain values, whatever they mean. Raises TaskError."""
    return read_splits(path, [split or ""], max_bytes=max_bytes)[0]


def read_splits(path: str | Path, splits: Sequence[str], *, max_bytes: int = MAX_BYTES) -> list[list[Row]]:
    """The rows of several splits of a folder, read by one process.

    "" is the one to train on, and ``folders.HELD_OUT`` what is held out of it, with no rows where there is no such
    split. A file has all its rows in "". Raises TaskError.
    """
    file = resolve(path)
    read: list[list[Row]] = [[] for _ in splits]

    def take(part: dict[str, Any]) -> None:
        read[part["split"]].extend(Row(where, values) for where, values in part["rows"])

    _asked({"rows": os.path.abspath(file), "splits": list(splits), "max_bytes": max_bytes}, file, take, None)
    return read


def resolve(path: str | Path) -> Path:
    """The file that a path or a name of shipped data stands for."""
    if isinstance(path, str) and path in SHIPPED:
        return SHIPPED[path]
    return local_path(str(path)) or Path(path)


def _asked(
    request: dict[str, Any],
    file: Path,
    on_event: Callable[[dict[str, Any]], None],
    cancelled: Callable[[], bool] | None,
) -> dict[str, Any]:
    with _PARSERS.taken(MODULE) as child:
        try:
            return child.call(request, deadline=SILENCE_SECONDS, on_event=on_event, cancelled=cancelled)
        except ChildTimeout as error:
            raise TaskError(
                f"{file.name}: the parser was stopped after {SILENCE_SECONDS:g} s of silence; split the file"
            ) from error
        except ChildError as error:
            raise TaskError(
                f"{file.name}: the parser crashed ({error}); the file is damaged or made to crash it, write it again"
            ) from error


_Start = tuple[str, str, dict[str, str]]
"""What a process is started with: module, folder, environment."""


class _Parsers:
    """The parser's process, which the next file within ``IDLE_SECONDS`` is read by, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: tuple[_Start, Child, threading.Timer] | None = None

    @contextmanager
    def taken(self, module: str) -> Iterator[Child]:
        start = (module, os.getcwd(), seen_by_libraries(os.environ))  # one that was started otherwise is another
        child = self._waiting(start) or Child(module, name="parser")
        try:
            yield child
        finally:
            if child.alive:  # also after an error that it told
                self._keep(start, child)
            else:
                child.close()

    def _waiting(self, start: _Start) -> Child | None:
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is None:
            return None
        started, child, timer = idle
        timer.cancel()
        if started == start and child.alive:
            return child
        child.close()
        return None

    def _keep(self, start: _Start, child: Child) -> None:
        timer = threading.Timer(IDLE_SECONDS, self._end, [child])
        timer.daemon = True
        with self._lock:
            before, self._idle = self._idle, (start, child, timer)
        timer.start()
        if before is not None:
            before[2].cancel()
            before[1].close()

    def _end(self, child: Child) -> None:
        with self._lock:
            if self._idle is None or self._idle[1] is not child:
                return  # it reads again
            self._idle = None
        child.close()


_PARSERS = _Parsers()
