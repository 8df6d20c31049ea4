"""A task: prompts with their columns, and the defaults that make it runnable at once.

A task knows its default step pattern, its default rewards and how to tell whether an answer is right. It does not know
how answers are sampled or trained on. The embedded tasks are here; others are made of data.
"""

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.assets import GSM8K
from workbench.config import PromptSection, TaskSection
from workbench.config.task import DRAWN, joined, parse_filter
from workbench.data import chain_arithmetic
from workbench.data.conversations import is_conversation
from workbench.data.formats import COLUMNS, LOOKED_AT, recognise
from workbench.data.read import HUB, Lazy, Row, find_held_out, hub_rows, read_rows, row_of
from workbench.data.rows import (
    MISSING,
    PROMPTS,
    READERS,
    Demonstration,
    Kind,
    LabelledSteps,
    Pair,
    columns_of,
    guess,
    kind_of,
    no_column,
    prompt_of,
    value_at,
    words_of,
)
from workbench.errors import TaskError, cut, did_you_mean, quote
from workbench.places import SHIPPED_ONLY, local_path
from workbench.rewards import RewardConfig
from workbench.rewards.answers import golds_of, read_number
from workbench.rewards.builtin import BUILTINS
from workbench.schema import EXTRACTED, Example, say_count
from workbench.steps import PRESETS, StepPattern


@dataclass(frozen=True)
class Task:
    """Training examples by index, held-out ones under ``held_out``, and the task's defaults.

    ``unchecked`` says why exact-answer accuracy cannot be measured, "" if every row carries the right answer;
    ``checker`` names the built-in outcome reward that compares with it. ``environment`` is the built-in one that
    answers its turns and ``policy`` the embedded one that was taught it, where there is one. ``kind`` is what its rows
    are; ``data`` holds the training rows of every kind it can give beside prompts, ``held_out_data`` the held-out
    ones. Of a data file, ``layout`` is the format that was recognised (``data.formats``), with the column found to be
    the right answer, and ``skipped`` how many rows were left out, by the reason.
    """

    name: str
    examples: Sequence[Example]
    held_out: Sequence[Example]
    pattern: StepPattern = field(default_factory=StepPattern)
    rewards: tuple[RewardConfig, ...] = ()
    scheme: str = "process"
    outcome_weight: float = 0.0
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
        """Return the training or held-out rows of a kind: ``Demonstration``, ``Pair``, ``LabelledSteps``, ``Example``.

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
        """Return at most ``count`` training rows of a kind: drawn from all of a data set's, which may be sorted.

        The first ones of an embedded task, which is in no order. Raises TaskError as ``rows``.
        """
        rows = self.rows(kind)
        if len(rows) <= count:
            return rows
        if self.name in TASKS:
            return Lazy(count, lambda i: rows[i])
        indices = sorted(random.Random(f"some rows/{seed}").sample(range(len(rows)), count))
        return Lazy(count, lambda i: rows[indices[i]])

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]

    @property
    def can_check(self) -> bool:
        """Return whether every row carries the right answer."""
        return not self.unchecked

    def check_answer(self, text: str, columns: Mapping[str, Any]) -> tuple[bool, str]:
        """Return whether a completion's final answer is right by ``checker``, and that answer ("" for none)."""
        found: dict[str, list[str]] = {}
        check = BUILTINS[self.checker].function
        assert check is not None
        scores = check([""], [text], answer=[columns["answer"]], log_extra=found.setdefault)
        return scores[0] == 1.0, found[EXTRACTED][0]

    def answer_is_right(self, text: str, columns: Mapping[str, Any]) -> bool:
        """Return whether a completion's final answer is the row's ``answer``, by the rule of ``checker``."""
        return self.check_answer(text, columns)[0]


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
            examples=Lazy(100_000, lambda i: chain_arithmetic.example(i, style=style)),
            held_out=Lazy(1_000, lambda i: chain_arithmetic.example(i, style=style, held_out=True)),
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

    def row(kind: Kind, index: int) -> Demonstration | Pair | LabelledSteps:
        chain = chain_arithmetic.chain(index, held_out=held_out)
        prompt, right = chain.prompt(style), chain_arithmetic.render(chain, chain.values, style)
        if kind == "demonstrations":
            return Demonstration(prompt, right)
        if kind == "pairs":
            rng = random.Random(f"chain-arithmetic/pair/{split}/{index}")
            while (results := chain_arithmetic.noisy_results(chain, rng, wrong=0.4))[-1] == chain.answer:
                pass
            return Pair(prompt, right, chain_arithmetic.render(chain, results, style))
        rng = random.Random(f"chain-arithmetic/labelled/{split}/{index}")
        steps, labels = chain_arithmetic.labelled_answer(chain, chain_arithmetic.noisy_results(chain, rng, WRONG))
        return LabelledSteps(prompt, tuple(steps), tuple(map(float, labels)))

    kinds: list[Kind] = (
        ["demonstrations", "pairs", "labelled_steps"] if style == "steps" else ["demonstrations", "pairs"]
    )
    return {kind: Lazy(count, partial(row, kind)) for kind in kinds}


def _calculator() -> Task:
    """Sums for a calculator, a call a line: by default a step is a turn."""
    return Task(
        name="calculator",
        examples=Lazy(100_000, chain_arithmetic.large_example),
        held_out=Lazy(1_000, lambda i: chain_arithmetic.large_example(i, held_out=True)),
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


SYSTEM = (
    "Solve the problem step by step, each step on a line of its own with its calculation, like 3 * 4 = 12. "
    "Write the final answer on the last line after ####."
)
"""What chat policies are told before a question whose answer is a number."""


def answers_in_numbers(
    name: str, examples: Sequence[Example], held_out: Sequence[Example], checker: str = "answer_correctness"
) -> Task:
    """Return a task whose right answers are numbers: a line is a step, its sums and the final answer are judged."""

    def add_system(rows: Sequence[Example]) -> Sequence[Example]:
        if isinstance(rows, list):
            return [replace(row, system=SYSTEM) for row in rows]
        return Lazy(len(rows), lambda i: replace(rows[i], system=SYSTEM))

    return Task(
        name=name,
        examples=add_system(examples),
        held_out=add_system(held_out),
        pattern=PRESETS["line"].pattern,
        rewards=(RewardConfig(name="sums_hold", kind="step"), RewardConfig(name=checker, kind="outcome")),
        outcome_weight=1.0,
        max_completion_length=256,
        checker=checker,
    )


def _gsm8k() -> Task:
    """The part that comes along (Cobbe et al. 2021): a step a line, in the format of the data's own answers."""
    splits = []
    for file in ("train-1500.jsonl", "test-300.jsonl"):
        rows = map(json.loads, (GSM8K / file).read_text(encoding="utf-8").split("\n")[:-1])
        splits.append([Example(row["question"], {"question": row["question"], **answer_columns(row)}) for row in rows])
    return answers_in_numbers("gsm8k", splits[0], splits[1])


def answer_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that a row's ``answer`` becomes: text, or a list of texts any of which is right.

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


_KEPT: ContextVar[dict[str, Task]] = ContextVar("kept tasks")
"""Of files, by their sections."""


def load_task(task: str | Path | TaskSection | Iterable[Mapping[str, Any]], **how: Any) -> Task:
    """Return an embedded task by name, a data file or a folder by path, or a data set of the Hub: ``hub:openai/gsm8k``.

    Also rows that are in memory: a list of objects, or a ``datasets.Dataset``. A run needs them in a file.

    ``how`` says which rows are taken and what their columns become, as the fields of a run's section ``task`` do
    (``columns={"answer": "reward_model.ground_truth"}``, ``split="test"``); such a section is taken in place of a name.
    A data set's rows are read when they are asked for (see ``data.read`` for the forms of its name). One whose answers
    are worked as GSM8K's are gets the rewards and the step pattern of the task ``gsm8k``.

    Raises:
        TaskError: if there is none of these, or a row has no ``prompt``; of the Hub's rows, when it is read.
        ConfigError: for a field of ``how`` that there is not, or that does not fit.
    """
    if not isinstance(task, str | Path | TaskSection):
        section = TaskSection.parse({"name": "rows", **how})
        given = [row_of("rows", f"row {number}", row) for number, row in enumerate(task, 1)]
        if fault := next((row.fault for row in given if row.fault), None):
            raise TaskError(fault)
        return _task(section.name, given, (), section, section.name)
    section = task if isinstance(task, TaskSection) else TaskSection.parse({"name": str(task), **how})
    name = section.name
    if name in TASKS:
        return _embedded(TASKS[name](), section)
    if os.environ.get(SHIPPED_ONLY):
        raise TaskError(
            f"{quote(name)} does not come along, and no other data is read here; take one of {', '.join(TASKS)}"
        )
    if name.startswith(HUB):
        train, held_out = hub_rows(name, section.split, section.held_out_split)
        return _task(name, train, held_out or (), section, name, lazy=True)
    path, kept, key = local_path(name), _KEPT.get({}), section.model_dump_json()
    if path is None:
        raise TaskError(
            f"no task or file called {quote(name)}{did_you_mean(name, TASKS)}; tasks are {', '.join(TASKS)}, or give a "
            f"data file's path, or {HUB}OWNER/NAME for a data set of the Hub"
        )
    if key not in kept:
        train, split = read_rows(path, section.split), section.held_out_split or find_held_out(path, section.split)
        kept[key] = _task(str(path), train, () if split is None else read_rows(path, split), section, path.name)
    return kept[key]


@contextmanager
def tasks_kept() -> Iterator[None]:
    """Within it, a task that was loaded is not read again."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def load_rows(section: TaskSection) -> Task:
    """The task with the rows to train on: that of ``data``, where there is such a file. Raises as ``load_task``."""
    if section.data is None:
        return load_task(section)
    try:
        return load_task(TaskSection(name=section.data, columns=section.data_columns))
    except TaskError as error:
        raise TaskError(str(error).replace("task.columns", "task.data_columns")) from error


def _embedded(task: Task, section: TaskSection) -> Task:
    """The task with the rows that are drawn. Raises TaskError for fields that its rows, which are made, do not take."""
    if others := section.reads(but=DRAWN):
        raise TaskError(
            f"task.{others[0]}: the embedded task {task.name!r} has its own columns and splits; leave "
            f"{others[0]} out, or give a file"
        )
    task = replace(task, checker=section.checker or task.checker)
    if (section.rows, section.held_out_rows) == (None, None):
        return task

    def part(rows: Sequence[Any], held_out: bool) -> Sequence[Any]:
        count, what = (section.held_out_rows, "held-out rows") if held_out else (section.rows, "rows")
        indices = draw_rows(range(len(rows)), count, section.sample_seed, what)
        return Lazy(len(indices), lambda i: rows[indices[i]])

    return _with_rows(task, part)


def _with_rows(task: Task, change: Callable[[Sequence[Any], bool], Sequence[Any]]) -> Task:
    """Return the task with all its rows changed; ``change`` is told whether they are held out."""
    return replace(
        task,
        examples=change(task.examples, False),
        held_out=change(task.held_out, True),
        data={kind: change(rows, False) for kind, rows in task.data.items()},
        held_out_data={kind: change(rows, True) for kind, rows in task.held_out_data.items()},
    )


@dataclass(frozen=True)
class Rows:
    """Mapped rows of one split, those of ``indices`` being taken. ``prefix`` is how messages call their origin."""

    rows: Sequence[Row]
    indices: Sequence[int]
    prefix: str

    def __len__(self) -> int:
        return len(self.indices)

    def row(self, i: int) -> Row:
        row = self.rows[self.indices[i]]
        return replace(row, where=f"{self.prefix} {row.where}")

    def example(self, i: int) -> Example:
        row = self.row(i)
        name, prompt = prompt_of(row.where, row.values)
        columns = {column: value for column, value in row.values.items() if column != name}
        if "answer" in columns:
            columns |= answer_columns(columns)
        return Example(prompt, columns)

    def typed(self, kind: Kind, i: int) -> Any:
        row = self.row(i)
        return READERS[kind](row.where, row.values)


# --- rows as a section has them --------------------------------------------------------------------------------------

_INSTEAD = {"prompt", "completion", "chosen", "rejected"}
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


def task_rows(rows: Sequence[Row], lazy: bool = False) -> Sequence[Row]:
    """Return rows with a task's columns, whatever their layout; those that become several are read at once."""

    def become(row: Row) -> list[Row]:
        return [replace(row, values=values) for values in recognise(row.values).task_rows(row.where, row.values)]

    if lazy and len(rows) and not recognise(rows[0].values).labels_steps:
        return Lazy(len(rows), lambda i: become(rows[i])[0])
    return [made for row in rows for made in become(row)]


def gold_columns(rows: Sequence[Row], section: TaskSection) -> list[str]:
    """Return the columns that may be the right answer where neither section nor layout says it; several if in doubt.

    None beside the numbers of a countdown, whose target is not the answer.
    """
    seen = [row.values for row in rows]
    is_known = "answer" in section.columns or any({"answer", "numbers", "nums"} & values.keys() for values in seen)
    return [] if is_known or kind_of(seen[0]) in ("pairs", "labelled_steps") else guess("answer", seen)


def map_row(row: Row, section: TaskSection, gold: str = "") -> Row:
    """Return a row of a task with the section's columns, and its template filled.

    ``gold`` is the column that was found to be the right answer. Raises TaskError, naming the row and what it has, for
    a column that is not there.
    """
    values, template = dict(row.values), section.prompt_template
    has_prompt = template is not None or {*values, *section.columns} & {*PROMPTS, "messages"}
    if gold and has_prompt and (answer := value_at(row.values, gold)) is not MISSING:
        values["answer"] = answer
    values |= columns_of(row.where, row.values, section.columns, "task.columns")
    if template is not None:
        values["prompt"] = fill_template(template, row.where, values)
    messages = values.get("messages")
    is_asked = "prompt" in values and is_conversation(messages) and messages[-1]["role"] != "assistant"
    if is_asked or template is not None or (section.columns.keys() & _INSTEAD and "messages" not in section.columns):
        values.pop("messages", None)  # which would go before the others
    return replace(row, values=values)


def select_rows(rows: Sequence[Row], section: TaskSection) -> tuple[Sequence[int], Counter[str]]:
    """Return which of the mapped rows are taken, and how many are left out by which field.

    A completion with the ``label`` false, as KTO's unpaired preferences have it, is no demonstration. All rows are
    looked at where some may be left out. Raises TaskError for a filter on a column that no row has.
    """
    most = section.max_prompt_characters
    is_judged = len(rows) > 0 and "completion" in rows[0].values and isinstance(rows[0].values.get("label"), bool)
    if section.filter is None and most is None and not is_judged:
        return range(len(rows)), Counter()
    kept = range(len(rows)) if section.filter is None else _filtered(rows, section.filter)
    good = [i for i in kept if not is_judged or rows[i].values.get("label") is not False]
    indices = [i for i in good if most is None or len(words_of(prompt_of(rows[i].where, rows[i].values)[1])) <= most]
    left = {"filter": (rows, kept), "label": (kept, good), "max_prompt_characters": (good, indices)}
    return indices, Counter({field: len(a) - len(b) for field, (a, b) in left.items() if len(a) > len(b)})


def _filtered(rows: Sequence[Row], text: str) -> Sequence[int]:
    """Return which rows a filter takes; columns whose texts are all numbers are compared as numbers.

    Raises TaskError for a filter that pandas does not read, or whose values it cannot compare.
    """
    import pandas as pd

    try:
        by = parse_filter(text)
    except ValueError as error:
        raise TaskError(f"task.filter: {error}") from error
    values = {column: [value_at(row.values, column) for row in rows] for column in by.columns}
    for column, found in values.items():
        if rows and all(value is MISSING for value in found):
            raise no_column("task.filter: no row has the column", column, rows[0].values)
    frame = pd.DataFrame(
        {f"c{n}": [None if value is MISSING else value for value in found] for n, found in enumerate(values.values())}
    )
    for name in frame.columns:
        with suppress(ValueError, TypeError):
            frame[name] = pd.to_numeric(frame[name])
    try:
        kept = frame.query(by.expression, engine="python", local_dict={}, global_dict={})
        return [int(i) for i in kept.index]
    except Exception as error:  # whatever pandas raises for values that an operator does not take
        raise TaskError(f"task.filter does not fit the rows' values: {cut(str(error), 300)}") from error


def draw_rows(indices: Sequence[int], count: int | None, seed: int | None, what: str) -> Sequence[int]:
    """``count`` of the indices in a drawn order, the first ones without a seed; all in order without a count."""
    if count is None:
        return indices
    if seed is None:
        return indices[:count]
    return random.Random(f"{what}/{seed}").sample(indices, min(count, len(indices)))


def fill_template(template: str, where: str, values: dict[str, Any]) -> str:
    """Return the template with columns in the place of their names in braces; ``{{`` is a brace, ``\\n`` a line's end.

    ``{text:.40}`` is the column's first 40 characters. Raises TaskError for a name that is no column.
    """

    def column(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name, _, longest = match[1].strip().partition(":.")
        value = value_at(values, name)
        if value is MISSING:
            raise no_column(f"task.prompt_template: {where} has no", name, values)
        text = value or "" if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return text[: int(longest)] if longest.isdecimal() else text

    return _FIELD.sub(column, template.replace("\\n", "\n"))


def _task(
    name: str, train: Sequence[Row], held_out: Sequence[Row], section: TaskSection, prefix: str, *, lazy: bool = False
) -> Task:
    format = recognise(train[0].values) if len(train) else COLUMNS
    train = task_rows(train, lazy)
    if not len(train):
        raise TaskError(f"{name} has no rows")
    skipped, splits = Counter[str](), []
    may_be_gold = gold_columns(train[: 1 if lazy else LOOKED_AT], section)
    gold = may_be_gold[0] if len(may_be_gold) == 1 else ""
    for rows in (train, task_rows(held_out, lazy)):
        made: Sequence[Row] = Lazy(len(rows), lambda i, rows=rows: map_row(rows[i], section, gold))  # type: ignore[misc]
        made = made if lazy else list(made)
        indices, left_out = select_rows(made, section)
        skipped += left_out
        splits.append(Rows(made, indices, prefix))
    if not len(splits[0]):
        reasons = " and ".join("a label of false" if reason == "label" else f"task.{reason}" for reason in skipped)
        raise TaskError(f"{reasons}: none of the {len(train):,} rows of {name} is left; allow more")
    training, measured = _split_rows(splits[0], splits[1], section)
    made_rows = [Lazy[Example](len(rows), rows.example) for rows in (training, measured)]
    looked_at = [rows[:1] if lazy else list(rows) for rows in made_rows]
    examples, held = made_rows if lazy else looked_at
    golds = [[row.columns.get("answer") for row in rows] for rows in looked_at]
    is_countdown = all(isinstance(gold, dict) and {"target", "numbers"} <= gold.keys() for of in golds for gold in of)
    doubt = "" if gold or not may_be_gold else f"{' and '.join(may_be_gold)} may each be the right answer"
    unchecked = "" if is_countdown else doubt or next(filter(None, map(_unchecked, (training, measured), golds)), "")
    checker = "math_equality" if "\\" in str(golds) else "answer_correctness"
    task = Task(
        name,
        examples,
        held,
        scheme="process" if unchecked else "outcome",
        max_completion_length=256,
        unchecked=unchecked,
        checker="countdown_equation" if is_countdown else checker,
    )
    if not unchecked:
        task = replace(task, rewards=(RewardConfig(name=task.checker, kind="outcome"),))
    is_plain = not unchecked and not is_countdown
    if is_plain and all(read_number(gold) for of in golds for answer in of for gold in golds_of(answer)):
        task = answers_in_numbers(name, examples, held, checker)
    layout = ", ".join(filter(None, [format.as_task and format.name, gold and f"answer={gold}"]))
    task = replace(task, layout=layout, skipped=dict(skipped), checker=section.checker or task.checker)
    kind = kind_of(training.row(0).values)
    if kind == "prompts":
        return task
    data, held_out_data = (Lazy(len(rows), partial(rows.typed, kind)) for rows in (training, measured))
    return replace(task, kind=kind, data={kind: data}, held_out_data={kind: held_out_data})


def _split_rows(train: Rows, held_out: Rows, section: TaskSection) -> tuple[Rows, Rows]:
    """The rows to train on and those to measure on. Raises TaskError where the second leave none to the first."""
    count, held, seed = section.rows, section.held_out_rows, section.sample_seed
    if len(held_out):
        return (
            replace(train, indices=draw_rows(train.indices, count, seed, "rows")),
            replace(held_out, indices=draw_rows(held_out.indices, held, seed, "held-out rows")),
        )
    indices, total = train.indices, len(train)
    if total == 1:
        return train, replace(train, indices=[])  # measured on what it is trained on, accuracy would say nothing
    if (count, held) != (None, None):
        indices = draw_rows(indices, total, seed, "rows")
    kept = count_training_rows(total) if held is None else total - held
    if kept < 1:
        raise TaskError(f"task.held_out_rows: {held} leaves none of {total} rows to train on; lower it")
    return replace(train, indices=indices[:kept][:count]), replace(train, indices=indices[kept:])


def count_training_rows(count: int) -> int:
    """Number of a file's rows that are not held out, the first ones of ``count``."""
    return count - max(1, count // 10)


def _unchecked(rows: Rows, golds: Sequence[Any]) -> str:
    """Say why answers to these rows cannot be checked; "" if each row has a right answer as text."""
    for i, gold in enumerate(golds):
        if gold is None or gold == []:
            return f"{rows.row(i).where} has no 'answer'"
        if any(isinstance(one, dict) for one in (gold if isinstance(gold, list) else [gold])):
            return f"the 'answer' of {rows.row(i).where} is an object, which no text can be compared with"
    return ""


def preview_of(task: Task, count: int = 5) -> dict[str, Any]:
    """Return a task's first rows as a run takes them, how many there are of it, and that ``said`` in a line.

    ``rows`` have their ``prompt`` and what else their kind has, ``columns`` the others' names and values; ``skipped``
    is how many are left out, by field. Raises TaskError for a row that is not of its kind.
    """
    rows, held_out = task.rows(task.kind), len(task.rows(task.kind, held_out=True))
    noun = {"prompts": "prompt", "labelled_steps": "labelled answer"}.get(task.kind, task.kind.removesuffix("s"))
    parts = [f"{say_count(len(rows), noun)} to train on, {held_out:,} held out"]
    parts += [f"{count:,} left out by {field}" for field, count in task.skipped.items() if count]
    parts += [f"read as {task.layout}"] if task.layout else []
    if task.unchecked and task.kind == "prompts":
        parts.append(f"{task.unchecked}: accuracy is not measured, and a reward must be chosen")
    first = []
    for example, row in zip(task.examples[:count], rows[:count], strict=True):
        own = {} if isinstance(row, Example) else asdict(row)
        rest = {name: value for name, value in example.columns.items() if name not in own}
        answer = {"answer": rest.pop("answer")} if "answer" in rest else {}
        first.append({"prompt": row.prompt, **own, **answer, "columns": rest})
    return {
        "name": task.name,
        "kind": task.kind,
        "layout": task.layout,
        "training_rows": len(rows),
        "held_out_rows": held_out,
        "skipped": dict(task.skipped),
        "unchecked": task.unchecked,
        "rows": first,
        "said": "; ".join(parts),
    }


def prompted(task: Task, section: PromptSection, has_template: bool = False) -> Task:
    """Return the task with its prompts, those of demonstrations and pairs too, put as ``section`` says.

    ``has_template``: the policy has a chat template.

    Labelled steps stay: they are read by a reward model, in a format of its own.
    """

    if section == PromptSection(template_kwargs=section.template_kwargs) and not has_template:
        return task
    answers = ("completion", "chosen", "rejected") if section.apply_template == "never" else ()

    def convert(rows: Sequence[Any], held_out: bool) -> Sequence[Any]:
        def change(i: int) -> Any:
            row = rows[i]
            if isinstance(row, LabelledSteps):
                return row
            texts = {name: joined(getattr(row, name)) for name in answers if hasattr(row, name)}
            system = getattr(row, "system", "")
            return replace(row, prompt=section.of(row.prompt, has_template=has_template, system=system), **texts)

        return Lazy(len(rows), change)

    return _with_rows(task, convert)
