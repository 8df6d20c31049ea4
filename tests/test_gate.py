"""The outcome gate: a group whose answers do not differ in outcome has advantage 0, whatever else differs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.credits import make_rollout, make_scored
from tests.in_this_process import keep_inputs
from workbench.checks import preflight_of
from workbench.checks.metrics import group_metrics
from workbench.credit import SCHEMES, assign_credit, credit_group, group_normalisers
from workbench.engines.exchange import compare, recompute, rows_of
from workbench.errors import ConfigError, CreditError
from workbench.schema import Credit, ScoredGroup
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build

LENGTHS = (86, 127, 79, 108)


def scored(
    judged: list[float | None],
    *,
    lengths: tuple[int, ...] = LENGTHS,
    judge: tuple[str, float] = ("answer_correctness", 1.0),
    step_rewards: list[list[float]] | None = None,
) -> ScoredGroup:
    """Answers of so many tokens, judged as given and rewarded -0.3 * length / 512; steps of one token and the rest."""
    rollouts = [make_rollout(["t"] * length, first_id=1000 * i) for i, length in enumerate(lengths)]
    steps, spans = step_rewards or [[0.0]] * len(lengths), []
    for length, row in zip(lengths, steps, strict=True):
        last = len(row) - 1
        spans.append([*((k, k) for k in range(last)), (last, length - 1)])
    outcomes = {judge[0]: judged, "length": [length / 512 for length in lengths]}
    made = make_scored(rollouts, spans, {"steps": steps}, outcomes, {judge[0]: judge[1], "length": -0.3})
    return made if step_rewards else replace(made, rewards=made.rewards[1:])


def test_the_public_case_by_hand() -> None:
    """Lengths are 100 - 14, + 27, - 21 and + 8: std sqrt(1430 / 3) = 21.8327. With the factor 0.3 / 512 = 0.000585938
    the rewards are +0.0082031, -0.0158203, +0.0123047 and -0.0046875 from their mean, over 0.0127926 + 0.0001. Such is
    a group of https://github.com/verl-project/verl-recipe/pull/125."""
    group = scored([0.0] * 4)
    credit = credit_group(group, "outcome")
    assert credit.advantages[:, 0].tolist() == pytest.approx([0.63627, -1.22709, 0.95440, -0.36358], abs=1e-5)
    gated = credit_group(group, "outcome", gate="outcome")
    assert gated.advantages.tobytes() == np.zeros_like(credit.advantages).tobytes()
    assert (gated.spread, gated.is_counted, gated.options["gate"]) == (False, (True,) * 4, "outcome")
    assert (gated.gate_reason, credit.gate_reason) == ("no answer is right", "")
    assert group_normalisers(gated, "dapo").tolist() == group_normalisers(credit, "dapo").tolist() == [1 / 400] * 4
    assert gated.normalised == ((None,),) * 4


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_gated_and_otherwise_left_alone(scheme: str) -> None:
    random = np.random.default_rng(1)
    rewards = [random.integers(0, 2, size).astype(float).tolist() for size in (2, 3, 3, 1)]
    rewards[0][0], rewards[1][0] = 1.0, 0.0
    same, differ = (scored(judged, step_rewards=rewards) for judged in ([0.0] * 4, [1.0, 0.0, 0.0, 1.0]))
    for group in (same, differ):
        plain = credit_group(group, scheme, outcome_weight=0.5, gate="none")
        gated = credit_group(group, scheme, outcome_weight=0.5, gate="outcome")
        expected = plain.advantages if group is differ else np.zeros_like(plain.advantages)
        assert gated.advantages.tobytes() == expected.tobytes()
        assert bool(gated.gate_reason) is (group is same and any(part.normalised.any() for part in plain.parts))
        for i, length in enumerate(LENGTHS):
            for t in (0, length - 1):
                assert np.float32(gated.explain(i, t).total) == gated.advantages[i, t]


@pytest.mark.parametrize(
    ("judged", "judge", "reason"),
    [
        ([0.0] * 4, ("answer_correctness", 0.0), "no answer is right"),  # only watched
        ([1.0, 0.0, 0.0, 0.0], ("answer_correctness", 0.0), ""),
        ([1.0] * 4, ("answer_correctness", 1.0), "every answer is right"),
        ([0.2] * 4, ("mine", 1.0), "`mine` tells no answers apart"),
        # None is no outcome: one that is known has nothing to differ from.
        ([1.0, None, None, None], ("answer_correctness", 1.0), "`answer_correctness` tells no answers apart"),
        ([None] * 4, ("answer_correctness", 1.0), "`answer_correctness` tells no answers apart"),
        ([1.0, None, None, 0.0], ("answer_correctness", 1.0), ""),
    ],
)
def test_the_judge_is_one_that_is_only_watched_or_else_the_first(
    judged: list[float | None], judge: tuple[str, float], reason: str
) -> None:
    gated = credit_group(scored(judged, judge=judge), "outcome", gate="outcome")
    assert (gated.gate_reason, gated.spread) == (reason, 1.0 in judged and 0.0 in judged)


def test_a_function_known_to_judge_goes_before_the_first() -> None:
    group = scored([0.0] * 4)
    reordered = replace(group, rewards=group.rewards[::-1])
    assert credit_group(reordered, "outcome", gate="outcome").gate_reason == "no answer is right"


def test_lists_are_gated_by_their_outcomes() -> None:
    lists: Any = ([[1.0], [0.0]], [[1], [1]], [2, 2])
    open_ = assign_credit(*lists, outcome_rewards=[0.5, 0.5])
    assert open_.any()
    assert not assign_credit(*lists, outcome_rewards=[0.5, 0.5], gate="outcome").any()
    assert assign_credit(*lists, outcome_rewards=[0.5, 1.0], gate="outcome").tobytes() == open_.tobytes()
    for gate, outcomes in (("outcome", None), ("off", [0.5, 0.5])):
        with pytest.raises(CreditError, match=f"gate is '{gate}'"):
            assign_credit(*lists, outcome_rewards=outcomes, gate=gate)


def test_rows_for_an_engine_say_by_what_they_are_gated() -> None:
    groups = [scored([0.0] * 4), scored([1.0, 0.0, 0.0, 0.0])]
    credits = [credit_group(group, "outcome", gate="outcome") for group in groups]
    rows = list(rows_of(0, credits, "dapo", 128))
    assert [row.judged for row in rows] == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert [one.size for one in compare(rows, recompute(rows))] == [0.0] * 8


def test_right_answers_and_steps_that_differ_are_no_phantoms() -> None:
    assert credit_group(scored([1.0] * 4), "outcome").deciding() == ["length"]
    assert credit_group(scored([0.0] * 4), "outcome").deciding() == ["length"]
    assert credit_group(scored([1.0, 0.0, 0.0, 0.0]), "outcome").deciding() == []
    steps = scored([0.0] * 4, step_rewards=[[1.0], [0.0], [0.0], [1.0]])
    assert credit_group(steps, "process", outcome_weight=1.0).deciding() == []
    equal = scored([0.0] * 4, step_rewards=[[1.0]] * 4)
    assert credit_group(equal, "process", outcome_weight=1.0).deciding() == ["length"]


def credits_of(**options: Any) -> list[Credit]:
    """Of four groups one is a phantom, one has no right answer and no spread, one differs, one is all right."""
    groups = [scored([0.0] * 4), scored([0.0] * 4, lengths=(9,) * 4), scored([1.0, 0.0, 0.0, 0.0]), scored([1.0] * 4)]
    return [credit_group(group, "outcome", **options) for group in groups]


@pytest.mark.parametrize(
    ("gate", "shares", "finding", "value"),
    [
        ("none", (0.25, 0.25, None), "phantom advantages", "1 of 4"),
        ("outcome", (0.0, 0.75, 0.5), "groups gated", "2 of 4"),
    ],
)
def test_phantoms_and_gated_groups_are_counted(gate: str, shares: Any, finding: str, value: str) -> None:
    credits = credits_of(gate=gate)
    metrics = group_metrics(credits)
    assert tuple(metrics.get(f"{name}_share") for name in ("phantom", "zero_spread", "gated")) == shares
    found = {one.name: one.value for one in preflight_of(credits, wb.StepPattern(r"\n", "ends")).findings}
    assert {name: found[name] for name in ("phantom advantages", "groups gated") if name in found} == {finding: value}


def run_config(**method: Any) -> RunConfig:
    """Answers sampled so hot that about half of the groups have no right one, less 0.3 times their length over 512."""
    length = {"name": "length_target", "weight": 0.3 / 512, "options": {"target_length": 0}}
    rewards = [{"name": "answer_correctness", "kind": "outcome"}, length]
    credit = {"scheme": "outcome", "gate": "outcome"}
    sampling = {"num_generations": 4, "max_completion_length": 96, "temperature": 1.3}
    return RunConfig.parse(
        {
            "method": {"prompts_per_step": 6, "sampling": sampling, "credit": credit, "rewards": rewards, **method},
            "run": {"steps": 1, "eval_steps": 0, "watch_prompts": 0, "save_steps": 0, "device": "cpu"},
        }
    )


@pytest.mark.training
def test_invariant_parity_of_gated_groups(tmp_path: Path) -> None:
    """The loss gets the preview's advantages bit for bit, 0 of gated groups, and divides by the tokens of all."""
    credits: list[Credit] = []
    trainer = build(run_config(), tmp_path, Listeners(on_rollouts=lambda _, of_step: credits.extend(of_step)))
    seen = keep_inputs(trainer)
    trainer.train()
    gated = [bool(credit.gate_reason) for credit in credits]
    assert 0 < sum(gated) < len(gated)
    used, places = {}, {}
    for inputs in seen:
        mask = inputs["completion_mask"]
        for row, length, values in zip(inputs["completion_ids"], mask.sum(1), inputs["advantages"], strict=True):
            used[tuple(row[:length].tolist())] = values[:length].numpy().tobytes()
    for credit in credits:
        preview = credit_group(credit.scored, "outcome", gate="outcome")
        assert preview.advantages.tobytes() == credit.advantages.tobytes()
        assert preview.advantages.any() is not bool(credit.gate_reason) or not credit.spread
        places |= {r.token_ids: credit.of(i).tobytes() for i, r in enumerate(credit.scored.group.rollouts)}
    assert used == places
    tokens = sum(map(len, places))
    assert {int(inputs["num_items_in_batch"]) for inputs in seen} == {tokens}


@pytest.mark.training
def test_dynamic_sampling_goes_by_the_outcome(tmp_path: Path) -> None:
    """Without the gate the length reward gives every group spread, and none would be replaced."""
    trainer = build(run_config(resample_flat=1), tmp_path)
    trainer.train()
    [row] = [row for row in trainer.state.log_history if "resample/prompts" in row]
    assert row["resample/prompts"] > 0


def test_a_gate_needs_an_outcome() -> None:
    steps = {"rewards": [{"name": "step_correctness"}], "credit": {"gate": "outcome"}}
    with pytest.raises(ConfigError, match=r"method\.credit\.gate"):
        RunConfig.parse({"method": steps})
