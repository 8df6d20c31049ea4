"""The loss read token by token, held against TRL's own ``_compute_loss`` and its gradient on the same tensors."""

import itertools
import json
import subprocess
import sysconfig
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trl import GRPOTrainer

from tests.credits import make_credit, make_rollout
from workbench.credit import (
    LENS_LOSSES,
    gradient_shares,
    group_losses,
    length_normalisers,
    pass_losses,
    token_losses,
)
from workbench.schema import Credit, LossPass, LossSettings, RolloutPass
from workbench.views.cards import FOLDER
from workbench.views.heatmap import DrawnLoss

LENGTHS, LONGEST, REL = (7, 12, 1, 9, 12, 4), 12, 1e-6
COUNT = len(LENGTHS)
PADDED = torch.arange(LONGEST) < torch.tensor(LENGTHS)[:, None]


class TRLsLoss(GRPOTrainer):
    """TRL's trainer as far as its loss asks of it."""

    def __init__(self, settings: LossSettings, accumulation: int, steps_per_generation: int) -> None:
        self.loss_type, self.beta = settings.loss_type, settings.beta
        self.epsilon_low, self.epsilon_high = settings.epsilon, settings.epsilon_high
        self.importance_sampling_level = "sequence" if settings.sequence_ratio else "token"
        self.max_completion_length = settings.max_completion_length
        self.top_entropy_quantile, self.off_policy_mask_threshold = 1.0, None
        self.use_vllm = self.aux_loss_enabled = self._entropy_bonus_enabled = False
        self.current_gradient_accumulation_steps = accumulation
        self.model = SimpleNamespace(training=True)
        self._metrics = {"train": defaultdict(list)}
        self.args = SimpleNamespace(
            delta=settings.delta,
            use_bias_correction_kl=settings.kl_times_ratio,
            steps_per_generation=steps_per_generation,
            sapo_temperature_pos=settings.sapo_temperatures[0],
            sapo_temperature_neg=settings.sapo_temperatures[1],
            vespo_k_pos=settings.vespo_k[0],
            vespo_k_neg=settings.vespo_k[1],
            vespo_lambda_pos=settings.vespo_lambda[0],
            vespo_lambda_neg=settings.vespo_lambda[1],
        )
        self.accelerator = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)

    def _get_per_token_logps_and_entropies(self, *_: Any, **__: Any) -> Any:
        return self.logps, torch.zeros_like(self.logps), None

    def of(self, logps: torch.Tensor, batch: dict[str, Any], rows: slice) -> torch.Tensor:
        self.logps = logps[rows]
        ids = torch.ones(len(self.logps), 1, dtype=torch.long)
        inputs = {name: values[rows] if values.dim() else values for name, values in batch.items()}
        whole = {"prompt_ids": ids, "prompt_mask": ids, "completion_ids": inputs["completion_mask"]}
        return self._compute_loss(None, inputs | whole)


def tensors(*, second_pass: bool, whole: bool) -> tuple[torch.Tensor, dict[str, Any]]:
    """Log-probabilities and the rest of a batch; ratios reach from about 0.3 to 3 in a second pass."""
    draw = torch.Generator().manual_seed(1)
    normal = lambda scale: scale * torch.randn(COUNT, LONGEST, generator=draw, dtype=torch.float64)  # noqa: E731
    logps = -normal(1.0).abs() - 0.01
    mask = PADDED.long()
    mask[1, 3:5] = 0  # what a tool wrote
    advantages = normal(1.0)
    batch = {
        "completion_mask": PADDED.long(),
        "tool_mask": mask,
        "advantages": advantages[:, :1].expand_as(advantages) if whole else advantages,
        "ref_per_token_logps": logps + normal(0.5),
        "num_items_in_batch": mask.sum(),
    }
    if second_pass:
        batch["old_per_token_logps"] = logps + normal(0.1 if whole else 0.4)
    return logps.requires_grad_(), batch


def check(settings: LossSettings, *, second_pass: bool, micro_batches: int = 1, generation: int = 1) -> None:
    """Sum of the contributions against TRL's loss, and every push against its gradient."""
    whole = settings.sequence_ratio or settings.loss_type == "vespo"
    logps, batch = tensors(second_pass=second_pass, whole=whole)
    size = COUNT // micro_batches
    trl = TRLsLoss(settings, micro_batches, generation)
    loss = sum(trl.of(logps, batch, slice(first, first + size)) for first in range(0, COUNT, size))
    loss.backward()
    mask = batch["tool_mask"]
    normalisers = length_normalisers(
        mask.sum(1).tolist(),
        settings.loss_type,
        max_completion_length=settings.max_completion_length or LONGEST,
        micro_batches=[i // size for i in range(COUNT)],
        all_tokens=float(batch["num_items_in_batch"]) * micro_batches / generation,
    )
    old = batch.get("old_per_token_logps")
    rows = [
        token_losses(
            settings,
            batch["advantages"][i].numpy(),
            logps[i].detach().numpy(),
            normaliser=float(normalisers[i]),
            old=None if old is None else old[i].numpy(),
            reference=batch["ref_per_token_logps"][i].numpy(),
            mask=mask[i].numpy(),
        )
        for i in range(COUNT)
    ]
    assert sum(row.contribution.sum() for row in rows) == pytest.approx(loss.item(), rel=REL)
    pushes = np.array([row.push for row in rows])
    np.testing.assert_allclose(-pushes, logps.grad.numpy(), rtol=REL, atol=1e-12)
    if settings.loss_type in ("grpo", "bnpo", "dr_grpo", "dapo", "luspo") and second_pass:
        clipped = np.concatenate([row.clipped[mask[i].bool().numpy()] for i, row in enumerate(rows)])
        assert {-1, 0, 1} <= set(clipped.tolist())
        if settings.delta is None and micro_batches == 1 and not whole:
            logged = {name: values[0] for name, values in trl._metrics["train"].items()}
            assert logged["clip_ratio/high_mean"] == pytest.approx(float((clipped == 1).mean()), rel=REL)
            assert logged["clip_ratio/low_mean"] == pytest.approx(float((clipped == -1).mean()), rel=REL)


@pytest.mark.parametrize("beta", [0.0, 0.04], ids=["no KL", "KL"])
@pytest.mark.parametrize("second_pass", [False, True], ids=["first pass", "second pass"])
@pytest.mark.parametrize("loss_type", LENS_LOSSES)
def test_contributions_add_up_to_trls_loss(loss_type: str, second_pass: bool, beta: float) -> None:
    bounds = {"epsilon_high": 1.5} if loss_type == "cispo" else {"epsilon_high": 0.28}
    check(LossSettings(loss_type, beta=beta, max_completion_length=20, **bounds), second_pass=second_pass)


@pytest.mark.parametrize("loss_type", LENS_LOSSES)
def test_micro_batches_are_averaged_as_trl_accumulates_them(loss_type: str) -> None:
    settings = LossSettings(loss_type, beta=0.04, max_completion_length=20)
    check(settings, second_pass=True, micro_batches=3, generation=3)
    check(settings, second_pass=True, micro_batches=2, generation=4)  # half of a generation's rows in each step


@pytest.mark.parametrize(
    "settings",
    [
        LossSettings("grpo", delta=1.5),
        LossSettings("dapo", kl_times_ratio=True, beta=0.04),
        LossSettings("grpo", sequence_ratio=True, epsilon=0.01, epsilon_high=0.01),
        LossSettings("luspo", sequence_ratio=True, beta=0.04, kl_times_ratio=True, epsilon=0.01, epsilon_high=0.01),
    ],
    ids=["two-sided", "KL times ratio", "one ratio a completion", "luspo as its paper has it"],
)
def test_modes_of_the_loss_are_read_as_trl_has_them(settings: LossSettings) -> None:
    check(settings, second_pass=True)


def test_a_token_by_hand() -> None:
    """A = 2, rho = e^0.5 = 1.6487 clipped to 1.2, c = 0.25: 0.25 x -2.4; d = 0.5, k3 = 1.6487 - 1.5 = 0.1487."""
    settings = LossSettings("grpo", beta=0.1)
    token = token_losses(settings, [2.0, -2.0], [-1.0, -1.0], old=[-1.5, -1.5], reference=[-0.5, -1.0], normaliser=0.25)
    assert token.factor.tolist() == pytest.approx([1.2, 1.648721])
    assert token.clipped.tolist() == [1, 0]
    assert token.contribution.tolist() == pytest.approx([0.25 * (-2.4 + 0.0148721), 0.25 * 3.297443], rel=1e-5)
    # A clipped token's push is its KL's alone: -0.25 x 0.1 x (1 - e^0.5).
    assert token.push.tolist() == pytest.approx([0.25 * 0.1 * 0.648721, -0.25 * 3.297443], rel=1e-5)


def test_what_a_tool_wrote_has_no_part_whatever_its_numbers_are() -> None:
    numbers = {"old": [-1.0, 0.0], "reference": [-1.0, 0.0], "mask": [1, 0], "normaliser": 0.5}
    for loss_type in LENS_LOSSES:
        read = token_losses(LossSettings(loss_type, beta=0.1), [1.0, 0.0], [-1.0, -1e4], **numbers)
        assert np.isfinite(read.contribution).all()
        assert (read.contribution[1], read.push[1]) == (0, 0)
    # Of the wrong answer's four tokens two were sampled: each counts 1 / 2 rows / 2 tokens, and its advantage is -1.
    credit = a_credit()
    group = credit.scored.group
    rollouts = (group.rollouts[0], replace(group.rollouts[1], mask=(1, 1, 0, 0)))
    credit = replace(credit, scored=replace(credit.scored, group=replace(group, rollouts=rollouts)))
    assert group_losses(credit, LossSettings("grpo"))[1].contribution.tolist() == [0.25, 0.25, 0, 0]


DENO = Path(sysconfig.get_path("scripts")) / "deno"
LOSS_SCRIPT = (FOLDER / "drawing" / "loss.js").as_uri()
SECOND = f"""
import {{ tokenLosses }} from "{LOSS_SCRIPT}";
const cases = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(cases.map(({{ settings, row }}) => tokenLosses(settings, row))));
"""
MODES = [{}, {"delta": 1.5}, {"kl_times_ratio": True}, {"sequence_ratio": True, "kl_times_ratio": True}]


def test_the_drawing_computes_what_python_does() -> None:
    """Two implementations, of which the drawing's is for losses that nobody has been asked about."""
    draw = np.random.default_rng(0)
    cases, expected = [], []
    for loss_type, modes in itertools.product(LENS_LOSSES, MODES):
        settings = LossSettings(loss_type, beta=0.04, epsilon_high=1.2 if loss_type == "cispo" else 0.2, **modes)
        row = {
            "advantages": draw.normal(size=9),
            "logprobs": -np.abs(draw.normal(size=9)),
            "old": -np.abs(draw.normal(size=9)),
            "reference": -np.abs(draw.normal(size=9)),
            "weights": draw.integers(0, 2, 9) * 1.5,
            "mask": draw.integers(0, 2, 9),
        }
        expected.append(token_losses(settings, **row, normaliser=0.1))
        written = {name: numbers.tolist() for name, numbers in row.items()} | {"normaliser": 0.1}
        cases.append({"settings": DrawnLoss(settings, {}).payload(), "row": written})
    done = subprocess.run([DENO, "eval", "--quiet", SECOND], input=json.dumps(cases), capture_output=True, text=True)
    assert not done.returncode, done.stderr
    for ours, theirs in zip(expected, json.loads(done.stdout), strict=True):
        for name in ("ratio", "factor", "clipped", "kl", "contribution", "push"):
            np.testing.assert_allclose(theirs[name], getattr(ours, name), rtol=1e-9, atol=1e-12)


def test_the_drawing_gets_a_groups_loss() -> None:
    """Two answers of 2 and 4 tokens; the second pass saw the first alone."""
    credit = a_credit()
    loss = DrawnLoss.on_policy(credit)
    assert {name: values for name, values in loss.coefficients.items() if name in ("grpo", "dapo", "luspo")} == {
        "grpo": [1 / 4, 1 / 8],
        "dapo": [1 / 6] * 2,
        "luspo": [1 / 2] * 2,
    }
    assert loss.payload()["passes"] == ()
    rows = (RolloutPass(0, np.float32([-1, -1]), np.float32([-1.5, -1])), RolloutPass(1, None))
    seen = LossPass(4, 3, 2, LossSettings("bnpo"), rows, tokens=6, loss=-0.3)
    drawn = DrawnLoss.of_passes([credit], 0, [seen])
    assert drawn.coefficients["bnpo"] == [1 / 4, 1 / 8]  # each alone in its micro-batch
    # A = 1 on both tokens of the first; the ratio of its first is e^0.5, bounded by 1.2: -(1.2 + 1) / 4.
    (told,) = drawn.passes
    assert told == {"step": 4, "number": 2, "total": pytest.approx(-0.55), "logged": -0.3, "router": 0.0}
    assert drawn.of_rollout(credit, 0)["passes"] == [{"logprobs": [-1, -1], "old": [-1.5, -1]}]
    assert drawn.of_rollout(credit, 1)["passes"] == [{"logprobs": None, "old": None}]
    # An entropy bonus is part of a token's contribution and not of its push; a router's loss is part of the sum alone.
    paid = replace(seen, rollouts=(replace(rows[0], bonus=np.float32([-0.125, -0.25])), rows[1]), router=0.05)
    (told,) = DrawnLoss.of_passes([credit], 0, [paid]).passes
    assert (told["total"], told["router"]) == (pytest.approx(-0.55 - 0.375 + 0.05), 0.05)
    with_bonus, without = pass_losses([credit], paid)[0], pass_losses([credit], seen)[0]
    assert (with_bonus.contribution - without.contribution).tolist() == pytest.approx([-0.125, -0.25])
    assert with_bonus.push.tolist() == without.push.tolist()


def a_credit() -> Credit:
    """A right answer of two tokens in two steps and a wrong one of four in one, with advantages 1 and -1."""
    rollouts = [make_rollout(list(text)) for text in ("ab", "cdef")]
    made = make_credit(rollouts, [[0, 1], [3]], [[None, None], [None]], [1.0, 0.0], scheme="outcome")
    return replace(made, advantages=np.float32([[1, 1, 0, 0], [-1] * 4]))


def test_shares_of_the_gradient_by_hand() -> None:
    """Under grpo the right answer's tokens are pushed by 1/4 each, the wrong one's by -1/8: half of the sizes each."""
    credit = a_credit()
    shares = gradient_shares([credit], group_losses(credit, LossSettings("grpo")))
    assert [(part.name, part.tokens, part.share, part.up) for part in shares] == [
        ("right answers", 2, 0.5, 0.5),
        ("wrong answers", 4, 0.5, 0.0),
        ("step 1", 5, 0.75, 0.25),
        ("step 2", 1, 0.25, 0.25),
    ]
    assert (
        gradient_shares([credit], group_losses(replace(credit, advantages=credit.advantages * 0), LossSettings())) == []
    )
