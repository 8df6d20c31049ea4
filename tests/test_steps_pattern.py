"""Patterns that cannot be used: each is refused with a message that says why, before it can do harm."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import PatternError, PatternSyntaxError, PatternTooSlow, TooManySteps
from workbench.steps import PRESETS, StepPattern, split_preview, split_steps
from workbench.training.methods import RunConfig


def test_a_presets_name_alone_is_its_pattern() -> None:
    for name in ("step-n", "line", "sentence", "turns", "surprise"):
        assert StepPattern(name) == StepPattern(regex=name) == PRESETS[name].pattern
    assert RunConfig.parse({"method": {"pattern": {"regex": "line"}}}).method.pattern == StepPattern(r"\n+", "ends")
    assert StepPattern("line", "starts").regex == "line"


@pytest.mark.parametrize(
    ("text", "source"), [("a" * 50 + "x" * 20_000 + "b", r"(x+x+)+y"), (" " * 100_000 + "x", r"\s+$")]
)
def test_a_slow_pattern_is_stopped(text: str, source: str) -> None:
    with pytest.raises(PatternTooSlow, match=r"0\.25 s"):
        split_steps(text, StepPattern(source))


def test_a_slow_pattern_names_the_sample() -> None:
    with pytest.raises(PatternTooSlow, match="rollout 3") as caught:
        split_preview(["b", "aab", "a" * 50 + "b"], StepPattern("(a|aa)+$"))
    assert caught.value.sample == 2


@pytest.mark.parametrize(
    ("source", "position", "reason"),
    [
        ("[", 1, "unterminated character set"),
        ("Step (", 6, r"missing \)"),
        ("a**", 2, "multiple repeat"),
        ("*", 0, "nothing to repeat"),
        ("\\", 1, "bad escape"),
    ],
)
def test_a_pattern_that_does_not_compile_says_where(source: str, position: int, reason: str) -> None:
    with pytest.raises(PatternSyntaxError, match=f"{reason}.* at character {position}$") as caught:
        split_steps("a", StepPattern(source))
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("source", "characters"),
    [
        ("a{99999999}", 99_999_999),
        ("a{9999999,}", 9_999_999),
        ("((a{1000}){1000}){1000}", 10**9),
        (r"(?:\(x\)[)}]{1000}){1000}", 1_005_000),  # "(?:" counts as two more
        ("a{100001}", 100_001),
    ],
)
def test_a_pattern_too_large_when_written_out_is_refused_before_it_is_compiled(
    source: str, characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regex.compile", lambda source: pytest.fail("compiled"))
    with pytest.raises(PatternError, match=f"{characters:,}") as refused:
        split_steps("aaa", StepPattern(source))
    assert not isinstance(refused.value, PatternSyntaxError)


def test_counts_side_by_side_are_added_and_optional_ones_are_none() -> None:
    several = r"(?:a{0,900}b{300}c{300}[{99}]){100}d{900}" + "e{1000}" * 30
    assert len(split_steps(several, StepPattern(several))) == 1


@pytest.mark.parametrize("source", ["", "x*", "^", "(?m)$", "a?|b"])
def test_a_pattern_that_matches_empty_text_is_refused(source: str) -> None:
    with pytest.raises(PatternError, match="empty text"):
        split_steps("abc", StepPattern(source))


@pytest.mark.parametrize(
    ("regex", "kind", "is_separator"),
    [
        *((regex, "starts", True) for regex in (r"\n", r"\n+", r"\s+", r"\n\n", r"\n{2,}", r"[\r\n]+", r"\r?\n ")),
        *((regex, "starts", False) for regex in ("Step", r"\nStep", r"(?m)^\d", r"\n(?=Step)", "")),
        (r"\n", "ends", False),
    ],
)
def test_a_pattern_of_white_space_that_starts_steps_separates_them(regex: str, kind: Any, is_separator: bool) -> None:
    assert StepPattern(regex, kind).is_separator is is_separator


@pytest.mark.parametrize("kind", ["starts", "ends", "is"])
def test_over_a_thousand_steps_are_refused(kind: str) -> None:
    with pytest.raises(TooManySteps):
        split_steps("a" * 100_000, StepPattern("a", kind), timeout=60)  # type: ignore[arg-type]
    assert len(split_steps("a" * 1000, StepPattern("a", kind))) == 1000  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.text(alphabet=r"abAB()[]*+?|\\.^$,-#: \n?<>P=!sdwmix&~" + "é中", max_size=40), st.text(max_size=30))
def test_any_pattern_at_all_either_splits_or_says_why_not(source: str, text: str) -> None:
    try:
        steps = split_steps(text, StepPattern(source))
    except PatternError:
        return
    assert steps[0].start >= 0
