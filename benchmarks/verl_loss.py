"""Rows of step credit through verl's own functions to the gradient of its loss; needs verl and nothing of this package.

``python verl_loss.py ROWS.jsonl`` prints, as JSON, the largest |gradient + A · divisor · rows| of a token for each way
in which verl averages a loss, and the largest outside the response. The advantages are registered as an estimator, as a
plugin of verl's would.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

BATCH = 8  # rows of one batch
SCALES = {
    "token-mean": lambda lengths, i: 1 / sum(lengths),
    "seq-mean-token-sum": lambda lengths, i: 1 / len(lengths),
    "seq-mean-token-mean": lambda lengths, i: 1 / (len(lengths) * lengths[i]),
}
"""verl's ``loss_agg_mode``: what it divides a token's loss by."""


def main(file: Path) -> None:
    plugin = sys.modules["step_credit_plugin"] = ModuleType("step_credit_plugin")
    os.environ["VERL_USE_EXTERNAL_MODULES"] = plugin.__name__
    import torch
    from tensordict import TensorDict
    from verl.protocol import DataProto
    from verl.trainer.ppo.core_algos import register_adv_est
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
    from verl.utils import tensordict_utils
    from verl.workers.config import ActorConfig
    from verl.workers.utils.losses import ppo_loss
    from verl.workers.utils.padding import response_from_nested, response_to_nested

    @register_adv_est("step_credit")
    def stored(token_level_rewards: Any, response_mask: Any, **_: Any) -> Any:
        return token_level_rewards * response_mask, token_level_rewards

    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()][:BATCH]
    advantages = [torch.tensor(row["advantages"]) for row in rows]
    lengths, prompts = [len(row) for row in advantages], [3 + i % 3 for i in range(len(rows))]
    ones = [torch.ones(length, dtype=torch.long) for length in lengths]
    uids = [f"{row['batch']}-{row['group']}" for row in rows]

    def nested(values: Any) -> Any:
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    def padded(values: Any) -> Any:
        return torch.nested.to_padded_tensor(nested(values), 0.0)

    import numpy as np

    data = DataProto(
        batch=TensorDict(
            {"response_mask": padded([one.float() for one in ones]), "token_level_rewards": padded(advantages)},
            batch_size=len(rows),
        ),
        non_tensor_batch={"uid": np.array(uids, dtype=object)},
    )
    keys = [f"{uid}_{i}_0" for i, uid in enumerate(uids)]
    done = compute_advantage_for_multi_trajectories(data, keys, "step_credit", config={})
    found: dict[str, Any] = {"verl": version("verl"), "rows": len(rows), "tokens": sum(lengths)}
    generator = torch.Generator().manual_seed(0)
    for mode, scale in SCALES.items():
        logps = [
            torch.randn(p + n, generator=generator).requires_grad_() for p, n in zip(prompts, lengths, strict=True)
        ]
        mask = nested(ones)
        batch = TensorDict(
            {
                "response_mask": mask,
                "old_log_probs": response_from_nested(nested([row.detach() for row in logps]), mask),
                "advantages": response_to_nested(done.batch["advantages"], mask),
                "prompts": nested([torch.arange(p) for p in prompts]),
                "responses": nested([torch.arange(n) for n in lengths]),
                "input_ids": nested([torch.arange(p + n) for p, n in zip(prompts, lengths, strict=True)]),
            },
            batch_size=len(rows),
        )
        for name, value in {"dp_size": 1, "batch_num_tokens": None, "global_batch_size": None}.items():
            tensordict_utils.assign_non_tensor(batch, **{name: value})
        config = ActorConfig(strategy="fsdp", rollout_n=2, ppo_micro_batch_size_per_gpu=len(rows), loss_agg_mode=mode)
        loss, _ = ppo_loss(config, {"log_probs": nested(logps)}, batch)
        loss.backward()
        inside, outside = 0.0, 0.0
        for i, (row, p, n) in enumerate(zip(logps, prompts, lengths, strict=True)):
            # the log-probability of a token stands at the place of the token before it
            inside = max(inside, float((row.grad[p - 1 : p - 1 + n] + advantages[i] * scale(lengths, i)).abs().max()))
            outside = max(outside, float(row.grad[: p - 1].abs().max()), float(row.grad[p - 1 + n :].abs().max()))
        found[mode] = {"gradient + A/divisor": inside, "outside": outside}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
