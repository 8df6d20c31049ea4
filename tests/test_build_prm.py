"""The recipe of the small process reward model: its labels are true, its data TRL's, its measure an AUC."""

from __future__ import annotations

import json
import math
import random

import pytest

from workbench.cli import main
from workbench.config import ModelConfig
from workbench.policies.build_prm import PrmRecipe, agreed_characters, auc, draw_lesson, lesson_batch, measure
from workbench.rewards.models.formats import FORMATS, read_steps
from workbench.rewards.models.local import LocalModels
from workbench.tasks.chain_arithmetic import apply

OPERATIONS = {"+": "add", "-": "subtract", "*": "multiply by"}


def test_lessons_have_true_labels_and_both_kinds(tiny):
    rng = random.Random(0)
    labels = []
    for _ in range(40):
        lesson = draw_lesson(rng, PrmRecipe(slip=0.0))
        for step, right in zip(lesson.steps[:-1], lesson.right[:-1], strict=True):
            words = step.split()
            left, symbol, operand, result = int(words[2]), words[3], int(words[4]), int(words[6])
            assert right == (apply(OPERATIONS[symbol], left, operand) == result)
        labels += lesson.right
    assert 0.2 < labels.count(False) / len(labels) < 0.5


def test_labels_stand_on_the_last_token_of_each_step_and_on_its_result(tiny):
    rng = random.Random(1)
    lessons = [draw_lesson(rng, PrmRecipe()) for _ in range(3)]
    batch = lesson_batch(tiny.tokenizer, lessons)
    for ids, mask, labels, lesson in zip(*batch.values(), lessons, strict=True):
        ends = read_steps(tiny.tokenizer, FORMATS["stepwise"], lesson.prompt, lesson.steps)[0].positions
        assert [bool(labels[i]) for i in ends] == list(lesson.right)
        assert int(mask.sum()) == ends[-1] + 1
        text = lesson.prompt
        for end, step, agreed in zip(ends, lesson.steps, lesson.agreed, strict=True):
            start = len(text)
            text += step + "\n"
            assert tiny.tokenizer.decode(ids[: end + 1]) == text
            for i in range(end):  # digits are tokens of their own
                place = len(tiny.tokenizer.decode(ids[: i + 1])) - start
                if 0 < place <= len(step) and labels[i] != -100:
                    assert step[place - 1].isdigit()
                    assert bool(labels[i]) == (place <= agreed)


def test_where_a_result_leaves_the_right_one_by_hand():
    assert agreed_characters("Step 1: 7 + 5 = 12") == len("Step 1: 7 + 5 = 12")
    assert agreed_characters("Step 1: 7 + 5 = 13") == len("Step 1: 7 + 5 = 1")
    assert agreed_characters("Step 1: 7 + 5 = 22") == len("Step 1: 7 + 5 = ")
    assert agreed_characters("Step 1: 7 + 5 = 120") == len("Step 1: 7 + 5 = 12")
    assert agreed_characters("Answer: 3") == len("Answer: 3")


def test_auc_by_hand():
    # Right steps at 0.9 and 0.4, wrong ones at 0.4 and 0.1: of 4 pairs 3 are in order and 1 is a tie, 3.5 / 4.
    assert auc([0.9, 0.4, 0.4, 0.1], [True, True, False, False]) == 0.875
    assert auc([0.1, 0.9], [True, False]) == 0.0
    assert math.isnan(auc([0.1, 0.9], [True, True]))


@pytest.mark.training
def test_the_command_saves_a_model_that_scores_as_it_was_measured(tmp_path, capsys):
    """A reduced copy of the recipe; what it learns in full is what the command prints."""
    out = tmp_path / "prm"
    assert main(["build-prm", "--out", str(out), "--steps", "3", "--held-out", "5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    recipe = PrmRecipe(steps=3, held_out=5)
    rng = random.Random(f"prm/{recipe.seed}/held-out")
    held_out = [draw_lesson(rng, recipe, held_out=True) for _ in range(5)]
    loaded = LocalModels("cpu").take(ModelConfig(path=str(out), format="stepwise"))
    report = measure(loaded, held_out)
    assert report.steps == result["steps"] == sum(len(lesson.steps) for lesson in held_out)
    assert report.auc == pytest.approx(result["auc"], abs=1e-6)
