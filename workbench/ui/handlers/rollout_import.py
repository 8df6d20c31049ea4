"""Imported rollouts: open a file, browse its groups, and evaluate the page's rewards on its labels.

A file is one of the workspace's, an upload, or data that comes along; its groups lie on disk until they are looked at.
Whatever goes wrong, the group on screen is kept and the note says what.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from workbench.checks.reward_check import RewardCheck, check_reward
from workbench.config import RewardConfig
from workbench.config.task import columns_of_text
from workbench.data import FORMATS, LABELLED, SHIPPED, Facts, Imported, Task, labelled_groups, read_groups
from workbench.errors import RewardError, TaskError, WorkbenchError, shown
from workbench.rewards import Sandbox, find_builtin
from workbench.rewards.reward import Models
from workbench.schema import Group, Prompt
from workbench.schema.numbers import counted
from workbench.steps import PRESETS
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.example import with_group
from workbench.ui.handlers.rewards import task_rows
from workbench.ui.handlers.scoring import Note, portable_configs
from workbench.ui.handlers.session import BackgroundWork, Recent, Works

AUTO = "auto-detect"
FORMAT_CHOICES = (AUTO, *FORMATS, "run")
TOKENIZER_CHOICES = ("tiny", "words")
GROUP_HEADINGS = {"#": True, "G": True, "right": True, "prompt": False}
"""Whether a column holds numbers."""
CHECK_HEADINGS = {
    "reward": False,
    "of": False,
    "scored": True,
    "unscored": True,
    "AUC": True,
    "agreement": True,
    "first-error F1": True,
}
WORST_HEADINGS = {
    "reward": False,
    "group": True,
    "rollout": True,
    "step": True,
    "score": True,
    "label": False,
    "text": False,
}
SHOWN = 160
"""Characters of a text in a table."""
KEPT_FILES = 16
"""Opened files remembered, one a tab; the longest unused goes first."""
MAX_LISTED = 2000
"""Groups listed; the others are reached with the arrows."""

FILE_REWARDS = (("given_labels",), ("given_reward",), ("step_correctness", "answer_correctness"))
"""Rewards suggested together for data of any format that has the columns they need."""

T = TypeVar("T")


@dataclass(frozen=True)
class ImportForm:
    """The controls of the part as they stand: a typed name or path, an uploaded file, and how to read it.

    ``columns`` says what columns of other names are: ``prompt=question,completion=text,reward=points``.
    """

    path: str
    upload: str | None = None
    format: str = AUTO
    tokenizer: str = "tiny"
    columns: str = ""
    skip_bad_rows: bool = False


@dataclass(frozen=True)
class OpenView:
    """One thing to show while a file is read: a note, and at the end what was read.

    ``running`` says whether there is anything to cancel, None that this is as it was.
    """

    note: Note
    running: bool | None
    imported: Imported | None = None


@dataclass(frozen=True)
class GroupView:
    """A group chosen: the draft with it on screen, and which of the file's it is."""

    draft: Draft
    index: int
    where: str


@dataclass(frozen=True)
class CheckView:
    """Rewards held against the labels: a row a reward, the worst disagreements, and where each of these is.

    ``running`` as in ``OpenView``.
    """

    rows: tuple[tuple[str, ...], ...]
    worst: tuple[tuple[str, ...], ...]
    places: tuple[tuple[int, int], ...]
    note: Note
    running: bool | None = False


class Readings(Works):
    """Which tabs read a file or check rewards, and what each has open."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: Recent[str, Imported] = Recent(KEPT_FILES)

    def keep(self, tab: str, imported: Imported) -> None:
        with self._lock:
            self._opened[tab] = imported

    def opened(self, tab: str) -> Imported | None:
        """The file that a tab has open, if it has."""
        with self._lock:
            return self._opened.get(tab)


# ── opening a file ───────────────────────────────────────────────────────────────────────────────────────────────


def find_file(form: ImportForm, workspace: Path) -> str | Path:
    """What to read: the upload, data that comes along by name, or a file of the workspace. Raises TaskError."""
    if form.upload:
        return Path(form.upload)
    typed = form.path.strip()
    if not typed:
        raise TaskError(f"no file is chosen; upload one, or give a name: {', '.join(LABELLED)}, or a workspace file")
    if typed in LABELLED:
        return typed
    try:
        path = (workspace / Path(typed).expanduser()).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a circle of links, the home of nobody
        raise TaskError(f"{shown(typed)} is no path that can be followed ({error}); give a file's path") from error
    if not path.is_relative_to(workspace.resolve()):
        raise TaskError(f"{shown(typed)} is outside the workspace {workspace}; put the file there, or upload it")
    return path


def open_file(form: ImportForm, workspace: Path, readings: Readings, tab: str) -> Iterator[OpenView]:
    """Read a file, saying how far it is."""
    cancel = readings.begin(tab)
    if cancel is None:
        yield OpenView(Note("This page is reading or checking already; cancel that first."), None)
        return
    try:
        yield OpenView(Note("reading …", level="info"), True)
        source = find_file(form, workspace)

        def read(report: Callable[[str], None]) -> Imported:
            return _read(source, form, report, cancel.is_set)

        with BackgroundWork(read, cancel) as work:
            for line in work:
                yield OpenView(Note(line, level="info"), True)
            view = _opened(work.result(), cancel.is_set())
        if view.imported is not None:
            readings.keep(tab, view.imported)
        yield view
    except WorkbenchError as error:
        yield OpenView(Note(str(error)), False)
    finally:
        readings.end(tab)


def _opened(imported: Imported, cancelled: bool) -> OpenView:
    if cancelled:
        return OpenView(Note("Cancelled; nothing was opened.", level="info"), False)
    facts = imported.facts
    read = f"{counted(len(imported), 'group')}, {counted(facts.rows, 'row')}"
    said = f"{read} · format {facts.format} · tokenizer {facts.tokenizer}"
    return OpenView(Note(said, level="info", detail="\n".join(facts.notes)), False, imported)


def _read(
    source: str | Path, form: ImportForm, on_progress: Callable[[str], None], cancelled: Callable[[], bool]
) -> Imported:
    tokenizer = form.tokenizer.strip() or None
    try:
        columns = columns_of_text(form.columns)
    except ValueError as error:
        raise TaskError(f"columns: {error}") from error
    if isinstance(source, str) and source not in SHIPPED:
        groups = labelled_groups(source, tokenizer=tokenizer)
        facts = Facts("generated", sum(map(len, groups)), groups[0].sampling["tokenizer"], preset="line")
        return Imported(tuple(groups), facts)

    began = time.monotonic()

    def on_event(event: dict[str, Any]) -> None:
        if "phase" in event:
            on_progress(event["phase"])
            return
        left = (time.monotonic() - began) / event["done"] * (event["of"] - event["done"])
        on_progress(f"{event['done']:,} of {event['of']:,} groups · {left:.0f} s left")

    return read_groups(
        source,
        tokenizer=tokenizer,
        format=None if form.format == AUTO else form.format,
        columns=columns,
        skip_bad_rows=form.skip_bad_rows,
        on_event=on_event,
        cancelled=cancelled,
    )


# ── choosing a group ─────────────────────────────────────────────────────────────────────────────────────────────


def group_rows(imported: Imported) -> list[list[str]]:
    """A line a group: number, G, how many of its answers are right by the file's word, prompt."""
    return [
        [str(number), str(len(group)), _right(group), short(group.prompt)]
        for number, group in enumerate(imported.groups[:MAX_LISTED], start=1)
    ]


def _right(group: Group) -> str:
    known = [{**group.columns, **rollout.columns}.get("correct") for rollout in group.rollouts]
    labels = [label for label in known if label is not None]
    if labels:
        return f"{sum(map(bool, labels))} of {len(labels)}"
    rewards = [value for rollout in group.rollouts if (value := rollout.columns.get("reward")) is not None]
    return f"⌀ {sum(rewards) / len(rewards):.2f}" if rewards else "–"


def choose_group(draft: Draft, imported: Imported | None, index: int, *, by: int = 0) -> GroupView | Note:
    """Put group ``index + by`` on screen, going round at the ends."""
    if imported is None or not imported.groups:
        return Note("Open a file first.", level="info")
    chosen = (index + by) % len(imported)
    group = imported.groups[chosen]
    return GroupView(with_group(draft, group), chosen, f"group {chosen + 1} of {len(imported)}")


def with_suggestions(draft: Draft, imported: Imported) -> Draft:
    """The draft with the pattern that finds the file's own steps, the rewards that can score its data, and a scheme
    that reads them."""
    task, columns = suggested_task(imported), _columns(imported)
    rows = draft.rows if task is None else task_rows(draft.rows, task)
    draft = replace(draft, rows=tuple(None if row is None else row.for_data(columns) for row in rows))
    draft = draft.with_scheme_for_rewards()
    preset = PRESETS.get(imported.facts.preset or "")
    return draft if preset is None else draft.with_pattern(preset.pattern.regex, preset.pattern.kind)


def suggested_task(imported: Imported) -> Task | None:
    """A task in name only, whose rewards can score this data, or None where nothing special fits."""
    names = _columns(imported)
    rewards: list[RewardConfig] = []
    if imported.facts.format == "gsm8k":
        rewards = [RewardConfig(name="calculator_notes"), RewardConfig(name="gsm8k_answer", kind="outcome")]
    elif imported.facts.format == "generated":
        rewards = [RewardConfig(name="step_correctness"), RewardConfig(name="answer_correctness", kind="outcome")]
    else:
        for together in (list(map(find_builtin, listed)) for listed in FILE_REWARDS):
            if all(names.issuperset(builtin.columns) for builtin in together):
                rewards += [RewardConfig(name=builtin.name, kind=builtin.kind) for builtin in together]
    return (
        Task("imported", [], [], rewards=tuple(rewards), unchecked="imported answers are not checked")
        if rewards
        else None
    )


def _columns(imported: Imported) -> set[str]:
    """What the data says beside prompts and completions, by name."""
    return {
        name
        for group in imported.groups
        for columns in (group.columns, *(rollout.columns for rollout in group.rollouts))
        for name in columns
    }


# ── checking rewards ─────────────────────────────────────────────────────────────────────────────────────────────


def check_rewards(
    imported: Imported | None,
    draft: Draft,
    threshold: str,
    worker: Sandbox,
    readings: Readings,
    tab: str,
    models: Models | None = None,
) -> Iterator[CheckView]:
    """Hold every reward that is on against the file's labels; without a ``threshold``, at the best one."""
    if imported is None:
        yield _said(Note("Open a file with labels first.", level="info"))
        return
    try:
        least = float(threshold) if threshold.strip() else None
    except ValueError:
        yield _said(Note(f"{threshold!r} is no number; give the score from which a thing counts as right, or nothing."))
        return
    cancel = readings.begin(tab)
    if cancel is None:
        yield _said(Note("This page is reading or checking already; cancel that first."), None)
        return
    groups = imported.groups

    def check(report: Callable[[str], None]) -> list[RewardCheck]:
        pattern = draft.pattern()
        return [
            check_reward(
                groups,
                config,
                pattern=pattern,
                threshold=least,
                worker=worker,
                models=models,
                on_progress=lambda done, of, name=config.name: report(f"{name}: {done:,} of {of:,} groups"),  # type: ignore[misc]
                cancelled=cancel.is_set,
            )
            for config in portable_configs(draft)
        ]

    try:
        yield _said(Note("checking …", level="info"), True)
        with BackgroundWork(check, cancel) as work:
            for line in work:
                yield _said(Note(line, level="info"), True)
            yield _checked(work.result())
    except RewardError as error:
        yield _said(Note(str(error), line=error.line))
    except WorkbenchError as error:
        yield _said(Note(str(error)))
    finally:
        readings.end(tab)


def _said(note: Note, running: bool | None = False) -> CheckView:
    return CheckView((), (), (), note, running)


def _checked(checks: Sequence[RewardCheck]) -> CheckView:
    if not checks:
        return _said(Note("No reward function is on; switch one on or add one.", level="info"))
    worst = [(check, mistake) for check in checks for mistake in check.worst]
    notes = [f"{check.reward}: {note}" for check in checks for note in check.notes]
    return CheckView(
        rows=tuple(_check_row(check) for check in checks),
        worst=tuple(
            (
                check.reward,
                str(mistake.group + 1),
                str(mistake.rollout + 1),
                "–" if mistake.step is None else str(mistake.step + 1),
                f"{mistake.score:.3g}",
                "right" if mistake.label else "wrong",
                short(mistake.text),
            )
            for check, mistake in worst
        ),
        places=tuple((mistake.group, mistake.rollout) for _, mistake in worst),
        note=Note(f"{len(worst)} of the worst disagreements listed.", level="info", detail="\n".join(notes)),
    )


def _check_row(check: RewardCheck) -> tuple[str, ...]:
    agreement = check.given or check.best
    error = check.first_error
    return (
        check.reward,
        check.items,
        str(check.count),
        str(check.unscored),
        "–" if check.auc is None else f"{check.auc:.3f}",
        "–" if agreement is None else f"{agreement.share:.1%} from {agreement.threshold:.3g}",
        "–" if error is None or error.f1 is None else f"{error.f1:.1%}",
    )


def short(text: Prompt) -> str:
    """The beginning of a text on one line."""
    line = (text if isinstance(text, str) else text[-1]["content"]).replace("\n", " ↵ ")
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
