"""Log-probabilities of a group's tokens under a reference policy.

With it, each token has its own share of the KL divergence from the reference, and its probability ratio to it. Which
of the two policies is the better one, and what a loss makes of it, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from workbench.errors import PolicyError
from workbench.policies.load import Policy, context_length
from workbench.policies.prompts import encode_prompt
from workbench.schema import Group, Rollout
from workbench.steps import token_texts


@torch.no_grad()
def with_reference(policy: Policy, group: Group, *, cancelled: Callable[[], bool] | None = None) -> Group:
    """The group, each rollout with ``ref_logprobs``: natural-log probabilities of its tokens under ``policy``.

    They are taken at the temperature that the group was sampled at, as TRL takes those of its reference policy, and
    without top-k, top-p and the like. A policy that sampled a group without those is its own reference up to rounding.
    ``cancelled`` is asked before every rollout; once it says yes, the group comes back as it was.

    Raises:
        PolicyError: if the policy has another vocabulary than the group's tokens, or too short a context.
    """
    ids = encode_prompt(policy.tokenizer, group.prompt, group.sampling.get("template_kwargs"))
    temperature = float(group.sampling.get("temperature") or 1.0)
    rows = []
    for number, rollout in enumerate(group.rollouts, start=1):
        if cancelled is not None and cancelled():
            return group
        _check_tokens(policy, rollout, number)
        context = context_length(policy.model)
        if context is not None and len(ids) + len(rollout) > context:
            raise PolicyError(
                f"prompt and rollout {number} have {len(ids) + len(rollout):,} tokens and {policy.name!r} reads at "
                f"most {context:,}; take a reference policy with a longer context"
            )
        logprobs = rollout.of_sampled(_logprobs(policy, ids, rollout.token_ids, temperature))
        rows.append(replace(rollout, ref_logprobs=logprobs))
    return replace(group, rollouts=tuple(rows), sampling={**group.sampling, "reference": policy.name})


def _check_tokens(policy: Policy, rollout: Rollout, number: int) -> None:
    """Refuses a policy with another vocabulary: it would judge other words than those that were sampled."""
    other = "take a reference policy with the tokenizer that sampled the group"
    rows = policy.model.get_input_embeddings().weight.shape[0]
    if max(rollout.token_ids, default=0) >= rows:
        raise PolicyError(
            f"rollout {number} has the token id {max(rollout.token_ids)} and {policy.name!r} knows {rows:,}; {other}"
        )
    for token, text, known in zip(
        rollout.token_ids, rollout.texts, token_texts(policy.tokenizer, rollout.token_ids), strict=True
    ):
        if text != known:
            raise PolicyError(
                f"token id {token} of rollout {number} is {text!r} in the group and {known!r} in the vocabulary of "
                f"{policy.name!r}; {other}"
            )


def _logprobs(
    policy: Policy, prompt_ids: list[int], token_ids: tuple[int, ...], temperature: float
) -> tuple[float, ...]:
    if not token_ids:
        return ()
    tokens = torch.tensor([[*prompt_ids, *token_ids]], device=policy.device)
    logits = policy.model(input_ids=tokens).logits[0, len(prompt_ids) - 1 : -1].float() / temperature  # (T, V)
    chosen = torch.log_softmax(logits, dim=-1).gather(1, tokens[0, len(prompt_ids) :, None])
    return tuple(chosen[:, 0].tolist())
