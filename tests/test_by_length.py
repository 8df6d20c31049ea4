"""A micro-batch in parts of similar length: the loss, its gradient and what is logged are those of the whole."""

from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from workbench.training import loss as by_length
from workbench.training.loss import parts_by_length
from workbench.training.methods import METHODS, RunConfig


def test_parts_are_worked_by_hand() -> None:
    # Positions: one part 4 x 12 = 48; two 2 x 4 + 2 x 12 = 32; three 1 x 3 + 1 x 4 + 2 x 12 = 31; four as many.
    lengths = [10, 1, 10, 2]
    assert parts_by_length(lengths, prompt=2, extra=17) == [[1, 3, 0, 2]]
    assert parts_by_length(lengths, prompt=2, extra=15) == [[1, 3], [0, 2]]
    assert parts_by_length(lengths, prompt=2, extra=1) == [[1, 3], [0, 2]]
    assert parts_by_length(lengths, prompt=2, extra=0) == [[1], [3], [0, 2]]
    assert parts_by_length([5], prompt=0, extra=0) == [[0]]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    config = RunConfig.parse({"run": {"steps": 1, "eval_steps": 0, "watch_prompts": 0, "device": "cpu"}})
    trainer: Any = METHODS["grpo"].build(config, tmp_path_factory.mktemp("run"))
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def micro_batch(lengths: list[int]) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(0)
    count, longest = len(lengths), max(lengths) + 1  # a column that no row fills
    prompt_mask = torch.ones(count, 5, dtype=torch.long)
    prompt_mask[0, :3] = 0
    return {
        "prompt_ids": torch.randint(3, 90, (count, 5), generator=draw),
        "prompt_mask": prompt_mask,
        "completion_ids": torch.randint(3, 90, (count, longest), generator=draw),
        "completion_mask": (torch.arange(longest) < torch.tensor(lengths)[:, None]).long(),
        "advantages": torch.randn(count, longest, generator=draw),
        "num_items_in_batch": torch.tensor(sum(lengths)),
    }


def loss_and_gradient(trainer: Any, inputs: dict[str, Any]) -> tuple[float, torch.Tensor, dict[str, float]]:
    trainer.model.train()
    trainer.model.zero_grad()
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()])
    return loss.item(), gradient, {name: values[-1] for name, values in trainer._metrics["train"].items()}


LENGTHS = [3, 40, 4, 38, 1, 39]


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Of what goes through the model from now on, where another pass costs little."""
    forward, shapes = GRPOTrainer._get_per_token_logps_and_entropies, []

    def counted(self: Any, model: Any, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        shapes.append(tuple(input_ids.shape))
        return forward(self, model, input_ids, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", counted)
    monkeypatch.setitem(by_length.PASS, "cpu", 10)
    return shapes


def test_parts_change_neither_loss_nor_gradient_nor_metrics(
    trainer: Any, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = micro_batch(LENGTHS)
    monkeypatch.setattr(trainer, "in_parts", False)
    loss, gradient, metrics = loss_and_gradient(trainer, inputs)
    whole = trainer._policy_logps
    monkeypatch.setattr(trainer, "in_parts", True)
    in_parts = loss_and_gradient(trainer, inputs)
    assert shapes == [(6, 46), (3, 9), (3, 45)]
    mask = inputs["completion_mask"].bool()
    torch.testing.assert_close(trainer._policy_logps[mask], whole[mask], rtol=0, atol=1e-5)
    assert in_parts[0] == pytest.approx(loss, rel=1e-6, abs=1e-6)
    largest = gradient.abs().max().item()
    assert largest > 0
    torch.testing.assert_close(in_parts[1], gradient, rtol=0, atol=1e-5 * largest)
    assert in_parts[2] == pytest.approx(metrics, rel=1e-5, abs=1e-6, nan_ok=True)


def test_with_dropout_a_batch_stays_whole_for_its_rows_are_drawn_in_order(
    trainer: Any, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer.args, "disable_dropout", False)
    loss_and_gradient(trainer, micro_batch(LENGTHS))
    assert shapes == [(6, 46)]
