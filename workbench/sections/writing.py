"""Writer of a configuration's YAML, and the types that its reader knows (``config.reading``).

PyYAML writes for readers of YAML 1.1, to whom ``0E0`` is text; to a reader of YAML 1.2 it is a number. Texts that look
like a value to either are quoted.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

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
_LINE_ENDS = re.compile("[\r\x85\u2028\u2029]")


def add_core_types(reader_or_writer: Any) -> None:
    """Have a class of PyYAML resolve words to the core types, beside those that it knows."""
    for name, (form, first) in CORE.items():
        letters = [letter.strip("\0") for letter in first]
        reader_or_writer.add_implicit_resolver(TAG + name, re.compile(f"(?:{form})$"), letters)


class _Writer(yaml.SafeDumper):
    """PyYAML's safe dumper, which quotes what is a value to either reader."""


add_core_types(_Writer)


def write_yaml(data: Any, *, width: int = 80) -> str:
    """Plain values as YAML; what ends a line to some readers only is escaped."""
    text: str = yaml.dump(data, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=width)
    if _LINE_ENDS.search(text):
        text = yaml.dump(data, Dumper=_Writer, sort_keys=False, width=width)
    return text
