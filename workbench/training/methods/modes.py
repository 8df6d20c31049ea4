"""Modes of TRL's loss that are refused, each with its reason: they would run, and not train what the heatmap shows.

Some assume one advantage a sequence, which schemes that give each token its own do not have. ``ProcessGRPOConfig`` asks
this of itself; a section asks it of what ``method.trl`` sets, before a run is queued. TRL is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.credit import SCHEMES, SHARED, assign_credit
from workbench.errors import ConfigError, CreditError


class LossModes:
    """A mixin over fields of TRL's ``GRPOConfig`` and the few of process supervision."""

    loss_type: str
    off_policy_mask_threshold: float | None
    importance_sampling_level: str
    multi_objective_aggregation: str
    scale_rewards: str
    generation_kwargs: Any
    credit_scheme: str | None
    credit_options: Mapping[str, Any]
    credit_clip: float | None
    outcome_weight: float

    @property
    def is_sequence_level(self) -> bool:
        """Whether TRL's loss is in a mode that needs one advantage a completion, (B,)."""
        masks = self.off_policy_mask_threshold is not None
        return masks or self.loss_type == "vespo" or self.importance_sampling_level != "token"

    @property
    def sums_normalised(self) -> bool:
        """Whether outcome rewards are normalised one by one, then summed and normalised over the batch (TRL, GDPO)."""
        return self.multi_objective_aggregation == "normalize_then_sum"

    def _check_sums_normalised(self, scheme: str) -> None:
        """Raises ConfigError where ``normalize_then_sum`` would change nothing, or not what is set beside it."""
        if not SCHEMES[scheme].outcome_only:
            raise ConfigError(
                f"multi_objective_aggregation: 'normalize_then_sum' is about outcome rewards and {scheme!r} credits "
                "steps; choose 'sum_then_normalize', or the credit_scheme 'outcome'"
            )
        if stated := {"normalise", "scale"} & set(self.credit_options):
            raise ConfigError(
                f"credit_options: {min(stated)!r} is settled by multi_objective_aggregation='normalize_then_sum', "
                "which divides by the standard deviation of the batch; leave one of the two out"
            )

    def _check_token_level(self, scheme: str) -> None:
        """Raises ConfigError for what needs one advantage a completion, where ``scheme`` gives each token its own."""
        whole = " or ".join(repr(name) for name, known in SCHEMES.items() if known.per_completion)
        instead = f"the credit_scheme {whole}, which gives a completion one advantage"
        if self.loss_type == "vespo":
            raise ConfigError(
                "loss_type: 'vespo' reshapes one weight a sequence from one advantage a sequence, and "
                f"{scheme!r} gives each token its own. Choose grpo, bnpo, dapo, dr_grpo, cispo or sapo, or {instead}"
            )
        if self.off_policy_mask_threshold is not None:
            raise ConfigError(
                "off_policy_mask_threshold: TRL masks whole sequences by the sign of their one advantage, and "
                f"{scheme!r} gives each token its own. Leave it unset, or choose {instead}"
            )
        if self.importance_sampling_level != "token":
            raise ConfigError(
                f"importance_sampling_level: {self.importance_sampling_level!r} gives all tokens of a completion one "
                f"ratio, which mixes the steps' credit under {scheme!r} again. Use 'token', or choose {instead}"
            )

    def check_modes(self) -> None:
        """Raises ConfigError for what does not fit the sampler, or each other."""
        if self.generation_kwargs:
            names = ", ".join(self.generation_kwargs) if isinstance(self.generation_kwargs, dict) else "what it holds"
            raise ConfigError(
                f"generation_kwargs: {names} would be ignored by the group sampler; use "
                "temperature, top_p, top_k, min_p, repetition_penalty and stop"
            )
        # Where no scheme is named, the trainer finds the one that fits the rewards, and checks again.
        one_a_completion = self.is_sequence_level or self.sums_normalised
        self.check_credit(self.credit_scheme or ("outcome" if one_a_completion else "process"))

    def check_credit(self, scheme: str) -> None:
        """Raises ConfigError where the other fields do not fit ``scheme``."""
        if scheme not in SCHEMES:
            raise ConfigError(f"credit_scheme: unknown scheme {scheme!r}; choose one of {', '.join(SCHEMES)}")
        if not SCHEMES[scheme].per_completion:
            self._check_token_level(scheme)
        if self.sums_normalised:
            self._check_sums_normalised(scheme)
        if reserved := {"scheme", *SHARED, "step_starts", "outcome_rewards", "masks", "token_ids"} & set(
            self.credit_options
        ):
            raise ConfigError(f"credit_options: {sorted(reserved)[0]!r} has a field of its own; set that")
        default = {option.name: option.default for option in SCHEMES[scheme].options}.get("normalise", "pooled")
        if self.scale_rewards == "batch" and default != "pooled" and "normalise" not in self.credit_options:
            raise ConfigError(
                f"scale_rewards: 'batch' would replace the {default!r} normalisation of {scheme!r}; leave "
                "it at 'group', or say credit_options={'normalise': 'batch'}"
            )
        try:
            assign_credit([], [], [], scheme, outcome_rewards=[], token_ids=[], states=[], **self.credit_keywords())
        except CreditError as error:
            raise ConfigError(f"credit_options: {error}") from error

    def credit_keywords(self) -> dict[str, Any]:
        """What ``assign_credit`` gets beside the scheme: TRL's ``scale_rewards`` first, ``credit_options`` over it."""
        by_trl: dict[str, dict[str, Any]] = {"batch": {"normalise": "batch"}, "none": {"scale": False}}
        scaling = by_trl.get("batch" if self.sums_normalised else str(self.scale_rewards), {})
        return {**scaling, "outcome_weight": self.outcome_weight, "clip": self.credit_clip, **self.credit_options}


class TokenCriticModes(LossModes):
    """Of PPO, whose advantages are each token's own by the critic's values, whatever the scheme."""

    drop_duplicates: bool
    each_reward: bool
    resample_flat: int

    def check_modes(self) -> None:
        if self.resample_flat:
            raise ConfigError(
                f"resample_flat: {self.resample_flat} rounds would replace groups without spread, and PPO compares "
                "with the critic's values, not within a group; set it to 0"
            )
        if self.drop_duplicates:
            raise ConfigError(
                "drop_duplicates: PPO compares with the critic's values, not within a group, so that a copy takes "
                "nothing from the others; set it to false"
            )
        if self.each_reward:
            raise ConfigError(
                "each_reward: PPO compares with the critic's values and normalises no reward within a group; set it to "
                "false"
            )
        whole = {
            "loss_type": self.loss_type == "vespo",
            "off_policy_mask_threshold": self.off_policy_mask_threshold is not None,
            "importance_sampling_level": self.importance_sampling_level != "token",
            "multi_objective_aggregation": self.sums_normalised,
        }
        if set_names := [name for name, is_set in whole.items() if is_set]:
            raise ConfigError(
                f"{set_names[0]}: {getattr(self, set_names[0])!r} is for one advantage a completion, PPO gives each "
                "token its own by the critic's values; leave it out"
            )
        super().check_modes()


def check_stated(modes: type[LossModes], values: Mapping[str, Any]) -> None:
    """Raises ConfigError where a trainer's configuration with these values would be refused."""
    stated = modes()
    stated.__dict__.update(values)
    stated.check_modes()
