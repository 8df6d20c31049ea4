"""The reader of people's YAML: what a value is, and that size, depth and cost are bounded."""

from __future__ import annotations

import json
import os
from math import inf, isnan
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench.config import RunConfig
from workbench.config.reading import MAX_DEPTH, MAX_VALUES, decoded, read_text, read_yaml
from workbench.errors import ConfigError
from workbench.sections.writing import write_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"),  # not 90
        ("2024-05-01", "2024-05-01"),
        ("no", "no"),
        ("on", "on"),
        ("1_000", "1_000"),
        ("010", 10),  # not 8
        ("0x1f", 31),
        ("-3", -3),
        ("1e-4", 0.0001),
        (".5", 0.5),
        ("5.", 5.0),
        ("-.INF", -inf),
        (".inf", inf),
        ("True", True),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("<<", "<<"),
        ("{a: [1, b]}", {"a": [1, "b"]}),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: object) -> None:
    read = read_yaml(f"x: {text}", "f")["x"]
    assert (read, type(read)) == (value, type(value))
    assert isnan(read_yaml("x: .NaN", "f")["x"])


def _unfolding(levels: int) -> str:
    """A few hundred bytes of YAML that come to 9 ** levels values."""
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            _unfolding(9),
            r"f is not YAML at line 2, column 10: the alias \*a0 stands for something else; write that out",
        ),
        ("a: &a [*a]", "the alias "),
        ("a: 1\nb: 2\na: 3", r"at line 3, column 1: the key 'a' is there twice; keep one"),
        ("run: {steps: 1, steps: 2}", "the key 'steps' is there twice"),
        ("[" * 5000 + "]" * 5000, f"nested deeper than {MAX_DEPTH} levels"),
        ("{a: " * 3000 + "1" + "}" * 3000, f"nested deeper than {MAX_DEPTH} levels"),
        ("- " * 200_000, f"nested deeper than {MAX_DEPTH} levels"),
        ("[" + "a, " * 100_000 + "]", f"holds more than {MAX_VALUES:,} values"),
        ("seed: " + "9" * 5000, "a number of 5,000 digits; at most 400 are read"),
        ("!!python/object/apply:os.system [echo]", r"the tag tag:yaml.org,2002:python/object/apply:os.system is not"),
        ("a: !!binary aGVsbG8=", "is not read; leave it out"),
        ("a: !!bool perhaps", "is not read; leave it out"),
        ("a: !<tag:yaml.org,2002:map> 3", "is not read; leave it out"),
        ("? [1, 2]\n: 3", "a key must be a name"),
        ("a\0: 1", "unacceptable character #x0000"),
        ("seed: 1\n---\nseed: 2", "at line 2, column 1: but found another document"),
        ("\t- x", "at line 1, column 1: "),
        ("a: '", "unexpected end"),
        ("k" * 100_000 + ": 1", "mapping values are not allowed here"),
        ("a: " + "x" * 1_000_000, "has 1,000,003 characters; the limit is 1,000,000"),
    ],
)
def test_what_would_cost_or_mislead_is_refused_in_a_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        read_yaml(text, "f")
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=60)
@given(values)
@example({"0E0": None})
def test_what_is_written_is_read_back(value: object) -> None:
    apart = json.loads(json.dumps(value))  # what is drawn twice would be written as an alias
    assert read_yaml(write_yaml({"x": apart}), "f")["x"] == value


@given(st.text(max_size=60))
@example("0E0")  # a number to readers of YAML 1.2, a text to PyYAML
@example("0o17")
@example("1.")
def test_a_configuration_is_read_back_whatever_its_texts_hold(text: str) -> None:
    reward = {"name": "mine", "code": f"# {text}\n"}
    config = RunConfig.parse({"policy": text, "pattern": {"regex": text}, "rewards": [reward]})
    assert RunConfig.from_yaml(config.to_yaml()) == config


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029", "\r", "\r\n", "\ufeff", "\ud800"])
def test_line_ends_of_other_systems_stay_what_they_were(end: str) -> None:
    code = f"# a{end}b\ndef mine(prompt, step, **columns):\n    return 1.0\n"
    config = RunConfig.parse({"rewards": [{"name": "mine", "code": code}]})
    assert RunConfig.from_yaml(config.to_yaml()).grpo.rewards[0].code == code


def test_a_configuration_writes_no_aliases() -> None:
    """The same object at two places would be written once, and referred to."""
    options = {"threshold": 0.25}
    config = RunConfig.parse({"credit": {"scheme": "first_error", "options": options}})
    config.grpo.rewards[0].options = config.grpo.rewards[1].options = {}
    assert RunConfig.from_yaml(config.to_yaml()) == config


def test_a_message_names_at_most_twenty_fields_and_cuts_long_names() -> None:
    with pytest.raises(ConfigError) as refused:
        RunConfig.parse({f"{'k' * 100_000}{n}": "v" * 100_000 for n in range(50)})
    lines = str(refused.value).splitlines()
    assert lines[-1] == "and 30 more"
    assert len(lines) == 21
    assert max(map(len, lines)) < 400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("seed: 1".encode("utf-16"), "f: it is UTF-16; save it as UTF-8"),
        (b"\xfe\xff\x00s", "f: it is UTF-16; save it as UTF-8"),
        (b"task: \xe9", "f: byte 6 is not UTF-8; save it as UTF-8"),
        (b"#" * 1_000_001, "f has over 1,000,000 bytes, which is the limit"),
    ],
)
def test_bytes_that_are_no_text_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        decoded(content, "f")


def test_a_byte_order_mark_and_other_line_ends_are_read() -> None:
    assert read_yaml(decoded(b"\xef\xbb\xbfseed: 1\r\nname: a\r\n", "f"), "f") == {"seed": 1, "name": "a"}


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    for path in (tmp_path, tmp_path / "gone", tmp_path / "loop", Path("a\0b"), Path("x" * 5000), Path("/dev/zero")):
        with pytest.raises(ConfigError, match=r"^f"):
            read_text(path, "f")
