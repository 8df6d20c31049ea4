"""The credit schemes: how the rewards of a batch of groups become additive parts of every token's advantage.

A scheme is one pure function of a ``Batch`` and its options; adding one is adding a function to a module here and a
line to ``SCHEMES``. Its keyword arguments *are* its options: their defaults, choices and ranges are read from the
signature by whoever checks them or draws a form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.credit.schemes.outcomes import gigpo, ktae, lambda_grpo, papo, prime, prpo, turn_credit
from workbench.credit.schemes.scheme import Need, Part, Scheme, Value, resolve
from workbench.credit.schemes.steps import (
    discounted_return,
    first_error,
    mean_suffix,
    min_form,
    outcome,
    position,
    process,
    progress,
    rescaled,
    step,
    sum_of_steps,
)
from workbench.errors import CreditError, did_you_mean, shown

__all__ = ["SCHEMES", "Need", "Part", "Scheme", "check_options", "find_scheme"]

_SCHEMES = [
    Scheme(
        "process",
        formula="A = Σ over steps ending at or after t of z(r)",
        reference="DeepSeekMath 4.1.3",
        compute=process,
        counts="step rewards above or below the mean, summed over this step and all later ones",
    ),
    Scheme(
        "outcome",
        formula="A = z(R), the same for every token",
        reference="DeepSeekMath 4.1.2; TRL",
        compute=outcome,
        counts="the outcome of the whole answer",
        needs=("outcome",),
        per_completion=True,
    ),
    Scheme(
        "step",
        formula="A = z(r) of the token's own step",
        reference="own step",
        compute=step,
        counts="this step's own reward",
    ),
    Scheme(
        "sum",
        formula="A = z(Σ r), the same for every token",
        reference="summed step rewards as an outcome",
        compute=sum_of_steps,
        counts="the sum over all steps of the answer",
        per_completion=True,
    ),
    Scheme(
        "return",
        formula="A = z(r + γ r' + γ² r'' + …) of the token's own step",
        reference="ROLL step_reinforce",
        compute=discounted_return,
        counts="this step and, discounted, all later ones",
    ),
    Scheme(
        "position",
        formula="A = z(r) among steps with the same number",
        reference="MT-GRPO, 2505.11821",
        compute=position,
        counts="this step beside the same step of the other answers",
    ),
    Scheme(
        "mean_suffix",
        formula="A = mean over steps ending at or after t of z(r)",
        reference="no bonus for more steps",
        compute=mean_suffix,
        counts="the mean over this step and all later ones",
    ),
    Scheme(
        "min",
        formula="A = Σ from t on of softmax(−r/T)·r − others' mean",
        reference="PURE, 2504.15275",
        compute=min_form,
        counts="this and all later steps, an answer's worst one counting most",
    ),
    Scheme(
        "progress",
        formula="A = Σ from t on of z(r − r of the step before)",
        reference="PAV, 2410.08146",
        compute=progress,
        counts="what this step and all later ones gained",
    ),
    Scheme(
        "first_error",
        formula="as process, unscored after the first r < threshold",
        reference="ProcessBench; VPPO",
        compute=first_error,
        counts="step rewards above or below the mean, summed over this step and all later ones, up to the first error",
    ),
    Scheme(
        "rescaled",
        formula="A = r · z(Σ r) / mean r",
        reference="for study",
        compute=rescaled,
        counts="this step's share of the sum over the whole answer",
    ),
    Scheme(
        "papo",
        formula="A = z(R) + λ z(mean r, among right answers)",
        reference="PAPO, 2603.26535",
        compute=papo,
        counts="the outcome, and for right answers their steps beside those of the other right ones",
        needs=("steps", "outcome"),
        per_completion=True,
    ),
    Scheme(
        "prpo",
        formula="A = (r − m) / s of the token's own step + z(R)",
        reference="PRPO, 2601.07182",
        compute=prpo,
        counts="this step's own reward and the outcome of the whole answer",
        needs=("steps", "outcome"),
    ),
    Scheme(
        "prime",
        formula="A = Σ from t on of (r − others' mean) + R − others' mean",
        reference="PRIME, 2502.01456",
        compute=prime,
        counts="step rewards above or below the mean, summed over this step and all later ones, and the outcome",
        needs=("steps", "outcome"),
    ),
    Scheme(
        "turn_credit",
        formula="A = z(R + what the steps gained) + λ (c − mean c), c this step's share of later gains",
        reference="prime-rl, pull request 3282",
        compute=turn_credit,
        counts="what the whole answer gained, and this step's share of it",
    ),
    Scheme(
        "gigpo",
        formula="A = z(R + Σ r) + ω z(G) among steps that begin in the same state, G = r + γ G', the last with R",
        reference="GiGPO, 2505.10978",
        compute=gigpo,
        counts="all rewards of the answer, and this step's return beside those of steps that begin in the same state",
        needs=("outcome", "states"),
    ),
    Scheme(
        "lambda_grpo",
        formula="A = z(R) / number of answers that are the same up to t",
        reference="λ-GRPO, 2509.21154",
        compute=lambda_grpo,
        counts="the outcome of the whole answer, shared with the answers that begin as it does up to this token",
        needs=("outcome", "token_ids"),
    ),
    Scheme(
        "ktae",
        formula="A = z(R) + w, w from −1 to 1: how far the token goes with right answers",
        reference="KTAE, 2505.16826",
        compute=ktae,
        counts="the outcome of the whole answer, and how far this token goes with right ones",
        needs=("outcome", "token_ids"),
    ),
]
SCHEMES = {scheme.name: scheme for scheme in _SCHEMES}


def find_scheme(name: str) -> Scheme:
    """Raises CreditError naming the schemes there are."""
    if not isinstance(name, str) or name not in SCHEMES:
        guess = did_you_mean(name, SCHEMES)
        raise CreditError(f"unknown credit scheme {shown(name)}{guess}; choose one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


def check_options(scheme: str, values: Mapping[str, Any]) -> dict[str, Value]:
    """``values`` with text parsed to the options' types. Raises CreditError for what does not fit the scheme."""
    options = {option.name: option for option in find_scheme(scheme).options}
    parsed = {
        name: options[name].from_text(value) if isinstance(value, str) and name in options else value
        for name, value in values.items()
    }
    settled, _ = resolve(scheme, tuple(options.values()), parsed)
    return {name: settled[name] for name in values if name in settled}
