"""Rows of a data set on the Hugging Face Hub: ``hub:OWNER/NAME``, ``hub:OWNER/NAME/CONFIG``, either with ``@REVISION``.

``datasets`` finds, downloads and keeps them, runs no code of theirs, and reads a row when it is asked for, so that a
large set needs no memory. Data of that name in the current folder is taken before the Hub's, as ``datasets`` does. This
module does not know what a row means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import TaskError, did_you_mean, shown
from workbench.rollouts import Row, row_of
from workbench.tasks.task import Examples

PREFIX = "hub:"
FORM = "hub:OWNER/NAME, hub:OWNER/NAME/CONFIG, and @REVISION behind either"
_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?")
_FIRST_CONFIGS = ("default", "main")
_HELD_OUT = ("test", "validation")


@dataclass(frozen=True)
class HubRows:
    """Rows by index. ``held_out`` are those of the split that is held out, None where there is no such."""

    rows: Sequence[Row]
    held_out: Sequence[Row] | None


def parts_of(name: str) -> tuple[str, str | None, str | None]:
    """Repository, config and revision of a data set's name. Raises TaskError for a name of another form."""
    match = _NAME.fullmatch(name.removeprefix(PREFIX))
    if match is None or ".." in name:
        raise TaskError(f"{shown(name)} names no data set of the Hub; the form is {FORM}")
    return match["repository"], match["config"], match["revision"]


def hub_rows(name: str, split: str | None = None, held_out: str | None = None) -> HubRows:
    """A split of a data set (``train``, or the first), and what it holds out (``test`` or ``validation``).

    Without a config that is ``default``, ``main``, or the first there is.

    Raises:
        TaskError: for a name of another form, a split that is not there, and whatever keeps ``datasets`` from loading.
    """
    repository, config, revision = parts_of(name)
    from datasets import get_dataset_config_names, load_dataset

    try:
        if config is None:
            known = get_dataset_config_names(repository, revision=revision)
            config = next((name for name in _FIRST_CONFIGS if name in known), known[0])
        splits = load_dataset(repository, config, revision=revision)
    except Exception as error:  # names, network, rights and formats each fail in their own way
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TaskError(
            f"{name}: the data set cannot be loaded ({first[:300]}); check its name and the network, or log in with "
            "hf auth login"
        ) from error
    for asked in (split, held_out):
        if asked is not None and asked not in splits:
            raise TaskError(
                f"{name} has no split {asked!r}{did_you_mean(asked, splits)}; its splits are {', '.join(splits)}"
            )
    train = split or ("train" if "train" in splits else next(iter(splits)))
    held_out = held_out or next((name for name in _HELD_OUT if name in splits and name != train), None)
    return HubRows(
        _rows(name, splits[train], "training"),
        None if held_out is None else _rows(name, splits[held_out], "held-out"),
    )


def _rows(name: str, rows: Sequence[Mapping[str, Any]], what: str) -> Sequence[Row]:
    def row(i: int) -> Row:
        return row_of(name, f"{what} row {i + 1}", rows[i])

    return Examples(len(rows), row)
