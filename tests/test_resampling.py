"""Groups without spread: other prompts in their place, and no forward and backward for rows without an advantage."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from trl import GRPOTrainer

from workbench.credit import LOSS_TYPES
from workbench.errors import ConfigError
from workbench.policies.sampler import Sampled
from workbench.training.generation import Share
from workbench.training.methods import RunConfig
from workbench.training.methods.grpo import build as build_trainer
from workbench.training.trainer import ProcessGRPOTrainer

pytestmark = pytest.mark.training

# --- rows without an advantage ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> ProcessGRPOTrainer:
    config = RunConfig.parse({"run": {"steps": 1, "eval_steps": 0, "watch_prompts": 0, "device": "cpu"}})
    trainer = build_trainer(config, tmp_path_factory.mktemp("out"))
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def micro_batch(with_signal: list[bool]) -> dict[str, torch.Tensor]:
    """Rows of 1 to 6 tokens, whose old policy was another one."""
    generator = torch.Generator().manual_seed(0)
    rows = len(with_signal)
    lengths = torch.tensor([[6], [2], [5], [1], [4], [3]])[:rows]
    mask = (torch.arange(6) < lengths).long()
    advantages = torch.randn(rows, 6, generator=generator) * mask * torch.tensor(with_signal)[:, None]
    return {
        "prompt_ids": torch.randint(5, 40, (rows, 4), generator=generator),
        "prompt_mask": torch.ones(rows, 4, dtype=torch.long),
        "completion_ids": torch.randint(5, 40, (rows, 6), generator=generator),
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": -3 - torch.rand(rows, 6, generator=generator),
        "num_items_in_batch": 2 * mask.sum(),
    }


def loss_and_gradient(trainer: ProcessGRPOTrainer, loss: Any, inputs: dict[str, Any]) -> tuple[float, torch.Tensor]:
    trainer.model.train()
    trainer.model.zero_grad()
    trainer._metrics["train"].clear()
    value = loss(trainer, trainer.model, inputs)
    value.backward()
    return value.item(), torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()])


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_rows_without_an_advantage_change_neither_loss_nor_gradient_nor_clip_ratios(
    trainer: ProcessGRPOTrainer, loss_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "loss_type", loss_type)
    inputs = micro_batch([True, False, False, True, True, False])
    forward, rows = GRPOTrainer._get_per_token_logps_and_entropies, []

    def counted(self: Any, model: Any, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        rows.append(len(input_ids))
        return forward(self, model, input_ids, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", counted)
    expected, gradient = loss_and_gradient(trainer, GRPOTrainer._compute_loss, inputs)
    whole = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    value, ours = loss_and_gradient(trainer, ProcessGRPOTrainer._compute_loss, inputs)
    assert rows == [6, 3]
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-6)
    largest = gradient.abs().max().item()
    assert largest > 0
    torch.testing.assert_close(ours, gradient, rtol=0, atol=min(1e-6, 1e-4 * largest))
    kept = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    clipped = [name for name in whole if "clip" in name]
    assert [kept[name] for name in clipped] == pytest.approx([whole[name] for name in clipped], abs=1e-6)
    _, entropies, _ = forward(
        trainer,
        trainer.model,
        torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
        torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
        6,
        compute_entropy=True,
    )
    mask = inputs["completion_mask"].bool() & torch.tensor([[True], [False], [False], [True], [True], [False]])
    assert kept["entropy"] == pytest.approx(entropies[mask].mean().item(), rel=1e-5)


def test_where_no_row_has_an_advantage_one_gives_gradients_of_zero(trainer: ProcessGRPOTrainer) -> None:
    """Missing gradients would leave the optimiser's decay and momentum out."""
    value, gradient = loss_and_gradient(trainer, ProcessGRPOTrainer._compute_loss, micro_batch([False] * 6))
    assert (value, gradient.abs().max()) == (0.0, 0.0)
    assert trainer._metrics["train"]["entropy"][-1] != trainer._metrics["train"]["entropy"][-1]  # NaN: not counted


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_type": "vespo"},
        {"beta": 0.04},
        {"importance_sampling_level": "sequence"},
        {"top_entropy_quantile": 0.8},
        {"_entropy_bonus_enabled": True},
        {"aux_loss_enabled": True},
        {"args": SimpleNamespace(disable_dropout=False)},
    ],
    ids=str,
)
def test_all_rows_stay_where_one_without_an_advantage_adds_something(
    trainer: ProcessGRPOTrainer, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trainer.can_leave_rows_out
    for name, value in changes.items():
        monkeypatch.setattr(trainer, name, value)
    assert not trainer.can_leave_rows_out


# --- other prompts in the place of flat groups --------------------------------------------------------------------


class FakeTrainer:
    """Of groups of 2; a group has spread where its prompt is a multiple of ``spread``.

    What a row samples is its prompt, the seed and its place.
    """

    use_vllm = use_transformers_continuous_batching = is_fsdp_enabled = is_deepspeed_enabled = False
    rollout_func = tools = environment_factories = _tokenizer = None
    num_generations = 2
    draw = ProcessGRPOTrainer.draw
    _draw_places = ProcessGRPOTrainer._draw_places
    _other_rows = ProcessGRPOTrainer._other_rows

    def __init__(self, prompts: list[int], spread: int, rounds: int = 1) -> None:
        self.train_dataset = Dataset.from_dict({"prompt": [str(i) for i in range(40)]})
        self.accelerator = SimpleNamespace(process_index=0, num_processes=1)
        self.args = SimpleNamespace(resample_flat=rounds)
        self._spread = spread
        self.rows = [{"prompt": str(prompt)} for prompt in prompts for _ in range(2)]

    def _tokenize_prompts(self, prompts: list[str]) -> Any:
        return [[int(prompt)] for prompt in prompts], None, {}

    def sample(self, prompt_ids: Any, seed: int, *, first_row: int, total_rows: int, examples: Any) -> list[Sampled]:
        return [
            Sampled(token_ids=[*ids, seed, first_row + i, total_rows], finished=True)
            for i, ids in enumerate(prompt_ids)
        ]

    def score_own_share(self, inputs: Any, prompts: Any, rollouts: Any) -> Share:
        return Share([SimpleNamespace(prompt=prompt) for prompt in prompts], reward_errors=1)

    def gathered(self, share: Share) -> list[Share]:
        return [share]

    def credited(self, shares: list[Share]) -> Any:
        prompts = [member.prompt for member in shares[0].members]
        return [
            SimpleNamespace(
                spread=int(prompt) % self._spread == 0, scored=SimpleNamespace(group=SimpleNamespace(prompt=prompt))
            )
            for prompt in prompts[:: self.num_generations]
        ]


@pytest.fixture(autouse=True)
def _no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.training.generation.to_rollout", lambda tokenizer, row: row)


def test_flat_groups_are_redrawn_until_all_have_spread_and_counted_by_hand() -> None:
    fake = FakeTrainer([0, 1, 2, 4], spread=2, rounds=8)  # of four groups one is flat
    drawn = fake.draw(fake.rows, seed=7)
    prompts = [row["prompt"] for row in drawn.inputs]
    assert (prompts[:2], prompts[4:]) == (["0", "0"], ["2", "2", "4", "4"])
    assert prompts[2] == prompts[3] not in ("0", "2", "4")
    assert int(prompts[2]) % 2 == 0
    rounds = drawn.metrics["resample/rounds"]
    assert rounds == drawn.metrics["resample/prompts"] >= 1  # one a round
    # Flat were the first one and every replacement but the last: ``rounds`` of 4 + ``rounds`` groups.
    assert drawn.metrics["resample/flat_share"] == rounds / (4 + rounds)
    assert drawn.share.reward_errors == 1 + rounds
    assert drawn.rows[0].token_ids[1:] == [7, 0, 8]  # the first round is the generation without it
    assert [row.token_ids[2:] for row in drawn.rows[2:4]] == [[0, 2], [1, 2]]  # the redrawn rows are a batch


def test_rounds_and_prompts_that_run_out_leave_flat_groups() -> None:
    fake = FakeTrainer([1, 3], spread=100, rounds=2)
    drawn = fake.draw(fake.rows, seed=7)
    assert drawn.metrics == {"resample/flat_share": 1.0, "resample/rounds": 2.0, "resample/prompts": 4.0}
    few = FakeTrainer([1, 3], spread=100, rounds=9)
    few.train_dataset = few.train_dataset.select(range(4))  # 0 and 2 are left, and neither comes twice
    drawn = few.draw(few.rows, seed=7)
    assert {row["prompt"] for row in drawn.inputs} <= {"0", "2"}
    assert drawn.metrics["resample/prompts"] == 2.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("use_transformers_continuous_batching", "continuous batching"),
        ("tools", "tools"),
        ("is_fsdp_enabled", "FSDP"),
        ("environment_factories", "environment_factory"),
    ],
)
def test_stop_strings_are_refused_where_a_sampler_does_not_know_them(name: str, said: str) -> None:
    trainer = FakeTrainer([1], 1)
    ProcessGRPOTrainer._check_sampler(trainer, "stop")  # type: ignore[arg-type]
    trainer.use_vllm = True  # which is told of them
    ProcessGRPOTrainer._check_sampler(trainer, "stop")  # type: ignore[arg-type]
    setattr(trainer, name, [1])
    with pytest.raises(ConfigError, match=f"stop: .*{said}"):
        ProcessGRPOTrainer._check_sampler(trainer, "stop")  # type: ignore[arg-type]
