"""Exploit probes, pre-flight and alarms: numbers worked by hand, and what each edit does to a text."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.credits import worked_credit
from workbench.checks import EDITS, TURN_EDITS, alarms, preflight, preflight_of, probe, split_step_demo
from workbench.checks.edits import FILLER, INSERTED, Change, Target, splice
from workbench.checks.metrics import group_metrics
from workbench.config import CreditConfig
from workbench.credit import SCHEMES, assign_credit, credit_groups
from workbench.errors import CreditError
from workbench.rewards import Reward, load_reward, score_group
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern, split_preview

STARTS = StepPattern(r"(?m)^Step \d+:", kind="starts")
ENDS = StepPattern(r"\n", kind="ends")
IS = StepPattern(r"<s>.*?</s>", kind="is")


def rollout(*texts, finished=False):
    return Rollout(tuple(range(len(texts))), texts, finished)


def contains_equals(prompt, step, **columns):
    return 1.0 if "=" in step else 0.0


def target(one, pattern, prompt="Start with 3, add 4."):
    group = Group(prompt, (one,))
    scored = score_group(group, pattern, [contains_equals]).scored[0]
    return Target(group, one, scored, pattern.kind, lambda text: split_preview([text], pattern)[0])


# -- edits ------------------------------------------------------------------------------------------------------------


def test_splicing_keeps_every_token_it_does_not_touch():
    one = rollout("ab", "cd", "ef", "<end>", finished=True)
    edited = splice(one, [Change(3, 5, "XY Z")])
    assert edited.texts == ("ab", "c", "XY", " Z", "f", "<end>")
    assert edited.token_ids == (0, INSERTED, INSERTED, INSERTED, INSERTED, 3)
    assert splice(one, [Change(0, 2, ""), Change(6, 6, "!")]).text == "cdef!"
    assert splice(replace(one, mask=(1, 1, 0, 1)), [Change(3, 5, "XY Z")]).mask == (1, 1, 1, 1, 0, 1)


WORKED = {
    "starts": (
        rollout("Step 1:", " a =", " b c", " d", "\n", "Step 2:", " no"),
        STARTS,
        {
            "split a step": "Step 1: a\nStep 1: =\nStep 1: b\nStep 1: c d\nStep 2: no",
            "merge two steps": "Step 1: a = b c d\n no",
            "repeat the answer": "Step 1: a = b c d\nStep 2: no\nStep 2: no",
            "copy the prompt's numbers": "Step 1: a = b c d 3 4\nStep 2: no",
            "repeat a step": "Step 1: a = b c d\nStep 1: a = b c d\nStep 2: no",
            "pad with filler": f"Step 1: a = b c d{FILLER}\nStep 2: no",
            "drop the separators": " a = b c d\n no",
            "append an empty step": "Step 1: a = b c d\nStep 2: no\nStep 1:",
        },
    ),
    "ends": (
        rollout("a =", " b c", " d\n", "no\n"),
        ENDS,
        {
            "split a step": "a =\nb\nc\nd\nno\n",
            "merge two steps": "a = b c d no\n",
            "repeat the answer": "a = b c d\nno\n\nno\n",
            "copy the prompt's numbers": "a = b c d 3 4\nno\n",
            "repeat a step": "a = b c d\na = b c d\nno\n",
            "pad with filler": f"a = b c d{FILLER}\nno\n",
            "drop the separators": "a = b c d no ",
            "append an empty step": "a = b c d\nno\n.\n",
        },
    ),
    "is": (
        rollout("<s>a =", " b c", " d</s>", " x ", "<s>no</s>"),
        IS,
        {
            "split a step": "<s>a =</s>\n<s>b</s>\n<s>c</s>\n<s>d</s> x <s>no</s>",
            "merge two steps": "<s>a = b c d x no</s>",
            "repeat the answer": "<s>a = b c d</s> x <s>no</s>\n<s>no</s>",
            "copy the prompt's numbers": "<s>a = b c d 3 4</s> x <s>no</s>",
            "repeat a step": "<s>a = b c d</s>\n<s>a = b c d</s> x <s>no</s>",
            "pad with filler": f"<s>a = b c d{FILLER}</s> x <s>no</s>",
            "append an empty step": "<s>a = b c d</s> x <s>no</s>\n<s> </s>",
            "drop the separators": " a = b c d  x  no ",
        },
    ),
    "no end": (rollout("no", "\n", "a = b"), ENDS, {"repeat a step": "no\na = b\na = b"}),
}
CASES = [(kind, name) for kind, (_, _, edits) in WORKED.items() for name in edits]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_what_each_edit_writes(kind, name):
    one, pattern, expected = WORKED[kind]
    assert EDITS[name].apply(target(one, pattern)).text == expected[name]


# -- probes -----------------------------------------------------------------------------------------------------------


def test_the_shipped_demo_shows_what_suffix_sums_reward():
    report = probe(*split_step_demo())
    split = report.results["split a step"]
    # 1 0 | 1 0 | 0 1 | 0 0: mean 3/8, std 0.51755, 1.20747 - 0.72448. 1 1 1 1 0 | ...: mean 6/11, std 0.52223,
    # 4 * 0.87023 - 1.04427.
    assert split["process"].worst.first == pytest.approx((0.48299, 2.43663), abs=1e-4)
    schemes = ("process", "outcome", "position", "progress")
    assert {scheme: split[scheme].pays for scheme in schemes} == dict.fromkeys(schemes, False) | {"process": True}
    assert len(report.rows()) == len(EDITS) * len(SCHEMES)


def test_a_probes_numbers_are_those_of_assign_credit():
    """Two ways to the same number: the probe's, and the edited group's rewards credited directly."""
    group, pattern, rewards = split_step_demo()
    found = probe(group, pattern, rewards, ["process"], edits=["repeat a step"]).results["repeat a step"]["process"]
    scored = score_group(group, pattern, rewards)
    for gain in found.gains:
        step_rewards = scored.step_rewards
        best = step_rewards[gain.rollout].index(max(step_rewards[gain.rollout]))
        step_rewards[gain.rollout].insert(best, step_rewards[gain.rollout][best])
        lengths = [len(row) for row in step_rewards]
        credit = assign_credit(step_rewards, [list(range(n)) for n in lengths], lengths, "process")
        assert gain.first[1] == pytest.approx(float(credit[gain.rollout, 0]), abs=1e-6)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (StepPattern(r"<s>.*?</s>", kind="is"), "<s>x<5 and y>2 so ok</s> <s>done 1</s>"),
        (StepPattern(r".+\n", kind="ends"), "add 3\nthen 4\n"),
        (StepPattern(r"Let \w+ be \d", kind="starts"), "Let x be 3. Let y be 4. so 7"),
    ],
)
@pytest.mark.parametrize("name", ["drop the separators", "merge two steps", "split a step", "append an empty step"])
def test_no_edit_of_separators_takes_or_adds_content(pattern, text, name):
    edited = EDITS[name].apply(target(rollout(text), pattern))
    if edited is not None:
        plain = edited.text.replace("<s>", " ").replace("</s>", " ")
        assert plain.split() == text.replace("<s>", " ").replace("</s>", " ").split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edits": ["split"]}, "'split'"),
        ({"schemes": ["proces"]}, "'proces'"),
        ({"options": {"gama": 0.5}}, "'gama'"),
    ],
)
def test_a_probe_names_what_it_does_not_know(arguments, message):
    with pytest.raises(CreditError, match=message):
        probe(*split_step_demo(), **arguments)


def test_a_scheme_that_cannot_be_used_is_left_out_with_its_reason():
    group, pattern, rewards = split_step_demo()
    report = probe(group, pattern, rewards[:1], ["process", "outcome"])
    assert (list(report.left_out), report.schemes) == (["outcome"], ["process"])


# -- pre-flight -------------------------------------------------------------------------------------------------------


def named(found):
    return {finding.name: finding for finding in found.findings}


def groups(*texts, prompt="q", finished=True):
    return Group(
        prompt,
        tuple(
            Rollout(tuple(range(len(t) + finished)), (*t, "<end>") if finished else tuple(t), finished) for t in texts
        ),
    )


def broken(prompt, step, **columns):
    raise ValueError("no such column")


def length(prompt, step, **columns):
    return float(len(step))


def always(prompts, completions, **_):
    return [0.5] * len(completions)


def digits(prompts, completions, **_):
    return [float(sum(character.isdigit() for character in text)) for text in completions]


def of_prompt(prompts, completions, **_):
    return [float(len(prompt)) for prompt in prompts]


def ended(prompts, completions, **_):
    return [float("Answer" in text) for text in completions]


def short(prompts, completions, **_):
    return [-abs(50 - len(completion)) for completion in completions]


def equals(prompts, completions, **_):
    return [float("=" in text) for text in completions]


SOUND = groups("Step 1: a = b\nStep 2: c", "Step 1: a\nStep 2: c\n")
THREE = groups("Step 1: a = b\nStep 2: c", "Step 1: a\nStep 2: c 7\n", "Step 1: x")
CHAT = [{"role": "user", "content": "2 + 2?"}]
OPENED = Group(CHAT, groups("a</think>", "b").rollouts, {}, "", {"prompt_tail": "A:<think>\n"})
TALK = Group(CHAT, groups("Step 1: a = b", "Step 1: c, at length").rollouts)
RUNS_ON = groups("Step 1: 2<|im_end|>\nno", "Step 1: =").rollouts


@pytest.mark.parametrize(
    ("sampled", "pattern", "rewards", "expected"),
    [
        ([SOUND] * 2, STARTS, [], {"steps per answer": ("ok", r"2 \(2 to 2\)"), "groups without spread": ("ok", "0%")}),
        (
            [groups("no step", "no step", finished=False)],
            STARTS,
            [],
            {
                "answers without a match": ("stop", ""),
                "groups without spread": ("stop", ""),
                "truncated": ("check", "100%"),
                "repeated answers": ("ok", "50%"),
                "steps per answer": ("check", ""),
            },
        ),
        # 17 of 24 + 9 characters lie before the first step; one token of 5, "x\nS", is of two.
        (
            [Group("q", (rollout("preamble preambl", "\nSt", "ep 1:"), rollout("Step 1:", " =")))],
            STARTS,
            [],
            {"text outside steps": ("check", "52%"), "straddling tokens": ("check", "20.0%")},
        ),
        (
            [groups("a</think>", "b</think>", prompt="2 + 2?\n<think>\n")],
            StepPattern(r"<think>.*?</think>", kind="is"),
            [],
            {"prompt ends with a tag": ("check", r"<think>.*\(\?:<think>\)\?")},
        ),
        ([OPENED], StepPattern("<think>.*?</think>", kind="is"), [], {"prompt ends with a tag": ("check", "")}),
        ([OPENED], StepPattern("(?:<think>)?.*?</think>", kind="is"), [], {"prompt ends with a tag": None}),
        ([SOUND], STARTS, [broken], {"errors of broken": ("stop", "1 of 1 groups.*no such column")}),
        # All have one step.
        (
            [groups(*("Step 1: " + "a" * n for n in (1, 2, 3, 4)))] * 2,
            STARTS,
            [length],
            {"reward and length": ("check", r"r = \+1.00.*pad with filler"), "reward and step count": None},
        ),
        # Of 10 steps 2 have "=". The answers have 2, 3 and 1 digits: 2 on average, a third each, none equal.
        (
            [THREE] * 2,
            STARTS,
            [digits, always],
            {
                "reward always": ("check", "^0.5 .*0.5 for every completion"),
                "reward contains_equals": ("ok", "^0.2 .*80% are 0, the lowest; 0% unscored; equal in 0 of 2"),
                "reward digits": ("ok", "^2 "),
            },
        ),
        (
            [groups("Step 1: =", "Step 1: b", prompt=prompt) for prompt in ("q", "qq")],
            STARTS,
            [of_prompt],
            {"reward of_prompt": ("check", "completions of a prompt")},
        ),
        # Of 100, 180 and 200 tokens, the last cut off, 2 end in 480: one in 240. A third goes on after 200 and a tenth
        # does after 200 + 240 log(10 / 3) = 489, the next multiple of 16 of which is 496.
        (
            [Group("q", tuple(Rollout(tuple(range(n)), ("a",) * n, n < 200) for n in (100, 180, 200)))],
            ENDS,
            [digits],
            {"truncated": ("check", "496")},
        ),
        (
            [Group(CHAT, RUNS_ON, sampling={"turn_end": "<|im_end|>"})],
            STARTS,
            [],
            {"end of a turn": ("check", r"<\|im_end\|>.*50%")},
        ),
        # Twice the 20 tokens that were not enough for any.
        (
            [groups("Step 1: a = b", "Step 1: c, at length", finished=False)],
            STARTS,
            [ended],
            {"reward ended": ("ok", "max_completion_length"), "truncated": ("check", "to 40")},
        ),
        ([TALK] * 2, STARTS, [short], {"reward short": ("check", r"^-49 .*completion\[0\]\['content'\]")}),
        ([groups("Step 1: a = b", "Step 1: c, at length")], STARTS, [short], {"reward short": ("ok", "")}),
    ],
)
def test_what_preflight_finds(sampled, pattern, rewards, expected):
    lines = named(preflight(sampled, pattern, [contains_equals, *rewards]))
    for name, found in expected.items():
        line = lines.get(name)
        assert (line and line.level) == (found and found[0]), name
        assert line is None or re.search(found[1], f"{line.value} {line.meaning} {line.advice}"), line


@pytest.mark.parametrize("count", [1, 3])
def test_a_correlation_that_one_answer_decides_is_no_finding(count):
    """Seven answers alike and a wrong one that is shorter: r is +1, and says nothing without that one."""
    eight = groups(*["Step 1: = 1"] * 7, "Step 1: 1")
    same = [groups(*["Step 1: = 1"] * 8)] * (count - 1)
    line = named(preflight([eight, *same], STARTS, [equals, contains_equals]))["reward and length"]
    assert (line.level, line.value, "+1.00" in line.meaning) == ("ok", "–", True)


@pytest.mark.parametrize(("weight", "level"), [(1.0, "ok"), (-1.0, "check")])
def test_a_reward_that_goes_against_the_outcome_is_found(weight, level):
    texts = [*(f"Step 1: = 2{'a' * n}" for n in range(4)), *(f"Step 1: 3{'a' * n}" for n in range(4))]
    rewards = [equals, replace(load_reward(contains_equals), weight=weight)]
    line = named(preflight([groups(*texts)], STARTS, rewards))["reward and outcome"]
    assert line.level == level
    assert float(line.value.removeprefix("r = ")) * weight > 0.9


def test_a_run_names_the_reward_that_tells_no_answers_apart():
    """Of two groups the answers of one differ: digits 1 and 2, and with the weight 2 variances of 1 and 0."""
    batch = [groups("Step 1: =", "Step 1: 7"), groups("Step 1: =", "Step 1: b")]
    rewards = [contains_equals, always, Reward("digits", "outcome", digits, weight=2.0)]
    metrics = group_metrics(credit_groups([score_group(group, STARTS, rewards) for group in batch], "process"))
    flat = {name: metrics[f"rewards/{name}/frac_zero_std"] for name in ("always", "digits", "contains_equals")}
    assert flat == {"always": 1.0, "digits": 0.5, "contains_equals": 0.0}
    assert (metrics["rewards/always/variance_share"], metrics["rewards/digits/variance_share"]) == (0.0, 1.0)
    assert "rewards/contains_equals/variance_share" not in metrics  # it is alone among those of steps
    row = metrics | {"rewards/always/mean": 0.5}  # which TRL logs
    assert [(alarm.name, alarm.where) for alarm in alarms([row] * 6)] == [
        ("constant reward", ("rewards/always/frac_zero_std",))
    ]


def test_a_watched_reward_is_correlated_with_the_trained_ones_within_groups():
    """One step of four has "=", which weighs 2; digits are 1, 0 and 0, 1. So y = 1, −1, 0, 0 and x = ½, −½, −½, ½ about
    their groups' means: r = 1 / √(2 · 1) = 0.7071. About the batch's means it is 1/√3."""
    batch = [groups("Step 1: =", "Step : b"), groups("Step : b", "Step 1: b")]
    rewards = [replace(load_reward(contains_equals), weight=2.0), Reward("digits", "outcome", digits, weight=0.0)]
    metrics = group_metrics(credit_groups([score_group(group, STARTS, rewards) for group in batch], "process"))
    assert metrics["rewards/digits/trained_correlation"] == pytest.approx(0.5**0.5)
    assert "rewards/contains_equals/trained_correlation" not in metrics


def test_preflight_counts_who_is_pushed_against_the_verdict_over_all_groups():
    """Under `process` the only right answer goes down, one of two wrong ones up, and one of five wrong steps up."""
    credit = worked_credit("process", [0.0, 1.0, 0.0], ("step_correctness", "answer_correctness"))
    lines = named(preflight_of([credit, credit], STARTS))
    answers, steps = (lines[f"right {kind} pushed down"] for kind in ("answers", "steps"))
    assert (answers.value, answers.level) == ("2 of 2 · wrong ones up 2 of 4", "check")
    assert (steps.value, steps.level) == ("0 of 8 · wrong ones up 2 of 10", "ok")
    assert "right answers pushed down" not in named(preflight_of([worked_credit("process", [0.5, 1.0, 0.2])], STARTS))


def test_preflight_names_a_negative_weight_on_a_reward_that_judges():
    credit = worked_credit("process", [0.0, 1.0, 0.0], ("step_correctness", "short"))
    turned = tuple(replace(reward, weight=-1.0) for reward in credit.scored.rewards)
    lines = named(preflight_of([replace(credit, scored=replace(credit.scored, rewards=turned))], STARTS))
    assert (lines["weight of step_correctness"].level, lines["weight of step_correctness"].value) == ("check", "-1")
    assert "weight of short" not in lines  # -1 on a reward for length is as it may be


@pytest.mark.parametrize(("scheme", "level"), [("outcome", "check"), ("process", "stop")])
def test_nothing_stops_a_run_whose_answers_the_scheme_tells_apart(scheme, level):
    """No answer has a step, and all steps score 0; outcomes are 1 and 0."""
    sampled = [groups("no step 7", "no step")]
    lines = named(preflight(sampled, STARTS, [contains_equals, digits], CreditConfig(scheme=scheme)))
    assert lines["answers without a match"].level == level


@pytest.mark.parametrize(("mask", "level"), [(False, "ok"), (True, "stop")])
def test_preflight_counts_what_the_loss_of_the_run_counts(mask, level):
    """All answers are cut off, and differ."""
    sampled = [groups("Step 1: a = b", "Step 1: c", finished=False)]
    lines = named(preflight(sampled, STARTS, [contains_equals], mask_truncated=mask))
    assert lines["groups without spread"].level == level


def test_preflight_says_that_a_weight_drowns_a_reward():
    """Variances of 2, 3 and 1 digits and of 1, 0 and 0 equals signs times a hundred: 2/3 and 2/9 x 10,000."""
    rewards = [digits, Reward("equals", "outcome", equals, weight=100.0)]
    lines = named(preflight([THREE], STARTS, rewards, CreditConfig(scheme="outcome")))
    assert (lines["reward digits"].level, lines["reward equals"].level) == ("check", "ok")
    assert "0.0%" in lines["reward digits"].advice
    each = CreditConfig(scheme="outcome", each_reward=True)
    assert named(preflight([THREE], STARTS, rewards, each))["reward digits"].level == "ok"


# -- alarms -----------------------------------------------------------------------------------------------------------


def curve(count=30, **metrics):
    """Rows of metrics, each given as (from, to) with a small wobble around the straight line."""
    return [
        {name: low + (high - low) * n / (count - 1) + 0.001 * (-1) ** n for name, (low, high) in metrics.items()}
        for n in range(count)
    ]


def gone(count, **metrics):
    """Two rows of a policy that works, and then ``count`` in which every answer is cut off and scores 0."""
    works = {"zero_spread_share": 0.2, "completions/clipped_ratio": 0.1, "no_match_share": 0.0, "steps_per_answer": 6.0}
    fails = {"zero_spread_share": 1.0, "completions/clipped_ratio": 1.0, "no_match_share": 1.0, "steps_per_answer": 1.0}
    scores = {"completions/mean_length": 60.0, "step_reward": 0.0, "reward": 0.0, "rewards/a/frac_zero_std": 1.0}
    rows = [works] * 2 + [fails] * count
    return [{**scores, **row, **metrics, "step": n} for n, row in enumerate(rows, 1)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (curve(**{"steps_per_answer": (4, 9), "accuracy/train": (0.5, 0.5)}), "steps without accuracy"),
        (curve(**{"accuracy/train": (0.5, 0.1)}), "accuracy fell"),
        # A rate of 5e-3: gone within a few rows, which are no trend.
        ([{"accuracy/train": value} for value in (0.28, 0.2, 0.1, 0.03, *[0.0] * 14)], "accuracy fell"),
        (curve(**{"rewards/a/mean": (0, 1), "accuracy/train": (0.5, 0.49)}), "reward without accuracy"),
        (
            curve(48, **{"rewards/a/mean": (0.5, 0.5), "accuracy/train": (0.5, 0.5), "kl/k3": (0, 1e-5)}),
            "nothing learnt",
        ),
        (curve(**{"rewards/a/mean": (0, 1), "rewards/b/mean": (1, 0.2)}), "rewards apart"),
        (
            curve(
                **{"rewards/a/mean": (0, 1), "rewards/b/mean": (1, 0.2), "rewards/b/trained_correlation": (0.5, -0.5)}
            ),
            "watched reward fell",
        ),
        (curve(**{"completions/mean_length": (60, 120)}), "length drift"),
        (curve(entropy=(1.0, 0.01)), "entropy collapse"),
        *(([{"entropy": 1.0 if n < 20 else 0.001} for n in range(count)], "entropy collapse") for count in (60, 200)),
        (curve(zero_spread_share=(0.2, 0.9)), "zero spread"),
        (curve(3, unsplit_share=(0.0, 0.1)), "answers unsplit"),
        (
            [{"phantom_share": share, "accuracy/train": 0.5} for share in (0.0, 0.2, 0.2, 0.1, 0.1, 0.3)],
            "phantom advantages",
        ),
        ([{"loss": 0.5}, {"loss": math.nan}, {"loss": 0.5}], "not a number"),
        ([{"steps_per_answer": 1.0, "no_match_share": 1.0}], "step pattern"),
        # Two rows that worked, and three of a policy that yields nothing.
        (gone(3, learning_rate=3e-4), "collapsed"),
        ([{"steps_per_answer": 79.0, "no_match_share": 0.0, "completions/mean_length": 81.0}], "step pattern"),
        ([{"rewards/a/frac_zero_std": 1.0, "rewards/a/mean": 0.5}] * 6, "constant reward"),
        ([{"rewards/a/frac_zero_std": 1.0, "rewards/a/mean": n / 7} for n in range(18)], "constant reward"),
        (curve(**{"rewards/a/unscored_share": (0.95, 0.99)}), "unscored"),
        ([{"wronged/right_answers": 0.6, "wronged/wrong_answers": 0.4}] * 18, "answers wronged"),
        (curve(**{"wronged/right_steps": (0.2, 0.4), "wronged/wrong_steps": (0.1, 0.8)}), "steps wronged"),
        ([{"completions/clipped_ratio": 1.0, "completions/max_length": 64}] * 6, "truncated"),
        (curve(**{"completions/clipped_ratio": (0.5, 0.9), "completions/max_length": (64, 64)}), "truncated"),
    ],
)
def test_each_alarm_is_raised_and_asks_for_its_cause(rows, expected):
    found = alarms(rows)
    assert [alarm.name for alarm in found] == [expected]
    assert set(found[0].where) <= set(rows[0])


@pytest.mark.parametrize(
    ("rows", "tells"),
    [
        # Means of the first and the last six rows, or thirds.
        ([{"zero_spread_share": 0.9, "accuracy/train": 0.95}] * 18, "too easy (accuracy: 95%)"),
        ([{"zero_spread_share": 0.9, "accuracy/train": 0.02}] * 18, "too hard (accuracy: 2%)"),
        ([{"zero_spread_share": 0.9}] * 18, "too easy or too hard, or"),
        (curve(**{"accuracy/train": (0.5, 0.1)}, **{"kl/k3": (0.0, 29.0)}), "(KL to the reference: 2.5 → 26)"),
        ([{"loss": 0.5, "grad_norm": 2.0}, {"loss": 0.5, "grad_norm": 80.0}, {"loss": math.nan}], "80 just before"),
        (
            [{"completions/clipped_ratio": 0.9, "completions/mean_terminated_length": 40.0}] * 18,
            "(tokens of those that end: 40)",
        ),
        (
            [
                {"steps_per_answer": steps, "accuracy/train": 0.5, "completions/mean_length": 60.0}
                for steps in [4] * 9 + [10] * 9
            ],
            "(15 tokens a step before, 6 now)",
        ),
    ],
)
def test_a_cause_is_asked_with_the_number_that_tells_it(rows, tells):
    assert tells in alarms(rows)[0].advice


@pytest.mark.parametrize(
    "rows",
    [
        curve(**{"steps_per_answer": (4, 9), "accuracy/train": (0.2, 0.9)}),
        curve(**{"rewards/a/mean": (0, 1), "rewards/b/mean": (0.2, 1)}),
        curve(**{"completions/mean_length": (60, 66)}),
        curve(entropy=(1.0, 0.5)),
        curve(**{"entropy": (1.0, 0.01), "accuracy/train": (0.1, 0.8)}),  # sure because it is right
        curve(zero_spread_share=(0.1, 0.3)),
        [{"wronged/wrong_answers": 0.6}] * 18,  # no answer is right
        # The first rows of the default run under outcome, whose right answers grow more.
        [
            {"wronged/right_steps": share}
            for share in (
                *(0.59, 0.51, 0.58, 0.64, 0.4, 0.65, 0.53, 0.67, 0.5, 0.41, 0.37, 0.55),
                *(0.49, 0.53, 0.46, 0.41, 0.44, 0.35, 0.34, 0.46, 0.22, 0.46, 0.44, 0.31),
            )
        ],
        [{"rewards/a/frac_zero_std": 1.0, "rewards/a/mean": 0.5}] * 5,
        # Equal within every group for some generations, by chance; and a format that all answers have learnt.
        [{"rewards/a/frac_zero_std": 1.0, "rewards/a/mean": n / 7} for n in range(17)],
        [{"rewards/a/frac_zero_std": min(n / 20, 1.0), "rewards/a/mean": 1.0} for n in range(40)],
        [{"completions/clipped_ratio": 1.0, "completions/max_length": 64}] * 5,
        curve(**{"completions/clipped_ratio": (0.2, 0.2), "completions/max_length": (64, 64)}),
        # The default run under outcome, seed 2: half of the groups were flat for some steps, by chance.
        [{"zero_spread_share": n / 6} for n in (0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 2, 0, 3, 4, 4, 3, 2, 2, 4)],
        curve(48, **{"rewards/a/mean": (0.2, 0.2), "accuracy/train": (0.3, 0.7), "kl/k3": (0, 0.01)}),
        curve(entropy=(1.0, 0.01))[:11],
        gone(2, learning_rate=0.5),
        [{"phantom_share": share, "accuracy/train": 0.5} for share in (0.0, 0.2, 0.2, 0.1, 0.1)],
        [{"entropy": None, "steps_per_answer": float("nan")}] * 30,
        [],
    ],
)
def test_a_run_in_order_raises_none(rows):
    assert alarms(rows) == []


@pytest.mark.parametrize(("alike", "most"), [(0.0, 0.025), (0.5, 0.08)], ids=["white", "lag-1 correlation 0.5"])
def test_how_often_noise_alone_raises_an_alarm(alike, most):
    """Runs of 200 rows without any trend, looked at every twentieth row: the share of runs that ever raise an alarm."""
    names = [
        "steps_per_answer",
        "accuracy/train",
        "rewards/a/mean",
        "rewards/b/mean",
        "completions/mean_length",
        "entropy",
    ]
    draw = np.random.default_rng(0)
    raised = 0
    for _ in range(40):
        noise = draw.normal(size=(200, len(names)))
        for n in range(1, 200):
            noise[n] = alike * noise[n - 1] + np.sqrt(1 - alike**2) * noise[n]
        rows = [dict(zip(names, 1 + 0.3 * row, strict=True)) for row in noise]
        raised += any(alarms(rows[:n]) for n in range(20, 201, 20))
    assert raised / 40 <= most


@pytest.mark.parametrize(("to", "expected"), [(0.08, ["nothing learnt"]), (0.05, []), (None, [])])
def test_entropy_that_stays_decides_whether_a_rise_that_may_be_noise_counts(to, expected):
    """Accuracy 28 % to 34 % +- 15 points, 48 rows: 4 points between the thirds, of error sqrt(2 / 16) x 15 = 5.3. So up
    to 14.6 may have been learnt, more than 12, unless the entropy of 0.08 nats is still what it was.
    """
    rows = curve(48, entropy=(0.08, to or 0.08))
    for n, row in enumerate(rows):
        row["accuracy/train"] = 0.28 + 0.06 * n / 47 + 0.15 * (-1) ** n
        if to is None:
            del row["entropy"]
    assert [alarm.name for alarm in alarms(rows)] == expected


@pytest.mark.parametrize(("rate", "times"), [(0.5, "1,400 times"), (1.0, "2,900 times"), (0.0105, "30 times")])
@pytest.mark.parametrize("count", [3, 10, 58])
def test_a_collapse_says_since_when_and_how_far_off_the_rate_is_and_nothing_of_what_follows(rate, times, count):
    """0.5 / 0.00035 = 1,429 and 1 / 0.00035 = 2,857 with two figures."""
    (alarm,) = alarms(gone(count, learning_rate=rate))
    assert (alarm.name, alarm.since) == ("collapsed", 3)
    assert times in alarm.advice
    # The newest rows alone, with the first ones: since when is not known.
    rows = gone(300, learning_rate=rate)
    assert [(one.name, one.since) for one in alarms(rows[-240:], rows[:10])] == [("collapsed", 3)]
    assert [one.since for one in alarms(rows[-240:], rows[:2])] == [None]
    assert "collapsed" not in {one.name for one in alarms(rows[-240:])}  # it may never have worked


# --- edits of episodes ------------------------------------------------------------------------------------------------

TURNS = StepPattern("", kind="turns")
COLUMNS = {"calls": ["37*8", "296+4"], "answer": "300"}


def written(*turns: str, finished: bool = True) -> Rollout:
    """An episode whose turns and observations take turns, a token a text."""
    texts = [*turns, *["$"] * finished]
    mask = [1 - n % 2 for n in range(len(turns))] + [1] * finished
    return Rollout(tuple(range(len(texts))), tuple(texts), finished, mask=tuple(mask))


RIGHT = written("call: 37*8\n", "= 296\n", "call: 296+4\n", "= 300\n", "Answer: 300")
WRONG = written("call: 37*9\n", "= 333\n", "call: 333+4\n", "= 337\n", "Answer: 337")
GUESSED = written("call: 37*8\n", "= 296\n", "Answer: 290")
EPISODES = Group("Start with 37.", (RIGHT, WRONG, GUESSED), COLUMNS, sampling={"environment": {"name": "calculator"}})


def edited(name: str, group: Group = EPISODES, rollout: int = 0) -> Rollout | None:
    scored = score_group(group, TURNS, ["call_needed"]).scored[rollout]
    target = Target(group, group.rollouts[rollout], scored, "turns", lambda text: None)  # type: ignore[arg-type, return-value]
    return TURN_EDITS[name].apply(target)


def turns_and_observations(rollout: Rollout) -> list[str]:
    answers = [text for text in rollout.observations if text is not None]
    turns = ["".join(rollout.texts[first : last + 1]) for first, last in rollout.turn_spans]
    return [text for pair in zip(turns, [*answers, ""], strict=True) for text in pair][:-1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "make an empty call",
            ["call: 37*8\n", "= 296\n", "call:\n", "= error\n", "call: 296+4\n", "= 300\n", "Answer: 300$"],
        ),
        (
            "repeat a call",
            ["call: 37*8\n", "= 296\n", "call: 37*8\n", "= 296\n", "call: 296+4\n", "= 300\n", "Answer: 300$"],
        ),
        (
            "ignore a result",
            ["call: 37*8\n", "= 296\n", "call: 296+4\n", "= 300\n", "call: 37*8\n", "= 296\n", "Answer: 300$"],
        ),
        ("lengthen the answer", ["call: 37*8\n", "= 296\n", "call: 296+4\n", "= 300\n", f"Answer: 300{FILLER}$"]),
        ("skip the calls", ["Answer: 300$"]),
        ("end early", ["call: 37*8\n$"]),
    ],
)
def test_what_each_edit_of_an_episode_writes(name: str, expected: list[str]) -> None:
    rollout = edited(name)
    assert rollout is not None
    assert turns_and_observations(rollout) == expected
    kept = [token_id for token_id in rollout.token_ids if token_id != INSERTED]
    left = [n for n, text in enumerate(RIGHT.texts) if text in "".join(expected)]
    assert kept == [RIGHT.token_ids[n] for n in left]
    assert [rollout.mask[n] for n, text in enumerate(rollout.texts) if text == "= error\n"] in ([], [0])  # type: ignore[index]


def test_an_environment_that_cannot_be_asked_again_answers_as_it_did() -> None:
    rollout = edited("make an empty call", Group("Start with 37.", EPISODES.rollouts, COLUMNS))
    assert rollout is not None
    assert turns_and_observations(rollout)[2:4] == ["call:\n", "= 296\n"]


def test_edits_that_an_episode_has_no_place_for_are_not_made() -> None:
    assert edited("ignore a result", rollout=2) is None  # it would be the repeated call
    single = Group("?", (Rollout((1,), ("Answer: 3",), finished=False),), COLUMNS)
    assert [edited(name, single) for name in TURN_EDITS] == [None] * len(TURN_EDITS)


def test_a_reward_for_calls_that_parse_pays_for_repeating_them_under_process() -> None:
    """Two episodes, of one call each, one of which cannot be read: z of 1 and 0 is ±0.70701.

    Repeated, the call of the first counts twice: 1 1 0, mean 2/3, std 0.57735, so that its first token goes from
    0.70701 to 2 * 0.57725 = 1.15450. Under ``step`` it falls to 0.57725.
    """
    episodes = (written("call: 37*8\n", "= 296\n", "Answer: 296"), written("call: 37 8\n", "= error\n", "Answer: 1"))
    group = Group("Start with 37.", episodes, COLUMNS, sampling={"environment": {"name": "calculator"}})
    repeated = probe(group, TURNS, ["call_parses"], ["process", "step"]).results["repeat a call"]
    assert repeated["process"].gains[0].first == pytest.approx((0.70701, 1.15450), abs=1e-4)
    assert repeated["process"].pays
    assert repeated["step"].gains[0].first == pytest.approx((0.70701, 0.57725), abs=1e-4)


def test_the_tasks_own_rewards_pay_only_where_a_bad_episode_leaves_turns_out() -> None:
    """The first token of a wrong episode goes from below 0 to 0, where no turn is left that a reward scores."""
    report = probe(EPISODES, TURNS, ["call_needed", "observation_used"], ["process", "sum"])
    paying = [(name, scheme) for name, row in report.results.items() for scheme, one in row.items() if one.pays]
    assert paying == [("skip the calls", "process"), ("skip the calls", "sum"), ("end early", "process")]
    right, wrong, guessed = report.results["skip the calls"]["process"].gains
    assert right.largest < 0 < wrong.largest < guessed.largest == -guessed.first[0]
    assert {name for name, row in report.results.items() if row["process"].gains} == set(TURN_EDITS)


def test_edits_of_answers_are_not_made_in_episodes() -> None:
    report = probe(EPISODES, TURNS, ["call_needed"], ["process"], edits=list(EDITS))
    assert all(result.verdict == "cannot be made here" for row in report.results.values() for result in row.values())
