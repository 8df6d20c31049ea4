"""The run's credit as an advantage estimator of verl, which ``VERL_USE_EXTERNAL_MODULES=plugin`` registers."""

from __future__ import annotations

import core
import torch
from verl.trainer.ppo.core_algos import register_adv_est


@register_adv_est("step_credit")
def step_credit(token_level_rewards, response_mask, index, config=None, **_):
    """Return the advantages of rows that ``agent.py`` encoded, 0 where the mask is, and the same as returns."""
    values = torch.from_numpy(core.advantages(token_level_rewards.double().cpu().numpy(), index))
    masked = values.to(token_level_rewards) * response_mask
    return masked, masked
