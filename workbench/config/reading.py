"""Reader of people's YAML: one document of plain values, of bounded size, depth and cost.

YAML 1.2's core types alone: ``1:30``, ``2024-05-01`` and ``no`` are text, as they look, and a key stands once in a
mapping. Aliases are refused (a few hundred bytes of them unfold to gigabytes), and so are tags. Knows no field.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from workbench.errors import ConfigError, cut, shown
from workbench.rundir import MOST_CONFIG
from workbench.sections.writing import MAX_DEPTH, MAX_VALUES, TAG, add_core_types

MAX_BYTES = MOST_CONFIG
_MAX_DIGITS = 400
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def read_text(path: Path, what: str) -> str:
    """A file's text. Raises ConfigError, beginning with ``what``, for one that cannot be read or is not UTF-8 text."""
    try:
        with path.open("rb") as stream:  # a pipe will do; what never ends is read no further than the limit
            return decoded(stream.read(MAX_BYTES + 1), what)
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{what}: {cut(str(error), 300)}; give a text file that can be read") from error


def decoded(content: bytes, what: str) -> str:
    """Bytes as text, without a byte order mark. Raises ConfigError, beginning with ``what``."""
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{what} has over {MAX_BYTES:,} bytes, which is the limit; is it the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        written = next((f"it is {name}" for mark, name in _BOMS.items() if content.startswith(mark)), None)
        problem = written or f"byte {error.start} is not UTF-8"
        raise ConfigError(f"{what}: {problem}; save it as UTF-8") from error


def read_yaml(text: str, what: str) -> Any:
    """The values of a YAML document; None of an empty one. Raises ConfigError, beginning with ``what``."""
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{what} has {len(text):,} characters; the limit is {MAX_BYTES:,}")
    try:
        return _read(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"{what} is not YAML{place}: {cut(error.problem or 'it cannot be read', 300)}") from error
    except yaml.YAMLError as error:  # a character that no YAML has
        raise ConfigError(f"{what} is not YAML: {cut(str(error).splitlines()[0], 300)}") from error


def _read(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Fast)
    except yaml.YAMLError:  # the other reader reads it, or says better why not
        return yaml.load(text, Loader=_Reader)


class _Limits:
    """What is refused, and what words mean, whoever finds the words."""

    _depth = _values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[attr-defined]
        self._values += 1
        if isinstance(event, yaml.AliasEvent):
            raise _refusal(f"the alias *{cut(str(event.anchor), 40)} stands for something else; write that out", event)
        if getattr(event, "tag", None) not in (None, "!"):
            raise _refusal(f"the tag {cut(event.tag, 60)} is not read; leave it out", event)
        if self._depth >= MAX_DEPTH:
            raise _refusal(f"it is nested deeper than {MAX_DEPTH} levels", event)
        if self._values > MAX_VALUES:
            raise _refusal(f"it holds more than {MAX_VALUES:,} values", event)
        self._depth += 1
        try:
            return super().compose_node(parent, index)  # type: ignore[misc]
        finally:
            self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                raise _refusal("a key must be a name", key)
            if name in keys:
                raise _refusal(f"the key {shown(name, 60)} is there twice; keep one", key)
            keys.add(name)
        return super().construct_mapping(node, deep=deep)  # type: ignore[misc,no-any-return]

    def construct_yaml_int(self, node: Any) -> int:
        text = str(node.value)
        if len(text) > _MAX_DIGITS:
            raise _refusal(f"a number of {len(text):,} digits; at most {_MAX_DIGITS} are read", node)
        return int(text, 0) if text.lstrip("+-").startswith(("0x", "0o")) else int(text)

    def construct_yaml_float(self, node: Any) -> float:
        return float(str(node.value).lower().replace(".inf", "inf").replace(".nan", "nan"))


class _Reader(_Limits, yaml.SafeLoader):
    """PyYAML's own reader."""


class _Fast(_Limits, Composer, yaml.CSafeLoader):
    """The same with words found by libyaml, several times as fast; it refuses some texts that the other reads."""

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)


def _refusal(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


_CONSTRUCTORS = {
    TAG + "null": yaml.SafeLoader.construct_yaml_null,
    TAG + "bool": yaml.SafeLoader.construct_yaml_bool,
    TAG + "int": _Limits.construct_yaml_int,
    TAG + "float": _Limits.construct_yaml_float,
    TAG + "str": yaml.SafeLoader.construct_yaml_str,
    TAG + "seq": yaml.SafeLoader.construct_yaml_seq,
    TAG + "map": yaml.SafeLoader.construct_yaml_map,
    None: yaml.SafeLoader.construct_undefined,
}
for _reader in (_Reader, _Fast):
    _reader.yaml_implicit_resolvers = {}
    add_core_types(_reader)
    _reader.yaml_constructors = _CONSTRUCTORS
