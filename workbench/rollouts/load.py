"""Importing rollouts: a data file → groups, read in a child process that may crash, hang or run out of memory.

``load_groups`` is the public door; ``read_groups`` says besides what was decided on the way. Neither transformers nor
torch is loaded, here or in the child.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.assets import GSM8K
from workbench.child import Child
from workbench.errors import ChildError, ChildTimeout, TaskError
from workbench.places import local_path
from workbench.rollouts.files import MAX_BYTES, Row
from workbench.rollouts.groups import Builder, Draft, Facts
from workbench.rollouts.records import Record
from workbench.rollouts.tokens import load_tokeniser
from workbench.schema import Group, Prompt

SHIPPED = {"gsm8k": GSM8K / "model-solutions-300.jsonl"}
"""Data that comes with the workbench, by the name it can be loaded under."""
SILENCE_SECONDS = 60.0
"""Longest the parser may take between two signs of life."""
MODULE = "workbench.rollouts.child"


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
) -> list[Group]:
    """The groups of a JSONL or Parquet file, or of the data that comes along as ``"gsm8k"``.

    Completions with the same prompt are a group, in the file's order. ``tokenizer`` is ``"tiny"``, a folder, a Hub name
    or a fast tokenizer object; without one, texts are cut into words. ``token_ids`` in the file are taken as they are.
    ``format`` (see ``rollouts.formats``) is detected from the first row unless given; ``limit`` is a number of groups.
    What the file says of one completion (``reward``, ``correct``, ``labels``) is in its ``columns``.

    Raises:
        TaskError: for a file or tokenizer that cannot be read, naming the line or row.
    """
    return list(read_groups(path, tokenizer=tokenizer, format=format, limit=limit).groups)


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
        "groups": str(file),
        "tokenizer": None if tokenizer is None or not by_name else str(tokenizer),
        "format": format,
        "limit": limit,
        "max_bytes": max_bytes,
        "drafts": not by_name,
    }
    facts = Facts.from_json(_asked(request, file, pass_on, cancelled)["facts"])
    if by_name or groups:  # a run's rollouts have their tokens already
        return Imported(tuple(groups), facts)
    builder = Builder(load_tokeniser(tokenizer), facts, file.name)
    return Imported(tuple(map(builder.build, drafts)), builder.facts())


def read_rows(path: str | Path, *, max_bytes: int = MAX_BYTES) -> list[Row]:
    """A file's rows as plain values, whatever they mean. Raises TaskError."""
    file = resolve(path)
    rows: list[Row] = []

    def take(part: dict[str, Any]) -> None:
        rows.extend(Row(where, values) for where, values in part["rows"])

    take(_asked({"rows": str(file), "max_bytes": max_bytes}, file, take, None))
    return rows


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
    with Child(MODULE, name="parser") as child:
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
