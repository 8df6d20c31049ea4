"""The noisy teacher of ``tiny-tools``: episodes with a calculator in which it misreads, guesses, or calls twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.data.chain_arithmetic import HIGHEST, SYMBOL, Chain, apply, call_text, draw_large_chain, is_held_out
from workbench.rewards.environments import Calculator


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
        line = f"call: {call_text(value, operation, operand)}\n"
        if rng.random() < slips.wrong:
            other = rng.choice([(misread(value, rng), operand), (value, misread(operand, rng))])
            if _stays(other[0], ((operation, other[1]), *rest)):
                line = f"call: {call_text(other[0], operation, other[1])}\n"
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
        if not is_held_out(drawn := draw_large_chain(rng, operations)):
            yield [(drawn.prompt(), False), *noisy_episode(drawn, rng, slips)]
