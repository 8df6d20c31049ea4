"""The agent loop of verl that samples an answer and gives each of its tokens a number, as ``core.encode`` has it.

verl puts an answer's whole score on its last token. Here the steps' rewards stand where steps end, and behind the
answer there is a token (two under the gate) that is masked, holds the outcome, and has no part in the loss.
"""

from __future__ import annotations

import json
from uuid import uuid4

import core
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.utils.profiler import simple_timer


class StepCreditOutput(AgentLoopOutput):
    """An answer whose ``rm_scores`` are a number for each token."""

    token_scores: list[float]

    def as_dict(self):
        output = super().as_dict()
        output["rm_scores"] = torch.tensor(output.pop("token_scores"), dtype=torch.float32)
        return output


class StepCreditLoop(AgentLoopBase):
    """One turn."""

    async def run(self, sampling_params, **kwargs):
        messages, about, metrics = list(kwargs["raw_prompt"]), kwargs["extra_info"], {}
        if about["plain"]:  # text to go on with: no chat template
            prompt, prompt_ids = messages[0]["content"], self.tokenizer(messages[0]["content"])["input_ids"]
        else:
            prompt, prompt_ids = messages, await self.ct_build_initial_tokens(messages)
        with simple_timer("generate_sequences", metrics):
            sampled = await self.server_manager.generate(
                request_id=uuid4().hex,
                prompt_ids=prompt_ids,
                sampling_params={**sampling_params, **core.SETTINGS["sampling"]},
            )
        ids = list(sampled.token_ids)[: core.SETTINGS["sampling"]["max_tokens"]]
        return answer(self.tokenizer, prompt, prompt_ids, ids, sampled.log_probs, json.loads(about["columns"]), metrics)


def answer(tokenizer, prompt, prompt_ids, ids, logprobs, columns, metrics):
    """Score a sampled answer and return it with a number for each token."""
    row, is_counted, outcome = core.answer(tokenizer, prompt, columns, prompt_ids, ids)
    return StepCreditOutput(
        prompt_ids=prompt_ids,
        response_ids=[*ids, *[tokenizer.eos_token_id] * core.SLOTS],
        response_mask=[*[int(is_counted)] * len(ids), *[0] * core.SLOTS],
        response_logprobs=[*logprobs[: len(ids)], *[0.0] * core.SLOTS] if logprobs else None,
        reward_score=sum(row),  # said, so that verl asks no reward manager; as_dict puts the row in its place
        token_scores=row,
        num_turns=2,
        metrics=metrics,
        extra_fields={
            "reward_extra_info": {"outcome": outcome},
            "turn_scores": [],
            "tool_rewards": [],
        },
    )
