"""A configuration opened in the page: it becomes the draft.

One that comes from a file opens with its code isolated, and with what no isolation reaches switched off: judges, which
send text and a key to an address, and the modelling code that a model brings. Its reader switches them on.
"""

from __future__ import annotations

from dataclasses import replace

from workbench.config.reading import decoded
from workbench.config.run import RunConfig
from workbench.data import HUB
from workbench.errors import ConfigError, WorkbenchError
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.example import choose_example, find_task
from workbench.ui.handlers.fields import ISOLATE
from workbench.ui.handlers.reward_rows import RewardRow
from workbench.ui.handlers.rewards import keep_written
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.tree import with_path


def open_config(draft: Draft, name: str, content: bytes) -> tuple[Draft, Note]:
    """The page with the configuration of a file called ``name``, and what to say of it.

    Raises ConfigError for what is no configuration, or none that the page can hold.
    """
    config = RunConfig.from_yaml(decoded(content, name))
    opened, note = take_over(draft, name, config)
    said = []
    brings_code = config.environment.code is not None or any(row.fields.get("code") for row in opened.rows)
    if brings_code:
        said.append("its code runs isolated until you switch that off")
    off = [row.name for row in opened.rows if _reaches_out(row)]
    if off:
        said.append(f"off until you switch it on, as it reaches beyond this page: {', '.join(off)}")
    rows = tuple(replace(row, on=row.on and not _reaches_out(row)) for row in opened.rows)
    opened = replace(opened, rows=rows, tree=with_path(opened.tree, ISOLATE, True))
    if config.policy.trust_remote_code:
        said.append("policy.trust_remote_code is left out, as it runs code that the model brings")
        opened = replace(opened, tree=with_path(opened.tree, "policy.trust_remote_code", False))
    return opened, replace(note, text="; ".join([note.text, *said]), level="warning" if said else note.level)


def _reaches_out(row: RewardRow) -> bool:
    return row.judge is not None or (row.model is not None and row.model.trust_remote_code)


def take_over(draft: Draft, name: str, config: RunConfig) -> tuple[Draft, Note]:
    """The page with the configuration called ``name``, and what to say of it; the group on screen stays.

    Raises ConfigError for one that the page cannot hold.
    """
    try:
        _ = [row.code for row in Draft.of(config).rows if row is not None]
    except WorkbenchError as error:  # a built-in reward that there is none of
        raise ConfigError(f"{name}: {error}") from error
    taken = draft.with_config(config)
    rows, kept = keep_written(taken.rows, draft.rows)
    taken = replace(taken, rows=rows)
    note = Note("; ".join(filter(None, (f"the settings are those of {name}", kept))), level="info")
    if taken.task == draft.task:
        return taken, note
    if taken.task.startswith(HUB):
        return taken, Note(f"{note.text}; its task is loaded once an example of it is chosen", level="info")
    try:
        return choose_example(taken, 0, task=find_task(taken.task_section())), note
    except WorkbenchError as error:
        return taken, Note(f"{note.text}, but its task cannot be shown: {error}", level="warning")
