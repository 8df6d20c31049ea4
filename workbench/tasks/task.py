"""A task: prompts with their columns, and the defaults that make it runnable at once.

A task knows its default step pattern, its default rewards and how to tell whether an answer is right. It does not know
how answers are sampled or trained on. The embedded tasks are here; ``tasks.reading`` makes others of data.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from workbench.assets import GSM8K
from workbench.config import RewardConfig
from workbench.errors import TaskError
from workbench.rewards.builtin import BUILTINS
from workbench.schema import Example
from workbench.schema.scores import EXTRACTED
from workbench.steps import PRESETS, StepPattern
from workbench.tasks import calculator, chain_arithmetic
from workbench.tasks.kinds import Demonstration, Kind, LabelledSteps, Pair

T = TypeVar("T")


class Examples(Sequence[T]):
    """Rows made when asked for, the same index always giving the same one."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"example {index} of {self._count}; indices run from 0 to {self._count - 1}")
        return self._make(index % self._count)

    def __iter__(self) -> Iterator[T]:
        return (self._make(i) for i in range(self._count))


@dataclass(frozen=True)
class Task:
    """Training examples by index, held-out ones under ``held_out``, and the task's defaults.

    ``unchecked`` says why exact-answer accuracy cannot be measured, "" if every row carries the right answer;
    ``checker`` names the built-in outcome reward that compares with it. ``environment`` is the built-in one that
    answers its turns and ``policy`` the embedded one that was taught it, where there is one. ``kind`` is what its rows
    are; ``data`` holds the training rows of every kind it can give beside prompts, ``held_out_data`` the held-out
    ones. Of a data file, ``layout`` is the one that was recognised (``tasks.layouts``) and ``skipped`` how many rows
    were left out, by the reason.
    """

    name: str
    examples: Sequence[Example]
    held_out: Sequence[Example]
    pattern: StepPattern = field(default_factory=StepPattern)
    rewards: tuple[RewardConfig, ...] = ()
    scheme: str = "process"
    max_completion_length: int = 128
    environment: str | None = None
    policy: str | None = None
    unchecked: str = ""
    checker: str = "answer_correctness"
    kind: Kind = "prompts"
    data: Mapping[Kind, Sequence[Any]] = field(default_factory=dict)
    held_out_data: Mapping[Kind, Sequence[Any]] = field(default_factory=dict)
    layout: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)

    def rows(self, kind: Kind, *, held_out: bool = False) -> Sequence[Any]:
        """The training or held-out rows of a kind: ``Demonstration``, ``Pair``, ``LabelledSteps``, ``Example``.

        Raises TaskError for a kind that the task does not have.
        """
        if kind == "prompts":
            return self.held_out if held_out else self.examples
        if kind not in self.data:
            raise TaskError(
                f"task {self.name!r} has no {kind.replace('_', ' ')}; it has "
                f"{', '.join(name.replace('_', ' ') for name in ('prompts', *self.data))}"
            )
        return self.held_out_data.get(kind, ()) if held_out else self.data[kind]

    def some(self, kind: Kind, count: int, seed: int) -> Sequence[Any]:
        """At most ``count`` training rows of a kind: drawn from all of a data set's, which may be sorted.

        The first ones of an embedded task, which is in no order. Raises TaskError as ``rows``.
        """
        rows = self.rows(kind)
        if len(rows) <= count:
            return rows
        if self.name in TASKS:
            return Examples(count, lambda i: rows[i])
        indices = sorted(random.Random(f"some rows/{seed}").sample(range(len(rows)), count))
        return Examples(count, lambda i: rows[indices[i]])

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]

    @property
    def can_check(self) -> bool:
        """Whether every row carries the right answer."""
        return not self.unchecked

    def checked(self, text: str, columns: Mapping[str, Any]) -> tuple[bool, str]:
        """Whether a completion's final answer is the row's ``answer`` by ``checker``, and the answer, "" for none."""
        found: dict[str, list[str]] = {}
        check = BUILTINS[self.checker].function
        assert check is not None
        scores = check([""], [text], answer=[columns["answer"]], log_extra=found.setdefault)
        return scores[0] == 1.0, found[EXTRACTED][0]

    def answer_is_right(self, text: str, columns: Mapping[str, Any]) -> bool:
        """Whether a completion's final answer is the row's ``answer``, by the rule of ``checker``."""
        return self.checked(text, columns)[0]


WRONG = 0.2
"""Share of the steps of labelled answers to chain arithmetic that are wrong."""
CHAIN_REWARDS = (
    RewardConfig(name="step_correctness", kind="step"),
    RewardConfig(name="answer_correctness", kind="outcome"),
)


def _chain(name: str, style: chain_arithmetic.Style) -> Callable[[], Task]:
    def make() -> Task:
        tag_rewards = (RewardConfig(name="tag_format", kind="outcome"),) if style == "tags" else ()
        return Task(
            name=name,
            examples=Examples(100_000, lambda i: chain_arithmetic.example(i, style=style)),
            held_out=Examples(1_000, lambda i: chain_arithmetic.example(i, style=style, held_out=True)),
            pattern=StepPattern(r"(?m)^(?:Step \d+|<answer>)") if style == "tags" else StepPattern(),
            rewards=(*CHAIN_REWARDS, *tag_rewards),
            max_completion_length=144 if style == "tags" else 112,
            policy="tiny",
            data=_taught(100_000, style, held_out=False),
            held_out_data=_taught(1_000, style, held_out=True),
        )

    return make


def _taught(count: int, style: chain_arithmetic.Style, held_out: bool) -> dict[Kind, Sequence[Any]]:
    """The problems as the task's teacher works them: without errors, beside an answer with errors, and with some."""
    split = "held-out" if held_out else "train"

    def demonstration(index: int) -> Demonstration:
        chain = chain_arithmetic.chain(index, held_out=held_out)
        return Demonstration(chain.prompt(style), chain_arithmetic.render(chain, chain.values, style))

    def pair(index: int) -> Pair:
        chain, right = chain_arithmetic.chain(index, held_out=held_out), demonstration(index)
        rng = random.Random(f"chain-arithmetic/pair/{split}/{index}")
        return Pair(right.prompt, right.completion, chain_arithmetic.wrong_answer(chain, rng, style))

    def labelled(index: int) -> LabelledSteps:
        chain = chain_arithmetic.chain(index, held_out=held_out)
        rng = random.Random(f"chain-arithmetic/labelled/{split}/{index}")
        steps, right = chain_arithmetic.labelled_answer(chain, chain_arithmetic.noisy_results(chain, rng, WRONG))
        return LabelledSteps(chain.prompt(style), tuple(steps), tuple(map(float, right)))

    rows: dict[Kind, Sequence[Any]] = {"demonstrations": Examples(count, demonstration), "pairs": Examples(count, pair)}
    return rows | {"labelled_steps": Examples(count, labelled)} if style == "steps" else rows


def _calculator() -> Task:
    """Sums for a calculator, a call a line: by default a step is a turn."""
    return Task(
        name="calculator",
        examples=Examples(100_000, calculator.example),
        held_out=Examples(1_000, lambda i: calculator.example(i, held_out=True)),
        pattern=StepPattern("", kind="turns"),
        rewards=(
            RewardConfig(name="call_needed", kind="step"),
            RewardConfig(name="observation_used", kind="step"),
            RewardConfig(name="answer_correctness", kind="outcome"),
        ),
        max_completion_length=192,
        environment="calculator",
        policy="tiny-tools",
    )


def _gsm8k() -> Task:
    """GSM8K, the part that comes along (Cobbe et al. 2021): a step a line, in the format of the data's own answers."""
    return worked_answers("gsm8k", _questions("train-1500.jsonl"), _questions("test-300.jsonl"))


def worked_answers(name: str, examples: Sequence[Example], held_out: Sequence[Example]) -> Task:
    """A task whose answers are worked as GSM8K's are: a line a step, sums in ``<<…>>``, and ``#### result``."""
    return Task(
        name=name,
        examples=examples,
        held_out=held_out,
        pattern=PRESETS["line"].pattern,
        rewards=(
            RewardConfig(name="calculator_notes", kind="step"),
            RewardConfig(name="gsm8k_answer", kind="outcome"),
        ),
        max_completion_length=256,
    )


def _questions(file: str) -> list[Example]:
    rows = map(json.loads, (GSM8K / file).read_text(encoding="utf-8").split("\n")[:-1])
    return [Example(row["question"], {"question": row["question"], **answer_columns(row)}) for row in rows]


def answer_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a row's ``answer`` becomes: text, or a list of texts any of which is right.

    A worked answer, ``…#### 72``, becomes ``answer``, the result, and ``solution``, all of it; an object stays.
    """
    answer = columns.get("answer")
    if isinstance(answer, str) and "####" in answer:
        return {"answer": answer.rpartition("####")[2].strip(), "solution": columns.get("solution", answer)}
    if isinstance(answer, list):
        return {"answer": [one if isinstance(one, dict) else str(one) for one in answer]}
    return {"answer": answer if answer is None or isinstance(answer, dict) else str(answer)}


TASKS: dict[str, Callable[[], Task]] = {
    "chain-arithmetic": _chain("chain-arithmetic", "steps"),
    "chain-arithmetic-tags": _chain("chain-arithmetic-tags", "tags"),
    "gsm8k": _gsm8k,
    "calculator": _calculator,
}
"""The embedded tasks by name."""
