"""Opening one's own data: problems, rollouts, rewards or a configuration, found out from the file; choosing a group.

A file is an upload, one of the workspace's, or data that comes along; a file's groups lie on disk until they are looked
at. Whatever goes wrong, the group on screen is kept and the note says what.
"""

import filecmp
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from workbench.assets import EMBEDDED, recipes
from workbench.config import TaskSection, reading
from workbench.config.section import as_text
from workbench.data import (
    FORMATS,
    LABELLED,
    ROLLOUTS,
    SHIPPED,
    Facts,
    Imported,
    Task,
    formats,
    labelled_groups,
    logs,
    read_groups,
    rollouts,
)
from workbench.errors import TaskError, WorkbenchError, quote
from workbench.rewards import RewardConfig, find_builtin
from workbench.rewards.source import reward_functions, reward_in_file
from workbench.schema import Prompt, say_count
from workbench.steps import PRESETS
from workbench.ui.handlers import example, page_state, scoring, session
from workbench.ui.handlers.fields import for_scheme, with_path, with_settings
from workbench.ui.handlers.reward_forms import in_place
from workbench.ui.handlers.rewards import task_rows, with_task
from workbench.views.sentences import about_opened

AUTO = "found out"
FORMAT_CHOICES = (AUTO, *ROLLOUTS, "run")
TOKENIZER_CHOICES = ("tiny", "words")
CONFIGURATIONS = (".yaml", ".yml")
GROUP_HEADINGS = {"#": True, "answers": True, "right": True, "prompt": False}
"""Whether a column holds numbers."""
SHOWN = 160
"""Characters of a text in a table."""
MAX_LISTED = 2000
"""Groups listed; the others are reached with the arrows."""
EXPLAINED = 200
"""Groups that are looked at to find out what a file says beside prompts and completions."""
UNDERSTOOD = rollouts.OWN | {"answer", "solution", "training_step", "logged_entropy"}
"""Columns that have a place of their own here."""

FILE_REWARDS = (("given_labels",), ("given_reward",), ("step_correctness", "answer_correctness"))
"""Rewards suggested together for data of any format that has the columns they need."""
REWARDS_OF = {
    "gsm8k": ["calculator_notes", "gsm8k_answer"],
    "generated": ["step_correctness", "answer_correctness"],
}
"""Rewards suggested for data of these formats."""


@dataclass(frozen=True)
class Ask:
    """A request to open data: an upload's path or what was typed, and what somebody chose of how to read it.

    ``columns`` says which column is what, "" that there is none.
    """

    path: str
    columns: Mapping[str, str] = field(default_factory=dict)
    format: str = AUTO
    tokenizer: str = "tiny"
    skip_bad_rows: bool = False
    upload: str = ""
    """Of which upload it is: the same file may be dropped again."""


@dataclass(frozen=True)
class Opening:
    """One thing to show while a file is opened: a note, and what is known of the file by then.

    ``running`` says whether there is anything to cancel, None that this is as it was. In the end there are rollouts in
    ``imported``, a ``task`` with its ``section``, ``rewards`` (their fields), a ``configuration``'s file, or none.
    """

    ask: Ask
    note: scoring.Note
    running: bool | None = False
    look: formats.Look | None = None
    imported: Imported | None = None
    advantages: logs.LoggedAdvantages | None = None
    section: TaskSection | None = None
    task: Task | None = None
    rewards: tuple[Mapping[str, Any], ...] = ()
    configuration: Path | None = None


# ── opening a file ───────────────────────────────────────────────────────────────────────────────────────────────


def find_file(path: str, workspace: Path) -> str | Path:
    """Return what to read: the name of data that comes along, or a file of the workspace. Raises TaskError."""
    typed, known = path.strip(), {f"recipe:{name}": file for name, file in recipes().items()}
    if typed in LABELLED or typed in known:
        return known.get(typed, typed)
    try:
        found = (workspace / Path(typed).expanduser()).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a circle of links, the home of nobody
        raise TaskError(f"{quote(typed)} is no path that can be followed ({error}); give a file's path") from error
    if not found.is_relative_to(workspace.resolve()):
        raise TaskError(f"{quote(typed)} is outside the workspace {workspace}; put the file there, or drop it here")
    return found


def open_file(ask: Ask, services: session.Services, tab: str) -> Iterator[Opening]:
    """Find out what a file holds and read it, saying how far it is."""
    look: formats.Look | None = None
    workspace = services.workspace

    def open_(report: Callable[[str], None], cancelled: Callable[[], bool]) -> Opening:
        nonlocal look
        source = find_file(ask.path, workspace)
        if isinstance(source, Path) and source.suffix in CONFIGURATIONS:
            return Opening(ask, scoring.Note(""), configuration=source)
        if isinstance(source, Path) and source.suffix == ".py":
            return _functions(ask, source)
        look = _look(source, ask)
        if look.missing:
            return Opening(ask, scoring.Note("Which column is the prompt?"), look=look)
        if look.holds == "problems" and isinstance(source, Path):
            none = {"answer": ""} if ask.columns.get("answer") == "" else {}
            section = TaskSection(name=str(_among_data(source, workspace)), columns={**look.mapping, **none})
            return _problems(ask, look, section, example.find_task(section))
        return _rollouts(ask, look, _read(source, ask, look, report, cancelled))

    try:
        with services.opening.run(tab, open_, "reading …", "Cancelled; nothing was opened.") as work:
            for line in work:
                yield Opening(ask, scoring.Note(line, level="info"), True)
            opened = work.result()
    except (session.Busy, session.Cancelled) as error:
        view = scoring.View.of_error(error)
        services.drop_upload(ask.path)
        yield Opening(ask, view.note or scoring.Note(""), view.running)
        return
    except WorkbenchError as error:
        opened = Opening(ask, scoring.Note(str(error)), look=look)
        if look is None:  # no choice of how to read it would help
            services.drop_upload(ask.path)
    before, services.opened[tab] = services.opened.get(tab), opened
    if before is not None and before.ask.path != ask.path:
        services.drop_upload(before.ask.path)
    yield opened


def _look(source: str | Path, ask: Ask) -> formats.Look:
    if isinstance(source, str):
        return formats.Look("rollouts")
    if ask.format != AUTO:
        given = {role: name for role, name in ask.columns.items() if name}
        return formats.Look("rollouts", columns=given, mapping=given)
    return formats.look_at(source, ask.columns)


def _functions(ask: Ask, file: Path) -> Opening:
    """All of a Python file that is seen to be a reward, or else its only function."""
    names = reward_functions(reading.read_text(file, file.name)) or [""]
    rewards = tuple(reward_in_file(f"{file}::{name}") for name in names)
    listed = ", ".join(fields["name"] for fields in rewards)
    return Opening(
        ask, scoring.Note(f"Added {say_count(len(rewards), 'reward')}: {listed}.", level="info"), rewards=rewards
    )


def _among_data(file: Path, workspace: Path) -> Path:
    """Copy an upload to the workspace's data, where runs find it later; a file that lies there already stays."""
    if not file.is_relative_to(workspace.resolve() / session.UPLOADS):
        return file
    folder = workspace.resolve() / "data"
    folder.mkdir(exist_ok=True)
    names = (f"{file.stem}{f'-{n}' if n > 1 else ''}{file.suffix}" for n in range(1, 10_000))
    free = next(path for name in names if not (path := folder / name).exists() or filecmp.cmp(file, path, False))
    if not free.exists():
        shutil.copyfile(file, free)
    return free


def _problems(ask: Ask, look: formats.Look, section: TaskSection, task: Task) -> Opening:
    named = {"prompt": "the prompt", "answer": "the right answer"}
    said = [f"{name} is {named[role]}" for role, name in look.mapping.items() if role in named]
    noun = {"prompts": "problem", "labelled_steps": "labelled answer"}.get(task.kind, task.kind.removesuffix("s"))
    said += [f"{count:,} with the label false left out" for reason, count in task.skipped.items() if reason == "label"]
    text = f"Opened {say_count(len(task) + len(task.held_out), noun)}{': ' if said else ''}{', '.join(said)}."
    if task.unchecked:
        text += f" Nothing tells right from wrong ({task.unchecked}): choose the answer's column, or a reward."
    return Opening(
        ask, scoring.Note(text, level="warning" if task.unchecked else "info"), look=look, section=section, task=task
    )


def _rollouts(ask: Ask, look: formats.Look, imported: Imported) -> Opening:
    facts = imported.facts
    advantages = logs.recognise_advantages(islice(imported.drafts, EXPLAINED))
    rewards = find_rewards(imported, advantages)
    used = {*UNDERSTOOD, *facts.rewards, *(name for one in rewards for name in find_builtin(one.name).columns)}
    said = about_opened(
        len(imported),
        sum(len(draft.rollouts) for draft in imported.drafts),
        FORMATS[facts.format].called if facts.format in FORMATS else "",
        None if advantages is None else (advantages.said, advantages.within),
        [name for name in facts.columns if name not in used],
        facts.tokenizer,
    )
    unscored = "" if rewards else " Nothing in the file scores an answer: choose its column below, or add a reward."
    note = scoring.Note(str(said).replace("`", "") + unscored, level="info" if rewards else "warning")
    return Opening(ask, note, look=look, imported=imported, advantages=advantages)


def _read(
    source: str | Path, ask: Ask, look: formats.Look, on_progress: Callable[[str], None], cancelled: Callable[[], bool]
) -> Imported:
    tokenizer = ask.tokenizer.strip() or None
    if isinstance(source, str) and source not in SHIPPED:
        groups = labelled_groups(source, tokenizer=tokenizer)
        facts = Facts("generated", sum(map(len, groups)), groups[0].sampling["tokenizer"], preset="line")
        return Imported(groups, groups, facts)

    imported = read_groups(
        source,
        tokenizer=tokenizer,
        format=None if ask.format == AUTO else ask.format,
        columns=dict(look.mapping),
        skip_bad_rows=ask.skip_bad_rows,
        on_event=lambda event: on_progress(event["phase"]),
        cancelled=cancelled,
    )
    _ = imported.groups[0]  # which is shown next; the others are tokenised when they are asked for
    return imported


# ── what was opened, on screen ───────────────────────────────────────────────────────────────────────────────────


def with_opened(draft: page_state.PageState, opening: Opening) -> page_state.PageState:
    """The draft with the first problem or group of what was opened, and a pattern, rewards and a scheme that fit it."""
    if opening.section is not None:
        draft = draft.with_rows_as_they_are()
        draft = draft.but(tree=with_path(draft.tree, "task.columns", as_text(opening.section.columns)))
        task = example.find_task(opening.section)
        draft = with_task(example.choose_example(draft, 0, task=task), task)
        if not samples_at_once(draft, opening):
            return draft
        if not isinstance(draft.prompt, str):  # the small policies have no chat template
            draft = draft.but(tree=with_path(draft.tree, "prompt.apply_template", "never"))
        return draft.but(group=None)
    if opening.rewards:
        for fields in opening.rewards:
            row, instead = in_place(page_state.RewardRow(fields), draft.rows)  # with its namesake's weight and switch
            draft = draft.with_row(row, instead)
        return draft.with_scheme_for_rewards()
    assert opening.imported is not None
    kinds = {row.kind for row in draft.rows if row.on}
    if kinds == {"outcome"} and draft.credit["scheme"] == "outcome":  # which may be there for another file alone
        draft = draft.but(credit=for_scheme(draft.credit, "process"))
    rewards, columns_there = find_rewards(opening.imported, opening.advantages), columns_of(opening.imported)
    if rewards:
        task = Task("imported", [], [], rewards=tuple(rewards), unchecked="imported answers are not checked")
        draft = draft.but(rows=task_rows(draft.rows, task))
    draft = draft.but(rows=tuple(row.for_data(columns_there) for row in draft.rows)).with_scheme_for_rewards()
    if opening.advantages is not None and draft.credit["scheme"] == "outcome":
        draft = draft.but(credit=with_settings(draft.credit, opening.advantages.options))
    draft = example.with_group(draft, opening.imported.groups[0])
    preset = PRESETS.get(opening.imported.facts.preset or example.fitting_preset(draft) or "")
    return draft if preset is None else draft.with_pattern(preset.pattern.regex, preset.pattern.kind)


def samples_at_once(draft: page_state.PageState, opening: Opening) -> bool:
    """Return whether answers to the opened problems are sampled at once: by a small policy that is here already."""
    return opening.task is not None and draft.policy in EMBEDDED


def find_rewards(imported: Imported, advantages: logs.LoggedAdvantages | None = None) -> list[RewardConfig]:
    """The built-in rewards that can score this data; of answers alone where its advantages were made of these."""
    names = columns_of(imported)
    fit = [
        together for together in FILE_REWARDS if all(names.issuperset(find_builtin(name).columns) for name in together)
    ]
    fitting = [name for together in fit for name in together]
    found = REWARDS_OF.get(imported.facts.format, fitting)
    if not found and "answer" in names:
        some = islice(imported.drafts, EXPLAINED)
        golds = [str({**draft.columns, **draft.rollouts[0].columns}.get("answer")) for draft in some]
        found = ["math_equality" if any("\\" in gold for gold in golds) else "answer_correctness"]
    rewards = [RewardConfig(name=name, kind=find_builtin(name).kind) for name in found]
    of_answers = [reward for reward in rewards if reward.kind == "outcome"]
    return of_answers if advantages is not None else rewards


def columns_of(imported: Imported) -> set[str]:
    """Return what the data says beside prompts and completions, by name."""
    if imported.facts.columns:
        return set(imported.facts.columns)
    return {
        name
        for group in islice(imported.drafts, EXPLAINED)
        for columns in (group.columns, *(rollout.columns for rollout in group.rollouts))
        for name in columns
    }


def group_rows(imported: Imported) -> list[list[str]]:
    """A line a group: number, answers, how many of them are right by the file's word, prompt."""
    rows = []
    for number, group in enumerate(islice(imported.drafts, MAX_LISTED), start=1):
        known = [{**group.columns, **rollout.columns}.get("correct") for rollout in group.rollouts]
        labels = [label for label in known if label is not None]
        rewards = [value for rollout in group.rollouts if (value := rollout.columns.get("reward")) is not None]
        mean = f"⌀ {sum(rewards) / len(rewards):.2f}" if rewards else "–"
        rows.append(
            [
                str(number),
                str(len(group.rollouts)),
                f"{sum(map(bool, labels))} of {len(labels)}" if labels else mean,
                short(group.prompt),
            ]
        )
    return rows


def choose_group(draft: page_state.PageState, imported: Imported, index: int) -> tuple[page_state.PageState, int]:
    """Return the draft with a group on screen, the first after the last, and which it is."""
    index %= len(imported)
    return example.with_group(draft, imported.groups[index]), index


def short(text: Prompt) -> str:
    """The beginning of a text on one line."""
    line = (text if isinstance(text, str) else text[-1]["content"]).replace("\n", " ↵ ")
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
