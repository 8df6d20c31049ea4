"""A task: prompts with their columns, and the defaults that make it runnable at once.

A task knows its default step pattern, its default rewards and how to tell whether an answer is right. It does not know
how answers are sampled or trained on. ``load_task`` finds an embedded one by name or reads a JSONL file of one object
a line, each with a ``prompt`` and any other columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from workbench.config import PatternConfig, RewardConfig
from workbench.errors import TaskError
from workbench.rewards.builtin import answer_correctness
from workbench.schema import Example
from workbench.tasks import chain_arithmetic


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

    ``can_check`` says whether every row carries the right answer, so that exact-answer accuracy can be measured.
    """

    name: str
    examples: Sequence[Example]
    held_out: Sequence[Example]
    pattern: PatternConfig = field(default_factory=PatternConfig)
    rewards: tuple[RewardConfig, ...] = ()
    scheme: str = "process"
    max_completion_length: int = 128
    can_check: bool = True

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]

    def answer_is_right(self, text: str, columns: Mapping[str, Any]) -> bool:
        """Whether a completion's final answer is the row's ``answer``, by the same rule as ``answer_correctness``."""
        return answer_correctness([""], [text], answer=[columns["answer"]])[0] == 1.0


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


TASKS: dict[str, Callable[[], Task]] = {
    "chain-arithmetic": _chain("chain-arithmetic", "steps"),
    "chain-arithmetic-tags": _chain("chain-arithmetic-tags", "tags"),
}
"""The embedded tasks by name."""


def load_task(name: str) -> Task:
    """An embedded task by name, or a JSONL file by path.

    Raises:
        TaskError: if there is neither, or a line of the file is not an object with a ``prompt``.
    """
    if name in TASKS:
        return TASKS[name]()
    path = Path(name).expanduser()
    if not path.is_file():
        raise TaskError(f"no task or file called {name!r}; tasks are {', '.join(TASKS)}, or give a JSONL file's path")
    return _from_jsonl(path)


def _from_jsonl(path: Path) -> Task:
    """The last tenth of the rows (at least one) is held out; a file of one row is its own held-out set."""
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except UnicodeDecodeError as error:
            raise TaskError(
                f"{path.name} line {number}: byte {error.start} is not UTF-8; save the file as UTF-8"
            ) from error
        except json.JSONDecodeError as error:
            raise TaskError(f"{path.name} line {number}: not JSON ({error.msg} at column {error.colno})") from error
        if not isinstance(row, dict) or "prompt" not in row:
            raise TaskError(
                f"{path.name} line {number}: every line must be an object with a 'prompt'; found {line[:60]!r}"
            )
        prompt = row.pop("prompt")
        if not (isinstance(prompt, str) or _is_conversation(prompt)):
            raise TaskError(
                f"{path.name} line {number}: 'prompt' must be text or a list of messages with 'role' and 'content', "
                f"not {type(prompt).__name__}"
            )
        if "answer" in row:
            row["answer"] = str(row["answer"])
        rows.append(Example(prompt, row))
    if not rows:
        raise TaskError(f"{path.name} has no rows; give one JSON object a line, each with a 'prompt'")
    held_out = rows[-max(1, len(rows) // 10) :]
    answered = all("answer" in row.columns for row in rows)
    return Task(
        str(path),
        rows[: -len(held_out)] or rows,
        held_out,
        rewards=(RewardConfig(name="answer_correctness", kind="outcome"),) if answered else (),
        scheme="outcome" if answered else "process",
        max_completion_length=256,
        can_check=answered,
    )


def _is_conversation(prompt: Any) -> bool:
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in prompt
        )
    )
