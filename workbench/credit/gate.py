"""The outcome gate: a group whose answers do not differ in outcome has advantage 0, whatever else differs.

A shaped reward, of length or format say, has spread in a group in which no answer is right, and normalisation makes
that spread as large as any other. Under ``gate="outcome"`` such a group teaches nothing, and its tokens stay in the
divisor of the loss. DAPO's group filter (arXiv 2503.14476, section 3.2) goes by accuracy, too;
https://github.com/verl-project/verl-recipe/pull/125 measures what a filter by the shaped reward does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from workbench.credit.batch import GroupRewards
from workbench.errors import CreditError
from workbench.schema import CreditPart, is_varied

Gate = Literal["none", "outcome"]


def check_judged(groups: Sequence[GroupRewards]) -> None:
    """Raise CreditError if groups are to be gated and nothing judges the answers."""
    if any(group.judged is None for group in groups):
        raise CreditError(
            "gate is 'outcome' and no outcome reward is set; add one (answer_correctness, with weight 0 to watch it "
            "only), or set gate to 'none'"
        )


def gate_group(
    group: GroupRewards, parts: tuple[CreditPart, ...], advantages: npt.NDArray[np.float32]
) -> tuple[tuple[CreditPart, ...], npt.NDArray[np.float32]]:
    """Return a group's parts and advantages: as they are if its answers differ in outcome, else with a factor of 0."""
    if is_varied(group.judged or ()):
        return parts, advantages
    return tuple(replace(part, factor=np.zeros_like(part.factor)) for part in parts), np.zeros_like(advantages)
