"""Compute the stored groups of parity.json anew, as the engine will: ``python check.py``; 1 where anything differs.

What the engine itself has a part in goes through its own types and functions where it is installed, else through numpy:
the run's pattern, rewards, scheme and options; the divisor; and for verl the gradient of its loss, which is -A · c.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from importlib.util import find_spec

import core
import numpy as np

EXACT, THROUGH_A_RATIO = 1e-6, 1e-5
PARITY = json.loads((core.HERE / "parity.json").read_text(encoding="utf-8"))
ROWS = PARITY["rows"]
LENGTHS = [len(row["ids"]) for row in ROWS]
MASKS = [row["mask"] or [1] * len(row["ids"]) for row in ROWS]
COUNTED = [row["divisor"] > 0 for row in ROWS]
"""Which completions the loss has a part for."""


def main():
    """Print each comparison's largest difference and its limit."""
    differences = [*steps_and_rewards(), *(by_verl() if core.SETTINGS["target"] == "verl" else by_tinker())]
    for what, difference, limit in differences:
        print(f"{'equal' if difference <= limit else 'DIFFERENT':9} {difference:8.2g} (at most {limit:g})  {what}")
    wrong = sum(not difference <= limit for _, difference, limit in differences)
    print(f"{len(ROWS)} completions, {sum(LENGTHS)} tokens: {'as in the run' if not wrong else 'NOT as in the run'}")
    return int(bool(wrong))


def steps_and_rewards():
    """Compare what the pattern and the rewards make of the stored texts."""
    apart, rewards, outcomes = 0, 0.0, 0.0
    for row in ROWS:
        given = [row[name] for name in ("ids", "texts", "finished", "prompt", "columns", "opened")]
        scored = core.score(*given)
        spans = [[step["start"], step["end"]] for step in row["steps"]]
        apart += [list(span) for span in scored.spans] != spans
        if len(scored.rewards) == len(row["steps"]):
            pairs = zip(scored.rewards, [step["reward"] for step in row["steps"]], strict=True)
            rewards = max([rewards, *(_apart(*pair) for pair in pairs)])
        outcomes = max(outcomes, _apart(scored.outcome, row["outcome"]), _apart(scored.judged, row["judged"]))
    yield "completions that the pattern cuts otherwise", apart, 0
    yield "step rewards", rewards, EXACT
    yield "outcome rewards", outcomes, EXACT


def _apart(one, other):
    return abs(one - other) if None not in (one, other) else 0.0 if one is other else np.inf


def encoded():
    """Return the stored steps and rewards as ``core.encode`` sends them, (B, T) float32, and a mask of 1 and 0."""
    rows, masks = [], []
    for row, mask, is_counted in zip(ROWS, MASKS, COUNTED, strict=True):
        spans = [(step["start"], step["end"]) for step in row["steps"]]
        rewards = [step["reward"] for step in row["steps"]]
        rows.append(core.encode(len(row["ids"]), core.Scored(spans, rewards, row["outcome"], row["judged"])))
        masks.append([*(bit * is_counted for bit in mask), *[0] * core.SLOTS])
    return core.pad(rows).astype(np.float32), core.pad(masks).astype(np.float32)


def credit_apart(values):
    """Return the largest difference of advantages (B, T) from the stored ones, where the loss counts them."""
    found = 0.0
    for i, row in enumerate(ROWS):
        stored = np.asarray(row["advantages"], dtype=np.float32)
        if len(stored) != LENGTHS[i] or values[i, LENGTHS[i] :].any():
            return np.inf
        found = max(found, float(np.abs(values[i, : LENGTHS[i]] - stored).max(initial=0.0)) * COUNTED[i])
    return found


def divisor_apart(scales):
    """Return the largest difference of c_i from the stored ones, relative to these."""
    stored = np.array([row["divisor"] for row in ROWS])
    return float((np.abs(np.asarray(scales) - stored) / np.where(stored > 0, stored, 1.0)).max())


# --- verl -------------------------------------------------------------------------------------------------------------

PLAIN = {
    "algorithm.adv_estimator": "step_credit",
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_groups.enable": False,
    "algorithm.rollout_correction.rollout_is": None,
    "algorithm.rollout_correction.rollout_is_batch_normalize": False,
    "algorithm.rollout_correction.rollout_rs": None,
    "actor_rollout_ref.actor.policy_loss.loss_mode": "vanilla",
    "actor_rollout_ref.rollout.agent.default_agent_loop": "step_credit",
}
"""Settings of verl under which nothing becomes of A between the estimator and the loss."""


def by_verl():
    """Compare advantages and divisors, by verl's own functions where it is installed."""
    settings = verl_settings()
    changed = [name for name, value in PLAIN.items() if _at(settings, name) != value]
    yield f"settings that change A on its way to the loss{': ' * bool(changed)}{', '.join(changed)}", len(changed), 0
    table, mask = encoded()
    uids = np.array([str(row["group"]) for row in ROWS], dtype=object)
    actor = settings["actor_rollout_ref"]["actor"]
    scales = verl_divisors(mask, actor["loss_agg_mode"], actor["loss_scale_factor"])
    yield "divisors, relative", divisor_apart(scales), THROUGH_A_RATIO
    if find_spec("verl") is None:
        yield "advantages, by numpy", credit_apart(core.advantages(table, uids) * mask), EXACT
        return
    values, gradients, outside = through_verl(settings, table, mask, uids)
    yield f"advantages, by compute_advantage of verl {version('verl')}", credit_apart(values), EXACT
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(scales[:, None] > 0, -gradients / scales[:, None], 0.0)
    yield f"advantages in the gradient of ppo_loss of verl {version('verl')}", credit_apart(weights), THROUGH_A_RATIO
    yield "gradient outside the answers", outside, 0


def verl_settings():
    """Return verl's settings: with its own defaults, and refused for a name that it has not, where it is installed."""
    if find_spec("verl") is None:
        import yaml

        return yaml.safe_load((core.HERE / "verl.yaml").read_text(encoding="utf-8"))
    os.environ |= {"VERL_USE_EXTERNAL_MODULES": "plugin", "STEP_CREDIT": str(core.HERE)}
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.utils.config import validate_config

    with initialize_config_dir(str(core.HERE), version_base=None):
        composed = compose("verl")
    validate_config(composed, use_reference_policy=composed.actor_rollout_ref.actor.use_kl_loss, use_critic=False)
    return OmegaConf.to_container(composed, resolve=True)


def _at(settings, path):
    for name in path.split("."):
        settings = settings.get(name) if isinstance(settings, dict) else None
    return settings


def verl_divisors(mask, mode, factor):
    """Return c_i as ``agg_loss`` of verl has it, over the whole batch: (B,), 0 for a row without a token."""
    lengths = mask.sum(axis=1)
    each = {
        "token-mean": np.full(len(mask), 1 / lengths.sum()),
        "seq-mean-token-mean": 1 / (len(mask) * np.maximum(lengths, 1)),
        "seq-mean-token-sum": np.full(len(mask), 1 / len(mask)),
        "seq-mean-token-sum-norm": np.full(len(mask), 1 / (len(mask) * (factor or mask.shape[1]))),
    }[mode]
    return np.where(lengths > 0, each, 0.0)


def through_verl(settings, table, mask, uids):
    """Return verl's advantages, the gradient of its loss by the answers' log-probabilities, and the largest other."""
    import torch
    from tensordict import TensorDict
    from verl.protocol import DataProto
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
    from verl.utils import tensordict_utils
    from verl.workers.config import ActorConfig
    from verl.workers.utils.losses import ppo_loss
    from verl.workers.utils.padding import response_from_nested, response_to_nested

    def nested(rows):
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    sizes = [length + core.SLOTS for length in LENGTHS]
    rows = [torch.from_numpy(row[:size]) for row, size in zip(table, sizes, strict=True)]
    masks = [torch.from_numpy(row[:size]) for row, size in zip(mask, sizes, strict=True)]
    batch = {"response_mask": nested(masks), "rm_scores": nested(rows)}
    data = DataProto(batch=TensorDict(batch, batch_size=len(rows)).to_padded_tensor(), non_tensor_batch={"uid": uids})
    data.batch["token_level_rewards"] = data.batch["rm_scores"]
    keys = [f"{uid}_{i}_0" for i, uid in enumerate(uids)]
    estimator = settings["algorithm"]["adv_estimator"]
    done = compute_advantage_for_multi_trajectories(data, keys, estimator, config={})
    integers = nested([row.long() for row in masks])
    prompts = [3 + i % 3 for i in range(len(rows))]
    generator = torch.Generator().manual_seed(0)
    logps = [torch.randn(p + n, generator=generator).requires_grad_() for p, n in zip(prompts, sizes, strict=True)]
    fields = {
        "response_mask": integers,
        "old_log_probs": response_from_nested(nested([row.detach() for row in logps]), integers),
        "advantages": response_to_nested(done.batch["advantages"], integers),
        "prompts": nested([torch.arange(p) for p in prompts]),
        "responses": nested([torch.arange(n) for n in sizes]),
        "input_ids": nested([torch.arange(p + n) for p, n in zip(prompts, sizes, strict=True)]),
    }
    given = TensorDict(fields, batch_size=len(rows))
    about = {"dp_size": 1, "batch_num_tokens": int(mask.sum()), "global_batch_size": len(rows)}
    for name, value in about.items():
        tensordict_utils.assign_non_tensor(given, **{name: value})
    actor = settings["actor_rollout_ref"]["actor"]
    names = ("loss_agg_mode", "loss_scale_factor", "clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c")
    how = {name: actor[name] for name in names}
    config = ActorConfig(strategy="fsdp", rollout_n=2, ppo_micro_batch_size_per_gpu=len(rows), **how)
    loss, _ = ppo_loss(config, {"log_probs": nested(logps)}, given)
    loss.backward()
    gradients, outside = np.zeros_like(table), 0.0
    for i, (row, p, n) in enumerate(zip(logps, prompts, sizes, strict=True)):
        answer = slice(p - 1, p - 1 + n)  # the log-probability of a token stands at the place of the token before it
        gradients[i, :n] = row.grad[answer]
        row.grad[answer] = 0
        outside = max(outside, float(row.grad.abs().max()))
    return done.batch["advantages"].numpy(), gradients, outside


# --- the Tinker protocol ----------------------------------------------------------------------------------------------


def by_tinker():
    """Compare what ``train.py`` sends with A · c, in the protocol's own types where they are installed."""
    import train

    table, mask = encoded()
    values = core.advantages(table, [row["group"] for row in ROWS]) * mask
    yield "advantages, by numpy", credit_apart(values), EXACT
    scales = train.divisors([sum(row) for row in MASKS], COUNTED)
    yield "divisors, relative", divisor_apart(scales), EXACT
    has_types, prompt, sent, outside = find_spec("tinker") is not None, [1, 2, 3], [], 0.0
    first = len(prompt) - 1
    for row, advantages, scale in zip(ROWS, values, scales, strict=True):
        made = train.arrays(prompt, row["ids"], np.zeros(len(row["ids"])), advantages[: len(row["ids"])] * scale)
        if has_types:
            import tinker

            made = {name: np.asarray(tinker.types.TensorData.from_numpy(one).data) for name, one in made.items()}
        is_aligned = made["target_tokens"][first:].tolist() == row["ids"] and len(set(map(len, made.values()))) == 1
        outside = max(outside, float(np.abs(made["advantages"][:first]).max()) if is_aligned else np.inf)
        sent.append(made["advantages"][first:] / (row["divisor"] or 1))
    how = f"types of tinker {version('tinker')}" if has_types else "numpy"
    yield f"advantages times divisor as they are sent, by {how}", credit_apart(core.pad(sent)), THROUGH_A_RATIO
    yield "what is sent outside the answers", outside, 0


if __name__ == "__main__":
    sys.exit(main())
