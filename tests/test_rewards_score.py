"""Scoring groups and batches: weights, unscored steps, spans with their end-of-sequence token, chat prompts, errors."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import reward_models
from tests.judge_server import serving, steps_answer
from workbench.assets import FIRST_GROUP
from workbench.cli import main
from workbench.config import ModelConfig, SamplingConfig
from workbench.credit import compare_credits, credit_group
from workbench.data import load_task
from workbench.errors import RewardCodeError, RewardError
from workbench.policies.belief import policy_reward
from workbench.policies.load import Policy
from workbench.rewards import (
    ErrorBudget,
    Reward,
    RewardConfig,
    SandboxPool,
    load_reward,
    score_both,
    score_completions,
    score_group,
)
from workbench.rewards.builtin import BUILTINS
from workbench.rewards.judges import Judges, judge_function
from workbench.rewards.models.formats import FORMATS
from workbench.rewards.models.model import LocalModels
from workbench.rewards.protocol import Batch
from workbench.rewards.reward import FAILED
from workbench.schema import Group, Rollout, Step
from workbench.steps import StepPattern, token_texts

PATTERN = StepPattern("S")


def rollout(*texts: str, finished: bool = True) -> Rollout:
    return Rollout(tuple(range(len(texts))), texts, finished)


def lengths(prompt: Any, step: str, **columns: Any) -> float:
    return float(len(step))


def only_long(prompt: Any, step: str, **columns: Any) -> float | None:
    return 10.0 if len(step) > 2 else None


def shouting(prompts: Any, completions: Any, answer: Any, **columns: Any) -> list[float | None]:
    return [None if right is None else float(right in text) for text, right in zip(completions, answer, strict=True)]


GROUP = Group(
    prompt="p",
    rollouts=(rollout("S1", "S22", "<eos>"), rollout("no", "thing", "<eos>"), rollout("-", "S3", finished=False)),
    columns={"answer": "22"},
)


def test_scores_are_weighted_and_summed_where_there_are_any() -> None:
    rewards = [Reward("lengths", "step", lengths, 0.5), Reward("only_long", "step", only_long, 2.0)]
    scored = score_group(GROUP, PATTERN, rewards)
    # Steps "S1" and "S22", then "nothing" whole (8 letters, no match), then "S3".
    assert [one.scores["lengths"] for one in scored.scored] == [(2.0, 3.0), (7.0,), (2.0,)]
    assert [one.scores["only_long"] for one in scored.scored] == [(None, 10.0), (10.0,), (None,)]
    # 0.5 * 2; 0.5 * 3 + 2 * 10; 0.5 * 7 + 2 * 10; 0.5 * 2.
    assert scored.step_rewards == [[1.0, 21.5], [23.5], [1.0]]


def test_a_step_whose_sums_hold_in_part_is_wrong_and_one_without_a_sum_is_neither() -> None:
    lines = ("2 + 2 = 4\n", "1 + 1 = 2, 2 + 2 = 5\n", "so be it\n", "<eos>")
    group = Group("p", (Rollout((0, 1, 2, 3), lines, True),))
    scored = score_group(group, StepPattern(r"\n", "ends"), ["sums_hold"])
    assert scored.step_rewards == [[1.0, 0.5, None]]
    assert scored.steps_right == [[True, False, None]]


def test_what_one_function_does_to_its_columns_is_not_seen_by_the_next() -> None:
    def reverses(completions: Any, answer: Any, **columns: Any) -> Any:
        answer.reverse()
        return answer

    rewards = [Reward(name, "outcome", reverses) for name in ("first", "second")]
    columns = [{"answer": n} for n in range(3)]
    scored, _ = score_completions(["p"] * 3, GROUP.rollouts, columns, PATTERN, rewards)
    assert [one.outcome_scores for one in scored] == [{"first": 2 - n, "second": 2 - n} for n in range(3)]


FOUR = Group("p", tuple(rollout(f"S{n}", "<eos>") for n in range(4)))


def acc(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
    return [1.0, 0.0, None, None]


def fmt(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
    return [0.5] * 4


def elsewhere(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
    """Scores the answers to another kind of prompt."""
    return [None] * 4


def test_invariant_unscored_is_not_zero_beside_another_reward() -> None:
    scored = score_group(FOUR, PATTERN, [acc, fmt])
    assert scored.outcomes == [1.5, 0.5, None, None]
    # Of the two that are scored: mean 1, std 0.70711; (1.5 - 1) / 0.70721 = 0.70701.
    credit = credit_group(scored, "outcome")
    assert credit.advantages[:, 0].tolist() == pytest.approx([0.70701, -0.70701, 0, 0], abs=1e-5)
    assert not credit.explain(2, 0).terms
    # Each function by itself, over the scored answers: acc 0.70701 and -0.70701, fmt 0; then once more.
    each = credit_group(scored, "outcome", each_reward=True).advantages[:, 0].tolist()
    assert each == pytest.approx([0.70704, -0.70704, 0, 0], abs=1e-5)
    assert not credit_group(scored, "process", outcome_weight=1.0).advantages[2:].any()


def test_a_reward_that_scores_none_of_a_group_has_no_part_in_it() -> None:
    assert score_group(FOUR, PATTERN, [acc, elsewhere]).outcomes == [1.0, 0.0, None, None]
    assert score_group(FOUR, PATTERN, [fmt, elsewhere]).outcomes == [0.5] * 4
    assert score_group(FOUR, PATTERN, [Reward("acc", "outcome", acc, 0.0), fmt]).outcomes == [0.5] * 4  # watched


@pytest.mark.parametrize(
    ("regex", "rewards", "warnings"),
    [(".+", [lengths], 0), (".+", [], 1), ("nowhere", [lengths], 1), ("nowhere", [], 2)],
)
def test_no_reward_and_a_pattern_without_a_match_are_warned_of(regex: str, rewards: list[Any], warnings: int) -> None:
    assert len(credit_group(score_group(FOUR, StepPattern(regex), rewards)).warnings) == warnings


def test_a_step_that_a_judge_left_out_is_unscored_and_one_that_is_none_of_a_rules_business_is_not() -> None:
    judge = Reward("judge", "step", only_long, judges_all=True)
    assert score_group(GROUP, PATTERN, [lengths, judge]).step_rewards == [[None, 13.0], [17.0], [None]]
    assert score_group(GROUP, PATTERN, [lengths, only_long]).step_rewards == [[2.0, 13.0], [17.0], [2.0]]


def test_a_completion_on_which_a_step_reward_failed_is_unscored_beside_others() -> None:
    def fails(prompt: Any, step: str, **columns: Any) -> float:
        return {"S1": 1.0, "S22": 1.0, "nothing": 0.0}[step]

    rewards = [Reward("lengths", "step", lengths), Reward("fails", "step", fails)]
    columns = [{} for _ in GROUP.rollouts]
    scored, _ = score_completions(["p"] * 3, GROUP.rollouts, columns, PATTERN, rewards, budget=ErrorBudget(5))
    assert [row.rewards for row in scored] == [(3.0, 4.0), (7.0,), (None,)]
    assert scored[2].scores == {"lengths": (2.0,), "fails": (None,)}


def test_the_end_of_sequence_belongs_to_the_last_step_and_truncation_adds_nothing() -> None:
    scored = score_group(GROUP, PATTERN, [lengths]).scored
    assert [one.spans for one in scored] == [((0, 0), (1, 2)), ((0, 2),), ((1, 1),)]
    assert scored[1].steps == (Step(0, 7, matched=False),)


@pytest.mark.parametrize(
    ("texts", "pattern", "steps", "spans"),
    [
        (("<eos>",), PATTERN, (Step(0, 0, matched=False),), ((0, 0),)),  # one empty step
        (("<a>", "tail", "<eos>"), StepPattern("<a>", "is"), (Step(0, 3),), ((0, 2),)),  # over text outside every step
    ],
)
def test_the_last_step_reaches_the_end_of_sequence(texts: Any, pattern: StepPattern, steps: Any, spans: Any) -> None:
    (scored,) = score_group(Group("p", (rollout(*texts),)), pattern, [lengths]).scored
    assert (scored.steps, scored.spans) == (steps, spans)


def test_a_batch_of_several_prompts_gives_each_row_its_own_columns() -> None:
    def judge(prompts: Any, completions: Any, steps: Any, answer: Any, extra: Any, **columns: Any) -> Any:
        assert (prompts, extra) == (["p", "q"], [None, 3])
        return [[float(text == right) for text in texts] for texts, right in zip(steps, answer, strict=True)]

    rollouts = [rollout("S1", "S2"), rollout("S2", finished=False)]
    columns = [{"answer": "S1"}, {"answer": "S2", "extra": 3}]
    scored, _ = score_completions(["p", "q"], rollouts, columns, PATTERN, [load_reward(judge)])
    assert [one.rewards for one in scored] == [(1.0,), (1.0,)]
    assert score_completions([], [], [], PATTERN, [load_reward(shouting)]) == ([], ())


def test_a_chat_prompt_makes_completions_chat_as_in_trl() -> None:
    def seen(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        return [float(prompts == [prompt] and completions == [[{"role": "assistant", "content": "S1"}]])]

    prompt = [{"role": "user", "content": "hi"}]
    assert score_group(Group(prompt, (rollout("S1", "<eos>"),)), PATTERN, [seen]).outcomes == [1.0]


def test_columns_named_like_arguments_are_not_passed() -> None:
    def seen(prompt: Any, step: str, **columns: Any) -> float:
        return float((prompt, step, columns) == ("p", "S1", {"level": 3}))

    columns = {"step": "mine", "completion": "mine", "prompt": "mine", "level": 3}
    assert score_group(Group("p", (rollout("S1", "<eos>"),), columns), PATTERN, [seen]).step_rewards == [[1.0]]


def test_two_rewards_of_one_name_are_refused() -> None:
    with pytest.raises(RewardCodeError, match="'lengths'"):
        score_group(GROUP, PATTERN, [lengths, lengths])


def test_what_weighs_nothing_is_no_reward_of_a_step_nor_of_a_completion() -> None:
    rewards = [Reward("lengths", "step", lengths, 0.0), Reward("shouting", "outcome", shouting, 0.0)]
    scored = score_group(Group("p", GROUP.rollouts, {"answer": "S"}), PATTERN, rewards).scored
    assert [(set(row.rewards), row.outcome) for row in scored] == [({None}, None)] * 3
    assert [row.outcome_scores["shouting"] for row in scored] == [1.0, 0.0, 1.0]


# -- Completions without a step ----------------------------------------------------------------------------------------

STEPS_ONLY = StepPattern(leave_out_thinking=True)
OWN: tuple[Callable[..., Any], ...] = (
    lambda prompt, step, **columns: float(len(step)),
    lambda prompts, completions, steps, **columns: [[1.0] * len(row) for row in steps],
)
BELIEFS = [{"form": form, "of": of} for form in ("value", "difference", "watermark") for of in ("answer", "reference")]


def step_rewards_of(tiny: Policy, folder: Path, judge: str, judges: Judges) -> list[Reward]:
    """Every kind of step reward there is: built-in, own, of a model, of a judge, and of the policy itself."""
    asks = [{"belief": belief} for belief in BELIEFS]
    asks += [{"monte_carlo": {"continuations": 2, "progress": progress}} for progress in (False, True)]
    sampling = SamplingConfig(max_completion_length=48)
    rewards = [
        policy_reward(RewardConfig(name=f"ask-{n}", **spec), tiny, sampling, pattern=STEPS_ONLY)
        for n, spec in enumerate(asks)
    ]
    rewards += [load_reward(name) for name, builtin in BUILTINS.items() if builtin.kind == "step"]
    rewards += [Reward(f"own-{n}", "step", function) for n, function in enumerate(OWN)]
    models = LocalModels("cpu", kept=len(FORMATS))
    for form in FORMATS:
        path = reward_models.save(reward_models.KINDS[form], folder / form)
        rewards.append(load_reward(RewardConfig(name=form, model=ModelConfig(path=path, format=form)), models=models))
    spec = RewardConfig(name="judge", judge={"base_url": judge, "model": "m"})
    return [*rewards, Reward("judge", "step", judge_function("judge", "step", spec.judge, judges), waits=True)]


def test_a_completion_without_a_step_stops_no_step_reward(tiny: Policy, tmp_path: Path) -> None:
    """One is cut off inside its thinking, which is left out, one has no token; the third one's scores stay."""
    texts = ("<think>\nStep 1: 2 + 2", "", "Step 1: 2 + 2 = 4\nStep 2: 4 + 1 = 5\nAnswer: 5")
    ids = [tuple(tiny.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    cut, empty, whole = (Rollout(row, tuple(token_texts(tiny.tokenizer, row)), finished=False) for row in ids)
    example = load_task("chain-arithmetic")[0]
    columns = {**example.columns, "calls": ["2 + 2"], "labelled_steps": ["Step 1: 2 + 2 = 4\n"], "labels": [1]}
    group = Group(example.prompt, (whole,), columns)
    with Judges(tmp_path) as judges, serving(lambda body: steps_answer(1, 0.5, 0)) as endpoint:
        for reward in step_rewards_of(tiny, tmp_path, endpoint.url, judges):
            [alone] = score_group(group, STEPS_ONLY, [reward]).step_rewards
            assert len(alone) == 3, reward.name
            for order in ((cut, empty, whole), (empty, whole, cut), (whole, cut, empty)):
                scored = score_group(replace(group, rollouts=order), STEPS_ONLY, [reward])
                expected = [alone if rollout is whole else [] for rollout in order]
                for found, wanted in zip(scored.step_rewards, expected, strict=True):
                    assert found == pytest.approx(wanted, abs=1e-5), reward.name
        assert len(endpoint.asked) == 1  # a completion without a step is not asked about, and an answer is kept


# --- one group scored with two lists of rewards -----------------------------------------------------------------------

TWO = Group(
    "p",
    (Rollout((1, 2, 3), ("S1", "S22", "S333"), False), Rollout((1, 4), ("S1", "S4444"), False)),
)


def is_first(prompt: Any, step: str, **columns: Any) -> float:
    return float(step == "S1")


def test_a_function_of_both_lists_is_called_once_and_weighed_twice() -> None:
    """Lengths 2 3 4 and 2 5; ``is_first`` is 1 on S1. With 1 · length, and with -0.5 · length + 3 · is_first."""
    calls: list[int] = []

    def count_calls(prompt: Any, step: str, **columns: Any) -> float:
        calls.append(len(step))
        return float(len(step))

    length = Reward("length", "step", count_calls)
    others = [replace(length, weight=-0.5), Reward("is_first", "step", is_first, 3.0)]
    a, b = score_both(TWO, PATTERN, [length], others)
    assert calls == [2, 3, 4, 2, 5]
    assert [row.rewards for row in a.scored] == [(2.0, 3.0, 4.0), (2.0, 5.0)]
    assert [row.rewards for row in b.scored] == [(2.0, -1.5, -2.0), (2.0, -2.5)]
    # And each side is what score_group makes of its list alone, times of calls apart.
    alone = score_group(TWO, PATTERN, others)
    assert (alone.scored, alone.group) == (b.scored, b.group)
    compared = compare_credits(credit_group(a, "step"), credit_group(b, "step"))
    # Means 3.2 and -0.4: the steps of length 2, 4 and 5 change sides, that of length 3 is below both.
    assert compared.flipped_share == pytest.approx(0.8)


# ── on the command line ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_compares_with_a_files_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("method: {rewards: [{name: step_correctness, weight: -1}]}\n")
    assert main(["score", "--group", str(FIRST_GROUP), "--other", str(file), "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)["compared"]
    assert compared["correlation"] == pytest.approx(-1)
    assert compared["names"][1] == "process on step_correctness × -1"


# --- how many errors a run survives, and how many sandboxes live ------------------------------------------------------

THREE = Batch(["p"] * 3, ["ab", "c", "d"], {}, [["a", "b"], ["c"], ["d"]])


# --- the pool -----------------------------------------------------------------------------------------------------


def test_the_longest_unused_worker_ends_when_there_are_too_many() -> None:
    with closing(SandboxPool(kept=2)) as pool:
        first, second = pool.of("a"), pool.of("b")
        first.start()
        second.start()
        assert pool.of("a") is first
        third = pool.of("c")
        assert (first.pid is None, second.pid) == (False, None)
        assert pool.of("c") is third
        assert pool.of("b") is not second


# --- the budget ---------------------------------------------------------------------------------------------------


def picky(prompt: Any, step: str, **columns: Any) -> float:
    if step in "bd":
        raise ValueError(step)
    return 1.0


def all_at_once(prompts: Any, completions: Any, steps: Any, **columns: Any) -> Any:
    return [[1.0] * len(texts) for texts in steps[:-1]] + [["no score"]]


def one_too_few(prompts: Any, completions: Any, **columns: Any) -> Any:
    return [1.0] * (len(prompts) - 1)


def test_a_function_called_by_step_loses_only_the_rollouts_it_failed_on() -> None:
    told: list[RewardError] = []
    budget = ErrorBudget(2, told.append)
    assert budget.score(load_reward(picky), THREE) == ([[FAILED, FAILED], [1.0], [FAILED]], "")
    assert [(error.rollout, error.step) for error in told] == [(0, 1), (2, 0)]
    assert (budget.new(), budget.new()) == (2, 0)


def test_a_function_that_sees_all_leaves_all_unscored() -> None:
    budget = ErrorBudget(2)
    assert budget.score(load_reward(all_at_once), THREE) == ([[None, None], [None], [None]], "")
    assert budget.score(load_reward(one_too_few), THREE) == ([None] * 3, "")
    budget.check(2)  # of all ranks together
    for over in (lambda: budget.score(load_reward(one_too_few), THREE), lambda: budget.check(3)):
        with pytest.raises(RewardError, match=r"^3 .*method\.max_reward_errors"):
            over()
