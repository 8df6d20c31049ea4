"""What a policy loss is computed from, beside the advantages: its settings, and what one pass over a generation saw.

How the numbers make a loss is said in ``credit.loss``; who records them, in ``training.passes``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LossSettings:
    """A loss as TRL's ``GRPOConfig`` has it.

    ``epsilon_high`` is the upper clip range (cispo: the cap of the ratio itself), ``delta`` the bound of two-sided
    clipping, ``kl_times_ratio`` TRL's ``use_bias_correction_kl``, ``sequence_ratio`` whether a completion has one
    ratio, the geometric mean of its tokens'. Temperatures are for A > 0 and others, k and lambda for A >= 0 and others.
    """

    loss_type: str = "dapo"
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    beta: float = 0.0
    kl_times_ratio: bool = False
    sequence_ratio: bool = False
    max_completion_length: int | None = None
    sapo_temperatures: tuple[float, float] = (1.0, 1.05)
    vespo_k: tuple[float, float] = (2.0, 3.0)
    vespo_lambda: tuple[float, float] = (3.0, 2.0)


@dataclass(frozen=True, eq=False)
class RolloutPass:
    """What one pass saw of one rollout, a number a token, each (T_i,).

    ``logprobs`` are the policy's in this pass; None for a rollout that was left out, since its advantages are all 0 and
    nothing else would add to the loss. ``old_logprobs`` are those that the ratio is taken to; None where they are the
    pass's own. ``weights`` is what else multiplies the policy term (a mask by entropy, an importance weight); None for
    1. ``bonus`` is what the entropy bonus adds to the loss; None where there is none. ``micro_batch`` numbers the part
    of the step that the rollout was in, over all ranks, from 0.
    """

    micro_batch: int
    logprobs: Numbers | None
    old_logprobs: Numbers | None = None
    weights: Numbers | None = None
    bonus: Numbers | None = None


@dataclass(frozen=True, eq=False)
class LossPass:
    """One optimiser step over a stored generation: the ``number``-th pass over that of step ``generation``, from 1.

    ``rollouts`` are in the generation's order, all groups' one after another. ``tokens`` is what the losses that divide
    by the generation's tokens divide by. ``loss`` is the step's loss as the trainer computed it, over all micro-batches
    and ranks, and ``router`` the part of it that keeps a mixture of experts balanced, which is no token's. Files
    of version 0.4 have no ``loss`` where it had an entropy bonus or a router's part.
    """

    step: int
    generation: int
    number: int
    settings: LossSettings
    rollouts: tuple[RolloutPass, ...]
    tokens: float
    loss: float | None
    router: float = 0.0


OnPass = Callable[[LossPass], None]
"""Called with every optimiser step over a generation that is stored."""
