"""Choice of task and example on Inspect, edits of the prompt, and pattern presets."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache, lru_cache
from itertools import islice
from typing import Any, cast

from workbench.assets import FIRST_GROUP
from workbench.config import TaskSection
from workbench.config.run import RunConfig
from workbench.data import HUB, TASKS, Task, load_task
from workbench.data.conversations import is_messages
from workbench.data.records import prompt_text as checked_prompt
from workbench.errors import PatternError, TaskError
from workbench.places import local_path
from workbench.schema import Example, Group, Prompt
from workbench.steps import NUMBERS, PRESETS, PatternKind, StepPattern
from workbench.ui.handlers.page_state import PageState, with_path

CUSTOM = "custom"
_MOST_FILES = 1000  # of a folder, looked at for changes


@cache
def first_draft() -> PageState:
    """The page as it opens: the group that came with the embedded policy, and its task's defaults."""
    group = first_group()
    task = find_task("chain-arithmetic")
    config = RunConfig.parse(
        {
            "method": {
                "pattern": {"regex": task.pattern.regex, "kind": task.pattern.kind},
                "rewards": [reward.model_dump() for reward in task.rewards],
                "sampling": {"max_completion_length": task.max_completion_length},
            }
        }
    )
    index = next((i for i in range(100) if task[i].prompt == group.prompt), 0)
    return PageState.of(config).but(
        index=index,
        prompt=group.prompt,
        text=prompt_text(group.prompt),
        columns=group.columns,
        group=group,
    )


@cache
def first_group() -> Group:
    """The group that came with the embedded policy."""
    return Group.from_json(json.loads(FIRST_GROUP.read_text(encoding="utf-8")))


def find_task(task: str | TaskSection) -> Task:
    """A task by name or path, or by the section that says how its rows are read. Raises TaskError."""
    section = task if isinstance(task, TaskSection) else TaskSection(name=task.strip())
    if not section.name:
        raise TaskError(
            f"no task is chosen; take one of {', '.join(TASKS)}, or give a data file's path, or {HUB}OWNER/NAME"
        )
    return _cached(section.model_dump_json(), _written(section.name))


@lru_cache(maxsize=8)
def _cached(section: str, written: tuple[tuple[str, int, int], ...]) -> Task:
    return load_task(TaskSection.model_validate_json(section))


def _written(name: str) -> tuple[tuple[str, int, int], ...]:
    """When a file, or each of a folder's, was written, and its size; () for what stays the same once it is loaded."""
    path = None if name in TASKS or name.startswith(HUB) else local_path(name)
    if path is None:
        return ()
    try:
        files = list(islice((file for file in path.rglob("*") if file.is_file()), _MOST_FILES)) or [path]
        return tuple((str(file), (stat := file.stat()).st_mtime_ns, stat.st_size) for file in files)
    except OSError:
        return ()


def choose_example(draft: PageState, index: float | None, *, by: int = 0, task: Task | None = None) -> PageState:
    """Take example ``index + by`` of the draft's task, going round at the ends. Raises TaskError."""
    task = task or find_task(draft.task_section())
    chosen = (int(index or 0) + by) % len(task)
    example = task[chosen]
    return draft.but(
        tree=with_path(draft.tree, "task.name", task.name),
        index=chosen,
        prompt=example.prompt,
        text=prompt_text(example.prompt),
        columns=example.columns,
        edited=None,
    )


def with_group(draft: PageState, group: Group) -> PageState:
    """A group that was not sampled here on screen, with its own prompt and columns beside it."""
    return draft.but(
        prompt=group.prompt, text=prompt_text(group.prompt), columns=group.columns, group=group, edited=None
    )


def prompt_text(prompt: Prompt) -> str:
    """A prompt in the editor: plain text as it is, chat messages as JSON."""
    return prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False, indent=1)


def parse_prompt(text: str) -> Prompt:
    """Return the editor's text: a JSON list of messages is a conversation, all else is plain text.

    Raises TaskError for messages without content.
    """
    if not text.lstrip().startswith("["):
        return text
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not is_messages(messages):
        return text
    return checked_prompt("the prompt", messages)


def edited_example(draft: PageState) -> tuple[Example, str]:
    """The example to sample, and what to say where its prompt is no longer the one its columns belong to."""
    prompt = parse_prompt(draft.text)
    example = Example(prompt, draft.columns)
    if prompt == draft.prompt or not draft.columns:
        return example, ""
    return example, f"The prompt was edited; {', '.join(draft.columns)} are still those of example {draft.index}."


def columns_text(columns: Any) -> str:
    """The row's other columns in a line, shortened."""
    columns = dict(sorted(columns.items(), key=lambda item: isinstance(item[1], list | dict)))  # short ones first
    parts = [f"{name} = {value if isinstance(value, str) else json.dumps(value)}" for name, value in columns.items()]
    line = " · ".join(parts)
    return line if len(line) <= 200 else f"{line[:199]}…"


# ── the step pattern ─────────────────────────────────────────────────────────────────────────────────────────────


def preset_of(regex: str, kind: str) -> str:
    """The preset that this is, or ``custom``."""
    for name, preset in PRESETS.items():
        if (preset.pattern.regex, preset.pattern.kind) == (regex, kind):
            return name
    return CUSTOM


def regex_for(kind: str, regex: str) -> str:
    """What the pattern's field holds when ``kind`` was chosen: what is there, unless it is no pattern of that kind."""
    numeric = []
    for name in NUMBERS:
        with suppress(PatternError):
            if StepPattern(regex, cast(PatternKind, name)).numbers is not None:
                numeric.append(name)
    if kind in NUMBERS:
        return regex if kind in numeric else PRESETS[kind].pattern.regex
    return StepPattern().regex if numeric else regex
