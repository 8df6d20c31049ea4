"""Rewards held against labels, with numbers worked by hand and scikit-learn's as the second opinion."""

import json
import math
import random
from typing import Any

import pytest
from sklearn.metrics import accuracy_score

from tests.credits import make_credit, make_rollout
from workbench.assets import FIRST_GROUP
from workbench.checks import Difficulty
from workbench.checks.reward_check import Chain, check_reward, first_error
from workbench.cli import main
from workbench.data import labelled_groups, load_task, planted_errors
from workbench.data.made import prompts_of
from workbench.errors import CreditError
from workbench.schema import Group, Rollout


def group(*answers: tuple[str, dict[str, Any]], **columns: Any) -> Group:
    """Answers as one token each, with what is known of each."""
    rollouts = (Rollout((1,), (text,), finished=False, columns=known) for text, known in answers)
    return Group("p", tuple(rollouts), columns)


def number(prompts: list[Any], completions: list[str], **columns: Any) -> list[float | None]:
    """An outcome reward: the completion itself, "-" being unscored."""
    return [None if text == "-" else float(text) for text in completions]


def step_number(prompt: Any, step: str, **columns: Any) -> float | None:
    return None if step.strip() == "-" else float(step)


def outcomes(*pairs: tuple[str, bool | None]) -> list[Group]:
    return [group(*((text, {} if label is None else {"correct": label}) for text, label in pairs))]


def steps(*chains: tuple[str, list[float | None]]) -> list[Group]:
    """Chains of one-line steps with labels."""
    return [
        group(
            *((text.replace(" ", "\n"), {"labelled_steps": text.split(), "labels": labels}) for text, labels in chains)
        )
    ]


# ── outcome labels ───────────────────────────────────────────────────────────────────────────────────────────────


def test_agreement_and_auc_by_hand():
    # Pairs of a right and a wrong one: (0.9, 0.6) (0.9, 0.2) (0.5, 0.2) in order, (0.5, 0.6) not: AUC 3/4.
    # From 0.9 on: 0.9 right, 0.6 and 0.2 not, 0.5 missed: 3/4; from 0.5 on: 0.6 is not: 3/4. The highest wins.
    check = check_reward(outcomes(("0.9", True), ("0.6", False), ("0.5", True), ("0.2", False)), number, threshold=0.3)
    assert (check.count, check.right, check.unscored) == (4, 2, 0)
    assert check.auc == 0.75
    assert (check.best.threshold, check.best.share) == (0.9, 0.75)
    assert (check.given.threshold, check.given.share) == (0.3, 0.75)  # 0.6 counts as right and is not
    assert [(one.rollout, one.score, one.label) for one in check.worst] == [(1, 0.6, False)]


def test_the_worst_disagreements_come_first():
    pairs = [("0.9", False), ("0.8", True), ("0.7", False), ("0.3", True), ("0.1", True), ("0.0", False)]
    check = check_reward(outcomes(*pairs), number, threshold=0.5, worst=3)
    # Ranks from the wrong end: 0.9, wrong, is the 6th from below; 0.1, right, the 5th from above; the others the 4th.
    assert [(one.group, one.rollout, one.step, one.text) for one in check.worst] == [
        (0, 0, None, "0.9"),
        (0, 4, None, "0.1"),
        (0, 2, None, "0.7"),
    ]


def test_unscored_is_counted_and_left_out_and_nothing_scored_is_said():
    check = check_reward(outcomes(("1", True), ("-", True), ("-", False), ("0", False), ("1", None)), number)
    assert (check.count, check.unscored, check.auc, check.best.share) == (2, 2, 1.0, 1.0)
    nothing = check_reward(outcomes(("-", True)), number, threshold=0.5)
    assert (nothing.count, nothing.auc, nothing.best, nothing.given, len(nothing.notes)) == (0, None, None, None, 1)


@pytest.mark.parametrize("label", [True, False])
def test_with_one_class_the_auc_is_undefined(label):
    check = check_reward(outcomes(("1", label), ("0", label)), number)
    assert (check.auc, check.best.share) == (None, 1.0)
    assert check.best.threshold == (0.0 if label else math.inf)
    assert json.dumps(check.to_json(), allow_nan=False)


def test_the_best_threshold_is_the_best_of_all():
    rng = random.Random(0)
    pairs = [(f"{rng.randint(0, 30) / 10}", rng.random() < 0.5) for _ in range(200)]
    check = check_reward(outcomes(*pairs), number)
    tried = [*{float(text) for text, _ in pairs}, math.inf]
    shares = [accuracy_score([label for _, label in pairs], [float(t) >= at for t, _ in pairs]) for at in tried]
    assert check.best.share == pytest.approx(max(shares), abs=1e-12)
    assert shares[tried.index(check.best.threshold)] == pytest.approx(max(shares), abs=1e-12)


def test_a_step_reward_is_held_against_outcomes_by_its_worst_step():
    groups = [group(("1\n0", {"correct": False}), ("1\n-", {"correct": True}), ("-", {"correct": True}))]
    check = check_reward(groups, step_number)
    assert (check.items, check.count, check.unscored, check.auc) == ("completions", 2, 1, 1.0)


# ── step labels ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_first_error_f1_by_hand():
    chains = [
        Chain(scores=(0.9, 0.1, 0.0), first=1),  # found
        Chain(scores=(0.2, 0.9), first=1),  # a step too early
        Chain(scores=(0.9, None, 0.3), first=2),  # an unscored step is never the one; found
        Chain(scores=(0.9, 0.9), first=0),  # missed
        Chain(scores=(0.8, 0.7), first=-1),  # nothing to find, nothing found
        Chain(scores=(0.8, 0.4), first=-1),  # false alarm
        Chain(scores=(0.5,), first=-1),  # 0.5 is not below 0.5
        Chain(scores=(None, None), first=-1),  # no score at all is no prediction: left out
        Chain(scores=(0.9, 0.9, 0.9), first=-1, lost=True),  # its wrong step is cut otherwise than labelled: left out
    ]
    found = first_error(chains, 0.5)
    assert (found.erroneous, found.correct) == (2 / 4, 2 / 3)
    assert found.f1 == pytest.approx(4 / 7)  # 2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3)
    assert (found.erroneous_count, found.correct_count) == (4, 3)
    assert first_error(chains[:4], 0.5).f1 is None  # no completion without an error
    assert first_error([chains[3], chains[5]], 0.5).f1 == 0.0


def test_steps_are_held_against_their_labels():
    check = check_reward(
        steps(("1 0 1", [1.0, 0.0, None]), ("1 1", [1.0, 1.0]), ("0 1", [1.0, 1.0]), ("1 - 1", [1.0, 0.0, None])),
        step_number,
        threshold=0.5,
    )
    # Scored and labelled: 1✓1, 0✓0 | 1✓1, 1✓1 | 0✗1, 1✓1 | 1✓1: 6 of 7 agree; the last one's second step is unscored.
    assert (check.items, check.count, check.right, check.unscored) == ("steps", 7, 6, 1)
    assert check.given.share == pytest.approx(6 / 7)
    assert check.auc == pytest.approx((5 + 0.5) / 6)  # the wrong one scores 0: below five right ones, level with one
    assert (check.first_error.erroneous, check.first_error.correct) == (1 / 2, 1 / 2)
    assert check.first_error.f1 == 0.5
    assert [(one.group, one.rollout, one.step, one.text) for one in check.worst] == [(0, 2, 0, "0\n")]


def test_the_tasks_own_reward_finds_every_planted_error_and_a_silly_one_does_not():
    task = load_task("chain-arithmetic")
    groups = planted_errors(task, 50)
    assert groups == planted_errors(task, 50)
    right = check_reward(groups, "step_correctness")
    assert (right.auc, right.best.share, right.first_error.f1, right.unscored) == (1.0, 1.0, 1.0, 0)
    silly = check_reward(groups, "length_and_mistake")
    assert silly.auc < 0.6
    assert len(silly.worst) == 20


# ── real data ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_gsm8ks_rewards_against_its_authors_verdicts():
    groups = labelled_groups("gsm8k")
    answer = check_reward(groups, "gsm8k_answer")
    assert (answer.count, answer.right, answer.unscored) == (1200, 472, 0)
    assert (answer.auc, answer.best.share) == (1.0, 1.0)
    notes = check_reward(groups, "calculator_notes", threshold=0.5)
    # Right sums do not make a right answer: 21 of 3,736 noted steps are wrong, and 728 of 1,200 answers.
    assert (notes.count, notes.unscored) == (1192, 8)
    assert 0.5 < notes.auc < 0.52


# --- how hard prompts are ---------------------------------------------------------------------------------------------


def group_of(*outcomes):
    rollouts = [make_rollout(["a"]) for _ in outcomes]
    return make_credit(rollouts, [[0]] * len(outcomes), [[None]] * len(outcomes), list(outcomes)).scored


def test_the_chance_of_a_dead_group_by_hand():
    # Nothing known: the mean of p^2 + (1-p)^2 is 1/3 + 1/3. One right of one: p has the density 2p, the means are
    # 2/4 and 1/6, together 2/3 again. Eight right of eight: B(9 + 8, 1) / B(9, 1) = 9/17 and B(9, 9) / B(9, 1) is tiny.
    assert Difficulty([1], [1]).dead_share(2) == pytest.approx(2 / 4 + 1 / 6)
    assert Difficulty([8], [8]).dead_share(8) == pytest.approx(9 / 17, abs=1e-3)
    # Of two: 2/3, and one right and one wrong of two: 6p(1-p), so that 2 * 6 (1/20) for G = 2 ... 0.6.
    assert Difficulty([1, 1], [1, 2]).dead_share(2) == pytest.approx((2 / 3 + 0.6) / 2)


@pytest.mark.parametrize(("right", "answers"), [(0, 4), (1, 4), (7, 8), (3, 3)])
@pytest.mark.parametrize("size", [2, 8, 64])
def test_two_ways_to_the_same_share(right, answers, size):
    """A sum over a thousand pass rates, weighed by how likely they make what was seen."""
    rates = [(i + 0.5) / 20_000 for i in range(20_000)]
    weights = [p**right * (1 - p) ** (answers - right) for p in rates]
    dead = sum(w * (p**size + (1 - p) ** size) for p, w in zip(rates, weights, strict=True)) / sum(weights)
    assert Difficulty([right], [answers]).dead_share(size) == pytest.approx(dead, abs=1e-5)


def test_rates_histogram_and_what_does_not_count():
    found = Difficulty.of([group_of(1, 0, 0, None), group_of(1, 1), group_of(None, None), group_of(0, 0)])
    assert (list(found.right), list(found.answers)) == ([1, 2, 0], [3, 2, 2])
    assert found.histogram() == [1, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    shown = found.to_json()
    assert (shown["prompts"], shown["answers"], shown["never_right"], shown["always_right"]) == (3, 7, 1, 1)
    with pytest.raises(CreditError, match="outcome reward"):
        Difficulty.of([group_of(None)])


def test_prompts_of_a_chosen_difficulty_keep_their_columns():
    made = prompts_of([group_of(1, 0), group_of(1, 1), group_of(0, 0), group_of(None)], 0.05, 0.95)
    assert made.rows == [{"prompt": "2 + 2 = ?", "pass_rate": 0.5, "answer": "4"}]
    assert (made.counts["prompts too hard"], made.counts["prompts too easy"]) == (1, 1)
    assert made.counts["groups without an outcome"] == 1
    assert len(prompts_of([group_of(1, 0), group_of(1, 1)], 0.5, 1).rows) == 2


def test_the_command_prints_writes_and_says_where_rows_come_from(capsys, tmp_path):
    out = tmp_path / "right-sized.jsonl"
    command = ["difficulty", "--group", str(FIRST_GROUP), "--keep", "0,1", "--out", str(out)]
    assert main(command) == 0
    [example] = load_task(str(out)).examples
    provenance = json.loads(out.with_name(f"{out.name}.provenance.json").read_text())
    assert provenance["limits"] == {"keep": [0.0, 1.0], "right_from": 1.0}
    assert provenance["difficulty"]["mean_pass_rate"] == example.columns["pass_rate"]
    assert main(command) != 0  # it is there already
