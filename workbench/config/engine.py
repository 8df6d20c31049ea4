"""The place where a run samples and trains: in its own process, or on a server that speaks the Tinker protocol."""

from operator import attrgetter
from typing import Any, Literal

from pydantic import Field

from workbench.config.section import Section


class EngineSection(Section):
    """A plain string is taken for ``kind``."""

    shorthand = "kind"
    kind: Literal["local", "tinker"] = Field(default="local", title="Engine")
    """Train here, or on a server that speaks the Tinker protocol (SkyRL's, hosted Tinker); scores stay here."""
    url: str | None = Field(default=None, max_length=2000, title="Address of the server")
    """http://127.0.0.1:8000, say; none for hosted Tinker."""
    base_model: str | None = Field(default=None, max_length=2000, title="Base model there")
    """The server's name of the model to train; none for policy.path, whose tokenizer must be the same."""
    rank: int = Field(default=32, ge=1, le=1024, title="Rank of the LoRA there")
    """Rank of the adapter that the server trains; it trains no whole weights."""
    key_env: str = Field(default="TINKER_API_KEY", pattern=r"^[A-Za-z_]\w*$", max_length=100, title="Key is in")
    """The environment variable that holds the server's key, which is stored nowhere."""
    patience: float = Field(default=600.0, gt=0, le=86_400, title="Patience (s)")
    """Seconds that one answer of the server may take, its restarts included, before the run stops."""

    @property
    def is_remote(self) -> bool:
        return self.kind != "local"

    @property
    def where(self) -> str:
        return self.url or "hosted Tinker"


_ELSEWHERE = "the server spreads the work itself"
_WEIGHTS = "the weights are the server's"
_PLAIN = "the server's loss takes log-probabilities of the plain softmax, so the ratio would not be 1"
_OURS: dict[str, str] = {
    "policy.lora": "the server trains an adapter of engine.rank",
    **dict.fromkeys(("run.ranks", "run.micro_batch_size", "optimiser.gradient_checkpointing"), _ELSEWHERE),
    **dict.fromkeys((f"policy.{name}" for name in ("adapter", "merge", "dtype", "attention")), _WEIGHTS),
    **dict.fromkeys(("policy.quantisation", "policy.device_map"), _WEIGHTS),
    "optimiser.optim": "the server's optimiser is AdamW",
    "environment.name": "episodes are played by the sampler of this process",
    "method.sync_ref_model": "the reference is the server's base model, which nothing moves",
    "method.resample_flat": "groups are redrawn by the sampler of this process",
    "method.credit.oar": "importances are gradients, which the server does not send",
    "method.trl": "no trainer of TRL's takes part",
    **dict.fromkeys((f"method.sampling.{name}" for name in ("temperature", "top_p", "top_k", "min_p")), _PLAIN),
    "method.sampling.repetition_penalty": _PLAIN,
}
"""Fields that have to be as they are by default where a server trains, and why."""
LOSSES = ("dapo", "bnpo", "grpo", "dr_grpo")
"""The losses whose divisor can be sent with the advantages: those that clip the ratio as PPO does."""


def check_engine(config: Any) -> None:
    """Raise ValueError for a setting of a run that would have no effect on a server, and nobody would notice."""
    method = config.method
    if method.name != "grpo":
        raise ValueError(
            f"engine.kind: {config.engine.kind} takes an advantage for each token and {method.name!r} has none; "
            "choose the method grpo, or engine.kind local"
        )
    for path, why in _OURS.items():
        parents, _, name = path.rpartition(".")
        section = attrgetter(parents)(config)
        default = type(section).model_fields[name].get_default(call_default_factory=True)
        if (value := getattr(section, name)) != default:
            raise ValueError(
                f"{path}: {value!r} has no place on engine.kind {config.engine.kind}: {why}; leave it at {default!r}, "
                "or train with engine.kind local"
            )
    if (loss := getattr(method, "loss_type", "")) not in LOSSES:
        raise ValueError(
            f"method.loss_type: the server has no {loss!r}; choose one of {', '.join(LOSSES)}, or engine.kind local"
        )
    if asking := [reward.name for reward in method.reward_functions if reward.asks_policy]:
        raise ValueError(
            f"method.rewards: {asking[0]!r} asks the policy itself, whose weights are the server's; leave it out, or "
            "train with engine.kind local"
        )
