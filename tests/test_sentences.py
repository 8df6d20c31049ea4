"""Sentences on groups, tokens and runs worked out by hand; every count and share in them against the arrays."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.credits import make_credit, make_rollout, worked_credit
from workbench.checks import Finding, alarms, preflight_of
from workbench.checks.metrics import group_metrics
from workbench.credit import SCHEMES, compare_credits, gradient_shares, group_losses, loss_weights
from workbench.schema import Credit, LossSettings, two_places, whole_percent
from workbench.views.heatmap import credit_payload
from workbench.views.run import about_run, mcnemar, paired_interval
from workbench.views.sentences import (
    about_group,
    about_wronged,
    find_surprises,
    group_facts,
)
from workbench.views.token_sentences import about_token

ASSETS = Path(__file__).parents[1] / "assets"
PATTERN = wb.StepPattern(r"(?m)^\w+:", "starts")
BOTH = ("step_correctness", "answer_correctness")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.125, "0.13"), (0.135, "0.14"), (1.005, "1.00"), (-0.125, "−0.13"), (-0.004, "0.00"), (2.96, "2.96")],
)
def test_two_places_are_what_the_drawing_writes(value: float, text: str) -> None:
    """JavaScript's ``toFixed``: of the number as it is stored (1.005 is a little less), halves away from 0."""
    assert two_places(value) == text
    assert [whole_percent(share) for share in (0.315, float(np.float32(0.315)), 0.285)] == [32, 32, 29]


def marks(values: dict[str, float | None], name: str = "step_correctness") -> wb.Reward:
    """A step reward by what a step's text says; it is called like one that judges."""
    return wb.Reward(
        name, "step", lambda prompt, step, **columns: next((v for k, v in values.items() if k in step), None)
    )


def said(credit: Credit) -> list[str]:
    return [str(sentence) for sentence in about_group(credit)]


RIGHT_WRONG = marks({"good": 1.0, "bad": 0.0})
ANSWERS = wb.Reward(
    "answer_correctness", "outcome", lambda completions, **columns: [float(text.endswith("2")) for text in completions]
)


def group(*answers: str, scheme: str = "process", rewards: Any = (RIGHT_WRONG, ANSWERS), **options: Any) -> Credit:
    return wb.credit_group(
        wb.score_group(wb.group_of("1 + 1 = ?", list(answers)), PATTERN, list(rewards)), scheme, **options
    )


def test_a_right_answer_that_is_pushed_down_is_named_with_its_wrong_steps():
    credit = group("a: good\nb: good\nc: 2", "a: bad\nb: bad\nc: 2", "a: good\nb: good\nc: 1")
    assert said(credit)[0] == (
        "2 of 3 right. Rollout 2 is right, but two of its steps are wrong, so `process` pushes it down; "
        "rollout 3 is wrong, but most of its steps are right, so `process` pushes it up."
    )
    assert "not counted" in said(credit)[1]
    assert "not counted" not in said(group("a: good\nc: 2", "a: bad\nc: 1", outcome_weight=1.0))[1]


SURPRISING = ("a: good\nb: good\nc: 2", "a: bad\nb: bad\nc: 2", "a: good\nb: good\nc: 1")
"""The second is right with two wrong steps, the third wrong with right ones."""


def test_what_surprises_comes_first_and_is_what_a_reader_is_taken_to():
    found = find_surprises(group(*SURPRISING))
    assert (found.order, found.remarks) == ([1, 2, 0], ["", "yet pushed down", "yet pushed up"])
    assert found.opens == (1, 0)  # its first step shares the penalty of the second
    plain = find_surprises(group("a: good\nc: 2", "a: bad\nc: 1"))
    assert (plain.order, plain.remarks) == ([0, 1], ["", ""])
    assert find_surprises(group("a: good\nc: 2", "a: good\nc: 2")).opens is None


JUDGING = ("step_correctness", "answer_correctness")


@pytest.mark.parametrize(
    ("scheme", "sums", "steps", "said", "shares"),
    [
        # 4 · 1.2647 + 4 · 0.2108 − 2 · 0.8431 of the first, 5 · 0.2108 − 4 · 0.8431 of the second, and −3 · 1.4754
        # − 2 · 0.6323 + 2 · 0.2108 + 2 · 1.0539 of the third answer, whose third step is wrong and before a right one.
        (
            "process",
            (4.2157, -2.3184, -3.1613),
            {(2, 2)},
            "down [1 of 1](rollout:2) right answers, and up [1 of 2](rollout:1) wrong answers and "
            "[1 of 5](step:3.3) wrong steps.",
            (1.0, 0.5, 0.0, 0.2),
        ),
        # Outcomes 0, 1, 0: mean 1/3, std 0.57735, so 1.1545 on each of the second's 9 tokens and −0.5773 elsewhere.
        (
            "outcome",
            (-5.7725, 10.3905, -5.1953),
            {(0, 0), (0, 1), (2, 3), (1, 1)},
            "down [3 of 4](step:1.1,1.2,3.4) right steps, and up [1 of 5](step:2.2) wrong steps.",
            (0.0, 0.0, 0.75, 0.2),
        ),
    ],
)
def test_who_is_pushed_against_its_verdict_is_counted(scheme, sums, steps, said, shares):
    """The group of shared/credit.md, of which the second answer alone is right."""
    credit = worked_credit(scheme, [0.0, 1.0, 0.0], JUDGING)
    judged = credit.judged()
    assert [one.push for one in judged[:3]] == pytest.approx(sums, abs=5e-4)
    assert len(judged) == 3 + 9
    assert {(one.rollout, one.step) for one in judged[3:] if one.is_wronged} == steps
    assert about_wronged(credit).markdown == f"`{scheme}` pushes {said}"
    names = ("right_answers", "wrong_answers", "right_steps", "wrong_steps")
    logged = group_metrics([credit, credit])
    assert tuple(logged[f"wronged/{name}"] for name in names) == pytest.approx(shares)


def test_a_label_by_hand_takes_the_place_of_the_judges_verdict():
    """The same group under process: its third answer's third step is right after all, and its first answer's first is
    not. Where no reward judges correctness, what is labelled is all that is known."""
    labels = ((False, None, None), (None, None), (None, None, True, None))
    credit = worked_credit("process", [0.0, 1.0, 0.0], JUDGING)
    labelled = replace(credit, scored=replace(credit.scored, labels=labels))
    assert {(one.rollout, one.step) for one in labelled.judged() if one.step is not None and one.is_wronged} == {(0, 0)}
    assert about_wronged(labelled).markdown.endswith("and [1 of 5](step:1.1) wrong steps.")
    unknown = worked_credit("process", [0.5, 1.0, 0.25])
    labelled = replace(unknown, scored=replace(unknown.scored, labels=labels))
    assert [(one.rollout, one.step, one.right) for one in labelled.judged()] == [(0, 0, False), (2, 2, True)]


def test_an_answer_is_pushed_from_a_twentieth_of_the_largest_sum_on():
    """Sums of 2 tokens: ±2, 0.08 and 0.12 of an answer; a step is pushed from 0.1 of its own largest sum of 2 on."""
    rollouts = [make_rollout(["t"] * 2, first_id=10 * n) for n in range(4)]
    made = make_credit(rollouts, [[1]] * 4, [[1.0], [0.0], [1.0], [0.0]], [1.0, 0.0, 1.0, 0.0], names=JUDGING)
    credit = replace(made, advantages=np.array([[1, 1], [-1, -1], [-0.04, -0.04], [0.06, 0.06]], dtype=np.float32))
    assert credit.pushes[0] == pytest.approx([2, -2, 0, 0.12])
    assert credit.pushes[1] == [pytest.approx([push]) for push in credit.pushes[0]]
    assert [(one.rollout, one.step) for one in credit.judged() if one.is_wronged] == [(3, None), (3, 0)]
    assert find_surprises(credit).remarks == ["", "", "", "yet pushed up"]
    assert "rollouts 1 and 4 up (+0.06 to +1.00) and rollout 2 down" in said(credit)[1]


@pytest.mark.parametrize("scheme", ["process", "outcome"])
@pytest.mark.parametrize(
    "left_out", [{"mask_truncated_completions": True}, {"drop_duplicates": True}], ids=["truncated", "copies"]
)
def test_invariant_what_the_loss_leaves_out_is_not_counted(scheme, left_out):
    """Two credits that differ only in the scores and the advantages of what the loss leaves out: whatever is said,
    asked, measured, found or drawn of them is the same. What was sampled is measured whole (accuracy, mean scores)."""
    drops = "drop_duplicates" in left_out
    rollouts = [make_rollout([f"{n} ", "= ", "1 "], finished=drops or n < 3, first_id=10 * (n % 3)) for n in range(5)]
    rows = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]
    made = make_credit(rollouts, [[0, 2]] * 5, rows, [1.0, 0.0, 0.0, 1.0, 1.0], scheme=scheme, names=JUDGING)
    credit = replace(
        made,
        scored=replace(made.scored, group=replace(made.scored.group, sampling=left_out)),
        options={**made.options, **left_out},
    )
    assert credit.is_counted == (True, True, True, False, False)
    turned = [
        replace(
            row,
            scores={name: tuple(1 - score for score in scores) for name, scores in row.scores.items()},
            rewards=tuple(1 - reward for reward in row.rewards),
            outcome_scores={name: 1 - score for name, score in row.outcome_scores.items()},
            outcome=1 - row.outcome,
        )
        for row in credit.scored.scored
    ]
    kept = np.array(credit.is_counted)
    other = replace(
        credit,
        scored=replace(credit.scored, scored=(*credit.scored.scored[:3], *turned[3:])),
        advantages=np.where(kept[:, None], credit.advantages, 9.0 - 2.0 * credit.advantages).astype(np.float32),
    )

    def drawn(one: Credit) -> list[Any]:
        payload = credit_payload(one, explain_at_most=0)
        cards = [rollout["remark"] for rollout in payload["rollouts"]]
        payload["glance"] = [fact for fact in payload["glance"] if fact["action"] != "compare"]  # compares their scores
        assert [rollout["counted"] for rollout in payload["rollouts"]] == list(credit.is_counted)
        return [cards, *(payload[part] for part in ("said", "glance", "order", "opens", "noSpread"))]

    def measured(one: Credit) -> dict[str, float]:
        sampled = re.compile(r"accuracy/train|step_reward|rewards/.*/(mean|std|zero_share)")
        return {name: value for name, value in group_metrics([one] * 2).items() if not sampled.fullmatch(name)}

    def found(one: Credit) -> list[Finding]:
        return list(preflight_of([one] * 2, PATTERN).findings)

    for read in (
        lambda one: about_group(one),
        lambda one: about_wronged(one),
        lambda one: about_token(one, 3, 0),
        lambda one: find_surprises(one),
        lambda one: group_facts(one, ("step", 0.5)),
        lambda one: (one.pushes, one.judged(), one.spread),
        lambda one: loss_weights(one)[:, 0].tolist(),
        lambda one: gradient_shares([one], group_losses(one, LossSettings())),
        lambda one: compare_credits(one, replace(one, advantages=-one.advantages)).flipped_share,
        lambda one: alarms([measured(one)] * 60),
        measured,
        found,
        drawn,
    ):
        assert read(credit) == read(other)
    alone = replace(credit, advantages=credit.advantages * (1 - kept[:, None]))  # all that differs is left out
    assert (alone.spread, group_metrics([alone])["zero_spread_share"]) == (False, 1.0)


def test_nobody_is_wronged_without_a_verdict_or_where_pushes_cancel():
    unknown = worked_credit("process", [0.5, 1.0, 0.25])
    assert unknown.judged() == []
    assert "wronged/right_answers" not in group_metrics([unknown])
    # A right step of 2 tokens at +a and a wrong one of 2 at −a: the answer's sum is rounding, and no push.
    rollouts = [make_rollout(["t"] * 4, first_id=10 * n) for n in range(2)]
    even = make_credit(rollouts, [[1, 3]] * 2, [[1.0, 0.0], [1.0, 0.0]], [1.0, 0.0], scheme="step", names=JUDGING)
    assert [one.push for one in even.judged()][:2] == [0.0, 0.0]
    assert about_wronged(even).markdown == ""
    # A mean of 4/5: the first step's own 1/5 and later 3/5 − 4/5 are 0, in floating point −6e-16.
    steps = [[1.0, 0.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 0.0]]
    rollouts = [make_rollout(["t"] * 5, first_id=10 * n) for n in range(2)]
    still = make_credit(rollouts, [list(range(5))] * 2, steps, names=JUDGING)
    assert -1e-9 < still.advantages[0, 0] < 0
    assert still.judged()[0].push == 0.0


FINE, LOOP = "a: good\nb: bad\nc: 2", "c: 2 and so on " * 20
TRUNCATED = {"max_completion_length": 64}


@pytest.mark.parametrize(
    ("answers", "how", "actions"),
    [
        ((FINE, FINE, ""), {}, []),
        (("", "", FINE), {}, [("2 of 3", "")]),
        (("", "", FINE), {"chat_template": "unused"}, [("2 of 3", "template")]),
        ((LOOP, FINE), {"repetition_penalty": 1.0}, [("1 of 2", "penalty")]),
        ((LOOP, LOOP), TRUNCATED, [("2 of 2", "")]),
        ((FINE, LOOP), TRUNCATED, [("1 of 2", ""), ("1 of 2", "longer")]),
        ((FINE, FINE), TRUNCATED | {"turn_end": "<end>"}, [("2 of 2", "stop")]),
    ],
)
def test_answers_that_are_empty_loop_or_never_end_are_facts_with_the_setting_that_may_help(answers, how, actions):
    scored = group(*answers).scored
    rollouts = tuple(replace(rollout, finished="max_completion_length" not in how) for rollout in scored.group.rollouts)
    of = replace(scored.group, rollouts=rollouts, sampling=how)
    facts = group_facts(wb.credit_group(replace(scored, group=of)))
    assert [(str(fact.said)[:6], fact.action) for fact in facts[:-2]] == actions


def test_a_token_is_told_by_its_causes_and_what_goes_against_them():
    """Eight steps, mean 6/8, std 0.4629: a right step adds (1 − 0.75)/0.463 = 0.54, a wrong one −1.62."""
    credit = group("a: good\nb: good\nc: good\nd: good", "a: bad\nb: bad\nc: good\nd: good")
    assert str(about_token(credit, 0, 0)) == "Pushed up (+2.16): this step and the next three are right (+0.54 each)."
    assert str(about_token(credit, 1, 0)) == (
        "Pushed down (−2.16): this step and the next are wrong (−1.62 each); two later right steps give back 1.08."
    ).replace("two later right steps", "the right steps 3 and 4")
    outcome = group("a: good\nc: 2", "a: bad\nc: 1", scheme="outcome")
    assert str(about_token(outcome, 0, 0)) == "Pushed up (+0.71): the answer is right."


def test_no_cause_is_said_that_the_advantages_do_not_show():
    """With a weight of −1 a right step adds −0.54 and a wrong one 1.62: right steps are no cause of going up."""
    against = replace(marks({"good": 1.0, "bad": 0.0}), weight=-1.0)
    answers = "a: good\nb: good\nc: good\nd: 2", "a: bad\nb: good\nc: good\nd: 1", "a: good\nb: good\nc: good\nd: 2"
    credit = group(*answers, rewards=(against, ANSWERS))
    assert [push > 0 for push in credit.pushes[0]] == [False, True, False]
    assert "most of" not in said(credit)[0]
    assert "so `process`" in said(group(SURPRISING[2], SURPRISING[1]))[0]
    assert str(about_token(credit, 0, 0)).startswith("A right step, yet pushed down")


def test_answers_that_score_alike_are_not_said_to_score_high_or_low():
    """R is 0 for all, the steps are numbered by some."""
    numbered = marks({"good": 1.0, "bad": 0.0}, "numbered_step")
    none = wb.Reward("answer_line", "outcome", lambda completions, **columns: [0.0] * len(completions))
    assert find_surprises(group(*SURPRISING, rewards=(numbered, none))).remarks == ["", "", ""]


@pytest.mark.parametrize(("right", "told"), [(0.0, True), (1.0, True), (None, False)])
def test_that_only_another_reward_tells_answers_apart_is_said(right, told):
    """Four answers alike, right or wrong, and −0.3 × length/512: the longer are pushed down."""
    judged = wb.Reward(
        "answer_correctness",
        "outcome",
        lambda completions, **columns: [float(len(text) > 12) if right is None else right for text in completions],
    )
    length = wb.Reward("short", "outcome", lambda completions, **columns: [-0.3 * len(t) / 512 for t in completions])
    answers = ["a: good" + "\nb: bad" * n for n in range(4)]
    credit = group(*answers, scheme="outcome", rewards=(judged, length))
    assert credit.pushes[0][0] * credit.pushes[0][3] < 0
    assert ("`short` decides alone" in said(credit)[0]) is told


def test_a_label_by_hand_is_named_beside_the_count():
    """One of six steps is labelled wrong that the reward calls right: 3 of 6, the reward's own count being 4."""
    scored = group(*SURPRISING[:2], SURPRISING[0]).scored
    credit = wb.credit_group(replace(scored, labels=((False, None, None), (None,) * 3, (None,) * 3)))
    assert str(group_facts(credit)[0].said).startswith("3 of 6")
    assert credit_payload(credit)["rollouts"][0]["steps"][0]["label"] is False


def test_a_run_says_what_it_gained_with_its_interval_or_that_it_may_be_chance():
    """b = 92, c = 4, n = 200: 88/202 ± 1.96 √(97 − 88²/202) / 202 = 0.4356 ± 0.0743."""
    before = [False] * 138 + [True] * 62
    after = [False] * 46 + [True] * 150 + [False] * 4
    curve = [(0, 0.31), (20, 0.72), (60, 0.75)]
    lengths = {
        "length": [58.0, 59.0, 57.0, 58.0, 58.0, 71.0, 71.0, 72.0, 70.0, 70.0],
        "entropy": [0.1, 0.2, 0.1, 0.2, 0.1] * 2,
    }
    assert [str(s) for s in about_run(before, after, curve, lengths)] == [
        "Held-out accuracy 31 % → 75 % (+44 points, 95 % interval +36 to +51): 92 fixed, four broken.",
        "Most of the gain came by step 20 of 60.",
        "Length rose from 58 to 71.",
    ]
    chance = about_run([False, True, False, True], [True, True, False, False], [(0, 0.5), (9, 0.5)])
    assert [str(s) for s in chance] == [
        "Held-out accuracy 50 % → 50 % (+0 points, 95 % interval −57 to +57): may be chance on 4 problems."
    ]
    with pytest.raises(ValueError):
        about_run([], [], [])


@pytest.mark.parametrize(
    ("gained", "lost", "pairs", "low", "high"),
    [
        # Complete response before and after consolidation (Cavo et al., 2012), as Fagerland, Lydersen and Laake,
        # Statistical Analysis of Contingency Tables, have it.
        (6, 16, 161, -0.1182, -0.0045),
        # PropCIs' example: −20/162 ± 1.96 √(61 − 400/162) / 162 = −0.12346 ± 0.09256.
        (20, 40, 160, -0.21602, -0.03090),
        # All of four: 4/6 ± 1.96 √(5 − 16/6) / 6 = 0.66667 ± 0.49897, cut off at 1.
        (4, 0, 4, 0.16769, 1.0),
        (0, 0, 98, -0.0196, 0.0196),  # ± 1.96 / 100
    ],
)
def test_an_interval_of_paired_shares_by_hand(gained, lost, pairs, low, high):
    assert paired_interval(gained, lost, pairs) == pytest.approx((low, high), abs=6e-5)


@pytest.mark.parametrize("pairs", [1, 4, 9, 40])
def test_what_may_be_chance_has_0_in_its_interval_and_nothing_else_has(pairs):
    for gained in range(pairs + 1):
        for lost in range(pairs + 1 - gained):
            rest = pairs - gained - lost
            before, after = [False] * gained + [True] * (lost + rest), [True] * gained + [False] * lost + [True] * rest
            text = str(about_run(before, after, [])[0]).replace("−", "-")
            low, high = map(int, re.findall(r"interval ([+-]\d+) to ([+-]\d+)", text)[0])
            assert low <= high
            assert ("may be chance" in text) == (mcnemar(gained, lost) >= 0.05)
            assert "may be chance" not in text or low <= 0 <= high


def test_mcnemar_is_the_sign_test_on_the_problems_that_changed():
    assert mcnemar(0, 5) == pytest.approx(2 / 32)
    assert mcnemar(1, 8) == pytest.approx(2 * 10 / 512)
    assert mcnemar(3, 3) == mcnemar(0, 0) == 1.0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_count_share_and_extreme_that_is_said_is_the_arrays(scheme: str) -> None:
    first = wb.Group.from_json(json.loads((ASSETS / "first-group.json").read_text()))
    credit = wb.credit_group(
        wb.score_group(first, wb.load_task("chain-arithmetic").pattern, rewards=list(BOTH)), scheme
    )
    text = " ".join(said(credit))
    right = credit.scored.answers_right or []
    assert text.startswith(f"{sum(map(bool, right))} of {len(right)} right.")
    values = [float(a) for i in range(len(first)) for a in credit.of(i)]
    for share, way in re.findall(r"(\d+) % (?:of the tokens )?(up|down)", text):
        assert int(share) == round(100 * sum((a > 1e-6) if way == "up" else (a < -1e-6) for a in values) / len(values))
    for size in re.findall(r"(?:by up to|\d) ?\(?([+−]\d\.\d\d)\)", text):
        assert any(abs(a - float(size.replace("−", "-"))) < 0.0051 for a in values)
    for i in range(len(first)):
        for t in range(0, len(credit.of(i)), 4):
            sentence = str(about_token(credit, i, t))
            for size in re.findall(r"ushed \w+ \(([+−]\d+\.\d\d)\)", sentence):
                assert abs(float(size.replace("−", "-")) - credit.of(i)[t]) < 0.0051
            assert ("pushed up" in sentence.lower()) == (credit.of(i)[t] > 0.005)
