"""What the Inspect tab's left side does: choose a task and an example, edit the prompt, name the pattern."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from workbench.config import PatternConfig
from workbench.errors import TaskError
from workbench.policies.embedded import FIRST_GROUP
from workbench.schema import Example, Group, Prompt
from workbench.steps import PRESETS
from workbench.tasks import HUB, TASKS, Task, load_task
from workbench.ui.handlers.session import SLOTS, RewardSlot, Session

CUSTOM = "custom"


@dataclass(frozen=True)
class ExampleView:
    """An example as the controls show it."""

    session: Session
    index: int
    prompt: str
    columns: str


def first_session() -> Session:
    """The page as it opens: the group that came with the embedded policy, and its task's defaults."""
    group = first_group()
    task = find_task("chain-arithmetic")
    index = next((i for i in range(100) if task[i].prompt == group.prompt), 0)
    slots = tuple(RewardSlot(reward.name, reward.kind, reward.name) for reward in task.rewards)
    return Session(
        task=task.name,
        index=index,
        prompt=group.prompt,
        columns=group.columns,
        group=group,
        slots=slots + (None,) * (SLOTS - len(slots)),
    )


@cache
def first_group() -> Group:
    """The group that came with the embedded policy."""
    return Group.from_json(json.loads(FIRST_GROUP.read_text(encoding="utf-8")))


def is_first_group(group: Group) -> bool:
    return group == first_group()


def find_task(name: str) -> Task:
    """A task by name or path. Raises TaskError."""
    name = name.strip()
    if not name:
        raise TaskError(
            f"no task is chosen; take one of {', '.join(TASKS)}, or give a JSONL file's path, or {HUB}OWNER/NAME"
        )
    return _kept(name) if is_kept(name) else load_task(name)


def is_kept(name: str) -> bool:
    """Whether a task stays the same once it is loaded: those of a file are read anew, as somebody edits it."""
    return name in TASKS or name.startswith(HUB)


@lru_cache(maxsize=8)
def _kept(name: str) -> Task:
    return load_task(name)


def choose_example(session: Session, index: float | None, *, by: int = 0, task: Task | None = None) -> ExampleView:
    """Take example ``index + by`` of the session's task, going round at the ends. Raises TaskError."""
    task = task or find_task(session.task)
    wanted = (int(index or 0) + by) % len(task)
    example = task[wanted]
    session = replace(
        session, task=task.name, index=wanted, prompt=example.prompt, columns=example.columns, edited=None
    )
    return ExampleView(session, wanted, prompt_text(example.prompt), columns_text(example.columns))


def random_example(session: Session) -> ExampleView:
    task = find_task(session.task)
    return choose_example(session, random.randrange(len(task)), task=task)


def prompt_text(prompt: Prompt) -> str:
    """A prompt in the editor: plain text as it is, chat messages as JSON."""
    return prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False, indent=1)


def parse_prompt(text: str) -> Prompt:
    """The editor's text back: a JSON list of messages is a conversation, all else is plain text."""
    if text.lstrip().startswith("["):
        try:
            messages = json.loads(text)
        except json.JSONDecodeError:
            return text
        fits = isinstance(messages, list) and messages and all(_is_message(message) for message in messages)
        return messages if fits else text
    return text


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))


def edited_example(session: Session, text: str) -> tuple[Example, str]:
    """The example to sample, and what to say where its prompt is no longer the one its columns belong to."""
    prompt = parse_prompt(text)
    if prompt == session.prompt or not session.columns:
        return Example(prompt, session.columns), ""
    names = ", ".join(session.columns)
    return Example(
        prompt, session.columns
    ), f"The prompt was edited; {names} are still those of example {session.index}."


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


def preset_pattern(name: str) -> PatternConfig | None:
    preset = PRESETS.get(name)
    return None if preset is None else PatternConfig(regex=preset.pattern.regex, kind=preset.pattern.kind)
