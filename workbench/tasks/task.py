"""A task: prompts with their columns, and the defaults that make it runnable at once.

A task knows its default step pattern, its default rewards and how to tell whether an answer is right. It does not know
how answers are sampled or trained on. ``load_task`` finds an embedded one by name, reads a JSONL or Parquet file, or
a data set of the Hub; each row has a ``prompt`` (or a ``question``, or a ``problem``) and any other columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from workbench.assets import GSM8K
from workbench.config import PatternConfig, RewardConfig
from workbench.errors import TaskError
from workbench.rewards.builtin import answer_correctness
from workbench.rewards.builtin.gsm8k_answer import gsm8k_answer
from workbench.rollouts import read_rows, row_of
from workbench.rollouts.formats import is_conversation
from workbench.schema import Example
from workbench.steps import PRESETS
from workbench.tasks import chain_arithmetic
from workbench.tasks.hub import PREFIX, hub_rows


class Examples(Sequence[Example]):
    """Examples made when asked for, the same index always giving the same one."""

    def __init__(self, count: int, make: Callable[[int], Example]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"example {index} of {self._count}; indices run from 0 to {self._count - 1}")
        return self._make(index % self._count)

    def __iter__(self) -> Iterator[Example]:
        return (self._make(i) for i in range(self._count))


@dataclass(frozen=True)
class Task:
    """Training examples by index, held-out ones under ``held_out``, and the task's defaults.

    ``can_check`` says whether every row carries the right answer, so that exact-answer accuracy can be measured;
    ``checker`` is the outcome reward that compares with it.
    """

    name: str
    examples: Sequence[Example]
    held_out: Sequence[Example]
    pattern: PatternConfig = field(default_factory=PatternConfig)
    rewards: tuple[RewardConfig, ...] = ()
    scheme: str = "process"
    max_completion_length: int = 128
    can_check: bool = True
    checker: Callable[..., list[float | None]] = answer_correctness

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]

    def answer_is_right(self, text: str, columns: Mapping[str, Any]) -> bool:
        """Whether a completion's final answer is the row's ``answer``, by the rule of ``checker``."""
        return self.checker([""], [text], answer=[columns["answer"]])[0] == 1.0


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
            pattern=PatternConfig(
                regex=r"(?m)^(?:Step \d+|<answer>)" if style == "tags" else r"(?m)^(?:Step \d+|Answer):"
            ),
            rewards=(*CHAIN_REWARDS, *tag_rewards),
            max_completion_length=144 if style == "tags" else 112,
        )

    return make


def _gsm8k() -> Task:
    """GSM8K, the part that comes along (Cobbe et al. 2021): a step a line, in the format of the data's own answers."""
    return _worked_answers("gsm8k", _questions("train-1500.jsonl"), _questions("test-300.jsonl"))


def _worked_answers(name: str, examples: Sequence[Example], held_out: Sequence[Example]) -> Task:
    """A task whose ``answer`` is GSM8K's: a line a step, sums in ``<<…>>``, and ``#### result``."""
    line = PRESETS["line"].pattern
    return Task(
        name=name,
        examples=examples,
        held_out=held_out,
        pattern=PatternConfig(regex=line.regex, kind=line.kind),
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


PROMPTS = ("prompt", "question", "problem")
"""The columns that may hold the prompt; the first that is there does."""
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
    path = Path(name).expanduser()
    if not path.is_file():
        raise TaskError(
            f"no task or file called {name!r}; tasks are {', '.join(TASKS)}, or give a JSONL file's path, or "
            f"{PREFIX}OWNER/NAME for a data set of the Hub"
        )
    return _from_file(path)


def _from_file(path: Path) -> Task:
    """The last tenth of the rows (at least one) is held out; a file of one row is its own held-out set."""
    rows = [_example(f"{path.name} {row.where}", row.values) for row in read_rows(path)]
    answered = all(row.columns.get("answer") is not None for row in rows)
    kept = _kept_for_training(len(rows))
    return _plain(str(path), rows[:kept] or rows, rows[kept:], answered)


def _from_hub(name: str) -> Task:
    """As a file: without a split to hold out that is the last tenth of the rows."""
    found = hub_rows(name)

    def examples(rows: Sequence[Mapping[str, Any]], first: int, end: int, split: str) -> Examples:
        def example(i: int) -> Example:
            where = f"{split} row {first + i + 1}"
            return _example(f"{name} {where}", row_of(name, where, rows[first + i]).values)

        return Examples(end - first, example)

    count = len(found.rows)
    if not count:
        raise TaskError(f"{name} has no rows")
    if found.held_out is not None and len(found.held_out):
        kept, held_out = count, examples(found.held_out, 0, len(found.held_out), "held-out")
    else:
        kept = _kept_for_training(count)
        held_out = examples(found.rows, kept, count, "training")
    train = examples(found.rows, 0, kept or count, "training")
    answered = all(rows[0].columns.get("answer") is not None for rows in (train, held_out))
    worked = answered and "####" in train[0].columns["answer"]
    return _worked_answers(name, train, held_out) if worked else _plain(name, train, held_out, answered)


def _kept_for_training(count: int) -> int:
    """How many rows of so many are not held out."""
    return count - max(1, count // 10)


def _plain(name: str, examples: Sequence[Example], held_out: Sequence[Example], answered: bool) -> Task:
    """A task that nothing is known of but whether its rows have an ``answer``."""
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
    columns = dict(row)
    name = next((one for one in PROMPTS if one in columns), None)
    if name is None:
        raise TaskError(
            f"{where}: every row must be an object with a 'prompt' (or a 'question', or a 'problem'); its columns are "
            f"{', '.join(map(repr, columns)) or 'none'}"
        )
    prompt = columns.pop(name)
    if not (isinstance(prompt, str) or is_conversation(prompt)):
        raise TaskError(
            f"{where}: {name!r} must be text or a list of messages with 'role' and 'content', "
            f"not {type(prompt).__name__}"
        )
    if columns.get("answer") is not None:
        columns["answer"] = str(columns["answer"])
    return Example(prompt, columns)
