"""Writer of a configuration's YAML, and the types that its reader knows (``config.reading``).

PyYAML writes for readers of YAML 1.1, to whom ``0E0`` is text; to a reader of YAML 1.2 it is a number. Texts that look
like a value to either are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from workbench.errors import shown

MAX_DEPTH = 30
MAX_VALUES = 5_000
"""What a configuration's YAML may hold to be read again, names included."""
_DEFAULTS = 1_000  # of these values, for what is written beside what was given
TAG = "tag:yaml.org,2002:"
CORE = {
    "null": (r"~|null|Null|NULL|", "~nN\0"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
"""YAML 1.2's core types of a word: how it looks, and the characters that it begins with (NUL: it is empty)."""
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_LINE_ENDS = re.compile("[\r\x85\u2028\u2029]")


def add_core_types(reader_or_writer: Any) -> None:
    """Have a class of PyYAML resolve words to the core types, beside those that it knows."""
    for name, (form, first) in CORE.items():
        letters = [letter.strip("\0") for letter in first]
        reader_or_writer.add_implicit_resolver(TAG + name, re.compile(f"(?:{form})$"), letters)


class _Writer(yaml.SafeDumper):
    """PyYAML's safe dumper, which quotes what is a value to either reader."""


add_core_types(_Writer)


def check_writable(data: Any) -> None:
    """Raises ValueError for a configuration that could not be read again once it is written.

    Its names must be encodable text; what holds itself is nested too deeply.
    """
    left, seen = [(data, 0)], 0
    while left:
        value, depth = left.pop()
        seen += 1
        if depth >= MAX_DEPTH:
            raise ValueError(f"the configuration is nested deeper than {MAX_DEPTH} levels")
        if seen > MAX_VALUES - _DEFAULTS:
            raise ValueError(f"the configuration sets over {MAX_VALUES - _DEFAULTS:,} names and values")
        if isinstance(value, Mapping):
            for name in value:
                if isinstance(name, str) and _HALF_CHARACTER.search(name):
                    raise ValueError(f"the name {shown(name)} holds an unpaired surrogate, half a character; rename it")
            left += [(part, depth + 1) for part in (*value, *value.values())]
        elif isinstance(value, list | tuple):
            left += [(part, depth + 1) for part in value]


def write_yaml(data: Any, *, width: int = 80) -> str:
    """Plain values as YAML; what ends a line to some readers only is escaped."""
    text: str = yaml.dump(data, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=width)
    if _LINE_ENDS.search(text):
        text = yaml.dump(data, Dumper=_Writer, sort_keys=False, width=width)
    return text
