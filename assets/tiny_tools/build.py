"""How the embedded policy ``tiny-tools`` was made: ``python -m assets.tiny_tools.build`` does it again, from nothing.

``tiny``, which copies numbers already, is taught the task ``calculator`` by its *noisy teacher* (``teacher.py``),
which at times misreads an operand, guesses instead of calling, or calls twice. It learns the teacher's turns alone:
what the calculator answers is read and carries no loss.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from assets.tiny.build import Recipe, Report, teach_and_save
from assets.tiny_tools.teacher import Slips, lessons
from workbench.policies.load import load_policy


@dataclass(frozen=True)
class Round(Recipe):
    """One round of teaching, by a teacher that slips so often."""

    batch_size: int = 32
    slips: Slips = field(default_factory=Slips)
    operations: Sequence[int] = range(2, 4)


ROUNDS = (
    Round(
        steps=600,
        learning_rate=1e-3,
        slips=Slips(wrong=0.2, guess=0.1, twice=0.12, unreadable=0.03),
        operations=range(2, 5),
    ),
    Round(seed=1, steps=362, decay_steps=800, learning_rate=1.5e-3),
    Round(seed=2, steps=120, warmup_steps=10, learning_rate=7e-4),
    Round(seed=3, steps=50, warmup_steps=5, learning_rate=5e-4),
)
"""What made the shipped policy: first longer problems and a worse teacher than in the end."""
SHARPNESS = 1.07
"""What the taught policy's logits are multiplied with, so that about a third of its samples at temperature 1 are right:
it was not taught for long enough to be as sure of a digit as its teacher is."""


def build_tiny_tools(
    folder: Path,
    rounds: Sequence[Round] = ROUNDS,
    report: Report | None = None,
) -> None:
    """Teach the policy and save model and tokenizer to ``folder``; ``report`` as for ``teach_and_save``."""
    policy = load_policy("tiny", device="cpu")
    model = policy.model.requires_grad_(True).train()
    for part in rounds:
        taught = lessons(part.seed, part.slips, part.operations)
        teach_and_save(model, policy.tokenizer, taught, part, folder, report)
    with torch.no_grad():
        model.model.norm.weight.mul_(SHARPNESS)
    model.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Teach the embedded policy tiny-tools again from nothing.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to save it in (default: here)")
    args = parser.parse_args()
    build_tiny_tools(args.out, report=lambda step, loss, _: print(f"step {step}  loss {loss:.4f}", flush=True))


if __name__ == "__main__":
    main()
