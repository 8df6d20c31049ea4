"""The loss of a group's tokens as the drawing takes it: what its scripts compute ratio, clipping and contribution from.

``drawing/loss.js`` has the formulas of ``credit.loss`` once more, so that another loss can be looked at without asking
anybody; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.credit import LENS_LOSSES, group_normalisers, pass_losses
from workbench.credit.loss import pass_normalisers
from workbench.figures.payloads import LossPayload, PassPayload, RolloutLossPayload
from workbench.schema import Credit, LossPass, LossSettings, RolloutPass


@dataclass(frozen=True)
class DrawnLoss:
    """A group's loss: in each of ``passes``, or on policy where there is none.

    ``coefficients[loss][i]`` is what rollout i's tokens are multiplied with; ``rollouts[n]`` is what pass n saw.
    """

    settings: LossSettings
    coefficients: Mapping[str, Sequence[float]]
    passes: Sequence[PassPayload] = ()
    rollouts: Sequence[Sequence[RolloutPass]] = ()

    @classmethod
    def on_policy(cls, credit: Credit, settings: LossSettings | None = None) -> DrawnLoss:
        """As a first pass with the group as the whole batch would have it."""
        settings = settings or LossSettings()
        limit, group = settings.max_completion_length, credit.scored.group
        coefficients = {
            loss: group_normalisers(group, loss, max_completion_length=limit, left_out=credit.left_out).tolist()
            for loss in LENS_LOSSES
        }
        return cls(settings, coefficients)

    @classmethod
    def of_passes(cls, credits: Sequence[Credit], group: int, passes: Sequence[LossPass]) -> DrawnLoss:
        """Group number ``group`` of a stored generation in the passes over it; at least one."""
        settings = passes[0].settings
        start = sum(len(credit.scored.group) for credit in credits[:group])
        rows = slice(start, start + len(credits[group].scored.group))
        of_losses = {
            loss: pass_normalisers(credits, passes[0], replace(settings, loss_type=loss)) for loss in LENS_LOSSES
        }
        return cls(
            settings,
            {loss: values[rows].tolist() for loss, values in of_losses.items()},
            [_pass_payload(credits, seen) for seen in passes],
            [seen.rollouts[rows] for seen in passes],
        )

    def payload(self) -> LossPayload:
        settings = self.settings
        return {
            "type": settings.loss_type,
            "epsilon": settings.epsilon,
            "epsilonHigh": settings.epsilon_high,
            "delta": settings.delta,
            "beta": settings.beta,
            "klTimesRatio": settings.kl_times_ratio,
            "sequenceRatio": settings.sequence_ratio,
            "sapoTemperatures": settings.sapo_temperatures,
            "vespoK": settings.vespo_k,
            "vespoLambda": settings.vespo_lambda,
            "passes": self.passes,
        }

    def of_rollout(self, credit: Credit, i: int) -> RolloutLossPayload:
        payload: RolloutLossPayload = {
            "coefficients": {loss: values[i] for loss, values in self.coefficients.items()},
            "passes": [
                {"logprobs": _numbers(rows[i].logprobs), "old": _numbers(rows[i].old_logprobs)}
                for rows in self.rollouts
            ],
        }
        for seen, rows in zip(payload["passes"], self.rollouts, strict=True):
            if (weights := _numbers(rows[i].weights)) is not None:
                seen["weights"] = weights
            if (bonus := rows[i].bonus) is not None:
                seen["bonus"] = [float(f"{value:.6g}") for value in bonus]
        if mask := credit.scored.group.rollouts[i].mask:
            payload["sampled"] = list(mask)
        return payload


def _pass_payload(credits: Sequence[Credit], seen: LossPass) -> PassPayload:
    total = seen.router + sum(float(row.contribution.sum()) for row in pass_losses(credits, seen))
    return {"step": seen.step, "number": seen.number, "total": total, "logged": seen.loss, "router": seen.router}


def _numbers(values: Any) -> list[float] | None:
    """Of float32, with six decimals: a ratio of two is off by a millionth at most."""
    return None if values is None else np.round(values.astype(np.float64), 6).tolist()
