"""The noisy teacher of ``tiny``: answers to chain arithmetic with wrong steps and slips of format."""

from __future__ import annotations

import random

from workbench.data.chain_arithmetic import Chain, Style, noisy_results, render


def noisy_answer(
    chain: Chain, rng: random.Random, style: Style = "steps", wrong: float = 0.2, slip: float = 0.04
) -> str:
    """An answer of the noisy teacher.

    Each step is wrong with probability ``wrong``; later steps go on, correctly, from the wrong value. With probability
    ``slip`` the answer has one slip of format: a label without its colon, a label numbered wrongly, or a missing
    answer line.
    """
    results = noisy_results(chain, rng, wrong)
    text = render(chain, results, style)
    return _slip(text, len(results), rng) if rng.random() < slip else text


def _slip(text: str, steps: int, rng: random.Random) -> str:
    k = rng.randint(1, steps)
    match rng.choice(("colon", "number", "answer")):
        case "colon":
            return text.replace(f"Step {k}:", f"Step {k}", 1)
        case "number":
            return text.replace(f"Step {k}:", f"Step {k + 1}:", 1)
        case _:
            return text.rsplit("\n", 1)[0]
