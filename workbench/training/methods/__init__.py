"""The training methods: a method is one module here and one line in ``METHODS``."""

from workbench.training.methods import dpo, grpo, ppo, prm, reward, sft
from workbench.training.methods.base import Method

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        grpo.METHOD,
        ppo.METHOD,
        sft.METHOD,
        dpo.METHOD,
        reward.METHOD,
        prm.METHOD,
    )
}  # fmt: skip
"""Every method by name; the first is the default."""

__all__ = ["METHODS", "Method"]
