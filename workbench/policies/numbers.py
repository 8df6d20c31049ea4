"""Uniform random numbers for sampling, one a row and position, and the draw that they make from a distribution.

They come from a seed alone, so that a row's draws depend on neither other rows nor time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

Streams = Callable[[], Iterator[torch.Tensor]]
"""Starts the random numbers anew: for each position, (B,) float64 in [0, 1), one a row."""


class Numbers:
    """The uniform numbers of a batch: of each row by its own position, at which rows need not stand together."""

    def __init__(self, stream: Iterator[torch.Tensor]) -> None:
        self._stream, self._drawn = stream, list[torch.Tensor]()

    def of(self, rows: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """(R,) in [0, 1)."""
        while len(self._drawn) <= max(positions):
            self._drawn.append(next(self._stream))
        if len(set(positions)) == 1:
            return self._drawn[positions[0]][list(rows)]
        return torch.stack([self._drawn[at][row] for row, at in zip(rows, positions, strict=True)])


def uniform_numbers(seed: int, first_row: int, rows: int, total_rows: int) -> Iterator[torch.Tensor]:
    """For each position, this caller's (rows,) of the table; drawn for every row, so that a row keeps its own."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.rand(total_rows, generator=generator, dtype=torch.float64)[first_row : first_row + rows]


def draw(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Inverse-CDF sampling: probabilities (R, V) and uniform numbers (R,) in [0, 1) to token ids (R,) int64.

    In float64, so that a token of probability 0 is never drawn and rounding of the sum does not matter.
    """
    cdf = probabilities.double().cumsum(-1)
    tokens = torch.searchsorted(cdf, (uniform.double() * cdf[:, -1])[:, None], right=True)[:, 0]
    return tokens.clamp(max=probabilities.shape[-1] - 1)
