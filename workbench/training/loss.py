"""``LossOfTrainedRows``: TRL's ``GRPOTrainer`` with the loss of those rows alone that have a say in it.

``_compute_loss`` is TRL's, of the rows that have any advantage; KL estimators are logged beside it. Loss, gradient and
metrics are those of the whole batch. ``Passes`` collects what every optimiser step over a generation computed its
policy loss from, as a ``LossPass``: nothing is computed anew, and what it makes of the loss, ``credit.explain`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from workbench.schema import LossPass, LossSettings, OnPass, RolloutPass

ROW = "generation_row"
"""Of a batch: where in the generation, over all ranks, each of its rows lies."""
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


class LossOfTrainedRows(GRPOTrainer):
    """TRL's trainer; ``loss_masks`` are what its loss has left out last, by the method's name."""

    loss_masks: dict[str, torch.Tensor]
    _passes: Passes | None
    _policy_logps: torch.Tensor | None = None
    _entropies: torch.Tensor | None = None
    _router_loss: torch.Tensor | None = None

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._policy_logps, self._entropies, self._router_loss = result[0].detach(), result[1], result[2]
        return result

    @contextmanager
    def _keeping_masks(self) -> Iterator[None]:
        """Keep, by the method's name, which tokens TRL's loss leaves out by entropy or for being off policy.

        The class's own methods stay TRL's, one of them static: they can be called without an instance.
        """

        def recorder(name: str, of_trl: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
            def keep(*args: Any, **kwargs: Any) -> torch.Tensor:
                self.loss_masks[name] = of_trl(*args, **kwargs)
                return self.loss_masks[name]

            return keep

        self.loss_masks.clear()
        for name in ("get_high_entropy_mask", "get_off_policy_mask"):
            setattr(self, name, recorder(name, getattr(self, name)))
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


def settings_of(trainer: Any) -> LossSettings:
    """Return the loss of a TRL ``GRPOTrainer``."""
    args = trainer.args
    return LossSettings(
        trainer.loss_type,
        epsilon=trainer.epsilon_low,
        epsilon_high=trainer.epsilon_high,
        delta=args.delta,
        beta=trainer.beta,
        kl_times_ratio=args.use_bias_correction_kl,
        sequence_ratio=trainer.importance_sampling_level == "sequence",
        max_completion_length=trainer.max_completion_length,
        sapo_temperatures=(args.sapo_temperature_pos, args.sapo_temperature_neg),
        vespo_k=(args.vespo_k_pos, args.vespo_k_neg),
        vespo_lambda=(args.vespo_lambda_pos, args.vespo_lambda_neg),
    )


@dataclass(frozen=True)
class BesidePolicy:
    """Parts of a micro-batch's loss beside the policy's: ``coef`` times ``entropies`` (B, T), and the router's loss.

    ``coef`` is None without an entropy bonus, ``router`` None without a router's loss, weighted as the loss has it.
    """

    coef: float | None
    entropies: torch.Tensor | None = None
    router: torch.Tensor | None = None


class Passes:
    """Collects the micro-batches of a trainer's steps; ``on_pass`` gets each step's on every rank.

    Not told of are steps over a part of a generation (``steps_per_generation`` above the accumulated micro-batches),
    and vespo's with the importance weights of vLLM, which it bounds within its own weight.
    """

    def __init__(self, trainer: Any, on_pass: OnPass) -> None:
        self._trainer, self._on_pass = trainer, on_pass
        self._rows: list[tuple[int, int, list[torch.Tensor | None]]] = []  # row, micro-batch of this rank, numbers
        self._losses: list[float] = []
        self._routers: list[float] = []
        self._generation = 0

    def begin_generation(self) -> None:
        """The next step is the first over a new generation."""
        self._generation = self._trainer.state.global_step + 1

    def add(
        self,
        inputs: Mapping[str, Any],
        trained: Mapping[str, Any],
        logps: torch.Tensor,
        loss: torch.Tensor,
        beside: BesidePolicy,
    ) -> None:
        """A micro-batch ``inputs``, of which the rows ``trained`` went through the policy, (B, T) ``logps`` and all."""
        number, trainer = len(self._losses), self._trainer
        factors = list(trainer.loss_masks.values())  # what else the policy term is multiplied with
        if "importance_sampling_ratio" in trained:
            factors.append(trained["importance_sampling_ratio"])  # (B, T) or (B, 1)
        mask = trained["completion_mask"]
        weights = prod(factors, start=torch.ones_like(mask, dtype=torch.float32)) if factors else None  # (B, T)
        bonus = None
        if beside.coef is not None and beside.entropies is not None:  # -coef H / N, N the micro-batch's counted tokens
            counted = mask * trained.get("tool_mask", 1) * trainer.loss_masks.get("get_high_entropy_mask", 1)
            bonus = -beside.coef * beside.entropies.detach() * counted / counted.sum().clamp(min=1.0)
        numbers = (logps, trained.get("old_per_token_logps"), weights, bonus)
        stored = [None if values is None else values.detach().float().cpu() for values in numbers]
        lengths = mask.sum(dim=1).tolist()  # 0 for a masked completion, which adds nothing
        seen: dict[int, list[torch.Tensor | None]] = {
            row: [None if values is None or not length else values[i, :length].clone() for values in stored]
            for i, (row, length) in enumerate(zip(trained[ROW].tolist(), lengths, strict=True))
        }
        self._rows += [(row, number, seen.get(row, [None] * 4)) for row in inputs[ROW].tolist()]
        self._losses.append(float(loss.detach()))
        self._routers.append(0.0 if beside.router is None else float(beside.router.detach()))
        if trainer.accelerator.sync_gradients:
            self._finish(inputs)

    def _finish(self, inputs: Mapping[str, Any]) -> None:
        trainer = self._trainer
        everyone = gather_object([(self._rows, self._losses, self._routers)])
        self._rows, self._losses, self._routers = [], [], []
        parts, ranks = len(everyone[0][1]), len(everyone)
        rollouts = {
            row: RolloutPass(
                rank * parts + number,
                *(
                    None if v is None else v.numpy()
                    for v in (*numbers, None if bonus is None else bonus / (parts * ranks))
                ),
            )
            for rank, (rows, _, _) in enumerate(everyone)
            for row, number, (*numbers, bonus) in rows
        }
        count = trainer.args.generation_batch_size
        if len(rollouts) != count or (trainer.loss_type == "vespo" and "importance_sampling_ratio" in inputs):
            return
        step = trainer.state.global_step + 1
        self._on_pass(
            LossPass(
                step=step,
                generation=self._generation,
                number=step - self._generation + 1,
                settings=settings_of(trainer),
                rollouts=tuple(rollouts[row] for row in range(count)),
                tokens=float(inputs["num_items_in_batch"]),
                loss=sum(sum(losses) for _, losses, _ in everyone) / ranks,
                router=sum(sum(routers) for _, _, routers in everyone) / (parts * ranks),
            )
        )


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
