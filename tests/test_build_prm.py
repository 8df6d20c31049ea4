"""The recipe of the small process reward model: its labels are true, its data TRL's, its measure an AUC."""

from __future__ import annotations

import json
import math
import random

import pytest

from workbench.cli import main
from workbench.config import ModelConfig
from workbench.policies.build_prm import PrmRecipe, auc, draw_lesson, lesson_batch, measure
from workbench.rewards.models import LocalModels
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
    assert 0.1 < labels.count(False) / len(labels) < 0.4


def test_labels_stand_on_the_last_token_of_each_step(tiny):
    rng = random.Random(1)
    lessons = [draw_lesson(rng, PrmRecipe()) for _ in range(3)]
    batch = lesson_batch(tiny.tokenizer, lessons)
    for ids, mask, labels, lesson in zip(*batch.values(), lessons, strict=True):
        ends = [i for i, label in enumerate(labels.tolist()) if label != -100]
        assert [bool(labels[i]) for i in ends] == list(lesson.right)
        text, start = lesson.prompt, 0
        for end, step in zip(ends, lesson.steps, strict=True):
            text += step.strip() + "\n"
            assert tiny.tokenizer.decode(ids[: end + 1]) == text
            assert start <= end
        assert int(mask.sum()) == ends[-1] + 1


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
