"""The credit schemes: how the rewards of a batch of groups become additive parts of every token's advantage.

A scheme is one pure function of a ``Batch`` and its options; adding one is adding a function to a module here and a
line to ``SCHEMES``. Its keyword arguments *are* its options: their defaults, choices and ranges are read from the
signature by whoever checks them or draws a form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.credit.options import Value, resolve
from workbench.credit.schemes.process_and_outcome import papo, prime, prpo, turn_credit
from workbench.credit.schemes.scheme import Need, Part, Scheme
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
from workbench.credit.schemes.tokens import ktae, lambda_grpo
from workbench.credit.schemes.turns import gigpo
from workbench.errors import CreditError, did_you_mean, shown

__all__ = ["SCHEMES", "Need", "Part", "Scheme", "check_options", "find_scheme"]

SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            "process",
            "A = Σ over steps ending at or after t of z(r)",
            "DeepSeekMath 4.1.3",
            process,
            "step rewards above or below the mean, summed over this step and all later ones",
        ),
        Scheme(
            "outcome",
            "A = z(R), the same for every token",
            "DeepSeekMath 4.1.2; TRL",
            outcome,
            "the outcome of the whole answer",
            needs=("outcome",),
            per_completion=True,
        ),
        Scheme("step", "A = z(r) of the token's own step", "own step", step, "this step's own reward"),
        Scheme(
            "sum",
            "A = z(Σ r), the same for every token",
            "summed step rewards as an outcome",
            sum_of_steps,
            "the sum over all steps of the answer",
            per_completion=True,
        ),
        Scheme(
            "return",
            "A = z(r + γ r' + γ² r'' + …) of the token's own step",
            "ROLL step_reinforce",
            discounted_return,
            "this step and, discounted, all later ones",
        ),
        Scheme(
            "position",
            "A = z(r) among steps with the same number",
            "MT-GRPO, 2505.11821",
            position,
            "this step beside the same step of the other answers",
        ),
        Scheme(
            "mean_suffix",
            "A = mean over steps ending at or after t of z(r)",
            "no bonus for more steps",
            mean_suffix,
            "the mean over this step and all later ones",
        ),
        Scheme(
            "min",
            "A = Σ from t on of softmax(−r/T)·r − others' mean",
            "PURE, 2504.15275",
            min_form,
            "this and all later steps, an answer's worst one counting most",
        ),
        Scheme(
            "progress",
            "A = Σ from t on of z(r − r of the step before)",
            "PAV, 2410.08146",
            progress,
            "what this step and all later ones gained",
        ),
        Scheme(
            "first_error",
            "as process, unscored after the first r < threshold",
            "ProcessBench; VPPO",
            first_error,
            "step rewards above or below the mean, summed over this step and all later ones, up to the first error",
        ),
        Scheme(
            "rescaled",
            "A = r · z(Σ r) / mean r",
            "for study",
            rescaled,
            "this step's share of the sum over the whole answer",
        ),
        Scheme(
            "papo",
            "A = z(R) + λ z(mean r, among right answers)",
            "PAPO, 2603.26535",
            papo,
            "the outcome, and for right answers their steps beside those of the other right ones",
            needs=("steps", "outcome"),
            per_completion=True,
        ),
        Scheme(
            "prpo",
            "A = (r − m) / s of the token's own step + z(R)",
            "PRPO, 2601.07182",
            prpo,
            "this step's own reward and the outcome of the whole answer",
            needs=("steps", "outcome"),
        ),
        Scheme(
            "prime",
            "A = Σ from t on of (r − others' mean) + R − others' mean",
            "PRIME, 2502.01456",
            prime,
            "step rewards above or below the mean, summed over this step and all later ones, and the outcome",
            needs=("steps", "outcome"),
        ),
        Scheme(
            "turn_credit",
            "A = z(R + what the steps gained) + λ (c − mean c), c this step's share of later gains",
            "prime-rl, pull request 3282",
            turn_credit,
            "what the whole answer gained, and this step's share of it",
        ),
        Scheme(
            "gigpo",
            "A = z(R + Σ r) + ω z(G) among steps that begin in the same state, G = r + γ G', the last with R",
            "GiGPO, 2505.10978",
            gigpo,
            "all rewards of the answer, and this step's return beside those of steps that begin in the same state",
            needs=("outcome", "states"),
        ),
        Scheme(
            "lambda_grpo",
            "A = z(R) / number of answers that are the same up to t",
            "λ-GRPO, 2509.21154",
            lambda_grpo,
            "the outcome of the whole answer, shared with the answers that begin as it does up to this token",
            needs=("outcome", "token_ids"),
        ),
        Scheme(
            "ktae",
            "A = z(R) + w, w from −1 to 1: how far the token goes with right answers",
            "KTAE, 2505.16826",
            ktae,
            "the outcome of the whole answer, and how far this token goes with right ones",
            needs=("outcome", "token_ids"),
        ),
    )
}


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
