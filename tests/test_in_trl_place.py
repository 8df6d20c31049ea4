"""``ProcessGRPOTrainer`` where a script had TRL's ``GRPOTrainer``: the same losses, and every check of the preview."""

import copy
import inspect
import math
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration

from workbench.credit import credit_group
from workbench.errors import ConfigError, RewardError
from workbench.rewards import Reward, score_group
from workbench.training.config import ProcessGRPOConfig
from workbench.training.trainer import ProcessGRPOTrainer

pytestmark = pytest.mark.training

PLAIN = "Start with 7, add 5.\n"
CHAT = [{"role": "user", "content": PLAIN}]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
TEXTS = ["Step 1: 7 + 5 = 12", "Step 1: 7", "12", "Step 1: 7 + 5 = 13\nAnswer: 13"]
SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def text_of(completion: Any) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


def short(prompts, completions, completion_ids, bonus, trainer_state, log_metric, **columns):
    log_metric("seen", len(completions))
    return [-float(len(ids)) + extra for ids, extra in zip(completion_ids, bonus, strict=True)]


def twelve(completions, **columns):
    return [1.0 if "12" in text_of(completion) else 0.0 for completion in completions]


def sometimes(completions, **columns):
    return [0.5 if "Answer" in text_of(completion) else None for completion in completions]


def elsewhere(completions, **columns):
    return [None] * len(completions)


async def waiting(completions, completion_ids, **columns):
    return [float(sum(ids) % 5) for ids in completion_ids]


class Judge:
    async def __call__(self, completions, **columns):
        return [float(len(text_of(completion)) % 7) for completion in completions]


def tokenizer_of(tiny):
    tokenizer = copy.deepcopy(tiny.tokenizer)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def arguments(tmp_path, **others) -> dict[str, Any]:
    return {
        "output_dir": str(tmp_path),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 24,
        "learning_rate": 0.0,
        "gradient_checkpointing": False,
        **others,
    }


def rows(prompt: Any) -> list[dict[str, Any]]:
    return [{"prompt": prompt, "bonus": 0.1}] * 4


def stub(trainer: GRPOTrainer) -> None:
    """Every generation is of ``TEXTS``, so that two trainers score and learn from the same ids."""
    tokenizer = trainer.processing_class
    ids = [[*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] for text in TEXTS]
    trainer._generate_single_turn = lambda *_, **__: (ids, None)
    trainer.current_gradient_accumulation_steps = 1


def llama(tokenizer, kind=LlamaForCausalLM, **others):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **SMALL, **others)
    config._name_or_path = "random"
    return kind(config)


KINDS = ((GRPOTrainer, GRPOConfig), (ProcessGRPOTrainer, ProcessGRPOConfig))


def trainer_of(tiny, tmp_path, functions, settings, kind=KINDS[1], prompt=PLAIN, **given):
    """A trainer of TRL's or ours on one prompt, with what else it is given."""
    tokenizer, (trainer, config) = tokenizer_of(tiny), kind
    args, data = config(**arguments(tmp_path, **settings)), Dataset.from_list(rows(prompt))
    return trainer(llama(tokenizer), functions, args, data, processing_class=tokenizer, **given)


@pytest.mark.parametrize("lora", [None, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")])
def test_a_run_under_autocast_takes_the_plain_step(tmp_path, tiny, lora):
    trainer = trainer_of(tiny, tmp_path, [twelve], {"bf16": True}, peft_config=lora)
    assert len(trainer._generate_and_score_completions(rows(PLAIN))["completion_ids"]) == 4
    assert trainer.decoding == "plain step in bfloat16"
    assert {one.dtype for one in trainer.model.parameters()} == {torch.float32}


OFF_POLICY = {"num_iterations": 2, "loss_type": "grpo"}
ONE_BY_ONE = {"multi_objective_aggregation": "normalize_then_sum", "scale_rewards": "none", "num_generations": 2}


def first_prompt_alone(completions, **columns):
    """A reward for one kind of prompt: it scores no answer to the second one."""
    return [7.0 if "+" in text_of(text) else 0.0 for text in completions[:2]] + [None] * (len(completions) - 2)


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": (PLAIN, short, {}),
    "chat": (CHAT, [short], {}),
    "several": (PLAIN, [short, twelve, elsewhere], {"reward_weights": [0.1, 2.0, 0.5]}),
    "async": (PLAIN, [waiting, Judge(), twelve], {}),
    "None": (PLAIN, [sometimes], {}),
    "classifier": (PLAIN, "classifier", {}),
    "classifier in chat": (CHAT, "classifier", {}),
    # Of whole sequences, off the policy that sampled.
    "vespo": (PLAIN, [short, twelve], {**OFF_POLICY, "loss_type": "vespo"}),
    "off-policy mask": (PLAIN, [short, twelve], {**OFF_POLICY, "off_policy_mask_threshold": 0.01}),
    "sequence": (PLAIN, [short, twelve], {**OFF_POLICY, "importance_sampling_level": "sequence"}),
    "luspo": (PLAIN, [short, twelve], {**OFF_POLICY, "importance_sampling_level": "sequence", "loss_type": "luspo"}),
    # Normalised one by one: two prompts a batch with weights that differ.
    "one by one": (PLAIN, [short, twelve], {**ONE_BY_ONE, "reward_weights": [0.1, 2.0]}),
    "one by one, one of a prompt": (
        PLAIN,
        [short, first_prompt_alone, elsewhere],
        {**ONE_BY_ONE, "reward_weights": [0.1, 2.0, -0.5]},
    ),
    "one by one, None": (PLAIN, [sometimes], {**ONE_BY_ONE, "reward_weights": [0.1]}),
}


@pytest.mark.parametrize("case", CASES)
def test_advantages_losses_gradients_and_logs_are_trls(tiny, tmp_path, case):
    prompt, functions, settings = CASES[case]
    results = []
    for kind in KINDS:
        others, rewards = {}, functions
        if functions == "classifier":
            others["reward_processing_classes"] = tokenizer_of(tiny)
            rewards = llama(others["reward_processing_classes"], LlamaForSequenceClassification, num_labels=1)
        trainer = trainer_of(tiny, tmp_path, rewards, settings, kind, prompt, **others)
        stub(trainer)
        output = trainer._generate_and_score_completions(rows(prompt))
        if "num_iterations" in settings:  # ratios are not 1: the old log-probabilities differ by up to 0.4
            old = output["old_per_token_logps"]
            output["old_per_token_logps"] = old + 0.4 * torch.sin(torch.arange(old.numel())).reshape(old.shape)
        loss = trainer._compute_loss(trainer.model, output)
        loss.backward()
        metrics = trainer._metrics["train"]
        logged = {name: metrics[name] for name in ("reward", "reward_std", "frac_reward_zero_std")}
        logged |= {name: values for name, values in metrics.items() if name.endswith(("/mean", "seen"))}
        logs = logged, dict(trainer._logs["rewards"])
        results.append((output["advantages"], loss.item(), trainer.model.lm_head.weight.grad, *logs))
    (stock_advantages, stock_loss, stock_gradient, *stock_logs), (advantages, loss, gradient, *logs) = results
    of_completions = advantages if advantages.dim() == 1 else advantages[:, 0]
    assert torch.allclose(of_completions, stock_advantages, atol=1e-5)
    assert loss == pytest.approx(stock_loss, abs=1e-5)
    assert stock_gradient.abs().max() > 1e-4 or functions == [sometimes]  # one scored completion has no spread
    assert torch.allclose(gradient, stock_gradient, atol=1e-5)
    if functions == [sometimes]:
        stock_logs[0]["frac_reward_zero_std"] = logs[0][
            "frac_reward_zero_std"
        ]  # TRL takes NaN, of one score, for spread
    if "multi_objective_aggregation" in settings:
        return
    for ours, stock in zip(logs, stock_logs, strict=True):
        for name, values in stock.items():
            assert list(ours[name]) == pytest.approx(list(values), rel=1e-5, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("new", [True, False], ids=["new", "existing"])
def test_adapters_learn_what_they_learn_in_trls_trainer(tiny, tmp_path, new):
    """Two steps of the adapter alone, one that the trainer makes and one that the model came with."""
    adapter = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    learnt = []
    for kind, config in KINDS:
        tokenizer, data = tokenizer_of(tiny), Dataset.from_list(rows(PLAIN))
        args = config(**arguments(tmp_path, learning_rate=0.1, max_steps=2, save_strategy="no"))
        model, others = llama(tokenizer), {"peft_config": adapter} if new else {}
        torch.manual_seed(1)
        trainer = kind(model if new else get_peft_model(model, adapter), short, args, data, None, tokenizer, **others)
        stub(trainer)
        trainer.train()
        learnt.append({name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad})
    stock, ours = learnt
    assert set(ours) == set(stock)
    assert all(".lora_" in name for name in ours)
    assert max(weight.abs().max() for name, weight in ours.items() if "lora_B" in name) > 0.05  # 0 before training
    assert all(torch.allclose(ours[name], weight, atol=1e-4) for name, weight in stock.items())


def test_evaluation_and_what_is_learnt_after_a_resume_are_trls(tiny, tmp_path):
    """A step that is saved, and one more after a resume; both are evaluated."""
    steps = {"learning_rate": 0.1, "lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 1}
    steps |= {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    learnt, evaluated = [], []
    data = Dataset.from_list(rows(PLAIN))
    for kind in KINDS:
        for last in (1, 2):
            settings, folder = steps | {"max_steps": last}, tmp_path / kind[0].__name__
            trainer = trainer_of(tiny, folder, [short, twelve], settings, kind, eval_dataset=data)
            stub(trainer)
            trainer.train(resume_from_checkpoint=last > 1)
            learnt.append(trainer.model.lm_head.weight.detach().clone())
        logs = [{name: row[name] for name in row if name.startswith("eval_")} for row in trainer.state.log_history]
        evaluated.append([log for log in logs if log])
    assert all(torch.allclose(ours, stock, atol=1e-4) for stock, ours in zip(learnt[:2], learnt[2:], strict=True))
    assert (learnt[3] - learnt[2]).abs().max() > 0.05
    assert [len(logs) for logs in evaluated] == [2, 2]
    timed = re.compile("time|runtime|per_second")
    for stock, ours in zip(*evaluated, strict=True):
        told = [name for name in stock if not timed.search(name)]
        assert {"eval_loss", "eval_reward", "eval_reward_std", "eval_rewards/short/mean"} <= {*told}
        assert [ours[name] for name in told] == pytest.approx([stock[name] for name in told], abs=1e-4, nan_ok=True)


def thirds(prompts, completions, **columns):
    return [0.1 if "12" in text else 1 / 3 if "Step" in text else 0.7 for text in completions]


def ours(tiny, tmp_path, functions, on_rollouts=None, **others) -> ProcessGRPOTrainer:
    trainer = trainer_of(tiny, tmp_path, functions, others, on_rollouts=on_rollouts)
    stub(trainer)
    return trainer


def test_a_group_is_worth_the_same_in_a_preview_and_in_a_run_to_the_bit(tiny, tmp_path):
    """With scores and a weight that float32 cannot hold: 0.1, 1/3, 0.7."""
    stored = []
    trainer = ours(tiny, tmp_path, [thirds], lambda step, credits: stored.extend(credits), reward_weights=[0.1])
    used = trainer._generate_and_score_completions(rows(PLAIN))["advantages"]
    reward = Reward("thirds", "outcome", thirds, 0.1)
    scored = score_group(stored[0].scored.group, trainer.step_pattern, [reward])
    assert scored.outcomes == stored[0].scored.outcomes == [0.1 * 0.1, 0.1 * (1 / 3), 0.1 * 0.1, 0.1 * (1 / 3)]
    preview = credit_group(scored, scheme="outcome")
    for i, rollout in enumerate(scored.group.rollouts):
        assert preview.of(i).any()
        assert preview.of(i).tobytes() == used[i, : len(rollout)].numpy().tobytes()


def test_what_a_reward_cannot_judge_is_unscored_in_training_too(tiny, tmp_path):
    def acc(completions, **columns):
        return [1.0, 0.0, None, None]

    def fmt(completions, **columns):
        return [0.5] * 4

    stored = []
    trainer = ours(tiny, tmp_path, [acc, fmt], lambda step, credits: stored.extend(credits))
    trainer._generate_and_score_completions(rows(PLAIN))
    assert stored[0].scored.outcomes == [1.5, 0.5, None, None]
    assert stored[0].advantages[:, 0].tolist() == pytest.approx([0.70701, -0.70701, 0, 0], abs=1e-5)
    logged = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    assert (logged["reward"], logged["rewards/fmt/mean"]) == (pytest.approx(1.0), pytest.approx(0.5))
    assert logged["reward_std"] == pytest.approx(0.5**0.5)  # of the two that are scored


@pytest.mark.parametrize("value", [[math.nan] * 4, [0.0, 0.0, 1e30, 0.0], {"a": 1}, [1.0]], ids=str)
def test_raw_functions_get_the_previews_checks(tiny, tmp_path, value):
    def bad(**arguments):
        return value

    with pytest.raises(RewardError, match="'bad'"):
        ours(tiny, tmp_path, bad)._generate_and_score_completions(rows(PLAIN))


def test_without_step_rewards_the_scheme_is_outcome(tiny, tmp_path):
    assert ours(tiny, tmp_path, twelve).credit.scheme == "outcome"
    with pytest.raises(ConfigError, match="'process'"):
        ours(tiny, tmp_path, twelve, credit={"scheme": "process"})


def test_invariant_numbers_do_not_depend_on_dropout(tiny, tmp_path):
    """A model with dropout at learning rate 0, over two passes of one generation."""
    tokenizer = tokenizer_of(tiny)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=128,
        resid_pdrop=0.3, embd_pdrop=0.3, attn_pdrop=0.3, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    args = ProcessGRPOConfig(**arguments(tmp_path / "out", beta=0.1, num_iterations=2, max_steps=2))
    data = Dataset.from_list(rows(PLAIN))
    trainer = ProcessGRPOTrainer(str(tmp_path / "model"), twelve, args, data, None, tokenizer)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "kl" in row]
    assert [row["kl"] for row in logged] == pytest.approx([0.0] * len(logged), abs=1e-6)
    assert [row["kl/k3"] for row in logged] == pytest.approx([0.0] * len(logged), abs=1e-6)
    assert all(row["clip_ratio/region_mean"] == 0 for row in logged)


def test_vllm_is_told_of_stop_strings(tmp_path, tiny, monkeypatch):
    """In both of its modes TRL gives vLLM's ``SamplingParams`` what ``generation_kwargs`` holds."""
    source = inspect.getsource(VLLMGeneration.generate)
    assert '"generation_kwargs": self.generation_kwargs' in source
    assert "generation_kwargs.update(self.generation_kwargs)" in source
    fake = SimpleNamespace(generation_kwargs={})
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", lambda **_: fake)
    trainer_of(tiny, tmp_path, [twelve], {"use_vllm": True, "vllm_mode": "colocate", "stop": ["\n\n", "END"]})
    assert fake.generation_kwargs == {"stop": ["\n\n", "END"]}
