"""The outcome gate: a group whose answers do not differ in outcome has advantage 0, whatever else differs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.credits import make_rollout, make_scored
from tests.in_this_process import keep_inputs
from workbench.checks import alarms, preflight_of
from workbench.checks.metrics import group_metrics
from workbench.config import CreditConfig
from workbench.credit import SCHEMES, assign_credit, credit_group, group_normalisers
from workbench.engines.exchange import compare, recompute, rows_of
from workbench.errors import ConfigError, CreditError
from workbench.schema import Credit, ScoredGroup
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build
from workbench.views.sentences import group_facts

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
        assert "gate" not in plain.options
        gated = credit_group(group, scheme, outcome_weight=0.5, gate="outcome")
        expected = plain.advantages if group is differ else np.zeros_like(plain.advantages)
        assert gated.advantages.tobytes() == expected.tobytes()
        assert bool(gated.gate_reason) is (group is same and any(part.normalised.any() for part in plain.parts))
        for i, length in enumerate(LENGTHS):
            for t in (0, length - 1):
                assert np.float32(gated.explain(i, t).total) == gated.advantages[i, t]
    assert plain.spread


def test_the_judge_is_one_that_is_only_watched_or_else_the_first() -> None:
    watched = ("answer_correctness", 0.0)
    assert credit_group(scored([0.0] * 4, judge=watched), "outcome", gate="outcome").gate_reason
    assert credit_group(scored([1.0, 0.0, 0.0, 0.0], judge=watched), "outcome", gate="outcome").spread
    mine = credit_group(scored([0.2] * 4, judge=("mine", 1.0)), "outcome", gate="outcome")
    assert mine.gate_reason == "`mine` tells no answers apart"
    group = scored([0.0] * 4)
    reordered = replace(group, rewards=group.rewards[::-1])
    assert credit_group(reordered, "outcome", gate="outcome").gate_reason == "no answer is right"
    reason = credit_group(scored([1.0] * 4), "outcome", gate="outcome").gate_reason
    assert reason == "every answer is right"
    # None is no outcome: one that is known has nothing to differ from.
    assert not credit_group(scored([1.0, None, None, None]), "outcome", gate="outcome").spread
    assert not credit_group(scored([None] * 4), "outcome", gate="outcome").spread
    assert credit_group(scored([1.0, None, None, 0.0]), "outcome", gate="outcome").spread


def test_lists_are_gated_by_their_outcomes() -> None:
    lists: Any = ([[1.0], [0.0]], [[1], [1]], [2, 2])
    open_ = assign_credit(*lists, outcome_rewards=[0.5, 0.5])
    assert open_.any()
    assert not assign_credit(*lists, outcome_rewards=[0.5, 0.5], gate="outcome").any()
    assert assign_credit(*lists, outcome_rewards=[0.5, 1.0], gate="outcome").tobytes() == open_.tobytes()
    with pytest.raises(CreditError, match="gate is 'outcome'"):
        assign_credit(*lists, gate="outcome")
    with pytest.raises(CreditError, match="gate is 'off'"):
        assign_credit(*lists, outcome_rewards=[0.5, 0.5], gate="off")  # type: ignore[arg-type]


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
    facts = [fact.action for fact in group_facts(credit_group(scored([1.0] * 4), "outcome"))]
    assert "gate" not in facts


def credits_of(**options: Any) -> list[Credit]:
    """Of four groups one is a phantom, one has no right answer and no spread, one differs, one is all right."""
    groups = [scored([0.0] * 4), scored([0.0] * 4, lengths=(9,) * 4), scored([1.0, 0.0, 0.0, 0.0]), scored([1.0] * 4)]
    return [credit_group(group, "outcome", **options) for group in groups]


def test_phantoms_and_gated_groups_are_counted() -> None:
    metrics = group_metrics(credits_of())
    assert (metrics["phantom_share"], metrics["zero_spread_share"]) == (0.25, 0.25)
    assert "gated_share" not in metrics
    metrics = group_metrics(credits_of(gate="outcome"))
    assert (metrics["phantom_share"], metrics["zero_spread_share"], metrics["gated_share"]) == (0.0, 0.75, 0.5)
    pattern = wb.StepPattern(r"\n", "ends")
    found = {finding.name: finding for finding in preflight_of(credits_of(), pattern).findings}
    assert (found["phantom advantages"].value, found["phantom advantages"].level) == ("1 of 4", "check")
    found = {finding.name: finding for finding in preflight_of(credits_of(gate="outcome"), pattern).findings}
    assert found["groups gated"].value == "2 of 4"
    assert "phantom advantages" not in found


def test_a_run_with_such_groups_raises_an_alarm() -> None:
    rows = [{"step": n, "phantom_share": share} for n, share in enumerate([0.0, 0.2, 0.2, 0.1, 0.1, 0.3])]
    [alarm] = [alarm for alarm in alarms(rows) if alarm.name == "phantom advantages"]
    assert "15%" in alarm.meaning
    assert not [alarm for alarm in alarms(rows[:5]) if alarm.name == "phantom advantages"]


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
    shares = {}
    for gate in ("none", "outcome"):
        credit = {"scheme": "outcome", "gate": gate}
        trainer = build(run_config(credit=credit, resample_flat=1), tmp_path / gate)
        trainer.train()
        [row] = [row for row in trainer.state.log_history if "resample/prompts" in row]
        shares[gate] = row["resample/prompts"]
    assert shares["outcome"] > shares["none"]


def test_a_gate_needs_an_outcome() -> None:
    steps = {"rewards": [{"name": "step_correctness"}], "credit": {"gate": "outcome"}}
    with pytest.raises(ConfigError, match=r"method\.credit\.gate"):
        RunConfig.parse({"method": steps})
    with pytest.raises(ConfigError, match="gate"):
        CreditConfig.parse({"gate": "step"}, "method.credit")
