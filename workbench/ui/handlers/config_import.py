"""A configuration file opened in the page: it becomes the draft, and whose code it may run is asked first.

Code that nobody here has trusted is shown, and comes into no editor (where it would run at once) before somebody does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workbench.config.reading import decoded
from workbench.config.run import RunConfig
from workbench.data import HUB
from workbench.errors import ConfigError, WorkbenchError
from workbench.rewards import TrustStore
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.example import choose_example, find_task
from workbench.ui.handlers.rewards import keep_written
from workbench.ui.handlers.scoring import Note


@dataclass(frozen=True)
class Opened:
    """A configuration called ``name``, and what it would run with its user's rights that waits to be trusted."""

    name: str
    config: RunConfig
    foreign: tuple[tuple[str, str], ...]
    """(what it is called, its code)"""


def open_config(name: str, content: bytes, store: TrustStore) -> Opened:
    """Raises ConfigError for what is no configuration, or none that the page can hold."""
    config = RunConfig.from_yaml(decoded(content, name))
    draft = Draft.of(config)
    try:
        draft.values()
    except WorkbenchError as error:  # a built-in reward that there is none of
        raise ConfigError(f"{name}: {error}") from error
    foreign = [(part.name or "", part.foreign or "") for part in store.untrusted(config.foreign)]
    brought = f"# policy.trust_remote_code runs the modelling code that {config.policy.path} brings"
    if config.policy.trust_remote_code and not store.is_trusted(brought):
        foreign.append((config.policy.path, brought))
    return Opened(name, config, tuple(foreign))


def trust_opened(opened: Opened, store: TrustStore) -> Opened:
    """Somebody has read the code and said yes. Raises ConfigError where that cannot be remembered."""
    for _, code in opened.foreign:
        store.trust(code)
    return replace(opened, foreign=())


def take_over(draft: Draft, opened: Opened) -> tuple[Draft, Note]:
    """The page with the configuration, and what to say of it; the group on screen stays."""
    taken = draft.with_config(opened.config)
    rows, kept = keep_written(taken.rows, draft.rows)
    taken = replace(taken, rows=rows)
    note = Note("; ".join(filter(None, (f"the settings are those of {opened.name}", kept))), level="info")
    if taken.task == draft.task:
        return taken, note
    if taken.task.startswith(HUB):
        return taken, Note(f"{note.text}; its task is loaded once an example of it is chosen", level="info")
    try:
        return choose_example(taken, 0, task=find_task(taken.task_section())), note
    except WorkbenchError as error:
        return taken, Note(f"{note.text}, but its task cannot be shown: {error}", level="warning")


def opened_note(opened: Opened) -> Note:
    """The code to read before the configuration is taken over."""
    names = ", ".join(name for name, _ in opened.foreign)
    return Note(
        f"{opened.name} brings code that was not run here before ({names}). Read it; press Trust, and it runs "
        "with your rights.",
        level="warning",
        detail="\n\n".join(f"# {name}\n{code.rstrip()}" for name, code in opened.foreign),
    )
