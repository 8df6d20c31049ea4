"""A configuration's YAML, read and written by PyYAML: plain values alone, of bounded size, each key once."""

from pathlib import Path
from typing import Any

import yaml

from workbench.assets import ASSETS
from workbench.errors import ConfigError, cut, quote

MAX_BYTES = 1_000_000
MAX_DEPTH = 30


class _Loader(yaml.CSafeLoader):
    """PyYAML's safe loader, which refuses a key that stands twice; YAML 1.1 lets the last one win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                problem = f"the key {quote(key.value, 60)} is there twice; keep one"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_text(path: Path, what: str) -> str:
    """Return a file's text. Raises ConfigError, beginning with ``what``, if it cannot be read or is not UTF-8."""
    try:
        with path.open("rb") as stream:  # a pipe will do; what never ends is read no further than the limit
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what}: {cut(str(error), 300)}; give a text file that can be read") from error
    return decoded(content, what)


def decoded(content: bytes, what: str) -> str:
    """Return bytes as text, without a byte order mark. Raises ConfigError, beginning with ``what``."""
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{what} has over {MAX_BYTES:,} bytes, which is the limit; is it the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what}: byte {error.start} is not UTF-8; save it as UTF-8") from error


def read_yaml(text: str, what: str) -> Any:
    """Return the values of a YAML document, None if it is empty; ``{assets}`` in it is the folder that comes along.

    Raises ConfigError, beginning with ``what``.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{what} has {len(text):,} characters; the limit is {MAX_BYTES:,}")
    try:
        _check_structure(text)
        return yaml.load(text.replace("{assets}", str(ASSETS)), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"{what} is not YAML{place}: {cut(error.problem or 'it cannot be read', 300)}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:  # a character, number or key that no YAML has
        raise ConfigError(f"{what} cannot be read: {cut(str(error).splitlines()[0], 300)}") from error


def _check_structure(text: str) -> None:
    """Raise MarkedYAMLError for aliases (a few hundred bytes of them unfold to gigabytes) and for deep nesting."""
    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        problem = f"it is nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else ""
        if isinstance(event, yaml.AliasEvent):
            problem = f"the alias *{cut(str(event.anchor), 40)} stands for something else; write that out"
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which writes an object out wherever it stands."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """A text of several lines, such as code, stands line by line."""
        node: yaml.ScalarNode = super().represent_str(data)
        node.style = "|" if "\n" in data else node.style
        return node


_Dumper.add_representer(str, _Dumper.represent_str)


def write_yaml(data: Any) -> str:
    """Return plain values as YAML; all but ASCII is escaped where PyYAML would lose a line end of another system."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    if any(end in text for end in "\r\x85\u2028\u2029"):
        text = yaml.dump(data, Dumper=_Dumper, sort_keys=False)
    return text
