"""The problems of the embedded tasks: chains of small sums, "Start with 7, add 5, multiply by 2, subtract 4.", and
chains of large ones that are worked with a calculator.

An answer works the chain one operation a step and closes with the result::

    Step 1: 7 + 5 = 12
    Step 2: 12 * 2 = 24
    Step 3: 24 - 4 = 20
    Answer: 20

A prompt that ends in "Use tags." asks for the second style, ``<reasoning>…</reasoning><answer>20</answer>``. All
values stay between 0 and 99 and operands between 2 and 9. Everything is drawn from a seed: the same index is the same
problem for ever. One problem in ten, chosen by a hash of its text, is held out: neither the embedded policy's teacher
nor a training run ever shows it.

Its *noisy teacher* errs as ``noisy_results`` does; ``assets/tiny/teacher.py`` adds slips of format.

With a calculator (``environments.Calculator``) numbers have three digits and values stay between 0 and 99,999. A turn
is a line: it calls the calculator, which answers with the result in a line that begins with ``=``, or it answers::

    call: 374*28
    = 10472
    Answer: 10472

The noisy teacher of such episodes is in ``assets/tiny_tools``.
"""

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from typing import Any, Literal

from workbench.schema import Example

Style = Literal["steps", "tags"]
SYMBOL = {"add": "+", "subtract": "-", "multiply by": "*"}
LOW, HIGH = 0, 99
OPERANDS = range(2, 10)


@dataclass(frozen=True)
class Chain:
    """A start value and a list of (operation, operand), each result inside 0 to 99."""

    start: int
    operations: tuple[tuple[str, int], ...]

    @cached_property
    def values(self) -> tuple[int, ...]:
        """The running value after each operation."""
        steps = accumulate(self.operations, lambda value, step: apply(step[0], value, step[1]), initial=self.start)
        return tuple(steps)[1:]

    @property
    def answer(self) -> int:
        return self.values[-1]

    def prompt(self, style: Style = "steps") -> str:
        parts = [f"Start with {self.start}"] + [f"{operation} {operand}" for operation, operand in self.operations]
        return ", ".join(parts) + (". Use tags.\n" if style == "tags" else ".\n")


def apply(operation: str, value: int, operand: int) -> int:
    return {"add": value + operand, "subtract": value - operand, "multiply by": value * operand}[operation]


def draw_chain(rng: random.Random, operations: Sequence[int] = range(4, 9)) -> Chain:
    """Draw a chain whose number of operations is one of ``operations``, uniformly, and whose values fit 0 to 99."""
    start = value = rng.randint(2, 19)
    steps: list[tuple[str, int]] = []
    for _ in range(rng.choice(operations)):
        # The operation first, so that multiplication is as common as range allows.
        options = {
            name: [n for n in OPERANDS if LOW <= apply(name, value, n) <= HIGH and not (name != "add" and value == 0)]
            for name in SYMBOL
        }
        name = rng.choice([name for name, operands in options.items() if operands])
        operand = rng.choice(options[name])
        steps.append((name, operand))
        value = apply(name, value, operand)
    return Chain(start, tuple(steps))


def is_held_out(chain: Chain) -> bool:
    """Return whether a chain is held out: one in ten, by a hash of its text, so that the split needs no list."""
    return zlib.crc32(chain.prompt().encode()) % 10 == 0


@lru_cache(maxsize=16_384)
def chain(
    index: int,
    *,
    seed: int = 0,
    held_out: bool = False,
    task: str = "chain-arithmetic",
    draw: Callable[[random.Random], Chain] = draw_chain,
) -> Chain:
    """Problem number ``index`` of a split: the same arguments give the same problem on every machine."""
    rng = random.Random(f"{task}/{seed}/{'held-out' if held_out else 'train'}/{index}")
    while is_held_out(drawn := draw(rng)) is not held_out:
        pass
    return drawn


def example(index: int, *, seed: int = 0, held_out: bool = False, style: Style = "steps") -> Example:
    """Problem number ``index`` as a prompt with its columns."""
    problem = chain(index, seed=seed, held_out=held_out)
    return Example(
        prompt=problem.prompt(style),
        columns={
            "start": problem.start,
            "operations": [[SYMBOL[operation], str(operand)] for operation, operand in problem.operations],
            "answer": str(problem.answer),
        },
    )


def render(chain: Chain, results: Sequence[int], style: Style = "steps") -> str:
    """Write the answer that claims ``results`` after each operation (right or wrong), one step a line."""
    lines, value = [], chain.start
    for k, ((operation, operand), result) in enumerate(zip(chain.operations, results, strict=True), start=1):
        lines.append(f"Step {k}: {value} {SYMBOL[operation]} {operand} = {result}")
        value = result
    body = "\n".join(lines)
    if style == "tags":
        return f"<reasoning>\n{body}\n</reasoning>\n<answer>{value}</answer>"
    return f"{body}\nAnswer: {value}"


def labelled_answer(chain: Chain, results: Sequence[int]) -> tuple[list[str], list[bool]]:
    """Return the steps of the answer that claims ``results``, and whether each is right given the one before it.

    An answer that goes on correctly from a wrong value is blamed once; the answer's line repeats the last result.
    """
    before = [chain.start, *results]
    right = [
        result == apply(operation, value, operand)
        for (operation, operand), value, result in zip(chain.operations, before, results, strict=False)
    ]
    return render(chain, results).split("\n"), [*right, True]


def noisy_results(chain: Chain, rng: random.Random, wrong: float) -> list[int]:
    """Draw the noisy teacher's results; a wrong value that would leave 0 to 99 later is not drawn."""
    results, value = list[int](), chain.start
    for k, (operation, operand) in enumerate(chain.operations):
        value = right = apply(operation, value, operand)
        if rng.random() < wrong:
            near = [right + d for d in (-10, -3, -2, -1, 1, 2, 3, 10)]
            fitting = [
                n for n in near if all(LOW <= m <= HIGH for m in (n, *Chain(n, chain.operations[k + 1 :]).values))
            ]
            value = rng.choice(fitting) if fitting else right
        results.append(value)
    return results


def reference_of(columns: Mapping[str, Any], prompt: str) -> str | None:
    """Return the answer without errors to the problem that a row's columns give, as ``prompt`` asks for it."""
    if not {"start", "operations"} <= columns.keys():
        return None
    named = {symbol: name for name, symbol in SYMBOL.items()}
    chain = Chain(columns["start"], tuple((named[symbol], int(operand)) for symbol, operand in columns["operations"]))
    return render(chain, chain.values, "tags" if prompt.rstrip().endswith("Use tags.") else "steps")


# --- with a calculator -----------------------------------------------------------------------------------------------

HIGHEST = 99_999
LARGE = {"add": range(100, 1000), "subtract": range(100, 1000), "multiply by": range(12, 100)}


def draw_large_chain(rng: random.Random, operations: Sequence[int] = range(2, 4)) -> Chain:
    """Draw a chain whose number of operations is one of ``operations``, uniformly, and whose values fit 0 to 99,999."""
    start = value = rng.randint(100, 999)
    steps: list[tuple[str, int]] = []
    for _ in range(rng.choice(operations)):
        name = rng.choice([name for name in SYMBOL if 0 <= apply(name, value, LARGE[name][0]) <= HIGHEST])
        while not 0 <= apply(name, value, operand := rng.choice(LARGE[name])) <= HIGHEST:
            pass
        steps.append((name, operand))
        value = apply(name, value, operand)
    return Chain(start, tuple(steps))


large_chain = partial(chain, task="calculator", draw=draw_large_chain)
"""Problem number ``index`` of a split: the same arguments give the same problem on every machine."""


def large_example(index: int, *, seed: int = 0, held_out: bool = False) -> Example:
    """Problem number ``index`` as a prompt with its columns: the right answer, and the calls that lead to it."""
    problem = large_chain(index, seed=seed, held_out=held_out)
    before = [problem.start, *problem.values]
    calls = [call_text(value, *operation) for value, operation in zip(before, problem.operations, strict=False)]
    return Example(prompt=problem.prompt(), columns={"answer": str(problem.answer), "calls": calls})


def call_text(value: int, operation: str, operand: int) -> str:
    """Return an operation as the calculator is asked it: ``374*28``."""
    return f"{value}{SYMBOL[operation]}{operand}"
