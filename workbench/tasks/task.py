"""A task: prompts with their columns, and the defaults that make it runnable at once.

A task knows its default step pattern, its default rewards and how to tell whether an answer is right. It does not know
how answers are sampled or trained on. ``load_task`` finds an embedded one by name, reads a JSONL or Parquet file, or
a data set of the Hub; each row has a ``prompt`` (or a ``question``, or a ``problem``) and any other columns.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, overload

from workbench.assets import GSM8K
from workbench.errors import TaskError, did_you_mean, shown
from workbench.places import local_path
from workbench.rewards.builtin import answer_correctness
from workbench.rewards.builtin.gsm8k_answer import gsm8k_answer
from workbench.rollouts import Row, read_rows, row_of
from workbench.rollouts.labelled import stepwise_rows
from workbench.schema import Example
from workbench.sections import RewardConfig
from workbench.steps import PRESETS, StepPattern
from workbench.tasks import chain_arithmetic
from workbench.tasks.hub import PREFIX, hub_rows
from workbench.tasks.kinds import READERS, Demonstration, Kind, LabelledSteps, Pair, kind_of, prompt_of

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

    ``can_check`` says whether every row carries the right answer, so that exact-answer accuracy can be measured;
    ``checker`` is the outcome reward that compares with it. ``kind`` is what its rows are; ``data`` holds the training
    rows of every kind it can give beside prompts, ``held_out_data`` the held-out ones.
    """

    name: str
    examples: Sequence[Example]
    held_out: Sequence[Example]
    pattern: StepPattern = field(default_factory=StepPattern)
    rewards: tuple[RewardConfig, ...] = ()
    scheme: str = "process"
    max_completion_length: int = 128
    can_check: bool = True
    checker: Callable[..., list[float | None]] = answer_correctness
    kind: Kind = "prompts"
    data: Mapping[Kind, Sequence[Any]] = field(default_factory=dict)
    held_out_data: Mapping[Kind, Sequence[Any]] = field(default_factory=dict)

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

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]

    def answer_is_right(self, text: str, columns: Mapping[str, Any]) -> bool:
        """Whether a completion's final answer is the row's ``answer``, by the rule of ``checker``."""
        return self.checker([""], [text], answer=[columns["answer"]])[0] == 1.0


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


def _gsm8k() -> Task:
    """GSM8K, the part that comes along (Cobbe et al. 2021): a step a line, in the format of the data's own answers."""
    return _worked_answers("gsm8k", _questions("train-1500.jsonl"), _questions("test-300.jsonl"))


def _worked_answers(name: str, examples: Sequence[Example], held_out: Sequence[Example]) -> Task:
    """A task whose ``answer`` is GSM8K's: a line a step, sums in ``<<…>>``, and ``#### result``."""
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
        checker=gsm8k_answer,
    )


def _questions(file: str) -> list[Example]:
    rows = map(json.loads, (GSM8K / file).read_text(encoding="utf-8").split("\n")[:-1])
    return [Example(row["question"], {"question": row["question"], "answer": row["answer"]}) for row in rows]


TASKS: dict[str, Callable[[], Task]] = {
    "chain-arithmetic": _chain("chain-arithmetic", "steps"),
    "chain-arithmetic-tags": _chain("chain-arithmetic-tags", "tags"),
    "gsm8k": _gsm8k,
}
"""The embedded tasks by name."""


def load_task(name: str) -> Task:
    """An embedded task by name, a JSONL or Parquet file by path, or a data set of the Hub: ``hub:openai/gsm8k``.

    A data set's rows are read when they are asked for (see ``tasks.hub`` for the forms of its name). One whose answers
    are worked as GSM8K's are gets the rewards and the step pattern of the task ``gsm8k``.

    Raises:
        TaskError: if there is none of these, or a row has no ``prompt``; of the Hub's rows, when it is read.
    """
    if name in TASKS:
        return TASKS[name]()
    if name.startswith(PREFIX):
        return _from_hub(name)
    path = local_path(name)
    if path is None:
        raise TaskError(
            f"no task or file called {shown(name)}{did_you_mean(name, TASKS)}; tasks are {', '.join(TASKS)}, or give a "
            f"JSONL file's path, or {PREFIX}OWNER/NAME for a data set of the Hub"
        )
    return _from_file(path)


def _from_file(path: Path) -> Task:
    """The last tenth of the rows (at least one) is held out; a file of one row is its own held-out set."""
    read = [Row(row.where, values) for row in read_rows(path) for values in stepwise_rows(row.where, row.values)]
    rows = [_example(f"{path.name} {row.where}", row.values) for row in read]
    answered = all(row.columns.get("answer") is not None for row in rows)
    training_rows = kept_for_training(len(rows))
    task = _plain(str(path), rows[:training_rows] or rows, rows[training_rows:], answered)
    kind = kind_of(read[0].values)
    if kind == "prompts":
        return task

    def typed(first: int, count: int) -> dict[Kind, Sequence[Any]]:
        def row(i: int) -> Any:
            return READERS[kind](f"{path.name} {read[first + i].where}", read[first + i].values)

        return {kind: Examples(count, row)}

    held_out = len(task.held_out)
    return replace(
        task, kind=kind, data=typed(0, len(task.examples)), held_out_data=typed(len(read) - held_out, held_out)
    )


def _from_hub(name: str) -> Task:
    """As a file: without a split to hold out that is the last tenth of the rows."""
    dataset = hub_rows(name)

    def examples(rows: Sequence[Mapping[str, Any]], first: int, end: int, split: str) -> Examples[Example]:
        def example(i: int) -> Example:
            where = f"{split} row {first + i + 1}"
            return _example(f"{name} {where}", row_of(name, where, rows[first + i]).values)

        return Examples(end - first, example)

    count = len(dataset.rows)
    if not count:
        raise TaskError(f"{name} has no rows")
    if dataset.held_out is not None and len(dataset.held_out):
        training_rows, held_out = count, examples(dataset.held_out, 0, len(dataset.held_out), "held-out")
    else:
        training_rows = kept_for_training(count)
        held_out = examples(dataset.rows, training_rows, count, "training")
    train = examples(dataset.rows, 0, training_rows or count, "training")
    answered = all(rows[0].columns.get("answer") is not None for rows in (train, held_out))
    worked = answered and "####" in train[0].columns["answer"]
    return _worked_answers(name, train, held_out) if worked else _plain(name, train, held_out, answered)


def kept_for_training(count: int) -> int:
    """Number of a file's rows that are not held out, the first ones of ``count``."""
    return count - max(1, count // 10)


def _plain(name: str, examples: Sequence[Example], held_out: Sequence[Example], answered: bool) -> Task:
    """A task without a known format; ``answered`` says whether its rows have an ``answer``."""
    return Task(
        name,
        examples,
        held_out,
        rewards=(RewardConfig(name="answer_correctness", kind="outcome"),) if answered else (),
        scheme="outcome" if answered else "process",
        max_completion_length=256,
        can_check=answered,
    )


def _example(where: str, row: Mapping[str, Any]) -> Example:
    name, prompt = prompt_of(where, row)
    columns = {column: value for column, value in row.items() if column != name}
    if columns.get("answer") is not None:
        columns["answer"] = str(columns["answer"])
    return Example(prompt, columns)
