"""Process reward models trained here: the loss in every format, the ids and scores of later use, resumed runs."""

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import reward_models
from tests.in_this_process import numbers, train, written
from tests.reward_models import KINDS, PROMPT, STEPS, reference
from workbench.config import ModelConfig
from workbench.data import load_task
from workbench.data.chain_arithmetic import Chain, labelled_answer, noisy_results
from workbench.data.rows import LabelledSteps, first_wrong
from workbench.errors import RewardError
from workbench.rewards.models.formats import FORMATS, guess_format
from workbench.rewards.models.model import ProcessModel, load_model
from workbench.rundir import RunDir
from workbench.training.labelled import UNKNOWN, step_losses, step_metrics, token_rows, until_first_error
from workbench.training.methods import RunConfig, prm

LABELS = ([1.0, 0.75, 0.0], [0.25], [1.0])


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """30 short completions with hard, soft and unknown labels, in TRL's format."""
    rows = [
        {
            "prompt": PROMPT,
            "completions": steps,
            "labels": [*labels[:-1], None if i % 5 == 4 and labels[1:] else labels[-1]],
        }
        for i in range(10)
        for steps, labels in zip(STEPS, LABELS, strict=True)
    ]
    return written(tmp_path_factory.mktemp("labelled"), *rows)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("models")
    return {kind: reward_models.save(kind, root / kind) for kind in ("token", "causal", "implicit", "qwen")}


def configuration(task: Any, policy: Any, run: Mapping[str, Any] | None = None, **method: Any) -> RunConfig:
    return RunConfig.parse(
        {
            "seed": 3,
            "policy": policy,
            "task": task,
            "method": {"name": "prm", "batch_size": 4, **method},
            "optimiser": {"warmup_steps": 0, "learning_rate": 1e-3},
            "run": {"steps": 4, "eval_steps": 2, "eval_prompts": 3, "save_steps": 2, "device": "cpu", **(run or {})},
        }
    )


# -- the loss, and what is read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", list(FORMATS))
def test_the_loss_is_cross_entropy_where_the_model_cards_read_their_scores(
    tmp_path: Path, folders: dict[str, str], labelled: str, form: Any
) -> None:
    """The labels are random in [0, 1], of which one is unknown. Largest difference: 2e-6, float32 against float64."""
    config = configuration(labelled, folders[KINDS[form]], {"eval_steps": 0}, format=form)
    trainer: Any = prm.build(config, tmp_path)
    generator = torch.Generator().manual_seed(1)
    labels = [torch.rand(len(steps), generator=generator).tolist() for steps in STEPS]
    labels[0][1] = None
    rows = trainer_rows(trainer, form, labels)
    expected, count = 0.0, 0
    for steps, of_steps in zip(STEPS, labels, strict=True):
        scores = reference(form, trainer.model, trainer.processing_class, PROMPT, list(steps))
        for p, y in zip(scores, of_steps, strict=True):
            if y is not None:
                expected -= y * math.log(p) + (1 - y) * math.log1p(-p)
                count += 1
    batch = trainer.data_collator(rows)
    assert abs(trainer.compute_loss(trainer.model, batch).item() - expected / count) < 1e-5
    # The same steps in two batches, each a share of all that are labelled.
    parts = [trainer.data_collator(rows[:1]), trainer.data_collator(rows[1:])]
    halves = [trainer.compute_loss(trainer.model, part, num_items_in_batch=count).item() for part in parts]
    assert abs(sum(halves) - expected / count) < 1e-5
    assert expected / count > 0.1


def trainer_rows(trainer: Any, form: Any, labels: list[Any]) -> list[dict[str, Any]]:
    rows = [LabelledSteps(PROMPT, tuple(steps), tuple(y)) for steps, y in zip(STEPS, labels, strict=True)]
    return token_rows(trainer.processing_class, rows, form=FORMATS[form], separator=None, max_length=256)


def test_losses_by_hand() -> None:
    """Logits 0 and log 3 are p = 3/4: a right step costs log 4/3, a wrong one log 4, one of label 1/2 half of both."""
    logits = torch.tensor([[0.0, math.log(3)]] * 4)
    losses = step_losses(logits, torch.tensor([1.0, 0.0, 0.5, UNKNOWN]))
    expected = [math.log(4 / 3), math.log(4), (math.log(4 / 3) + math.log(4)) / 2, 0.0]
    assert losses.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("form", [*FORMATS, "turns that forget"])
def test_a_batch_is_read_and_scored_in_training_as_it_is_later(
    tmp_path: Path, folders: dict[str, str], labelled: str, form: Any
) -> None:
    """Ids, positions and scores are equal to the bit."""
    folder = folders[KINDS.get(form, "causal")]
    if form == "turns that forget":  # its template has a conversation for every step
        form, folder = "turns", reward_models.save("causal", tmp_path / "forgetful", template=reward_models.FORGETFUL)
    trainer: Any = prm.build(configuration(labelled, folder, {"eval_steps": 0}, format=form), tmp_path)
    batches = []

    class Watched(ProcessModel):
        def _forward(self, batch: Any) -> Any:
            batches.append(batch)
            return super()._forward(batch)

    reference = trainer.head.reference
    later = Watched(trainer.model, trainer.processing_class, FORMATS[form], batch_size=16, reference=reference)
    order = [2, 1, 0]  # by length, as a batch that scores is
    scores = later.score([PROMPT] * 3, [list(STEPS[i]) for i in order])
    rows = trainer_rows(trainer, form, [list(LABELS[i]) for i in range(3)])
    batch = trainer.data_collator([rows[i] for i in order])
    [read] = batches
    assert [reading.ids for reading in read] == [
        tuple(ids[mask == 1].tolist()) for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    assert [at for reading in read for at in reading.positions] == batch["positions"].tolist()
    with torch.no_grad():
        measured = trainer.scores(batch)
    assert [of_steps for of_steps, _ in measured] == scores
    assert [of_steps for _, of_steps in measured] == [list(LABELS[i]) for i in order]


def test_steps_after_the_first_error_are_left_out_where_asked() -> None:
    row = LabelledSteps("q", ("a", "b", "c", "d"), (1.0, None, 0.5, 1.0))
    assert until_first_error(row) == LabelledSteps("q", ("a", "b", "c"), (1.0, None, 0.5))
    assert until_first_error(LabelledSteps("q", ("a", "b"), (1.0, 0.9))).steps == ("a", "b")
    assert [first_wrong(y) for y in ([1, 0, None], [1, 0.6], [1, None, 0], [0.5])] == [1, -1, None, 0]


def test_completions_that_cannot_be_read_are_left_out_and_counted(
    tmp_path: Path, folders: dict[str, str], labelled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = reward_models.tokenizer()
    rows = [LabelledSteps(PROMPT, (text,), (1.0,)) for text in ("Answer: 9", "Answer: " + "9" * 99, "ки")]
    read = token_rows(words, rows, form=FORMATS["ki"], separator=None, max_length=64)
    assert [row["labels"] for row in read] == [[1.0], [1.0]]  # a mark that the policy wrote is taken out of its text
    merged = LabelledSteps(PROMPT, ("Ste",), (1.0,))  # "Step" is one token
    assert token_rows(words, [merged], form=FORMATS["extra-0"], separator="p", max_length=256) == []
    prm.build(configuration(labelled, folders["token"], batch_size=20, max_length=26), tmp_path)
    assert "9 of 27 labelled completions are left out: they do not fit method.max_length, 26" in capsys.readouterr().out


# -- measures ----------------------------------------------------------------------------------------------------------


def test_metrics_of_steps_by_hand() -> None:
    """Two completions with an error, one of them found; three without, of which one is left alone; one is unclear."""
    completions = [
        ([0.9, 0.1, 0.1], [1.0, 0.0, UNKNOWN]),
        ([0.9, 0.9], [1.0, 0.3]),
        ([0.9], [0.8]),
        ([0.1], [1.0]),
        ([0.1], [1.0]),
        ([0.9, 0.9], [UNKNOWN, 1.0]),
    ]
    measured = step_metrics(completions)
    assert measured["step_accuracy"] == 5 / 8  # told wrong: the last of the second, and the two right ones at 0.1
    # Right at .9 (4) and .1 (2), wrong at .1 and .9: against .1 four win and two tie, against .9 four tie.
    assert measured["auc"] == pytest.approx((4 + 2 / 2 + 4 / 2) / 12)
    assert measured["first_error_f1"] == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert measured["calibration_error"] == pytest.approx(0.9 - 5 / 8)  # all are at confidence 0.9
    alike = step_metrics([([0.9], [1.0])])
    assert alike.keys() == {"step_accuracy", "calibration_error"}  # the others need a wrong step


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.training
@pytest.mark.parametrize(
    ("form", "kind", "lora"),
    [
        ("stepwise", "causal", None),
        ("ki", "causal", {"r": 2, "alpha": 4}),
        ("extra-0", "qwen", {"r": 2, "alpha": 4}),
        ("implicit", "causal", None),
        ("implicit", "implicit", {"r": 2, "alpha": 4}),
    ],
)
def test_a_trained_model_scores_as_it_did_in_training(
    tmp_path: Path, folders: dict[str, str], labelled: str, form: Any, kind: str, lora: dict[str, int] | None
) -> None:
    policy = {"path": folders[kind], "lora": lora}
    run = RunDir.create(
        tmp_path,
        configuration(labelled, policy, {"steps": 2, "micro_batch_size": 2}, format=form, until_first_error=True),
    )
    trainer = train(run)
    learns = [name for name, value in trainer.model.named_parameters() if value.requires_grad]
    assert lora is None or {"lora_" in name or "score" in name for name in learns} == {True}
    rows = numbers(run)
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert {"step_accuracy", "auc", "first_error_f1", "calibration_error"} <= rows[0].keys() & rows[2].keys()

    batch = trainer.data_collator([trainer.eval_dataset["measured"][i] for i in range(3)])
    with torch.no_grad():
        expected = [score for scores, _ in trainer.scores(batch) for score in scores]
    trainer.save_final(tmp_path / "final")
    assert not (tmp_path / "final" / "adapter_model.safetensors").exists()
    assert guess_format(str(tmp_path / "final")) == form  # it says what it was trained to read
    loaded = load_model(ModelConfig(path=str(tmp_path / "final"), format=form), "cpu")
    held_out = load_task(labelled).rows("labelled_steps", held_out=True)
    scores = loaded.score([row.prompt for row in held_out], [row.steps for row in held_out])
    assert [score for of_steps in scores for score in of_steps] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(RewardError, match=f"was trained in format '{form}'"):
        load_model(ModelConfig(path=str(tmp_path / "final"), format="ki" if form != "ki" else "turns"), "cpu")


@pytest.mark.training
def test_a_model_learns_which_sums_are_wrong(tmp_path: Path) -> None:
    """Chains of one small sum by the noisy teacher, of which held-out answers are told right or wrong.

    Guessing has AUC 0.5; saying of every answer that it is right, or wrong, has a first-error F1 of 0.
    """
    rng = random.Random(0)
    written_rows = []
    for _ in range(1000):
        chain = Chain(rng.randint(2, 5), (("add", rng.randint(2, 5)),))
        texts, right = labelled_answer(chain, noisy_results(chain, rng, wrong=0.4))
        written_rows.append({"prompt": chain.prompt(), "completions": texts[:1], "labels": right[:1]})
    config = RunConfig.parse(
        {
            "policy": "tiny",
            "task": written(tmp_path, *written_rows),
            "method": {"name": "prm", "format": "implicit", "batch_size": 48},
            "optimiser": {"learning_rate": 3e-4, "warmup_steps": 4, "adam_beta2": 0.98},
            "run": {
                "steps": 20,
                "eval_steps": 20,
                "eval_prompts": 60,
                "save_steps": 0,
                "watch_prompts": 0,
                "device": "cpu",
            },
        }
    )
    run = RunDir.create(tmp_path, config)
    train(run)
    before, *_, after = numbers(run)
    assert before["auc"] < 0.7
    assert after["auc"] > 0.9
    assert after["first_error_f1"] > 0.65
