"""``LossOfParts``: TRL's ``GRPOTrainer`` with a forward pass and a loss of those rows alone that have a say in them.

* ``_get_per_token_logps_and_entropies`` sends short completions through the model apart from long ones;
* ``_compute_loss`` is TRL's, of the rows that have any advantage; KL estimators are logged beside it.

Loss, gradient and metrics are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import pad
from trl import GRPOTrainer

from workbench.training.generation import ROW, BesidePolicy, Passes

_BY_ROWS = frozenset({"grpo", "sapo", "dr_grpo", "luspo"})
"""Losses that divide by the number of rows of a micro-batch."""
_BY_TOKENS = frozenset({"bnpo"})
"""Those that divide by its tokens."""
_BY_GENERATION = frozenset({"dapo", "cispo"})
"""Those that divide by the tokens of the whole generation, whichever rows are there."""
_INPUTS = frozenset(
    {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages", "num_items_in_batch"}
    | {"old_per_token_logps", "sampling_per_token_logps", "importance_sampling_ratio", ROW}
)
"""What has one row a completion, and the one number; with anything else, a picture's parts say, all rows stay."""
_CLIPPED = ("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "cispo_clip_ratio")
_PLAIN = frozenset({"batch_size", "compute_entropy", "compute_aux_loss"})
"""Options of TRL's forward pass that go by no row of the batch."""
MOST_PARTS = 4
PASS = {"cpu": 256, "cuda": 4096}
"""What one more forward and backward pass costs, in positions; that of CUDA is a guess, and unmeasured."""


@dataclass(frozen=True)
class TrainedRows:
    """The rows of a micro-batch that are trained on; the loss of ``inputs`` counts ``factor`` times.

    ``has_signal`` tells which of them have an advantage other than 0, (rows,); ``tokens`` of ``all_tokens`` are theirs.
    """

    inputs: dict[str, Any]
    factor: float
    has_signal: torch.Tensor
    tokens: float
    all_tokens: float


class LossOfParts(GRPOTrainer):
    """TRL's trainer; ``loss_masks`` are what its loss has left out last, by the method's name."""

    in_parts = True
    """Whether rows may go through the model in another order than the batch's."""
    loss_masks: dict[str, torch.Tensor]
    _passes: Passes | None
    _policy_logps: torch.Tensor | None = None
    _entropies: torch.Tensor | None = None
    _router_loss: torch.Tensor | None = None

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        forward = super()._get_per_token_logps_and_entropies
        # In parts if no other row and no random number has a say in a row's, and no wrapper of several processes
        # expects one forward pass to a backward one.
        rows_alone = self.in_parts and not self.aux_loss_enabled and self.args.disable_dropout
        is_plain = not any(value is not None for name, value in kwargs.items() if name not in _PLAIN)
        if rows_alone and is_plain and self.accelerator.num_processes == 1:
            result = forward_by_length(forward, *args, **kwargs)
        else:
            result = forward(*args, **kwargs)
        self._policy_logps, self._entropies, self._router_loss = result[0].detach(), result[1], result[2]
        return result

    @contextmanager
    def _keeping_masks(self) -> Iterator[None]:
        """Keep, by the method's name, which tokens TRL's loss leaves out by entropy or for being off policy.

        The class's own methods stay TRL's, one of them static: they can be called without an instance.
        """

        def kept(name: str, of_trl: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
            def keep(*args: Any, **kwargs: Any) -> torch.Tensor:
                self.loss_masks[name] = of_trl(*args, **kwargs)
                return self.loss_masks[name]

            return keep

        self.loss_masks.clear()
        for name in ("get_high_entropy_mask", "get_off_policy_mask"):
            setattr(self, name, kept(name, getattr(self, name)))
        try:
            yield
        finally:
            del self.get_high_entropy_mask, self.get_off_policy_mask

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        trained = self._trained_rows(inputs) if self.model.training else None
        of_rows = inputs if trained is None else trained.inputs
        coef = None
        if self._entropy_bonus_enabled:  # TRL may change it at the end of the step
            too_sure = not self.use_adaptive_entropy or self._last_world_entropy <= self.args.entropy_target
            coef = float(self.entropy_coef) if too_sure else 0.0
        with self._keeping_masks():
            loss = super()._compute_loss(model, of_rows)
        if trained is not None:
            loss = loss * trained.factor
            assert self._entropies is not None
            self._restore_metrics(trained, self._entropies.detach())
        if self._passes is not None and self.model.training and self._policy_logps is not None:
            router = self.router_aux_loss_coef * self._router_loss if self.aux_loss_enabled else None
            self._passes.add(inputs, of_rows, self._policy_logps, loss, BesidePolicy(coef, self._entropies, router))
        reference = inputs.get("ref_per_token_logps")
        if trained is None and reference is not None and self._policy_logps is not None:
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)  # what tools wrote is not the policy's
            for name, value in kl_estimators(reference, self._policy_logps, mask).items():
                summed = self.accelerator.reduce(value, reduction="sum")  # (2,): sum over tokens, tokens
                self._metrics[self._mode][name].append((summed[0] / summed[1].clamp(min=1.0)).item())
        return loss

    @property
    def can_leave_rows_out(self) -> bool:
        """Return whether loss and gradient are the same without the rows whose advantages are all 0.

        Where the loss is a weighted sum of A_t times something, such a row adds 0 to it and to its gradient; what is
        left is the rows' number or tokens in the divisor, put right by a factor. Where a row adds something else (a
        KL, an entropy bonus, a router's loss), or others depend on it, all rows stay.
        """
        return bool(
            self.loss_type in _BY_ROWS | _BY_TOKENS | _BY_GENERATION
            and self.beta == 0
            and self.importance_sampling_level == "token"
            and self.top_entropy_quantile == 1.0  # a quantile over all rows of the micro-batch
            and not (self._entropy_bonus_enabled or self.aux_loss_enabled)
            and self.args.disable_dropout  # its random numbers depend on the rows
        )

    def _trained_rows(self, inputs: dict[str, Any]) -> TrainedRows | None:
        """The rows with signal, as many on every rank and at least one, so that no gradient lacks; None for all."""
        if not self.can_leave_rows_out or inputs.keys() - _INPUTS:
            return None
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)  # (B, T)
        has_signal = (inputs["advantages"] != 0).reshape(len(mask), -1).any(dim=1)  # (B,)
        # Ranks gather one number a row for the metrics, so they need as many rows.
        count = max(1, int(self.accelerator.gather(has_signal.sum()).max()))
        if count >= len(mask):
            return None
        rows = has_signal.int().argsort(descending=True, stable=True)[:count].sort().values
        tokens, all_tokens = float(mask[rows].sum()), float(mask.sum())
        factor = count / len(mask) if self.loss_type in _BY_ROWS else 1.0
        if self.loss_type in _BY_TOKENS:
            factor = max(tokens, 1.0) / max(all_tokens, 1.0)
        trained = {
            name: value[rows] if torch.is_tensor(value) and value.dim() else value for name, value in inputs.items()
        }
        return TrainedRows(trained, factor, has_signal[rows], tokens, all_tokens)

    def _restore_metrics(self, trained: TrainedRows, entropies: torch.Tensor) -> None:
        """Make what TRL has logged of the trained rows independent of which others were left out, on any ranks.

        Clip ratios are of all rows again, as a row without signal has none clipped. The entropy is that of the rows
        with signal; NaN, which is not counted, where there are none.
        """
        metrics, inputs = self._metrics["train"], trained.inputs
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1) * trained.has_signal[:, None]
        numbers = torch.stack([(entropies * mask).sum().float(), mask.sum().float()])
        rows = torch.tensor([trained.tokens, trained.all_tokens], device=numbers.device)
        numbers = self.accelerator.reduce(torch.cat([numbers, rows]), reduction="sum")
        entropy, count, tokens, all_tokens = numbers.tolist()
        metrics["entropy"][-1] = entropy / count if count else float("nan")
        for name in _CLIPPED:
            if name in metrics:
                metrics[name][-1] *= tokens / max(all_tokens, 1.0)
        if "clip_ratio/low_min" in metrics:
            metrics["clip_ratio/low_min"][-1] = 0.0


def parts_by_length(lengths: Sequence[int], prompt: int, extra: int) -> list[list[int]]:
    """Return the rows of a batch in at most ``MOST_PARTS`` parts, from short to long, of (nearly) as many rows each.

    ``lengths`` are those of the completions, in tokens, ``prompt`` is the prompts' common width, and ``extra`` is what
    each part after the first costs, in positions. The cheapest number of parts is taken, the least of equally cheap.
    """
    rows = sorted(range(len(lengths)), key=lambda row: lengths[row])
    choices = []
    for count in range(1, min(MOST_PARTS, len(rows)) + 1):
        bounds = [len(rows) * part // count for part in range(count + 1)]
        parts = [rows[start:end] for start, end in pairwise(bounds)]
        positions = sum(len(part) * (prompt + lengths[part[-1]]) for part in parts)
        choices.append((positions + (count - 1) * extra, parts))
    return min(choices, key=lambda choice: choice[0])[1]


def forward_by_length(
    forward: Callable[..., tuple[torch.Tensor, torch.Tensor | None, Any]],
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    logits_to_keep: int,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None, Any]:
    """``forward`` of TRL's log-probabilities and entropies, part by part: both (B, ``logits_to_keep``).

    ``input_ids`` and ``attention_mask`` are (B, prompt + ``logits_to_keep``). Behind a part's longest row they are 0.
    What ``forward`` returns third, a loss over the rows of a batch, is left out.
    """
    prompt = input_ids.shape[1] - logits_to_keep
    positions = torch.arange(1, logits_to_keep + 1, device=input_ids.device)
    lengths: list[int] = (attention_mask[:, prompt:] * positions).amax(dim=1).clamp(min=1).tolist()
    parts = parts_by_length(lengths, prompt, PASS.get(input_ids.device.type, PASS["cuda"]))
    if len(parts) == 1 and max(lengths) == logits_to_keep:
        return forward(model, input_ids, attention_mask, logits_to_keep, **options)
    found: list[tuple[torch.Tensor, ...]] = []
    for part in parts:
        longest = lengths[part[-1]]
        width = prompt + longest
        logps, entropies, _ = forward(model, input_ids[part, :width], attention_mask[part, :width], longest, **options)
        values = (logps,) if entropies is None else (logps, entropies)
        found.append(tuple(pad(value, (0, logits_to_keep - longest)) for value in values))
    places = torch.tensor([row for part in parts for row in part], device=input_ids.device).argsort()
    logps, *rest = (torch.cat(values)[places] for values in zip(*found, strict=True))
    return logps, rest[0] if rest else None, None


def kl_estimators(reference: torch.Tensor, policy: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """k1, k2 and k3 of KL(policy || reference) on the sampled tokens.

    With d = log pi_ref - log pi_theta: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1 (Schulman,
    http://joschu.net/blog/kl-approx.html). Inputs are (B, T); each result is (2,): the sum over unmasked tokens, and
    their number, so that ranks can be added before dividing.
    """
    d = (reference - policy).float()
    estimators = {"kl/k1": -d, "kl/k2": d.square() / 2, "kl/k3": d.exp() - d - 1}
    count = mask.sum().float()
    return {name: torch.stack([(value * mask).sum(), count]) for name, value in estimators.items()}
