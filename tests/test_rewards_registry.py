"""What is known of every built-in: its source stands alone, its scores stay in its range, its options can be set."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trl.rewards

from workbench.errors import RewardError
from workbench.rewards import BUILTINS, RewardConfig, Sandbox, load_reward, score_group
from workbench.rewards.protocol import Batch
from workbench.rundir import RunDir
from workbench.runs.processes import sources
from workbench.steps import StepPattern
from workbench.training.methods import RunConfig
from workbench.ui.handlers.example import first_group

STEPS = ["Step 1: 7 + 5 = 12\n", "Answer: 12"]
TEXTS = [
    "".join(STEPS),
    "<reasoning>\na\n</reasoning>\n<answer>\n12\n</answer>\n",
    "<start_working_out>a<end_working_out><SOLUTION>12</SOLUTION>",
    "<think>\na\n</think>\n\\boxed{12}",
    "a mistake " * 40 + "<<7+5=12>>",
    "call: 7+5\n",
    "",
]
BATCH = Batch(
    prompts=["p"] * len(TEXTS),
    completions=TEXTS,
    columns={
        "answer": ["12"] * len(TEXTS),
        "start": [7] * len(TEXTS),
        "operations": [[["+", 5]]] * len(TEXTS),
        "reward": [0.5] * len(TEXTS),
        "labelled_steps": [[text.strip() for text in STEPS], *([text.strip()] for text in TEXTS[1:])],
        "calls": [["7+5"]] * len(TEXTS),
        "labels": [[1.0, 0.0], *([1.0] for _ in TEXTS[1:])],
    },
    steps=[STEPS, *([text] for text in TEXTS[1:])],
    completion_ids=[[1] * len(text) for text in TEXTS],
    turn=[[0, 1], *([n] for n in range(len(TEXTS) - 1))],
    observation=[["", "= 12\n"], *(["= 7\n"] for _ in TEXTS[1:])],
)


COUNTDOWN = replace(BATCH, columns={"answer": [{"target": 12, "numbers": [12]}] * len(TEXTS)})


def scores(reward: Any, batch: Batch = BATCH) -> Any:
    return reward.score(batch)[0]


@pytest.mark.parametrize("name", BUILTINS)
def test_a_builtins_source_gives_in_the_worker_what_it_gives_by_name(name: str, worker: Sandbox) -> None:
    builtin = BUILTINS[name]
    pasted = load_reward(RewardConfig(name="pasted", kind=builtin.kind, code=builtin.source), worker)
    named = load_reward(name, worker)
    batch = COUNTDOWN if name == "countdown_equation" else BATCH
    given = scores(pasted, batch)
    assert given == scores(named, batch)
    flat = [value for row in given for value in (row if builtin.kind == "step" else [row]) if value is not None]
    assert builtin.low <= min(flat) <= max(flat) <= builtin.high


def test_an_error_names_the_line_of_the_source_that_is_shown(worker: Sandbox) -> None:
    for name in ("gsm8k_correctness", "answer_correctness", "math_equality"):
        reward = load_reward(name, worker)
        with pytest.raises(RewardError, match="TypeError") as caught:
            reward.score(Batch(["p"], ["c"], {"answer": 3}))  # no list
        assert caught.value.line is not None
        assert "zip(" in BUILTINS[name].source.splitlines()[caught.value.line - 1]


def test_every_function_of_trl_is_listed_and_is_called_as_trl_calls_it(worker: Sandbox) -> None:
    listed = {name.removeprefix("trl:") for name in BUILTINS if name.startswith("trl:")}
    assert listed == {name for name in trl.rewards.__all__ if callable(getattr(trl.rewards, name))}
    chat = [[{"role": "assistant", "content": text}] for text in TEXTS]
    accuracy = trl.rewards.accuracy_reward(completions=chat, solution=["12"] * len(TEXTS))
    cosine = trl.rewards.get_cosine_scaled_reward(max_len=128)(
        completions=chat, solution=["12"] * len(TEXTS), completion_ids=BATCH.completion_ids
    )
    assert 1.0 in accuracy
    assert scores(load_reward("trl:accuracy_reward", worker)) == accuracy
    assert scores(load_reward("trl:get_cosine_scaled_reward", worker)) == cosine


def test_options_reach_a_builtin_here_and_in_the_worker_and_are_in_its_source(worker: Sandbox) -> None:
    options = {"ngram_size": 2, "max_penalty": -0.5}
    code = BUILTINS["repetition"].source_with(options)
    pasted = load_reward(RewardConfig(name="pasted", kind="outcome", code=code), worker)
    named = load_reward(RewardConfig(name="repetition", kind="outcome", options=options), worker)
    assert scores(pasted) == scores(named) != scores(load_reward("repetition"))
    options = {"max_completion_len": 100, "soft_punish_cache": 20}
    config = RewardConfig(name="trl:get_soft_overlong_punishment", kind="outcome", options=options)
    ninety = Batch(["p"], ["c"], completion_ids=[[1] * 90])
    assert load_reward(config, worker).score(ninety)[0] == [-0.5]  # as in TRL's own example


def test_a_runs_directory_keeps_the_code_that_runs_by_hash(tmp_path: Path) -> None:
    """Of the user's code, of a built-in, of one with options, and of TRL's: each file's hash is the manifest's."""
    mine, options = "def mine(prompt, step, **columns):\n    return 1.0\n", {"ngram_size": 2}
    rewards = [
        {"name": "mine", "code": mine},
        {"name": "tag_format", "kind": "outcome"},
        {"name": "repetition", "kind": "outcome", "options": options},
        {"name": "trl:accuracy_reward", "kind": "outcome"},
    ]
    config = RunConfig.from_yaml(RunConfig(method={"rewards": rewards}).to_yaml())
    run = RunDir.create(tmp_path, config, sources(config))
    manifest = json.loads((run.path / "rewards" / "manifest.json").read_text())
    kept = {row["name"]: (run.path / "rewards" / row["file"]).read_text() for row in manifest}
    assert kept == {
        "mine": mine,
        "tag_format": BUILTINS["tag_format"].source,
        "repetition": BUILTINS["repetition"].source_with(options),
        "trl:accuracy_reward": BUILTINS["trl:accuracy_reward"].source,
    }
    for row in manifest:
        assert row["sha256"] == hashlib.sha256(kept[row["name"]].encode()).hexdigest()


def has_equals(prompt: object, step: str, **columns: object) -> float:
    return float("=" in step)


@pytest.mark.parametrize("weight", [1.0, -1.0, 0.0])
def test_right_and_wrong_are_said_by_one_reward_whatever_is_summed(weight: float) -> None:
    """Another reward of 1 and 0, a weight and another order change no mark."""
    right = replace(load_reward("step_correctness"), weight=weight)
    scored = score_group(first_group(), StepPattern(), [has_equals, right, "answer_correctness"])
    assert (scored.judge("step"), scored.judge("outcome")) == ("step_correctness", "answer_correctness")
    assert score_group(first_group(), StepPattern(), [has_equals]).judge("step") == "has_equals"
    assert score_group(first_group(), StepPattern(), ["turns_penalty"]).judge("step") is None  # -1 and 0: no verdict
