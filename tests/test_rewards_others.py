"""Reward functions of other tools, run as they are: each on one group, with scores worked by hand."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.cli.rewards import read_rewards
from workbench.errors import ConfigError, RewardCodeError, RewardError, RewardValueError
from workbench.rewards import Reward, RewardConfig, load_reward, score_group
from workbench.rewards.protocol import Batch
from workbench.rewards.source import LARGEST, kind_in, reward_functions, save_reward, saved_rewards
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.training.methods import RunConfig

VERL = """def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    right = solution_str.endswith(ground_truth)
    return {"score": 1.0 if right else len(data_source) / 100 + extra_info["level"], "acc": right}
"""
GSM8K = """def compute_score(solution_str, ground_truth, method="strict", format_score=0.25, score=1.0):
    return score if solution_str.endswith(ground_truth) else format_score
"""
BATCH = """def compute_score(data_sources, solution_strs, ground_truths, extra_infos):
    return [float(text.endswith(gold)) for text, gold in zip(solution_strs, ground_truths)]
"""
OPENRLHF = """import numpy
def reward_func(queries, prompts, labels, **kwargs):
    rewards = numpy.array([len(q) - len(p) if q.endswith(a) else -1 for q, p, a in zip(queries, prompts, labels)])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}
"""
OPENRLHF_AWAITED = OPENRLHF.replace("def reward_func", "async def reward_func")
SWIFT = """class ORM:
    pass

class Accuracy(ORM):
    def __init__(self, args=None):
        self.bonus = 0.5

    def __call__(self, completions, solution, **kwargs):
        return [self.bonus + (text.endswith(gold)) for text, gold in zip(completions, solution)]
"""
VERIFIERS = """def exact(completion, answer):
    return 1.0 if completion[-1]["content"].endswith(answer) else 0.0
"""
AWAITED = """async def exact(completion, answer, state, **kwargs):
    return float(completion.endswith(state["answer"])) + len(kwargs["info"])
"""
TEXTS = ("It is 72", "It is 71")
CODES = {  # scores of both completions; the prompt has 6 characters
    "verl": (VERL, [1.0, 0.05 + 2]),
    "gsm8k": (GSM8K, [1.0, 0.25]),
    "batch": (BATCH, [1.0, 0.0]),
    "openrlhf": (OPENRLHF, [8.0, -1.0]),
    "openrlhf awaited": (OPENRLHF_AWAITED, [8.0, -1.0]),
    "swift": (SWIFT, [1.5, 0.5]),
    "awaited": (AWAITED, [1.0, 0.0]),
}
COLUMNS = {"ground_truth": "72", "solution": "72", "data_source": "gsm8k", "extra_info": {"level": 2}}


def test_each_scores_a_group_as_it_was_worked_by_hand() -> None:
    group = Group("6 * 12", rollouts_of(*TEXTS), COLUMNS)
    for tool, (code, expected) in CODES.items():
        (name,) = [name for name in reward_functions(code) if name != "ORM"]
        assert kind_in(code, name) == "outcome"
        scored = score_group(group, StepPattern(r"\n", kind="ends"), [RewardConfig(name=name, code=code)])
        assert [one.outcome for one in scored.scored] == pytest.approx(expected), tool


def rollouts_of(*texts: str) -> tuple[Rollout, ...]:
    return tuple(Rollout(tuple(map(ord, text)), tuple(text), finished=False) for text in texts)


def test_how_a_function_is_called_is_said_of_it() -> None:
    columns = {"answer": "72", "data_source": "gsm8k", "extra_info": {"level": 2}}
    reward = RewardConfig(name="compute_score", code=VERL)
    scored = score_group(Group("6 * 12", rollouts_of(*TEXTS), columns), StepPattern(r"\n", kind="ends"), [reward])
    assert [one.outcome for one in scored.scored] == [1.0, 2.05]
    assert "ground_truth is the column answer" in scored.rewards[0].read_as


FILE = """class Ends:
    def __call__(self, completions, answer, **columns):
        return [float(text.endswith(gold)) for text, gold in zip(completions, answer)]

def exact(completion, answer):
    return float(completion.endswith(answer))

ends = Ends()
"""


@pytest.mark.parametrize("name", ["exact", "ends"])
def test_a_function_of_a_file_is_named_alike_everywhere(tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    named = f"{file}::{name}"
    group = Group("6 * 12", rollouts_of(*TEXTS), {"answer": "72"})
    assert score_group(group, StepPattern(r"\n", kind="ends"), [named]).outcomes == [1.0, 0.0]
    method = {"rewards": [{"name": named}], "credit": {"scheme": "outcome"}}
    (of_yaml,) = RunConfig.parse({"method": method}).method.reward_functions
    (of_shell,) = read_rewards({"reward": [named]}, None)
    assert of_yaml == RewardConfig.parse(of_shell)
    assert (of_yaml.name, of_yaml.kind, of_yaml.code) == (name, "outcome", FILE)
    with pytest.raises(ConfigError, match="gone"):
        RewardConfig.parse({"name": str(tmp_path / "gone.py")})


def test_the_answer_is_the_column_asked_for_or_what_else_holds_one() -> None:
    def compute_score(solution_str, ground_truth):
        return float(ground_truth)

    reward = load_reward(compute_score)
    for columns in (
        {"answer": ["7"]},
        {"label": ["7"]},
        {"answer": ["1"], "ground_truth": ["7"]},
        {"answer": ["1"], "reward_model": [{"ground_truth": "7"}]},  # verl's own rows
        {"gold_answer": ["7"], "model_answer": ["1"], "solution": ["in words"], "answer_id": ["1"]},
    ):
        assert reward.score(Batch(["p"], ["c"], columns))[0] == [7.0]
    for others in ({"model_answer": ["7"]}, {"gold": ["7"], "expected": ["1"]}):  # none, and either
        with pytest.raises(RewardError, match=", ".join(others)):
            reward.score(Batch(["p"], ["c"], others))


def test_messages_and_texts_are_what_a_function_takes() -> None:
    chat = Batch(
        [[{"role": "user", "content": "6 * 12"}]],
        [[{"role": "assistant", "content": "It is 72"}]],
        {"answer": ["72"], "labels": ["72"], "data_source": ["gsm8k"], "extra_info": [{}]},
    )
    for code in (VERL, OPENRLHF, VERIFIERS):
        config = RewardConfig(name=reward_functions(code)[0], code=code)
        assert load_reward(config).score(chat)[0] == [8.0 if code == OPENRLHF else 1.0]
    exact = load_reward(RewardConfig(name="exact", code=VERIFIERS))
    assert exact.score(Batch(["6 * 12"], list(TEXTS[:1]), {"answer": ["72"]}))[0] == [1.0]


def test_a_rubric_is_the_weighted_sum_of_its_functions() -> None:
    async def short(completion, **kwargs):
        return None if "?" in completion else len(completion) / 10

    def parsed(completion, answer, parser):
        return float(parser(completion) == answer)

    rubric = SimpleNamespace(funcs=[short, parsed], weights=[0.5, 2.0], parser=lambda text: text[-2:])
    reward = load_reward(rubric)
    scores = reward.score(Batch(["p"] * 3, ["It is 72", "It is 7", "72?"], {"answer": ["72"] * 3}))[0]
    assert scores == pytest.approx([0.4 + 2, 0.35, None])


STEP_SCORES = """def step_scores(prompt, completion):
    rewards = []
    for text in completion.split("Step ")[1:]:
        rewards.append(0.01 * len(text))
    return rewards
"""
MAPPED = """def mapped(prompt, completion) -> list[float]:
    return list(map(lambda text: 0.01 * len(text), completion.split("Step ")[1:]))
"""
UNREAD: dict[str, Any] = {}
exec(STEP_SCORES, UNREAD)  # whose source is not to be found
STEPS = Group("p", rollouts_of("Step 1: ab\nStep 2: c", "Step 1: abcd"))
"""6, 4 and 7 characters after each "Step "."""


def test_a_list_for_one_completion_is_the_scores_of_its_steps() -> None:
    def step_scores(prompt: str, completion: str) -> list[float]:
        return [0.01 * len(text) for text in completion.split("Step ")[1:]]

    for spec in (
        step_scores,
        Reward("declared", "step", UNREAD["step_scores"]),
        RewardConfig(name="step_scores", code=STEP_SCORES),
        RewardConfig(name="mapped", code=MAPPED),
    ):
        scored = score_group(STEPS, StepPattern("step-n"), [spec])
        assert [row.rewards for row in scored.scored] == [pytest.approx((0.06, 0.04)), pytest.approx((0.07,))]


def test_a_list_of_another_number_or_for_an_outcome_is_refused() -> None:
    code = RewardConfig(name="step_scores", code=STEP_SCORES)
    with pytest.raises(RewardValueError, match="2 values for rollout 1"):
        score_group(STEPS, StepPattern(r"(?m)^Step 1:"), [code])
    for spec in (UNREAD["step_scores"], code.model_copy(update={"kind": "outcome"})):
        with pytest.raises(RewardValueError, match=r"0\.06, 0\.04"):
            score_group(STEPS, StepPattern("step-n"), [spec])


# --- functions saved in the workspace, and what code defines without being run ----------------------------------------

ONE_STEP = "def mine(prompt, step, **columns):\n    return 1.0\n"
OTHER = ONE_STEP.replace("1.0", "2.0")
WHOLE = "def whole(prompts, completions, **columns):\n    return [1.0] * len(prompts)\n"


def test_a_function_is_a_file_of_its_name(tmp_path: Path) -> None:
    for name, code in (("mine", ONE_STEP), ("mine", OTHER), ("whole", WHOLE)):
        assert save_reward(tmp_path, name, code) == tmp_path / "rewards" / f"{name}.py"
    (tmp_path / "rewards" / "by_hand.py").write_text(WHOLE)
    (tmp_path / "rewards" / "notes.txt").write_text("x")
    assert saved_rewards(tmp_path) == ["by_hand", "mine", "whole"]
    assert (tmp_path / "rewards" / "mine.py").read_text() == OTHER
    for code in (" \n", "#" * (LARGEST + 1)):
        with pytest.raises(RewardCodeError, match="bytes"):
            save_reward(tmp_path, "mine", code)


@pytest.mark.parametrize("name", ["", "../../x", "a/b", "a.b", "1a", "x" * 81, ".deleted", "nul\0", "é"])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RewardCodeError, match="saved reward"):
        save_reward(tmp_path, name, ONE_STEP)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ONE_STEP, "step"),
        (WHOLE, "outcome"),
        ("def f(prompts, completions, steps, **c): ...", "step"),
        ("def f(prompts, completions, *, step=1, **c): ...", "outcome"),
        ("def _help(step): ...\ndef f(completions, **c): ...", "outcome"),
        ("def a(step): ...\ndef reward(completions, **c): ...", "outcome"),
        ("def a(step): ...\ndef b(completions, **c): ...", None),
        ("class A:\n    def __call__(self, completions, **c): ...\nreward = A()", "outcome"),
        # Only its inner function gives a list, which is not the scores of steps.
        ("def f(completion):\n    def split(): return completion.split()\n    return len(split()) - 1.0", "outcome"),
        ("x = 1", None),
        ("def f(", None),
    ],
)
def test_a_functions_kind_is_read_from_its_parameters(code: str, kind: str | None) -> None:
    assert kind_in(code, "mine") == kind


def test_the_reward_functions_among_a_recipes_are_found() -> None:
    code = """
def extract(text): ...
def right(prompts, completions, answer, **kwargs): ...
def count(text): ...
def tags(completions, **kwargs): ...
def one(prompt, step, **c): ...
def closed(completions): ...
"""
    assert reward_functions(code) == ["right", "tags", "one"]
