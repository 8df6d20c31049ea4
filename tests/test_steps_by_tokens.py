"""Steps that no regular expression finds: cut by how sure the policy was of its tokens, or by their number."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.errors import PatternError
from workbench.rewards import load_reward, score_group
from workbench.rewards.reward import score_completions
from workbench.schema import Group, Rollout
from workbench.steps import PRESETS, StepPattern, split_by_tokens

TEXTS = ("The ", "sum ", "is ", "12", ".", " Twice", " it", " is", " 24")
PROBABILITIES = (0.5, 0.95, 0.8, 0.99, 0.9, 0.3, 0.95, 0.85, 0.6)
ENTROPIES = (1.0, 0.2, 1.5, 1.6, 0.1, 2.0, 0.3, 0.2, 1.7)


def rollout(**changes):
    values = {
        "token_ids": tuple(range(len(TEXTS))),
        "texts": TEXTS,
        "finished": False,
        "logprobs": tuple(map(math.log, PROBABILITIES)),
        "entropies": ENTROPIES,
    }
    return Rollout(**values | changes)


def cut(regex, kind, span=None, **changes):
    sampled = rollout(**changes)
    return [
        sampled.text[step.start : step.end] for step in split_by_tokens(sampled, StepPattern(regex, kind), span).steps
    ]


ENDED = {
    "token_ids": tuple(range(10)),
    "texts": (*TEXTS, "<eos>"),
    "finished": True,
    "logprobs": (*map(math.log, PROBABILITIES), math.log(0.01)),
    "entropies": (*ENTROPIES, 9.0),
}
MASKED = {"mask": tuple(int(t != 5) for t in range(9))}
PARTS = {"token_ids": (1, 2, 3, 4), "texts": ("a", "", "é", "b"), "logprobs": (-0.01, -2.3, -2.3, -0.01)}
ALL, START = "".join(TEXTS), len("The sum is 12.")


@pytest.mark.parametrize(
    ("regex", "kind", "expected", "changes"),
    [
        # Below 0.9: tokens 0, 2, 5, 7 and 8. The fifth is 0.9 and not below it; the first begins a step anyway.
        ("0.9", "surprise", ["The sum ", "is 12.", " Twice it", " is", " 24"], {}),
        # Of these every second, the first among them: 0, 5 and 8.
        ("0.9 2", "surprise", ["The sum is 12.", " Twice it is", " 24"], {}),
        ("1.5", "entropy", ["The sum ", "is ", "12.", " Twice it is", " 24"], {}),
        # Token 2 is two behind the start, 3 only one behind that, 5 is three behind it, 8 three behind that.
        ("1.5 2", "entropy", ["The sum ", "is 12.", " Twice it is", " 24"], {}),
        ("1.5 3", "entropy", ["The sum is ", "12. Twice it is", " 24"], {}),
        ("4", "tokens", ["The sum is 12", ". Twice it is", " 24"], {}),
        ("100", "tokens", [ALL], {}),
        # The end-of-sequence token and what a tool wrote begin no step.
        ("0.9", "surprise", ["The sum ", "is 12.", " Twice it", " is", " 24"], ENDED),
        ("9", "tokens", [ALL], ENDED),
        ("0.9", "surprise", ["The sum ", "is 12. Twice it", " is", " 24"], MASKED),
        ("1.9", "entropy", [ALL], MASKED),
        # Tokens that complete no character begin a step where the character begins.
        ("0.9", "surprise", ["a", "éb"], PARTS),
        # Where thinking is left out, tokens are counted from the answer's first.
        ("2", "tokens", [" Twice it", " is 24"], {"span": (START, len(ALL))}),
        ("0.9", "surprise", [" Twice it", " is", " 24"], {"span": (START, len(ALL))}),
        ("2", "tokens", [], {"span": (5, 5)}),
    ],
)
def test_where_a_step_ends(regex, kind, expected, changes):
    assert cut(regex, kind, **changes) == expected


def test_a_match_is_the_token_that_a_step_ends_before_and_without_one_all_is_one_unmatched_step():
    found = split_by_tokens(rollout(), StepPattern("0.9 2", "surprise"))
    assert [ALL[start:end] for start, end in found.matches] == [" Twice", " 24"]
    found = split_by_tokens(rollout(), StepPattern("0.01", "surprise"))
    assert [(step.start, step.end, step.matched) for step in found.steps] == [(0, len(ALL), False)]
    assert split_by_tokens(rollout(), StepPattern("50", "tokens")).steps[0].matched


@pytest.mark.parametrize(
    ("regex", "kind", "number", "count"),
    [("0.9 5", "surprise", 0.9, 5), (" .5 ", "surprise", 0.5, 1), ("2 3", "entropy", 2.0, 3), ("7", "tokens", 7.0, 7)],
)
def test_the_numbers_of_a_pattern(regex, kind, number, count):
    assert StepPattern(regex, kind).numbers == (number, count)


@pytest.mark.parametrize(("kind", "what"), [("surprise", "log-probabilities"), ("entropy", "entropies")])
def test_a_completion_without_them_is_refused(kind, what):
    bare = rollout(logprobs=None, entropies=None)
    with pytest.raises(PatternError, match=what):
        split_by_tokens(bare, PRESETS[kind].pattern)
    assert split_by_tokens(bare, PRESETS["tokens"].pattern).steps


def test_more_than_a_thousand_steps_stay_one_without_a_score_in_a_preview_and_in_training():
    many = rollout(token_ids=(1,) * 1500, texts=("a",) * 1500, logprobs=(-1.0,) * 1500, entropies=(1.0,) * 1500)
    pattern = StepPattern("1", "tokens")
    (shown,) = score_group(Group("?", (many,)), pattern, [steps_of]).scored
    (trained,), _ = score_completions(["?"], [many], [{}], pattern, [load_reward(steps_of)])
    assert shown == trained
    assert [(step.start, step.end, step.matched) for step in shown.steps] == [(0, 1500, False)]
    assert (shown.rewards, shown.unsplit) == ((None,), True)


def steps_of(prompt, step, **columns):
    return float(len(step))


@pytest.mark.parametrize(("regex", "kind"), [("0.9", "surprise"), ("1.5", "entropy"), ("2", "tokens")])
def test_preview_and_training_find_the_same_spans(regex, kind):
    """``score_group`` is the page's way, ``score_completions`` the trainer's."""
    group = Group("?", (rollout(), rollout(texts=TEXTS[::-1]), rollout(finished=True)))
    pattern = StepPattern(regex, kind)
    shown = score_group(group, pattern, [steps_of]).scored
    trained, _ = score_completions(["?"] * 3, group.rollouts, [{}] * 3, pattern, [load_reward(steps_of)])
    assert [(row.spans, row.steps) for row in shown] == [(row.spans, row.steps) for row in trained]
    assert all(len(row.steps) > 1 for row in shown)


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", " b", "é\n"]), st.floats(0.01, 0.99)), min_size=1, max_size=30),
    st.sampled_from(["surprise", "entropy", "tokens"]),
    st.integers(1, 4),
    st.booleans(),
)
def test_steps_partition_the_text_and_meet_the_tokens_they_were_cut_at(tokens, kind, count, finished):
    texts, numbers = zip(*tokens, strict=True)
    sampled = Rollout(
        tuple(range(len(texts))), texts, finished, logprobs=tuple(map(math.log, numbers)), entropies=numbers
    )
    pattern = StepPattern(f"{count}" if kind == "tokens" else f"0.5 {count}", kind)
    steps = split_by_tokens(sampled, pattern).steps
    assert "".join(sampled.text[step.start : step.end] for step in steps) == sampled.text
    assert all(step.start < step.end for step in steps)
    spans = wb.align_steps(texts, steps) if sampled.text else []
    read = texts[:-1] if finished else texts
    improbable = [t for t in range(len(read)) if numbers[t] < 0.5][::count]
    if kind == "surprise" and "" not in read and len(steps) > 1:
        assert [first for first, _ in spans[1:]] == [t for t in improbable if t]
