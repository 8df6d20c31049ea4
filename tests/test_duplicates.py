"""Exact copies in a group: shown as one and, with ``drop_duplicates``, compared and trained on once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.credits import make_credit, make_rollout
from tests.in_this_process import keep_inputs
from workbench.credit import (
    NORMALISATIONS,
    SCHEMES,
    credit_group,
    credit_groups,
    group_normalisers,
    loss_weights,
)
from workbench.schema import Credit, Group, Rollout, ScoredGroup
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build
from workbench.views.heatmap import heatmap

GOOD, BAD = (make_rollout(["a", "b"], first_id=first) for first in (10, 20))
LONG = make_rollout(["a", "b", "c", "d"], first_id=30)


def scored(
    rollouts: list[Rollout], rewards: list[list[float]], outcomes: list[float | None] | None = None
) -> ScoredGroup:
    """Steps of one token each, but the last, which has the rest."""
    ends = [[*range(len(row) - 1), len(r) - 1] for r, row in zip(rollouts, rewards, strict=True)]
    return make_credit(rollouts, ends, rewards, outcomes).scored


# --- which rollouts are copies ------------------------------------------------------------------------------------


def test_copies_have_the_same_ids_the_same_end_and_the_same_mask() -> None:
    other_text = replace(GOOD, texts=("A", "B"), logprobs=(-1.0, -2.0))  # what follows from the ids is not compared
    cut, by_tool = replace(GOOD, finished=False), replace(GOOD, mask=(1, 0))
    group = Group("?", (GOOD, BAD, other_text, cut, by_tool, GOOD, cut))
    assert group.copy_of == (None, None, 0, None, None, 0, 3)
    assert group.distinct == [(0, 2, 5), (1,), (3, 6), (4,)]
    assert (Group("?", ()).copy_of, Group("?", ()).distinct) == ((), [])


# --- the pool -----------------------------------------------------------------------------------------------------


def test_three_copies_count_once_by_hand() -> None:
    """Outcomes 1, 1, 1, 0: mean 3/4 and std 1/2. Of the distinct 1 and 0: mean 1/2 and std 1/sqrt(2)."""
    group = scored([GOOD, GOOD, GOOD, BAD], [[1.0]] * 4, [1.0, 1.0, 1.0, 0.0])
    counted = credit_group(group, "outcome")
    right, wrong = 0.25 / 0.5001, -0.75 / 0.5001
    assert counted.advantages[:, 0] == pytest.approx([right, right, right, wrong], rel=1e-6)
    assert counted.is_counted == (True,) * 4
    assert "drop_duplicates" not in counted.options

    once = credit_group(group, "outcome", drop_duplicates=True)
    right = 0.5 / (0.5**0.5 + 1e-4)
    assert once.advantages[:, 0] == pytest.approx([right, 0, 0, -right], rel=1e-6)
    assert once.is_counted == (True, False, False, True)
    assert (once.mean, once.std) == (0.5, pytest.approx(0.5**0.5))
    assert once.options["drop_duplicates"] is True
    assert once.warnings == ()
    copy = once.explain(1, 0)
    assert (copy.terms, copy.total, copy.advantage) == ((), 0.0, 0.0)


@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_gives_what_the_group_without_its_copies_gets(scheme: str, normalise: str) -> None:
    random = np.random.default_rng(0)
    distinct = [make_rollout(["t"] * length, first_id=100 * length) for length in (3, 5, 4, 6)]
    rewards = [random.normal(size=size).round(2).tolist() for size in (2, 3, 3, 1)]
    outcomes = [1.0, 0.0, None, 0.5]
    order = [0, 1, 1, 2, 0, 3, 1, 2]
    first = [order.index(i) for i in range(4)]
    options: dict[str, Any] = {"outcome_weight": 0.5}
    if any(option.name == "normalise" for option in SCHEMES[scheme].options):
        options["normalise"] = normalise
    alone = credit_group(scored(distinct, rewards, outcomes), scheme, **options)
    group = scored(*([rows[i] for i in order] for rows in (distinct, rewards, outcomes)))  # type: ignore[arg-type]
    once = credit_group(group, scheme, drop_duplicates=True, **options)
    assert once.advantages[first].tobytes() == alone.advantages.tobytes()
    assert alone.advantages.any()
    copies = [i for i in range(len(order)) if i not in first]
    assert not once.advantages[copies].any()
    # Bit for bit what it was without the option, which is off by default.
    plain = credit_group(group, scheme, **options)
    off = credit_group(group, scheme, drop_duplicates=False, **options)
    assert (off.advantages.tobytes(), off.options) == (plain.advantages.tobytes(), plain.options)


def test_a_batch_has_the_distinct_completions_of_each_group() -> None:
    """The same answer in two groups is two answers: they are of two prompts. Outcomes 1, 0 and 1, 0: std sqrt(1/3)."""
    groups = [scored([GOOD, BAD], [[1.0]] * 2, [1.0, 0.0]), scored([GOOD, BAD, BAD], [[1.0]] * 3, [1.0, 0.0, 0.0])]
    first, second = credit_groups(groups, "outcome", normalise="batch", drop_duplicates=True)
    high = 0.5 / ((1 / 3) ** 0.5 + 1e-4)
    assert first.advantages[:, 0] == pytest.approx([high, -high], rel=1e-6)
    assert second.advantages[:, 0] == pytest.approx([high, -high, 0], rel=1e-6)


# --- the loss -----------------------------------------------------------------------------------------------------


def test_copies_weigh_nothing_in_the_loss_by_hand() -> None:
    """Two, two and four tokens; the second is a copy. dapo: 1 / (2 + 4); grpo: 1 / (G T) with G = 3."""
    group = scored([GOOD, GOOD, LONG], [[1.0], [1.0], [0.0]])
    once = credit_group(group, drop_duplicates=True)
    weights = {loss: group_normalisers(once, loss).tolist() for loss in ("dapo", "grpo")}
    assert weights == {"dapo": [1 / 6, 0, 1 / 6], "grpo": [1 / 6, 0, 1 / 12]}
    assert loss_weights(once)[0] == pytest.approx([once.advantages[0, 0] / 6] * 2 + [0, 0])
    # Drawn times all 8 tokens, so that 1 is an even share.
    assert [r["normalisers"]["dapo"] for r in heatmap(once).payload()["rollouts"]] == [1.333333, 0, 1.333333]
    assert [r["normalisers"]["dapo"] for r in heatmap(credit_group(group)).payload()["rollouts"]] == [1, 1, 1]


def run_config(**method: Any) -> RunConfig:
    """Cold enough that equal answers come up."""
    return RunConfig.parse(
        {
            "method": {
                "prompts_per_step": 2,
                "sampling": {"num_generations": 4, "max_completion_length": 96, "temperature": 0.6},
                "credit": {"drop_duplicates": True},
                **method,
            },
            "run": {"steps": 1, "eval_steps": 0, "watch_prompts": 0, "save_steps": 0, "device": "cpu"},
        }
    )


@pytest.mark.training
def test_invariant_parity_with_duplicates(tmp_path: Path) -> None:
    """The loss gets the preview's advantages bit for bit; copies are 0, masked, and not among the counted tokens."""
    credits: list[Credit] = []
    trainer = build(run_config(beta=0.04), tmp_path, Listeners(on_rollouts=lambda _, of_step: credits.extend(of_step)))
    original = trainer._compute_loss
    seen = keep_inputs(trainer)
    trainer.train()
    counted = [is_counted for credit in credits for is_counted in credit.is_counted]
    assert 0 < sum(counted) < len(counted)
    advantages = torch.cat([inputs["advantages"] for inputs in seen])
    places = {}
    for credit in credits:
        preview = credit_group(credit.scored, "process", drop_duplicates=True)
        assert preview.advantages.tobytes() == credit.advantages.tobytes()
        for i, rollout in enumerate(credit.scored.group.rollouts):
            if credit.is_counted[i]:
                places[rollout.token_ids] = credit.of(i).tobytes()
    ids = torch.cat([inputs["completion_ids"] for inputs in seen])
    mask = torch.cat([inputs["completion_mask"] for inputs in seen])
    in_loss = torch.cat([inputs["completion_mask"] * inputs["tool_mask"] for inputs in seen])
    used = []
    for row, length, counts, values in zip(ids, mask.sum(1), in_loss.any(1), advantages, strict=True):
        if counts:
            used.append(tuple(row[:length].tolist()))
            assert values[:length].numpy().tobytes() == places[used[-1]]
        else:
            assert not values.any()
    assert sorted(used) == sorted(places)
    assert int(seen[0]["num_items_in_batch"]) == int(in_loss.sum()) == sum(map(len, places))

    # The loss, KL and all, of the batch with its copies is that of the batch without them.
    inputs = {
        name: torch.cat([part[name] for part in seen])
        for name in seen[0]
        if torch.is_tensor(seen[0][name]) and seen[0][name].dim()
    }
    inputs["num_items_in_batch"] = seen[0]["num_items_in_batch"]
    rows = in_loss.any(1)
    without = {name: value[rows] if value.dim() else value for name, value in inputs.items()}
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    for loss_type, factor in (("dapo", 1.0), ("bnpo", 1.0), ("grpo", float(rows.float().mean()))):
        trainer.loss_type = loss_type
        with torch.no_grad():
            losses = [float(original(trainer.model, dict(batch))) for batch in (inputs, without)]
        assert losses[0] == pytest.approx(losses[1] * factor, rel=1e-4, abs=1e-7), loss_type
        assert losses[0] != 0
