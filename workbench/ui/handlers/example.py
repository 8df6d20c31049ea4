"""Task, example and step pattern on Inspect: how a task's rows are read, which one is shown, edits of its prompt.

Of the pattern: its presets, and what it and each of them find in the group on screen. Of the example: a group that is
sampled, with messages for the drawing while its texts grow.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

from pydantic import validate_call

from workbench.assets import FIRST_GROUP
from workbench.config import TaskSection
from workbench.data import HUB, TASKS, Task, conversations, load_task, preview_of
from workbench.data.rows import prompt_text as checked_prompt
from workbench.errors import (
    ChildDied,
    ConfigError,
    PatternError,
    TaskError,
    WorkbenchError,
    cut,
    redact,
)
from workbench.files import encode
from workbench.places import is_of_run, local_path
from workbench.policies import client, prompts
from workbench.rewards import split_group
from workbench.schema import Example, Group, Prompt, say_count
from workbench.steps import NUMBERS, PRESETS, Split, StepPattern
from workbench.training.methods import RunConfig
from workbench.ui.handlers import fields, rewards, session
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.scoring import Note, ScoringView, View, message
from workbench.ui.payloads import Pairs, RowsPayload
from workbench.views.heatmap import to_json

CUSTOM = "custom"
_MOST_FILES = 1000  # of a folder, looked at for changes
PRESET_HEADINGS = ("preset", "finds", "first step", "last step", "used by")
SHOWN_CHARACTERS = 20
"""Characters of a step."""
SHOWN_ROWS = 3
LONGEST = 400
"""Characters of a value that are shown."""


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
    return _cached(section.model_dump_json(), _file_times(section.name))


@lru_cache(maxsize=8)
def _cached(section: str, written: tuple[tuple[str, int, int], ...]) -> Task:
    return load_task(TaskSection.model_validate_json(section))


def _file_times(name: str) -> tuple[tuple[str, int, int], ...]:
    """Return time and size of a file, or of each in a folder; () for a task that stays the same once it is loaded."""
    path = None if name in TASKS or name.startswith(HUB) else local_path(name)
    files: list[Path] = []
    with suppress(OSError):
        if path is not None:
            files = list(islice((file for file in path.rglob("*") if file.is_file()), _MOST_FILES)) or [path]
        return tuple((str(file), (stat := file.stat()).st_mtime_ns, stat.st_size) for file in files)
    return ()


def choose_example(draft: PageState, index: float | None, *, by: int = 0, task: Task | None = None) -> PageState:
    """Take example ``index + by`` of the draft's task, going round at the ends. Raises TaskError."""
    task = task or find_task(draft.task_section())
    chosen = (int(index or 0) + by) % len(task)
    example = task[chosen]
    return draft.but(
        tree=fields.with_path(draft.tree, "task.name", task.name),
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
    with suppress(ValueError, RecursionError):
        if conversations.is_messages(messages := json.loads(text)):
            return checked_prompt("the prompt", messages)
    return text


def example_to_sample(draft: PageState) -> tuple[Example, str]:
    """Return the example to sample, and what to say if its prompt is no longer the one its columns belong to."""
    prompt = parse_prompt(draft.text)
    example = Example(prompt, draft.columns, _system(draft))
    said = f"The prompt was edited; {', '.join(draft.columns)} are still those of example {draft.index}."
    return example, said if prompt != draft.prompt and draft.columns else ""


def prompt_note(draft: PageState) -> str:
    """Say how a policy with a chat template gets a plain prompt."""
    template, prompt = prompts.find_chat_template(draft.policy), parse_prompt(draft.text)
    if template is None or not isinstance(prompt, str):
        return ""
    put = draft.prompting().of(prompt, has_template=True, system=_system(draft))
    if isinstance(put, str):
        return "Sent as plain text, without the policy's chat template."
    system = next((message["content"] for message in put if message["role"] == "system"), "")
    after = f", after the system message “{system}”" if system else ""
    return f"Sent through the policy's chat template{after}."


def task_example(draft: PageState) -> Example | None:
    """The example of the task that is chosen; None if it cannot be read."""
    with suppress(WorkbenchError, IndexError):
        return find_task(draft.task_section())[draft.index]
    return None


def _system(draft: PageState) -> str:
    """The task's own system message, if the prompt is of the task."""
    of_task = task_example(draft)
    return of_task.system if of_task is not None and of_task.prompt == draft.prompt else ""


def columns_text(columns: Any) -> str:
    """The row's other columns in a line, shortened."""
    columns = dict(sorted(columns.items(), key=lambda item: isinstance(item[1], list | dict)))  # short ones first
    parts = [f"{name} = {value if isinstance(value, str) else json.dumps(value)}" for name, value in columns.items()]
    line = " · ".join(parts)
    return line if len(line) <= 200 else f"{line[:199]}…"


# ── the step pattern ─────────────────────────────────────────────────────────────────────────────────────────────


def preset_of(regex: str, kind: str) -> str:
    """The preset that this is, or ``custom``."""
    named = ((preset.pattern.regex, preset.pattern.kind, name) for name, preset in PRESETS.items())
    return next((name for *pattern, name in named if pattern == [regex, kind]), CUSTOM)


def regex_for(draft: PageState, kind: str) -> str:
    """Return the pattern for a ``kind`` that was chosen: the one that is there, unless one of the two has numbers."""
    if kind in NUMBERS and kind != draft.kind:
        return PRESETS[kind].pattern.regex
    return StepPattern().regex if draft.kind in NUMBERS and kind not in NUMBERS else draft.regex


def pattern_note(draft: PageState, view: ScoringView) -> Note | None:
    """Say what is wrong with the pattern, or how many steps it finds and how an answer's first and last begin."""
    group = draft.group
    if view.pattern is not None or group is None or not any(cut.matched for cut in view.splits):
        return view.pattern
    first, last = _ends(group, view.splits)
    found = f"finds {_counts(view.splits, ' per answer')}: “{first}” to “{last}”"
    outside = ". The text before the first match belongs to no step." if draft.pattern().is_separator else ""
    return Note(f"{found}{outside}", level="warning" if outside else "plain")


def matching_presets(draft: PageState) -> dict[str, list[Split]]:
    """Return how each preset that finds steps in the draft's group splits it."""
    found: dict[str, list[Split]] = {}
    for name, preset in PRESETS.items():
        pattern = draft.with_pattern(preset.pattern.regex, preset.pattern.kind).pattern()
        with suppress(PatternError):  # of token probabilities that the group lacks
            splits = split_group(cast(Group, draft.group), pattern)
            if any(cut.matched for cut in splits):
                found[name] = splits
    return found


def try_presets(draft: PageState) -> tuple[list[list[str]], list[str]]:
    """Return a row for each preset that finds steps in the draft's group, and the names of the other presets.

    First come those that match in most answers, and of these the ones that find most steps there.
    """
    found = matching_presets(draft)
    steps = {name: [len(cut.steps) for cut in splits if cut.matched] for name, splits in found.items()}
    rows = [
        [name, _counts(found[name]), *_ends(cast(Group, draft.group), found[name]), PRESETS[name].used_by]
        for name in sorted(found, key=lambda name: (len(steps[name]), min(steps[name])), reverse=True)
    ]
    return rows, [name for name in PRESETS if name not in found]


def fitting_preset(draft: PageState) -> str | None:
    """Return the preset for text that matches in most of the group's answers, if the draft's is one that matches none.

    A pattern that somebody wrote stays.
    """
    own, found = preset_of(draft.regex, draft.kind), matching_presets(draft)
    if own == CUSTOM or own in found:
        return None
    counts = {
        name: sum(cut.matched for cut in splits)
        for name, splits in found.items()
        if PRESETS[name].pattern.kind not in (*NUMBERS, "turns")
    }
    return max(counts, key=lambda name: counts[name], default=None)


def _counts(splits: Sequence[Split], each: str = "") -> str:
    """ "6 steps", "4 to 7 steps", and in how many answers if not in all."""
    counts = [len(cut.steps) for cut in splits if cut.matched]
    least, most = min(counts), max(counts)
    steps = say_count(most, "step") if least == most else f"{least} to {say_count(most, 'step')}"
    return f"{steps}{each}" + (f" in {len(counts)} of {len(splits)}" if len(counts) < len(splits) else "")


def _ends(group: Group, splits: Sequence[Split]) -> tuple[str, str]:
    """Return how the first and the last step begin, of the first answer that the pattern matches in."""
    rollout, cut = next(pair for pair in zip(group.rollouts, splits, strict=True) if pair[1].matched)
    ends = []
    for step in (cut.steps[0], cut.steps[-1]):
        text = rollout.text[step.start : step.end].strip().partition("\n")[0]
        ends.append(text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1].rstrip()}…")
    return ends[0], ends[1]


# ── how rows are read ────────────────────────────────────────────────────────────────────────────────────────────


def preview(draft: PageState) -> str:
    """The first rows of the draft's task, as the page's script draws them, or why they cannot be read."""
    try:
        found = preview_of(find_task(draft.task_section()), SHOWN_ROWS)
    except WorkbenchError as error:
        return refusal(error)
    rows: list[Pairs] = []
    for row in found["rows"]:
        texts = {name: value if isinstance(value, str) else encode(value).decode() for name, value in row.items()}
        columns = [(name, cut(text, LONGEST)) for name, text in texts.items() if name != "columns"]
        rows.append([*columns, ("other columns", cut(", ".join(row["columns"]) or "none", LONGEST))])
    return to_json(RowsPayload(text=found["said"], level="info", rows=rows))


def refusal(error: WorkbenchError) -> str:
    """Return the payload that says, in place of rows, why there are none."""
    return to_json(RowsPayload(text=redact(str(error)), level="error", rows=[]))


def read_as(draft: PageState, name: str, before: PageState) -> PageState | None:
    """The draft with an example of the task ``name``, read as its fields say; None where ``before`` was read like that.

    Another task brings its own pattern, rewards and length. Raises WorkbenchError.
    """
    section = draft.task_section(name)
    if section == before.task_section():
        return None
    task = find_task(section)
    if section.name == before.task:
        return choose_example(draft, draft.index, task=task)
    return rewards.with_task(choose_example(draft, 0, task=task), task)


def sample(draft: PageState, services: session.Services, tab: str) -> Iterator[View]:
    """Sample a group, showing it grow; what is ``made`` are changes of the draft: the group, the prompt that it answers
    where that is not the example's own, and the seed of the next. Whatever goes wrong, the group on screen is kept.
    """
    try:
        (sampling, seed), prompting, environment = draft.sampling(), draft.prompting(), draft.environment()
        example, edited = example_to_sample(draft)
    except (ConfigError, TaskError) as error:
        yield View.of_error(error, message())
        return
    began = time.monotonic()
    options = {**draft.policy_options, "prompting": prompting}
    if environment is not None:
        options |= {"environment": environment, "isolate": draft.isolates}

    def ask(report: Callable[[dict[str, Any]], None], cancelled: Callable[[], bool]) -> tuple[Group | None, str]:
        """The group, None when cancelled, and what it lacks: what a server did not tell, or its reference."""
        took: dict[str, float] = {}  # seconds of sampling alone, without waiting and loading

        def on_event(event: dict[str, Any]) -> None:
            took.update({"seconds": event["seconds"]} if "seconds" in event else {})
            report(event)

        group = services.models.sample(
            draft.policy, example, sampling, seed=seed, on_event=on_event, cancelled=cancelled, **options
        )
        if group is not None:
            name = draft.policy if is_of_run(draft.policy) else group.policy  # not its checkpoint's folder
            group = replace(group, policy=name, sampling={**group.sampling, **took})
        reference = draft.reference.strip()
        if group is None or not reference:
            return group, "" if group is None else str(group.sampling.get("server", ""))
        try:
            return services.models.with_reference(reference, group, on_event=report, cancelled=cancelled), ""
        except WorkbenchError as error:
            return group, f"sampled, but not compared with the reference policy: {error}"

    try:
        with services.sampling.run(tab, ask, session.NO_EVENT, "Cancelled; the group from before is back.") as work:
            for event in work:
                status = session.progress_text(event)
                if "texts" in event:
                    grown = {"texts": event["texts"], "finished": event["finished"], "prompt": draft.text}
                    yield View(running=True, drawing=message(stream=grown, busy=status))
                else:
                    yield View(running=True, drawing=message(busy=f"{status}, {time.monotonic() - began:.0f} s"))
            group, problem = work.result()
    except ChildDied as error:
        yield View(Note(f"{error}; Sample & score starts it again"), drawing=message(back=True))
    except WorkbenchError as error:
        yield View.of_error(error, message(back=True))
    else:
        assert group is not None
        note = Note(problem, level="warning") if problem else Note(edited, level="info") if edited else None
        edited_prompt = None if group.prompt == draft.prompt else group.prompt
        sampled = {"group": group, "edited": edited_prompt, "seed": seed + 1}
        yield View(note, drawing=message(busy="scoring"), made=sampled)


@validate_call(config=session.CHECKED)
def policy_status(services: session.Services, policy: str) -> dict[str, Any]:
    """The state of the policy that a page has chosen, "unloaded" while the worker holds another one.

    A page that names none is told of the worker's.
    """
    status = services.models.status()
    unloaded = bool(policy and status.policy and policy != status.policy)
    return {**asdict(client.PolicyStatus("off")), "state": "unloaded", "policy": policy} if unloaded else asdict(status)
