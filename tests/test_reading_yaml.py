"""A configuration's YAML: what is written is read back, and size, depth and cost are bounded."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench.config.reading import MAX_DEPTH, read_text, read_yaml
from workbench.errors import ConfigError
from workbench.training.methods import RunConfig


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: &a [1]\nb: *a", r"line 2, column 4: .*\*a"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: .*'a'"),
        ("run: {steps: 1, steps: 2}", "'steps'"),
        ("[" * 500 + "]" * 500, f"{MAX_DEPTH} levels"),
        ("{a: " * 300 + "1" + "}" * 300, f"{MAX_DEPTH} levels"),
        ("- " * 200_000, f"{MAX_DEPTH} levels"),
        ("seed: " + "9" * 5000, "f "),
        ("!!python/object/apply:os.system [echo]", "python/object/apply:os.system"),
        ("? [1, 2]\n: 3", "f "),
        ("a\0: 1", "f "),
        ("seed: 1\n---\nseed: 2", "another document"),
        ("\t- x", "line 1, column 1"),
        ("a: '", "unexpected end"),
        ("a: " + "x" * 1_000_000, "1,000,000"),
    ],
)
def test_what_would_cost_or_mislead_is_refused_in_a_line(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        read_yaml(text, "f")
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


@settings(max_examples=30)
@given(st.text(max_size=60))
@example("0E0")
@example("no")
@example("1:30")
@example("2024-05-01")
def test_a_configuration_is_read_back_whatever_its_texts_hold(text: str) -> None:
    reward = {"name": "mine", "code": f"# {text}\n"}
    config = RunConfig.parse({"policy": text, "method": {"pattern": {"regex": text}, "rewards": [reward]}})
    assert RunConfig.from_yaml(config.to_yaml()) == config


def test_a_number_is_one_however_it_is_written() -> None:
    config = RunConfig.from_yaml("optimiser: {learning_rate: 5e-6, adam_epsilon: 1.0E-8}")
    assert (config.optimiser.learning_rate, config.optimiser.adam_epsilon) == (5e-6, 1e-8)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    for path in (tmp_path, tmp_path / "gone", tmp_path / "loop", Path("a\0b"), Path("x" * 5000), Path("/dev/zero")):
        with pytest.raises(ConfigError, match=r"^f"):
            read_text(path, "f")
