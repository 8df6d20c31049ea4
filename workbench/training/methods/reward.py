"""A reward model trained on pairs, through TRL's ``RewardTrainer``: its section, its trainer, its metrics."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.config import ModelFormat, SharedConfig
from workbench.data.rows import Pair
from workbench.models.find import base_and_adapters
from workbench.schema import Prompt, TokenMeasure, say_count
from workbench.steps import token_texts
from workbench.training.methods.base import NOBODY, Listeners, Method, Seen, StoredSection, Trainer

if TYPE_CHECKING:
    import torch


class RewardSection(StoredSection):
    """Reward model: the policy's body with one logit learns to score chosen completions higher (Bradley–Terry)."""

    kind = "pairs"
    trl_config, usual_learning_rate = "RewardConfig", 1e-4
    name: Literal["reward"] = "reward"
    """The training method."""
    center_rewards_coefficient: float | None = Field(title="Weight of centring rewards", default=None, ge=0)
    """Weight of (r_chosen + r_rejected)² in the loss, which keeps scores around 0 (arXiv 2312.09244); 0.01, say."""
    end_token: bool = False
    """End plain text with the end-of-sequence token, as TRL's RewardTrainer does; the saved model says so."""

    @property
    def reward_format(self) -> ModelFormat:
        return "classifier"

    def own_arguments(self, config: SharedConfig) -> dict[str, Any]:
        return {
            "max_length": None,  # longer pairs are left out already
            "center_rewards_coefficient": self.center_rewards_coefficient,
        }

    def facts(self) -> list[tuple[str, str]]:
        centred = self.center_rewards_coefficient
        return [
            ("method", "reward: a reward model"),
            ("batch", say_count(self.batch_size, "pair")),
            ("loss", "Bradley–Terry" + (f", centred {centred:g}" if centred else "")),
            ("rollouts", "none: reward trains on pairs"),
        ]


def build(config: SharedConfig, output_dir: Path, listeners: Listeners = NOBODY) -> Trainer:
    """Load pairs and the model, with a head of one logit, and put them into TRL's trainer."""
    from transformers import set_seed
    from trl import RewardConfig, RewardTrainer

    from workbench.policies.load import prepared
    from workbench.rewards.models.model import load_trained
    from workbench.training.building import lora_config, rename_metrics, stored_trainer, trained_weights
    from workbench.training.saving import MergedAtTheEnd
    from workbench.training.watching import pair_metrics

    class ResumableRewardTrainer(MergedAtTheEnd, RewardTrainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            rename_metrics(self, {"accuracy": "pair_accuracy/train", "margin": "margin/train"})
            return loss

    method = config.method
    assert isinstance(method, RewardSection)
    set_seed(config.seed)  # the new head's weights
    where, adapters = base_and_adapters(config.policy)
    weights = trained_weights(config.policy)
    model, tokenizer = load_trained(config.policy.path, where, adapters, end_token=method.end_token, **weights)
    return stored_trainer(
        ResumableRewardTrainer,
        RewardConfig,
        config,
        output_dir,
        listeners,
        model=prepared(model),
        tokenizer=tokenizer,
        tokens=partial(token_rows, tokenizer, max_length=method.max_length, end_token=method.end_token),
        measure=SCORE,
        view=view,
        numbers=lambda trainer, batch: margins(trainer, batch).float().tolist(),
        metrics=pair_metrics,
        peft_config=lora_config(config.policy, "SEQ_CLS"),
    )


def token_rows(
    tokenizer: Any, pairs: Sequence[Pair], max_length: int, *, end_token: bool = False
) -> list[dict[str, list[int]]]:
    """Rows for TRL: the ids that the reward model will read when it scores. Pairs with a longer side are left out."""
    from workbench.rewards.models.model import classifier_ids

    read = partial(classifier_ids, tokenizer, end_token=end_token)
    rows = [
        {f"{side}_ids": read(pair.prompt, getattr(pair, side)) for side in ("chosen", "rejected")} for pair in pairs
    ]
    return [row for row in rows if max(map(len, row.values())) <= max_length]


def scores(trainer: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The scores of a batch from TRL's collator, (2B,): those of the chosen sides, then those of the rejected ones."""
    return trainer.model_wrapped(**batch, use_cache=False).logits.squeeze(-1)


def margins(trainer: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """r(chosen) - r(rejected) of a batch from TRL's collator, (B,)."""
    chosen, rejected = scores(trainer, batch).chunk(2)
    return chosen - rejected


SCORE = TokenMeasure(
    "score",
    "score of the whole text",
    "score",
    "blue: above 0, orange: below 0; the model gives a text one number, which all its tokens show",
    signed=True,
)


def view(trainer: Any, pair: Pair, batch: Mapping[str, torch.Tensor]) -> Seen:
    """Return a watched pair: the score of each side, on all its tokens, and the margin."""
    from workbench.training.watching import pair_numbers

    tokenizer, texts, prompt = trainer.processing_class, [], ""
    of_sides = scores(trainer, batch).float().tolist()
    for i, (name, score) in enumerate(zip(("chosen", "rejected"), of_sides, strict=True)):
        read = batch["input_ids"][i][batch["attention_mask"][i].bool()].tolist()
        first = prompt_length(tokenizer, pair.prompt, read)
        prompt, ids = tokenizer.decode(read[:first]), read[first:]
        texts.append({"name": name, "ids": ids, "values": {SCORE.key: [score] * len(ids)}, "numbers": {"score": score}})
    return prompt, texts, pair_numbers(of_sides[0] - of_sides[1])


def prompt_length(tokenizer: Any, prompt: Prompt, ids: Sequence[int]) -> int:
    """Return how many of a classifier's ids are the prompt's alone; 0 if they do not begin with it."""

    beginning, texts = prompt, token_texts(tokenizer, ids)
    if not isinstance(beginning, str):
        beginning = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    if not "".join(texts).startswith(beginning):
        return 0
    return bisect_right(list(accumulate(map(len, texts))), len(beginning))


METHOD = Method(
    RewardSection,
    build,
    metrics=(
        "pair_accuracy",
        "pair_accuracy/train",
        "margin",
        "margin/train",
        "loss",
        "calibration_error",
        "mean_reward",
        "min_reward",
        "max_reward",
    ),
    when=("Trains no policy. For GRPO and PPO where no rule can score a whole answer, but pairs say which is better."),
    order=5,
)
