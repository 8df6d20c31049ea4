"""How hard prompts are: pass rates, expected groups without spread, the size proposed, and the prompts written."""

import json

import pytest

from tests.credits import make_credit, make_rollout
from workbench.assets import FIRST_GROUP
from workbench.checks import Difficulty
from workbench.cli import main
from workbench.data import load_task
from workbench.data.made import prompts_of
from workbench.errors import CreditError


def group(*outcomes):
    rollouts = [make_rollout(["a"]) for _ in outcomes]
    return make_credit(rollouts, [[0]] * len(outcomes), [[None]] * len(outcomes), list(outcomes)).scored


def test_the_chance_of_a_dead_group_by_hand():
    # Nothing known: the mean of p^2 + (1-p)^2 is 1/3 + 1/3. One right of one: p has the density 2p, the means are
    # 2/4 and 1/6, together 2/3 again. Eight right of eight: B(9 + 8, 1) / B(9, 1) = 9/17 and B(9, 9) / B(9, 1) is tiny.
    assert Difficulty([1], [1]).dead_share(2) == pytest.approx(2 / 4 + 1 / 6)
    assert Difficulty([8], [8]).dead_share(8) == pytest.approx(9 / 17, abs=1e-3)
    # Two prompts are averaged; one right and one wrong of two: 6p(1-p), so that 2 * 6 (1/20) for G = 2 ... 0.6.
    assert Difficulty([1], [2]).dead_share(2) == pytest.approx(0.6)
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
    found = Difficulty.of([group(1, 0, 0, None), group(1, 1), group(None, None), group(0, 0)])
    assert (list(found.right), list(found.answers)) == ([1, 2, 0], [3, 2, 2])
    assert found.histogram() == [1, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    assert Difficulty.of([group(0.5, 0.4)], right_from=0.5).right == (1,)
    shown = found.to_json()
    assert (shown["prompts"], shown["answers"], shown["never_right"], shown["always_right"]) == (3, 7, 1, 1)
    with pytest.raises(CreditError, match="outcome reward"):
        Difficulty.of([group(None)])


def test_prompts_of_a_chosen_difficulty_keep_their_columns():
    made = prompts_of([group(1, 0), group(1, 1), group(0, 0), group(None)], 0.05, 0.95)
    assert made.rows == [{"prompt": "2 + 2 = ?", "pass_rate": 0.5, "answer": "4"}]
    assert (made.counts["prompts too hard"], made.counts["prompts too easy"]) == (1, 1)
    assert made.counts["groups without an outcome"] == 1
    assert len(prompts_of([group(1, 0), group(1, 1)], 0.5, 1).rows) == 2


def test_the_command_prints_writes_and_says_where_rows_come_from(capsys, tmp_path):
    files = ["--group", str(FIRST_GROUP), "--group", str(FIRST_GROUP)]
    assert main(["difficulty", *files, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    out = tmp_path / "right-sized.jsonl"
    assert main(["difficulty", *files, "--keep", "0,1", "--out", str(out)]) == 0
    task = load_task(str(out))
    assert task.examples[0].columns["pass_rate"] == shown["mean_pass_rate"]
    provenance = json.loads(out.with_name(f"{out.name}.provenance.json").read_text())
    assert provenance["limits"] == {"keep": [0.0, 1.0], "right_from": 1.0}
    assert (provenance["made_by"], provenance["difficulty"]["prompts"]) == ("difficulty", 2)
    assert main(["difficulty", *files, "--out", str(out)]) != 0  # it is there already
