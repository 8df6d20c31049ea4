"""Imported rollouts: groups read from JSONL and Parquet files, tokenised so that no text is misaligned."""

from workbench.rollouts.formats import FORMATS
from workbench.rollouts.groups import Facts
from workbench.rollouts.load import SHIPPED, Imported, group_of, load_groups, read_groups, read_rows, read_splits
from workbench.rollouts.values import Row, row_of

__all__ = [
    "FORMATS",
    "SHIPPED",
    "Facts",
    "Imported",
    "Row",
    "group_of",
    "load_groups",
    "read_groups",
    "read_rows",
    "read_splits",
    "row_of",
]
