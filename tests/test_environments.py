"""Environments and tools as ``GRPOTrainer`` takes them: prompts, rewards, and what tools wrote."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from workbench.credit import LOSS_TYPES, loss_weights
from workbench.schema import Credit
from workbench.steps import StepPattern
from workbench.training.config import ProcessGRPOConfig
from workbench.training.trainer import ProcessGRPOTrainer
from workbench.views.heatmap import heatmap

pytestmark = [pytest.mark.training, pytest.mark.filterwarnings("ignore:You are using 'environment_factory'")]

SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
ASKED = "Start with 2.\n"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call><|im_end|>'
TURNS = [CALL, "Step 1: 7\nStep 2: so\nAnswer: 7<|im_end|>", "Step 1: 12<|im_end|>", CALL]
AFTER_A_TOOL = ["Step 1: I got it\nAnswer: 5<|im_end|>", "5, then<|im_end|>"]


def add(a: int, b: int) -> int:
    """
    Adds two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


class Adder:
    """Asks for a sum and scores what was added; it owns the reward."""

    def reset(self, start: int = 0, **columns: Any) -> str:
        self.total = start
        return f"The total is {start}."

    def add(self, a: int, b: int) -> int:
        """
        Adds to the total.

        Args:
            a: What to add.
            b: What to add, too.
        """
        self.total += a + b
        return self.total

    def get_reward(self) -> float:
        return self.total / 7


class SlowAdder(Adder):
    async def get_reward(self) -> float:  # type: ignore[override]
        return float(self.total)


class Silent:
    """Adds nothing to the prompt and scores nothing."""

    def reset(self, **columns: Any) -> None:
        return None


def short(prompt: Any, step: str, **columns: Any) -> float:
    assert "tool_response" not in step
    return 1.0 / len(step)


def answered(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
    return [float("Answer" in completion[-1]["content"]) for completion in completions]


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """A token a byte, and Qwen3's template, whose tool calls transformers can parse."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    return tokenizer


def trainer_of(
    kind: Callable[..., Any], tokenizer: Any, tmp_path: Path, data: list[dict[str, Any]] | None, **others: Any
) -> Any:
    """A trainer whose policy answers as ``TURNS`` and, behind a tool's answer, ``AFTER_A_TOOL`` say."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **SMALL)
    config._name_or_path = "random"
    settings = {
        "output_dir": str(tmp_path),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "num_generations": others.pop("num_generations", 4),
        "max_completion_length": 512,
        "gradient_checkpointing": False,
        "reward_weights": others.pop("reward_weights", None),
        "loss_type": others.pop("loss_type", "dapo"),
        "epsilon_high": 5.0,  # cispo needs one of at least 1; the ratios are 1
    }
    args = (ProcessGRPOConfig if kind is ProcessGRPOTrainer else GRPOConfig)(**settings)
    dataset = None if data is None else Dataset.from_list(data)
    functions = copy.copy(others.pop("reward_funcs", None))  # TRL appends the environments' to the list it is given
    trainer = kind(LlamaForCausalLM(config), functions, args, dataset, None, tokenizer, **others)

    def turn(prompt_ids: Sequence[Sequence[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        back = "<tool_response>" in tokenizer.decode(prompt_ids[0]).rpartition("<|im_start|>user")[2]
        texts = AFTER_A_TOOL if back else TURNS
        return [tokenizer(texts[i])["input_ids"] for i in range(len(prompt_ids))], None

    trainer._generate_single_turn = turn
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def learnt(trainer: Any, rows: list[dict[str, Any]]) -> tuple[float, torch.Tensor, dict[str, Any]]:
    """The loss, the gradient of the head and what is logged of the rewards of one generation."""
    output = trainer._generate_and_score_completions(rows)
    loss = trainer._compute_loss(trainer.model, output)
    loss.backward()
    names = [name for name in trainer._metrics["train"] if name.startswith(("reward", "tools/"))]
    logged = {name: trainer._metrics["train"][name] for name in names if not name.endswith(("zero_share", "/time"))}
    return loss.item(), trainer.model.lm_head.weight.grad, logged | dict(trainer._logs["rewards"])


USER = [{"role": "user", "content": ASKED}]
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "tools": ([{"prompt": USER}] * 4, {"tools": [add], "reward_funcs": answered}),
    "environment": (
        [{"prompt": USER, "start": 2}] * 4,
        {"environment_factory": Adder, "reward_funcs": [answered], "reward_weights": [0.5]},
    ),
    "slow reward": ([{"prompt": USER, "start": 2}] * 4, {"environment_factory": SlowAdder, "reward_funcs": [answered]}),
    "no data set": ([{"prompt": [{"role": "user", "content": ""}]}] * 4, {"environment_factory": Adder, "data": None}),
    "several": (
        [{"environment": "sum", "start": 2}] * 2 + [{"environment": "silent", "start": 3}] * 2,
        {
            "environment_factory": {"sum": Adder, "silent": Silent},
            "reward_funcs": [answered],
            "num_generations": 2,
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_losses_gradients_and_logs_are_trls(tokenizer, tmp_path, case):
    rows, settings = CASES[case]
    (stock_loss, stock_gradient, stock_logs), (loss, gradient, logs) = (
        learnt(trainer_of(kind, tokenizer, tmp_path, **{"data": rows, **settings}), rows)
        for kind in (GRPOTrainer, ProcessGRPOTrainer)
    )
    assert loss == pytest.approx(stock_loss, abs=1e-5)
    assert stock_gradient.abs().max() > 1e-4
    assert torch.allclose(gradient, stock_gradient, atol=1e-5)
    assert stock_logs["tools/call_frequency"] == logs["tools/call_frequency"]
    for name, values in stock_logs.items():
        assert list(logs[name]) == pytest.approx(list(values), rel=1e-5, abs=1e-6, nan_ok=True), name


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_loss_weights_are_the_gradient_of_trls_loss_where_tools_wrote(tokenizer, tmp_path, loss_type):
    """Two implementations: weights of the stored credit, and what TRL's loss weighs each log-probability with."""
    rows, stored = [{"prompt": USER}] * 4, []
    trainer = trainer_of(
        ProcessGRPOTrainer, tokenizer, tmp_path, rows, tools=[add], step_rewards=[short], loss_type=loss_type,
        on_rollouts=lambda step, credits: stored.extend(credits),
    )  # fmt: skip
    output = trainer._generate_and_score_completions(rows)
    logps = torch.full(output["completion_ids"].shape, -1.0, requires_grad=True)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logps, torch.zeros_like(logps), None)
    trainer._compute_loss(trainer.model, output).backward()
    # A reference that is far off where a tool wrote, and nowhere else: the policy did not write that.
    trainer._policy_logps = logps.detach()
    output["ref_per_token_logps"] = logps.detach() - 5.0 * (1 - output["tool_mask"])
    trainer._compute_loss(trainer.model, output)
    assert [trainer._metrics["train"][f"kl/{name}"][-1] for name in ("k1", "k2", "k3")] == [0, 0, 0]
    (credit,) = stored
    weights = loss_weights(credit, loss_type, max_completion_length=trainer.max_completion_length)
    assert torch.allclose(-logps.grad.double(), torch.from_numpy(weights), atol=1e-7)
    drawn = heatmap(credit).payload()["rollouts"][0]
    for stretch in drawn["why"]:  # one explanation a stretch explains each of its tokens
        used = credit.of(0)[stretch["first"] : stretch["last"] + 1]
        assert (used == np.float32(stretch["total"])).all()


def test_rewards_and_stored_rollouts_have_the_prompts_that_the_policy_got(tokenizer, tmp_path):
    rows, settings = CASES["several"]
    seen, stored = list[Any](), list[Credit]()

    def step_length(prompt: Any, step: str, **columns: Any) -> float:
        seen.append(prompt)
        return float(len(step))

    trainer = trainer_of(
        ProcessGRPOTrainer,
        tokenizer,
        tmp_path,
        rows,
        **settings,
        step_rewards=[step_length],
        on_rollouts=lambda step, credits: stored.extend(credits),
    )
    learnt(trainer, rows)
    asked, silent = [{"role": "user", "content": "The total is 2."}], [{"role": "user", "content": ""}]
    groups = [credit.scored.group for credit in stored]
    assert [(group.prompt, group.columns["start"]) for group in groups] == [(asked, 2), (silent, 3)]
    assert all(prompt in seen for prompt in (asked, silent))
    scores = [scores.outcome_scores for credit in stored for scores in credit.scored.scored]
    # Only the first environment owns its reward: 2 + 2 + 3 = 7 in its first row, 2 in its second, which called nothing.
    assert [(score["Adder"], score["answered"]) for score in scores] == [(1.0, 1.0), (2 / 7, 1.0), (None, 0), (None, 0)]


def test_invariant_what_tools_wrote_has_advantage_0_bit_for_bit(tokenizer, tmp_path):
    """TRL's own loop, its mask, and steps that stay in their turns, of a pattern that would match in tools' answers."""
    rows, credits = [{"prompt": USER}] * 4, list[Credit]()
    trainer = trainer_of(
        ProcessGRPOTrainer, tokenizer, tmp_path, rows, tools=[add], step_rewards=[short],
        on_rollouts=lambda step, made: credits.extend(made),
    )  # fmt: skip
    trainer.step_pattern = StepPattern(r"(?m)^\S")
    output = trainer._generate_and_score_completions(rows)
    (credit,) = credits
    assert sum(len(rollout.turn_spans) > 1 for rollout in credit.scored.group.rollouts) == 2
    for i, rollout in enumerate(credit.scored.group.rollouts):
        row, tool = output["advantages"][i, : len(rollout)], output["tool_mask"][i, : len(rollout)]
        assert tool.tolist() == list(rollout.mask or ())
        assert row.numpy().tobytes() == credit.of(i).tobytes()
        assert row[tool == 0].numpy().tobytes() == bytes(4 * int((tool == 0).sum()))
        spans = rollout.turn_spans
        for first, last in credit.scored.scored[i].spans:
            assert any(begin <= first and last <= end for begin, end in spans)
        if len(spans) > 1:
            assert "<tool_response>" in (rollout.observations[0] or "")
            assert row[: spans[0][1] + 1].any()  # process: the call is credited with the steps behind the answer
            assert row[spans[1][0] :].any()
