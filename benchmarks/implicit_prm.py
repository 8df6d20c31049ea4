"""An implicit process reward model: a step is judged by how the model's likelihood of the answer so far has moved.

The logits of a position are 0 and beta * sum over the answer's tokens up to it of log pi(y_t) - log pi_ref(y_t), of a
policy that is trained and of itself as it was: the Q-value of arXiv 2412.01981 (proposition 3.1), trained here by the
cross-entropy of labelled steps. The policy knows the sums already; a new head on its body would have to learn them.

transformers loads this file from a model's own folder, and so it imports nothing of this project. It knows neither
steps nor labels. The answer begins after the prompt's last token, ``config.prompt_ends_with``, which is in no prompt
before.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaForCausalLM, LlamaModel, LlamaPreTrainedModel
from transformers.modeling_outputs import TokenClassifierOutput


class ImplicitForTokenClassification(LlamaPreTrainedModel):  # type: ignore[misc]
    """``policy`` and a ``reference`` that no gradient reaches, both with embeddings that are their output's, too."""

    base_model_prefix = "policy"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.policy = LlamaModel(config)
        self.reference = LlamaModel(config).requires_grad_(requires_grad=False)
        self.post_init()

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, use_cache: bool = False
    ) -> TokenClassifierOutput:
        """Logits (B, T, 2) of wrong and right; 0 and 0 in the prompt."""
        after, before = (_log_probs(part, input_ids, attention_mask) for part in (self.policy, self.reference))
        moved = after - before  # (B, T - 1)
        in_answer = (input_ids == self.config.prompt_ends_with).cumsum(-1)[:, :-1] > 0
        value = torch.nn.functional.pad((moved * in_answer).cumsum(-1), (1, 0)) * self.config.beta
        return TokenClassifierOutput(logits=torch.stack([torch.zeros_like(value), value], dim=-1))


def _log_probs(model: LlamaModel, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """log p of each token but the first, (B, T - 1)."""
    hidden = model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state[:, :-1]
    logits: torch.Tensor = hidden @ model.embed_tokens.weight.T
    return logits.float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]


def save_implicit_prm(policy: Path, folder: Path, beta: float = 1.0) -> None:
    """Write the untrained model of a Llama with tied embeddings, its tokenizer and this file to ``folder``."""
    base, tokenizer = LlamaForCausalLM.from_pretrained(policy), AutoTokenizer.from_pretrained(policy)
    config = base.config
    config.update({"num_labels": 2, "beta": beta, "tie_word_embeddings": True})
    (config.prompt_ends_with,) = tokenizer("\n", add_special_tokens=False)["input_ids"]
    code = f"{Path(__file__).stem}.ImplicitForTokenClassification"
    config.auto_map = {"AutoModelForTokenClassification": code, "AutoModel": code}  # to be trained, and to score
    model = ImplicitForTokenClassification(config)
    for part in (model.policy, model.reference):
        part.load_state_dict(base.model.state_dict())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    shutil.copy(__file__, folder)
