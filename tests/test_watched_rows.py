"""Watched rows and prompts: their numbers against plain forward passes, and no trace of them in a run's own."""

import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import reward_models
from tests.forward import picked_logprobs
from tests.resumes import difference
from tests.stored_runs import config_of, store
from tests.test_pairs import SUMS, configuration, numbers, write_sums, written
from tests.watched import before_and_now
from workbench.data import load_task
from workbench.errors import RewardError, RunError
from workbench.process.train import Recorder
from workbench.rundir import RunDir
from workbench.runs import Run
from workbench.schema import WatchedRow
from workbench.training.methods import METHODS, RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.watching import completion
from workbench.ui.handlers import run_follow
from workbench.ui.handlers.session import Services
from workbench.views.heatmap import row_payload

TOKENS_OFF = 1e-5
"""The largest difference was 3e-6: float32 against float64."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_sums(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = [{"prompt": f"{a} + {b}?\n", "completion": f"Step 1: {a} + {b} = {a + b}"} for a, b in SUMS]
    return written(tmp_path_factory.mktemp("demonstrations"), *rows)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random language model of two layers, 32 wide, with dropout."""
    folder = tmp_path_factory.mktemp("small")
    return reward_models.save("causal", folder, eos_token_id=1, attention_dropout=0.3)


def config(method: str, task: str, policy: Any, **run: Any) -> RunConfig:
    """Two steps, looked at before, between and after; what is watched is what is measured: one held-out row."""
    once = {"steps": 2, "eval_steps": 1, "eval_prompts": 1, "save_steps": 0, "watch_every": 1, "watch_prompts": 1}
    return configuration(task, {"name": method}, policy, **{**once, **run})


def trained(workspace: Path, configured: RunConfig) -> tuple[Run, Any]:
    """A run in this process with all that its own would do, and its trainer."""
    run = RunDir.create(workspace, configured)
    recorder = Recorder(run, config_of(run), writes=True)
    listeners = Listeners(recorder.on_rollouts, recorder.on_watched, recorder.on_rows, callbacks=[recorder])
    trainer: Any = METHODS[config_of(run).method.name].build(config_of(run), run.checkpoints, listeners)
    trainer.train()
    run.close()
    trainer.model.eval()
    return Run(run.path), trainer


def only(run: Run, step: int) -> WatchedRow:
    (row,) = run.watched_rows(step)
    return row


# -- the numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.training
@pytest.mark.parametrize("lora", [None, {"r": 2, "alpha": 4}])
def test_invariant_implicit_rewards_of_tokens_add_up_to_the_logged_margin(
    tmp_path: Path, pairs: str, small: str, lora: Any
) -> None:
    """Each is beta (log pi - log pi_ref) of a plain forward pass over the text alone."""
    run, trainer = trained(tmp_path, config("dpo", pairs, {"path": small, "lora": lora}))
    logged = {row["step"]: row["margin"] for row in numbers(run.dir) if "margin" in row}
    assert run.rollout_steps(watched=True) == sorted(logged) == [0, 1, 2]
    for step, margin in logged.items():
        chosen, rejected = (sum(side.values["implicit_reward"]) for side in only(run, step).texts)
        assert chosen - rejected == pytest.approx(margin, abs=TOKENS_OFF)
        assert only(run, step).numbers["margin"] == pytest.approx(margin, abs=TOKENS_OFF)
    assert logged[0] == 0 < abs(logged[2])

    row = trainer.eval_dataset["watched-0"][0]
    now = only(run, 2)
    assert now.prompt == trainer.processing_class.decode(row["prompt_ids"]) == "Start with 7, add 5.\n"
    assert now.before == only(run, 0)
    reference = trainer.ref_model if lora is None else trainer.accelerator.unwrap_model(trainer.model)
    for side in now.texts:
        ids = row[f"{side.name}_ids"]
        assert list(side.rollout.token_ids) == ids
        policy = picked_logprobs(trainer.model, row["prompt_ids"], ids)
        with nullcontext() if lora is None else reference.disable_adapter():
            of_reference = picked_logprobs(reference, row["prompt_ids"], ids)
        expected = (trainer.beta * (policy - of_reference)).tolist()
        assert side.values["implicit_reward"] == pytest.approx(expected, abs=TOKENS_OFF)
        assert side.rollout.text.startswith("Step 1: 7 + 5 = ")


@pytest.mark.training
def test_a_demonstration_has_each_tokens_surprisal(tmp_path: Path, demonstrations: str, small: str) -> None:
    run, trainer = trained(tmp_path, config("sft", demonstrations, small, eval_steps=0))
    tokens = trainer.eval_dataset["watched-0"][0]
    first = tokens["labels"].index(next(label for label in tokens["labels"] if label != -100))
    prompt, ids = tokens["input_ids"][:first], tokens["input_ids"][first:]
    (shown,) = only(run, 2).texts
    expected = (-picked_logprobs(trainer.model, prompt, ids)).tolist()
    assert shown.values["surprisal"] == pytest.approx(expected, abs=TOKENS_OFF)
    assert shown.numbers["−log p"] == pytest.approx(sum(expected), abs=1e-4)
    assert [step.matched for step in shown.scored.steps] == [True]
    assert shown.rollout.finished
    assert only(run, 0).texts[0].values != shown.values


@pytest.mark.training
def test_both_sides_have_the_scores_whose_difference_is_the_logged_margin(
    tmp_path: Path, pairs: str, small: str
) -> None:
    run, trainer = trained(tmp_path, config("reward", pairs, small))
    logged = {row["step"]: row["margin"] for row in numbers(run.dir) if "margin" in row}
    for step, margin in logged.items():
        assert only(run, step).numbers["margin"] == pytest.approx(margin, abs=TOKENS_OFF)
    row = only(run, 2)
    assert row.prompt.strip() == "Start with 7, add 5."
    for side in row.texts:
        ids = trainer.eval_dataset["watched-0"][0][f"{side.name}_ids"]
        assert trainer.processing_class.decode(ids) == row.prompt + side.rollout.text
        with torch.no_grad():
            expected = trainer.model(input_ids=torch.tensor([ids])).logits.item()
        assert side.values["score"] == pytest.approx([expected] * len(side.rollout), abs=TOKENS_OFF)


@pytest.mark.training
@pytest.mark.parametrize("form", ["stepwise", "turns"])
def test_each_labelled_step_has_its_predicted_score_beside_its_label(tmp_path: Path, form: Any) -> None:
    steps = ["Step 1: 7 + 5 = 12\n", "Step 2: 12 - 2 = 10\n", "Answer: 9"]
    rows = [{"prompt": "7?\n", "completions": steps, "labels": [1.0, None if i > 16 else 0.75, 0.0]} for i in range(20)]
    policy = reward_models.save(reward_models.KINDS[form], tmp_path / "policy")
    configured = config("prm", written(tmp_path, *rows), policy)
    configured.method.format = form  # type: ignore[attr-defined]
    run, trainer = trained(tmp_path, configured)
    row = only(run, 2)
    (shown,) = row.texts
    assert shown.rollout.text == "Step 1: 7 + 5 = 12\nStep 2: 12 - 2 = 10\nAnswer: 9\n"
    assert [shown.rollout.text[step.start : step.end].strip() for step in shown.scored.steps] == list(
        map(str.strip, steps)
    )
    assert shown.scored.rewards == (1.0, None, 0.0)
    expected = reward_models.reference(form, trainer.model, trainer.processing_class, "7?\n", steps)
    for (first, last), score in zip(shown.scored.spans, expected, strict=True):
        assert shown.values["score"][first : last + 1] == pytest.approx([score] * (last - first + 1), abs=TOKENS_OFF)
    logged = {row["step"]: row["step_accuracy"] for row in numbers(run.dir) if "step_accuracy" in row}
    assert row.numbers == {"step accuracy": logged[2]}  # the one row that is measured


def test_a_first_token_that_nothing_is_before_belongs_to_the_prompt() -> None:
    ids, of_tokens = torch.tensor([5, 6, 7]), torch.tensor([-1.0, -2.0])
    assert completion(ids, torch.tensor([1, 1, 1]), of_tokens) == ([5], [6, 7], [[-1.0, -2.0]])
    assert completion(ids, torch.tensor([0, 0, 1]), of_tokens) == ([5, 6], [7], [[-2.0]])
    assert completion(ids, torch.tensor([0, 0, 0]), of_tokens) == ([5, 6, 7], [], [[]])


# -- the run is as it would be without -------------------------------------------------------------------------------


@pytest.mark.training
def test_watching_leaves_a_run_with_dropout_as_it_is(tmp_path: Path, demonstrations: str, small: str) -> None:
    watched, _ = trained(tmp_path, config("sft", demonstrations, small, eval_steps=0))
    alone, _ = trained(tmp_path, config("sft", demonstrations, small, eval_steps=0, watch_prompts=0))
    assert alone.rollout_steps(watched=True) == []
    assert numbers(watched.dir) == numbers(alone.dir)


@pytest.mark.training
def test_watched_prompts_are_stored_apart_and_leave_the_run_as_it_is(tmp_path: Path) -> None:
    run = {"steps": 3, "eval_steps": 0, "save_steps": 0, "device": "cpu", "watch_every": 2}
    method = {"prompts_per_step": 2, "sampling": {"num_generations": 4, "max_completion_length": 64}}
    watched, alone = (
        trained(tmp_path, RunConfig.parse({"run": {**run, "watch_prompts": prompts}, "method": method}))[0]
        for prompts in (2, 0)
    )
    assert alone.rollout_steps(watched=True) == []
    assert watched.rollout_steps(watched=True) == [0, 2, 3]  # before the first step, every second one, and at the end
    assert watched.rollout_steps() == [1, 2, 3]
    assert difference(watched, alone) == 0
    looks = [watched.rollouts(step, watched=True) for step in (0, 2, 3)]
    held_out = load_task("chain-arithmetic").held_out
    for look in looks:
        assert [credit.scored.group.prompt for credit in look] == [held_out[0].prompt, held_out[1].prompt]
        assert [len(credit.scored.group) for credit in look] == [4, 4]
    first, last = ([r.token_ids for c in look for r in c.scored.group.rollouts] for look in (looks[0], looks[2]))
    assert first != last, "three steps at this rate change what is sampled"


@pytest.mark.training
def test_an_error_of_a_reward_on_watched_prompts_does_not_end_the_run(tmp_path: Path, capsys: Any) -> None:
    run = {"steps": 1, "eval_steps": 0, "save_steps": 0, "device": "cpu", "watch_prompts": 1}
    config = RunConfig.parse({"run": run, "method": {"prompts_per_step": 2, "sampling": {"num_generations": 2}}})

    def broken(step: int, credits: Any) -> None:
        raise RewardError("no")

    METHODS["grpo"].build(config, tmp_path, Listeners(on_watched=broken)).train()
    assert "the watched prompts of step 0 are not stored: no" in capsys.readouterr().out


# -- what is stored and shown ----------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> Run:
    """A finished run by dpo that has looked at one pair before and after 30 steps."""
    run = store(tmp_path, "pairs", [{"step": 30, "loss": 0.5}], method={"name": "dpo"})
    now = before_and_now()
    assert now.before is not None
    run.dir.rollouts.write_rows(0, [now.before])
    run.dir.rollouts.write_rows(30, [dataclasses.replace(now, before=None)])
    return run


def test_watched_rows_come_back_as_they_were_stored(stored: Run) -> None:
    assert stored.watched_rows() == stored.watched_rows(30) == [before_and_now()]
    assert stored.watched_rows(0) == [before_and_now().before]
    with pytest.raises(RunError, match="step 7"):
        stored.watched_rows(7)
    with pytest.raises(RunError, match="watched_rows"):
        stored.rollouts(30, watched=True)
    stored.dir.drop_rollouts(after=10)
    assert stored.rollout_steps(watched=True) == [0]


def test_the_page_is_given_rows_where_a_method_samples_none(stored: Run) -> None:
    workspace = stored.path.parents[1]
    news = run_follow.poll(workspace, stored.name, 0, -1)
    assert (news["has_rollouts"], news["steps"], news["watched"]) == (False, [], [0, 30])
    services = Services(workspace)
    shown: Any = run_follow.rollouts(services, stored.name, 30, 5, watched=True)
    assert (shown["step"], shown["group"], shown["groups"]) == (30, 0, 1)
    assert json.loads(shown["drawing"]) == row_payload(before_and_now())
    assert run_follow.why(workspace, stored.name, 30, 0, 0, 0, watched=True) is None
