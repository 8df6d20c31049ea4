"""Training on episodes and on prompts of a chat template: what the loss is given, what is measured, what is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.in_this_process import train_and_store
from tests.resumes import CLERK
from workbench.assets import EMBEDDED
from workbench.credit import credit_groups
from workbench.errors import EpisodeError
from workbench.policies.load import load_policy
from workbench.policies.sampler import sample_group
from workbench.rewards import score_group
from workbench.rundir import RunDir
from workbench.schema import Credit, Example, Rollout
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build
from workbench.training.trainer import ProcessGRPOTrainer

pytestmark = pytest.mark.training

FUSSY = """
class Clerk:
    stop = ("\\n",)
    def reset(self, prompt, **columns): pass
    def reply(self, turn):
        raise ValueError("never again")
"""


def config(environment: dict[str, Any] = CLERK, **sections: Any) -> RunConfig:
    method = {
        "prompts_per_step": 2,
        "sampling": {"num_generations": 4, "max_completion_length": 80},
        **sections.pop("method", {"beta": 0.04}),
    }
    run = {"steps": 1, "eval_steps": 0, "save_steps": 0, "device": "cpu", **sections.pop("run", {})}
    return RunConfig.parse(
        {"environment": environment, "method": method, "run": run, "optimiser": {"warmup_steps": 0}, **sections}
    )


COLUMNS = ("completion_ids", "completion_mask", "tool_mask", "advantages")


def by_ids(run: RunDir) -> dict[tuple[int, ...], tuple[Credit, int, Rollout]]:
    """The rollouts of the first step, which the loss has in an order of its own."""
    return {
        rollout.token_ids: (credit, i, rollout)
        for credit in run.rollouts.read(1)
        for i, rollout in enumerate(credit.scored.group.rollouts)
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[RunDir, ProcessGRPOTrainer, list[dict[str, Any]]]:
    """A run of one step: its directory, its trainer, and the inputs of its loss."""
    return train_and_store(config(), tmp_path_factory.mktemp("episodes"))


def test_invariant_the_loss_has_the_stored_mask_and_nothing_for_observations(trained):
    """Bit for bit what is stored; the mask stands where TRL expects that of its tools."""
    run, _, (inputs,) = trained
    stored = by_ids(run)
    assert any(rollout.policy_length < len(rollout) for _, _, rollout in stored.values())
    sampled = 0
    for ids, mask, tool, row in zip(*(inputs[name] for name in COLUMNS), strict=True):
        length = int(mask.sum())
        credit, i, rollout = stored[tuple(ids[:length].tolist())]
        assert tool[:length].tolist() == list(rollout.mask)
        assert row[:length].numpy().tobytes() == credit.of(i).tobytes()
        assert not row[:length][tool[:length] == 0].any()
        sampled += rollout.policy_length
    assert inputs["num_items_in_batch"] == sampled


def test_lengths_kl_and_entropy_are_of_sampled_tokens(trained):
    run, trainer, _ = trained
    rollouts = [rollout for credit in run.rollouts.read(1) for rollout in credit.scored.group.rollouts]
    row = next(row for row in trainer.state.log_history if "turns_per_answer" in row)
    lengths = [rollout.policy_length for rollout in rollouts]
    assert row["completions/mean_length"] == pytest.approx(np.mean(lengths))
    assert row["completions/max_length"] == max(lengths)
    assert row["turns_per_answer"] == pytest.approx(np.mean([len(rollout.turn_spans) for rollout in rollouts]))
    total = sum(map(len, rollouts))
    assert row["observation_share"] == pytest.approx((total - sum(lengths)) / total)
    assert row["environment/errors"] == 0
    assert row["completions/clipped_ratio"] == np.mean([rollout.truncated for rollout in rollouts])
    entropies = [
        entropy
        for rollout in rollouts
        for entropy, sampled in zip(rollout.entropies, rollout.mask, strict=True)
        if sampled
    ]
    assert row["entropy"] == pytest.approx(np.mean(entropies), abs=1e-4)
    assert row["kl/k3"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("resampled", [0, 1])
def test_an_error_of_an_environment_ends_the_run_or_its_row(tmp_path, resampled):
    def trainer_of(how: str, keep: list[Credit]) -> ProcessGRPOTrainer:
        fussy = {"name": "Clerk", "code": FUSSY, "on_environment_error": how}
        rewards = [{"name": "length_target", "kind": "outcome"}]
        method = {"resample_flat": resampled, "rewards": rewards, "credit": {"scheme": "outcome"}}
        listeners = Listeners(on_rollouts=lambda step, credits: keep.extend(credits))
        return build(config(fussy, method=method), tmp_path / how, listeners)

    credits: list[Credit] = []
    with pytest.raises(EpisodeError, match=r"turn 1: environment 'Clerk'.* line 6"):
        trainer_of("run", credits).train()
    assert credits == []
    trainer = trainer_of("row", credits)
    trainer.train()
    turns = [rollout.turns for credit in credits for rollout in credit.scored.group.rollouts]
    assert all(len(row) == 1 for row in turns)
    errors = sum(row[0].error is not None for row in turns)
    assert next(r["environment/errors"] for r in trainer.state.log_history if "environment/errors" in r) == errors > 0


# -- a chat template that opens a <think> block, and stop strings -----------------------------------------------------

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
    run, trainer, (inputs,) = train_and_store(config, tmp_path)
    metrics = next(row for row in trainer.state.log_history if "loss" in row)
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
    again = [
        score_group(credit.scored.group, config.sampling_section.pattern, config.sampling_section.rewards)
        for credit in credits
    ]
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
