"""``ProcessPPOTrainer``: ``ProcessGRPOTrainer`` with a critic, whose advantages are those of PPO.

Sampling, scoring and the clipped policy loss are inherited. Here are the values of the critic when a batch is sampled,
the KL in the token rewards, and the clipped value loss (Schulman et al., arXiv 1707.06347; token level and clipped
values as InstructGPT's, arXiv 2203.02155). How token rewards and values become advantages is ``credit.assign``'s.

The critic's parameters are a submodule of the policy while it is trained, so that optimisers, gradient clipping and
ranks treat both as one, and its values are part of what the policy's forward returns, where DistributedDataParallel
looks for them. They are stored in a file of their own: what is saved of the policy loads as any other.
"""

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate.utils import gather_object
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback
from trl.trainer.utils import FusedCausalLMOutput, use_adapter

from workbench.config import CreditConfig
from workbench.credit import GAEOptions, Measured, credit_by_gae
from workbench.errors import ConfigError, RunError
from workbench.schema import Credit, ScoredGroup
from workbench.training.config import ProcessGRPOConfig
from workbench.training.generation import Share
from workbench.training.trainer import ProcessGRPOTrainer

FILE = "critic.safetensors"
CriticKind = Literal["shared", "separate"]
_NAME = "critic"  # of the submodule


@dataclass
class ValuedOutput(FusedCausalLMOutput):
    """The output of the fused LM head, and ``state_values`` (B, S): the value of the text up to each position."""

    state_values: torch.Tensor | None = None


class Critic(nn.Module):
    """A linear head on the policy's last hidden state (``shared``), or on that of a copy of it (``separate``).

    The head starts at zero: the first advantages are sums of rewards, and no random number is drawn.

    Args:
        policy: the causal language model, in its adapter where it has one; the critic becomes a submodule of it.
        kind: whose hidden state it reads.
    """

    def __init__(self, policy: Any, kind: CriticKind) -> None:
        super().__init__()
        model = policy.get_base_model() if hasattr(policy, "peft_config") else policy
        size = model.config.get_text_config().hidden_size
        self.body = copy.deepcopy(model.base_model) if kind == "separate" else None
        self.head = nn.Linear(size, 1, device=policy.device, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._hidden: torch.Tensor | None = None
        self._seen: list[torch.Tensor] | None = None
        if kind == "shared":
            model.base_model.register_forward_hook(self._keep_hidden)
        model.register_forward_hook(self._add_values, with_kwargs=True)
        policy.add_module(_NAME, self)

    @contextmanager
    def listening(self) -> Iterator[list[torch.Tensor]]:
        """While it lasts, each forward of the policy that returns log-probabilities adds its values (B, S)."""
        seen: list[torch.Tensor] = []
        self._seen = seen
        try:
            yield seen
        finally:
            self._seen = self._hidden = None

    def _keep_hidden(self, _body: nn.Module, _args: Any, output: Any) -> None:
        if self._seen is not None:
            self._hidden = output.last_hidden_state

    def _add_values(self, _model: nn.Module, _args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        if self._seen is None or not isinstance(output, FusedCausalLMOutput):
            return output
        if self.body is not None:
            inputs = {name: kwargs[name] for name in ("input_ids", "attention_mask")}
            self._hidden = self.body(**inputs, use_cache=False).last_hidden_state
        assert self._hidden is not None
        hidden, self._hidden = self._hidden, None
        with torch.autocast(hidden.device.type, enabled=False):
            values = self.head(hidden.float()).squeeze(-1)  # (B, S)
        self._seen.append(values)
        return ValuedOutput(**output, state_values=values)


@dataclass
class ProcessPPOConfig(ProcessGRPOConfig):
    """Arguments of ``ProcessPPOTrainer``; ``beta`` weighs the KL in the token rewards, and is 0 in the loss."""

    gamma: float = field(default=1.0, metadata={"help": "Discount of later token rewards."})
    lam: float = field(default=0.95, metadata={"help": "Discount of later temporal differences."})
    score_clip: float = field(default=5.0, metadata={"help": "Bound on the size of the outcome reward."})
    whiten: bool = field(default=True, metadata={"help": "Give a batch's advantages mean 0 and standard deviation 1."})
    value_coef: float = field(default=0.1, metadata={"help": "Weight of the value loss."})
    epsilon_value: float = field(default=0.2, metadata={"help": "How far a value may leave the sampled one's."})
    critic: CriticKind = field(default="shared", metadata={"help": "Whose hidden state the value head reads."})
    target_kl: float | None = field(
        default=None,
        metadata={
            "help": "Skip steps where the mean of log pi_old - log pi is above 1.5 times this. The first pass over a "
            "generation has 0 there."
        },
    )

    def __post_init__(self) -> None:
        # TRL refuses groups of one, which have no group to be compared with; PPO compares with the critic's values.
        generations = self.num_generations  # type: ignore[has-type]
        if generations == 1:  # the ranks are known only after the checks
            ranks = int(os.environ.get("WORLD_SIZE", "1"))
            self.num_generations = self.per_device_train_batch_size * self.gradient_accumulation_steps * ranks
        super().__post_init__()
        self.num_generations = generations

    def credit_by(self, scheme: str) -> CreditConfig:
        """Raise ConfigError for what compares within a group, or needs one advantage a completion."""
        within = [name for name in ("resample_flat", "credit") if getattr(self, name)]
        within += ["multi_objective_aggregation"] * self.sums_normalised
        if refused := [*within, *self.sequence_modes]:
            raise ConfigError(
                f"{refused[0]}: {getattr(self, refused[0])!r} compares within a group, or needs one advantage a "
                "completion, and PPO gives each token its own by the critic's values; leave it out"
            )
        return super().credit_by(scheme)

    @property
    def gae(self) -> GAEOptions:
        return GAEOptions(self.gamma, self.lam, self.beta, self.score_clip, self.whiten)


class ProcessPPOTrainer(ProcessGRPOTrainer):
    """PPO on the same rollouts and rewards as ``ProcessGRPOTrainer``, which takes the same arguments."""

    args: ProcessPPOConfig
    beta: float
    _tag_names = ["trl", "ppo", "process-supervision"]  # noqa: RUF012 (TRL's attribute)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._measured: list[Measured] = []  # of all ranks' rollouts, while they are credited
        self.critic = Critic(self.model, self.args.critic)
        if self.args.target_kl is not None:
            self.add_callback(SkipsFarSteps(self, self.args.target_kl))
        self.moved = torch.zeros(2, device=self.accelerator.device)
        """Of log π_old − log π since the last step: its sum over this rank's tokens, and how many they are."""

    def _settle_credit(self) -> None:
        self.credit = CreditConfig()

    # -- what is measured of a batch when it is sampled --------------------------------------------------------------

    def _credit(self, share: Share, output: dict[str, Any]) -> list[Credit]:
        logps, values = self._log_probs_and_values(output)
        output["old_per_token_logps"] = logps
        self._measured = gather_object(self._measurements(output, logps, values))
        credits = super()._credit(share, output)
        self._measured = []
        for name, key in (("value", "old_values"), ("return", "returns")):
            rows = [row for credit in credits for row in credit.values[name]]
            output[key] = self._padded(rows, output["completion_ids"])
        return credits

    def _credit_groups(self, groups: Sequence[ScoredGroup]) -> list[Credit]:
        finished_only = self.mask_truncated_completions
        return credit_by_gae(groups, self._measured, self.args.gae, finished_only=finished_only)

    def _log_probs_and_values(self, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of a batch's completion tokens and the values of the text before each, both (B, T)."""
        length = batch["completion_ids"].size(1)
        with torch.no_grad(), self.critic.listening() as seen:
            logps = self._log_probs(self.model, batch)
        return logps, torch.cat([values[:, -length - 1 : -1] for values in seen])

    def _log_probs(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        size = self.args.per_device_train_batch_size
        logps: torch.Tensor
        logps, _, _ = self._get_per_token_logps_and_entropies(
            model, ids, mask, batch["completion_ids"].size(1), batch_size=size
        )
        return logps

    @staticmethod
    def _measurements(batch: dict[str, Any], logps: torch.Tensor, values: torch.Tensor) -> list[Measured]:
        reference = batch.get("ref_per_token_logps")
        log_ratios = torch.zeros_like(logps) if reference is None else logps - reference
        return [Measured(*row) for row in zip(values.tolist(), log_ratios.tolist(), strict=True)]

    def credit_watched(self, groups: Sequence[ScoredGroup]) -> list[Credit]:
        measured, policy = [], self.accelerator.unwrap_model(self.model)
        for group in groups:
            batch = self._batch_of(group)
            if self.beta:
                adapted = self.ref_model is None  # the reference is the policy without its adapter, or with its first
                first = "ref" if adapted and "ref" in policy.peft_config else None
                with torch.no_grad(), use_adapter(policy, first) if adapted else nullcontext():
                    reference = self._log_probs(self.model if adapted else self.ref_model, batch)
                batch["ref_per_token_logps"] = reference
            measured += self._measurements(batch, *self._log_probs_and_values(batch))
        return credit_by_gae(groups, measured, self.args.gae, finished_only=self.mask_truncated_completions)

    def _batch_of(self, group: ScoredGroup) -> dict[str, Any]:
        """Return a group as the loss would get it; its prompt is the same in all rows, and needs no padding."""
        rows = [torch.tensor(rollout.token_ids) for rollout in group.group.rollouts]
        prompt = torch.tensor([self.sample.encode(group.group.prompt)] * len(rows))
        pad = int(self._tokenizer.pad_token_id)
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
        lengths = torch.tensor([len(row) for row in rows])
        batch = {
            "prompt_ids": prompt,
            "prompt_mask": torch.ones_like(prompt),
            "completion_ids": ids,
            "completion_mask": (torch.arange(ids.size(1)) < lengths[:, None]).long(),
        }
        return {name: tensor.to(self.accelerator.device) for name, tensor in batch.items()}

    # -- the loss ----------------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        beta, self.beta = self.beta, 0.0  # the KL is in the token rewards
        try:
            with self.critic.listening() as seen:
                policy_loss = super()._compute_loss(model, inputs)
        finally:
            self.beta = beta
        (values,) = seen
        length = inputs["completion_ids"].size(1)
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        losses, clipped = value_losses(
            values[:, -length - 1 : -1], inputs["old_values"], inputs["returns"], self.args.epsilon_value
        )
        if self.model.training:
            moved = (inputs["old_per_token_logps"] - self._policy_logps) * mask
            self.moved += torch.stack([moved.sum(), mask.sum()])
        for name, of_tokens in (("value_loss", losses), ("value_clip_share", clipped)):
            sums = torch.stack([(of_tokens.detach() * mask).sum(), mask.sum().float()])
            total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
            self._metrics["train" if self.model.training else "eval"][name].append(total / max(count, 1.0))
        # The mean over the generation's tokens, as TRL's "dapo" takes it of the policy's.
        tokens = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
        if self.model.training:
            tokens = tokens * self.current_gradient_accumulation_steps / self.args.steps_per_generation
        return policy_loss + self.args.value_coef * (losses * mask).sum() / tokens

    # -- saving and resuming -----------------------------------------------------------------------------------------

    @contextmanager
    def _critic_set_aside(self) -> Iterator[None]:
        """While it lasts, the policy is without its critic: what is saved or loaded is the policy alone."""
        critic = self.model._modules.pop(_NAME)
        try:
            yield
        finally:
            self.model._modules[_NAME] = critic

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        with self._critic_set_aside():
            super()._save(output_dir, state_dict)
        if self.args.should_save:  # of the critic, what is trained
            weights = {name: p for name, p in self.critic.state_dict(keep_vars=True).items() if p.requires_grad}
            stored = {name: p.detach().cpu().contiguous().clone() for name, p in weights.items()}
            save_file(stored, Path(output_dir or self.args.output_dir) / FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with self._critic_set_aside():
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        file = Path(resume_from_checkpoint) / FILE
        if not file.is_file():
            raise RunError(
                f"{file.parent} has no {FILE}, so its critic cannot go on; resume from a checkpoint of a ppo run"
            )
        self.critic.load_state_dict(load_file(file), strict=False)


class SkipsFarSteps(TrainerCallback):
    """Leaves weights and optimiser as they are where the policy has moved over 1.5 times ``target_kl`` from sampling.

    As ``PPOTrainer._early_stop`` of TRL 0.11 does, by the mean of log π_old − log π over the batch's tokens.
    """

    def __init__(self, trainer: ProcessPPOTrainer, target_kl: float) -> None:
        self._trainer, self._most = trainer, 1.5 * target_kl

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        moved = self._trainer.moved
        total, count = self._trainer.accelerator.reduce(moved, reduction="sum").tolist()
        moved.zero_()
        is_far = total / max(count, 1.0) > self._most
        if is_far:
            self._trainer.model.zero_grad(set_to_none=True)
        self._trainer._metrics["train"]["skipped_steps"].append(float(is_far))


def value_losses(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """½ max[(V − G)², (clip(V, V_old ± epsilon) − G)²] of each token, and 1 where the clipped term is the larger.

    All (B, T). A value that was clipped has no gradient: it has gone as far as one batch may move it.
    """
    near = old_values + (values - old_values).clamp(-epsilon, epsilon)
    free, clipped = (values - returns).square(), (near - returns).square()
    return torch.maximum(free, clipped) / 2, (clipped > free).float()
