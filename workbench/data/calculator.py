"""The embedded task of several turns: sums and products too large to do in the head, worked with a calculator.

The prompt is a chain like chain-arithmetic's with numbers of three digits, "Start with 374, multiply by 28, add 465.".
A turn is a line: it calls the calculator (``environments.Calculator``), which answers with the result, or it answers::

    call: 374*28
    = 10472
    call: 10472+465
    = 10937
    Answer: 10937

Lines that begin with ``=`` are the environment's. All values stay between 0 and 99,999. Everything is drawn from a
seed: the same index is the same problem for ever. One problem in ten, chosen by a hash of its text, is held out.

The *noisy teacher* whose episodes taught the embedded policy ``tiny-tools`` stands beside that: ``assets/tiny_tools``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from workbench.data import chain_arithmetic
from workbench.data.chain_arithmetic import SYMBOL, Chain, apply
from workbench.schema import Example

HIGHEST = 99_999
OPERANDS = {"add": range(100, 1000), "subtract": range(100, 1000), "multiply by": range(12, 100)}


def draw_chain(rng: random.Random, operations: Sequence[int] = range(2, 4)) -> Chain:
    """Draw a chain whose number of operations is one of ``operations``, uniformly, and whose values fit 0 to 99,999."""
    start = value = rng.randint(100, 999)
    steps: list[tuple[str, int]] = []
    for _ in range(rng.choice(operations)):
        names = [name for name in SYMBOL if 0 <= apply(name, value, OPERANDS[name][0]) <= HIGHEST]
        name = rng.choice(names)
        while not 0 <= apply(name, value, operand := rng.choice(OPERANDS[name])) <= HIGHEST:
            pass
        steps.append((name, operand))
        value = apply(name, value, operand)
    return Chain(start, tuple(steps))


chain = partial(chain_arithmetic.chain, task="calculator", draw=draw_chain)
"""Problem number ``index`` of a split: the same arguments give the same problem on every machine."""


def example(index: int, *, seed: int = 0, held_out: bool = False) -> Example:
    """Problem number ``index`` as a prompt with its columns: the right answer, and the calls that lead to it."""
    problem = chain(index, seed=seed, held_out=held_out)
    before = [problem.start, *problem.values]
    calls = [call_text(value, *operation) for value, operation in zip(before, problem.operations, strict=False)]
    return Example(prompt=problem.prompt(), columns={"answer": str(problem.answer), "calls": calls})


def call_text(value: int, operation: str, operand: int) -> str:
    """Return an operation as the calculator is asked it: ``374*28``."""
    return f"{value}{SYMBOL[operation]}{operand}"
