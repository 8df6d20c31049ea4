"""A run on prompts with a system message, a chat template that opens a ``<think>`` block, and stop strings."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.stored_runs import config_of
from workbench.assets import EMBEDDED
from workbench.credit import credit_groups
from workbench.policies.load import load_policy
from workbench.policies.sampler import sample_group
from workbench.rewards import score_group
from workbench.rundir import RunDir
from workbench.schema import Example
from workbench.training.methods import METHODS, RunConfig
from workbench.training.methods.base import Listeners

pytestmark = pytest.mark.training
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt and thinks %}<think>{% endif %}"
)
OUTCOME = """
def reward(prompts, completions, **columns):
    assert all(prompt[0]["role"] == "system" for prompt in prompts)
    return [float("Step 2" in completion[0]["content"]) for completion in completions]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(EMBEDDED["tiny"], folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


def train(folder: Path, config: RunConfig) -> tuple[RunDir, list[dict[str, torch.Tensor]], dict[str, float]]:
    """The run, what its loss was given, and the metrics of its step."""
    run = RunDir.create(folder, config)
    trainer = METHODS["grpo"].build(config_of(run), folder / "out", Listeners(on_rollouts=run.rollouts.write))
    seen: list[dict[str, torch.Tensor]] = []
    original = trainer._compute_loss  # type: ignore[attr-defined]

    def compute_loss(model: object, inputs: dict[str, torch.Tensor]) -> object:
        seen.append(dict(inputs))
        return original(model, inputs)

    trainer._compute_loss = compute_loss  # type: ignore[attr-defined]
    trainer.train()
    return run, seen, next(row for row in trainer.state.log_history if "loss" in row)


def test_a_run_s_prompts_stops_and_thinking_are_the_preview_s(tmp_path: Path, model: Path) -> None:
    sampling = {"num_generations": 4, "max_completion_length": 30, "stop": ["Step 2", "Step 3"]}
    prompt = {"system": "Work in steps.", "template_kwargs": {"thinks": False}}
    config = RunConfig.parse(
        {
            "policy": str(model),
            "prompt": prompt,
            "run": {"steps": 1, "eval_steps": 0, "watch_prompts": 0, "save_steps": 0, "device": "cpu"},
            "method": {
                "prompts_per_step": 2,
                "sampling": sampling,
                "mask_truncated_completions": True,
                "rewards": [{"name": "step_correctness"}, {"name": "seconds", "kind": "outcome", "code": OUTCOME}],
                "credit": {"outcome_weight": 1.0},
            },
        }
    )
    run, (inputs,), metrics = train(tmp_path, config)
    credits = run.rollouts.read(1)
    rollouts = [rollout for credit in credits for rollout in credit.scored.group.rollouts]
    stopped = [rollout.stop is not None for rollout in rollouts]
    assert any(stopped)
    # Invariant 1, and what TRL takes for truncated: the loss has every stopped completion, and no other unfinished one.
    ids = [tuple(row) for row in inputs["completion_ids"].tolist()]  # in the order of TRL's shuffle
    for i, rollout in enumerate(rollouts):
        row = next(n for n, sampled in enumerate(ids) if sampled[: len(rollout)] == rollout.token_ids)
        assert inputs["completion_mask"][row].sum() == (0 if rollout.truncated else len(rollout))
        assert np.array_equal(inputs["advantages"][row, : len(rollout)].numpy(), credits[i // 4].of(i % 4))
        assert not inputs["advantages"][row, len(rollout) :].any()
    assert metrics["completions/clipped_ratio"] == np.mean([rollout.truncated for rollout in rollouts])
    assert inputs["num_items_in_batch"] == sum(len(rollout) for rollout in rollouts if not rollout.truncated)
    # The preview of the same group scores and credits it alike.
    again = [score_group(credit.scored.group, config.sampled.pattern, config.sampled.rewards) for credit in credits]
    options = config.grpo.credit.keywords(but=("scheme",))
    for credit, other in zip(credits, credit_groups(again, "process", **options), strict=True):
        assert credit.scored.scored == other.scored.scored
        assert np.array_equal(credit.advantages, other.advantages)
        group = credit.scored.group
        assert [message["role"] for message in group.prompt] == ["system", "user"]  # type: ignore[union-attr]
        assert group.sampling["template_kwargs"] == {"thinks": False}
        assert group.sampling["stop"] == ["Step 2", "Step 3"]
    # The policy read what a preview's would: the ids of the template's text.
    policy = load_policy(str(model), device="cpu")
    user = credits[0].scored.group.prompt[1]["content"]  # type: ignore[index]
    written = {"Work in steps." + credit.scored.group.prompt[1]["content"] for credit in credits}  # type: ignore[index]
    preview = sample_group(policy, Example(user), **sampling, **prompt)  # type: ignore[arg-type]
    assert preview.prompt == credits[0].scored.group.prompt
    read = inputs["prompt_ids"][0][inputs["prompt_mask"][0].bool()].tolist()
    assert policy.tokenizer.decode(read) in written
