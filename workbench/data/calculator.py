"""The embedded task of several turns: sums and products too large to do in the head, worked with a calculator.

The prompt is a chain like chain-arithmetic's with numbers of three digits, "Start with 374, multiply by 28, add 465.".
A turn is a line: it calls the calculator (``environments.calculator``), which answers with the result, or it answers::

    call: 374*28
    = 10472
    call: 10472+465
    = 10937
    Answer: 10937

Lines that begin with ``=`` are the environment's. All values stay between 0 and 99,999. Everything is drawn from a
seed: the same index is the same problem for ever. One problem in ten, chosen by a hash of its text, is held out.

This module also holds the *noisy teacher* whose episodes taught the embedded policy ``tiny-tools``. It knows nothing of
models.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from workbench.data.chain_arithmetic import SYMBOL, Chain, apply, is_held_out
from workbench.environments.calculator import Calculator
from workbench.schema import Example

HIGHEST = 99_999
OPERANDS = {"add": range(100, 1000), "subtract": range(100, 1000), "multiply by": range(12, 100)}


def draw_chain(rng: random.Random, operations: Sequence[int] = range(2, 4)) -> Chain:
    """Draw a chain whose number of operations is one of ``operations``, uniformly, and whose values fit 0 to 99,999."""
    start = value = rng.randint(100, 999)
    steps: list[tuple[str, int]] = []
    for _ in range(rng.choice(operations)):
        names = [name for name in SYMBOL if _fits(name, value, OPERANDS[name][0])]
        name = rng.choice(names)
        while not _fits(name, value, operand := rng.choice(OPERANDS[name])):
            pass
        steps.append((name, operand))
        value = apply(name, value, operand)
    return Chain(start, tuple(steps))


def _fits(name: str, value: int, operand: int) -> bool:
    return 0 <= apply(name, value, operand) <= HIGHEST


@lru_cache(maxsize=8192)
def chain(index: int, *, seed: int = 0, held_out: bool = False) -> Chain:
    """Problem number ``index`` of a split: the same arguments give the same problem on every machine."""
    rng = random.Random(f"calculator/{seed}/{'held-out' if held_out else 'train'}/{index}")
    while is_held_out(drawn := draw_chain(rng)) is not held_out:
        pass
    return drawn


def example(index: int, *, seed: int = 0, held_out: bool = False) -> Example:
    """Problem number ``index`` as a prompt with its columns: the right answer, and the calls that lead to it."""
    problem = chain(index, seed=seed, held_out=held_out)
    before = [problem.start, *problem.values]
    calls = [_call(value, *operation) for value, operation in zip(before, problem.operations, strict=False)]
    return Example(prompt=problem.prompt(), columns={"answer": str(problem.answer), "calls": calls})


def _call(value: int, operation: str, operand: int) -> str:
    return f"{value}{SYMBOL[operation]}{operand}"


@dataclass(frozen=True)
class Slips:
    """How often the noisy teacher does each thing that it should not, for each operation."""

    wrong: float = 0.12
    """Calls with a digit of one operand misread, and goes on from what it is answered."""
    guess: float = 0.06
    """Makes no call and goes on from a result that it guessed."""
    twice: float = 0.1
    """Makes a call once more that was answered already."""
    unreadable: float = 0.02
    """Writes a call that is no arithmetic, and then the one it meant."""


def noisy_episode(chain: Chain, rng: random.Random, slips: Slips | None = None) -> list[tuple[str, bool]]:
    """An episode of the noisy teacher: each text, and whether it is a turn of its own or the calculator's answer.

    A guess is wrong, and a value that would leave 0 to 99,999 later is not drawn. The last turn has no line
    break: an end-of-sequence token closes it.
    """
    texts: list[tuple[str, bool]] = []
    slips, calculator = slips or Slips(), Calculator()

    def called(line: str) -> str:
        answer = calculator.reply(line)
        assert answer is not None
        texts.extend([(line, True), (answer, False)])
        return answer

    value = chain.start
    for k, (operation, operand) in enumerate(chain.operations):
        rest, right = chain.operations[k + 1 :], apply(operation, value, operand)
        if rng.random() < slips.guess and _stays(guess := misread(right, rng), rest):
            value = guess
            continue
        line = f"call: {_call(value, operation, operand)}\n"
        if rng.random() < slips.wrong:
            other = rng.choice([(misread(value, rng), operand), (value, misread(operand, rng))])
            if _stays(other[0], ((operation, other[1]), *rest)):
                line = f"call: {_call(other[0], operation, other[1])}\n"
        if rng.random() < slips.unreadable:
            called(line.replace(SYMBOL[operation], rng.choice((" ", "x"))))
        answer = called(line)
        if rng.random() < slips.twice:
            called(line)
        value = int(answer.removeprefix("= "))
    return [*texts, (f"Answer: {value}", True)]


def _stays(value: int, operations: Sequence[tuple[str, int]]) -> bool:
    """Whether a value and all that comes of it fit 0 to 99,999."""
    values = Chain(value, tuple(operations)).values
    return all(0 <= later <= HIGHEST for later in (value, *values))


def misread(number: int, rng: random.Random) -> int:
    """The number with one digit replaced by another; its first digit never becomes 0."""
    digits = list(str(number))
    place = rng.randrange(len(digits))
    lowest = 1 if place == 0 and len(digits) > 1 else 0
    digits[place] = rng.choice([digit for digit in "0123456789"[lowest:] if digit != digits[place]])
    return int("".join(digits))


def lessons(
    seed: int, slips: Slips | None = None, operations: Sequence[int] = range(2, 4)
) -> Iterator[list[tuple[str, bool]]]:
    """The noisy teacher's endless episodes, each with its prompt in front; never a held-out problem."""
    rng = random.Random(f"calculator/teacher/{seed}")
    while True:
        if not is_held_out(drawn := draw_chain(rng, operations)):
            yield [(drawn.prompt(), False), *noisy_episode(drawn, rng, slips)]
