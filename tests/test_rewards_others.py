"""Reward functions of other tools, run as they are: each on one group, with scores worked by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.drafts import draft_of, own_row
from workbench.config import RewardConfig
from workbench.errors import RewardError
from workbench.rewards import load_reward, score_group
from workbench.rewards.protocol import Batch
from workbench.rewards.source import kind_in, reward_functions, written_for
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.ui.handlers.scoring import rescore

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
    "swift": (SWIFT, [1.5, 0.5]),
    "awaited": (AWAITED, [1.0, 0.0]),
}
COLUMNS = {"ground_truth": "72", "solution": "72", "data_source": "gsm8k", "extra_info": {"level": 2}}


def test_each_scores_a_group_as_it_was_worked_by_hand() -> None:
    rollouts = tuple(Rollout(tuple(map(ord, text)), tuple(text), finished=False) for text in TEXTS)
    group = Group("6 * 12", rollouts, COLUMNS)
    for tool, (code, expected) in CODES.items():
        (name,) = [name for name in reward_functions(code) if name != "ORM"]
        assert kind_in(code, name) == "outcome"
        scored = score_group(group, StepPattern(r"\n", kind="ends"), [RewardConfig(name=name, code=code)])
        assert [one.outcome for one in scored.scored] == pytest.approx(expected), tool


def test_a_function_is_read_by_its_parameters_and_the_page_says_so() -> None:
    assert written_for(VERL, "compute_score") == written_for(GSM8K, "compute_score") == "verl's compute_score"
    assert written_for("def f(prompt, step_text): return 1", "f") == ""
    group = Group(
        "6 * 12", (Rollout((1,), (TEXTS[0],), finished=False), Rollout((2,), (TEXTS[1],), finished=True)), COLUMNS
    )
    draft = draft_of(own_row(VERL, "compute_score"), regex=r"\n", kind="ends", scheme="outcome")
    view = rescore(draft.but(group=group, prompt=group.prompt, columns=COLUMNS), None)
    assert view.credit is not None
    assert [one.outcome for one in view.credit.scored.scored] == [1.0, 2.05]


def test_the_answer_is_the_column_asked_for_or_what_else_holds_one() -> None:
    def compute_score(solution_str, ground_truth):
        return float(ground_truth)

    reward = load_reward(compute_score)
    for columns in (
        {"answer": ["7"]},
        {"label": ["7"]},
        {"answer": ["1"], "ground_truth": ["7"]},
        {"answer": ["1"], "reward_model": [{"ground_truth": "7"}]},  # verl's own rows
    ):
        assert reward.score(Batch(["p"], ["c"], columns))[0] == [7.0]
    with pytest.raises(RewardError, match="the data has the columns gold"):
        reward.score(Batch(["p"], ["c"], {"gold": ["7"]}))


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
