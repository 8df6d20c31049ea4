"""A configuration file opened in the page: its pattern and rewards, and whose code may run.

Code that nobody here has trusted is shown, and comes into no editor (where it would run at once) before somebody does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workbench.config import RewardConfig, RunConfig
from workbench.errors import ConfigError
from workbench.rewards import TrustStore
from workbench.ui.handlers.rewards import EMPTY_SLOT, config_slot
from workbench.ui.handlers.scoring import Note, SlotValues
from workbench.ui.handlers.session import SLOTS

MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class Opened:
    """A configuration called ``name``, and those of its rewards whose code waits to be trusted."""

    name: str
    config: RunConfig
    foreign: tuple[RewardConfig, ...]

    @property
    def slots(self) -> tuple[SlotValues, ...]:
        """The rows of the list of reward functions. Only of use once nothing is foreign."""
        listed = tuple(config_slot(config) for config in self.config.rewards)
        return listed + (EMPTY_SLOT,) * (SLOTS - len(listed))


def open_config(name: str, content: bytes, store: TrustStore) -> Opened:
    """Raises ConfigError for what is no configuration, or has more reward functions than the page."""
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{name} has {len(content):,} bytes; a configuration may have {MAX_BYTES:,}")
    try:
        config = RunConfig.from_yaml(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    if len(config.rewards) > SLOTS:
        raise ConfigError(f"{name} has {len(config.rewards)} reward functions; {SLOTS} fit on the page")
    return Opened(name, config, tuple(store.untrusted(config.rewards)))


def trust_opened(opened: Opened, store: TrustStore) -> Opened:
    """Somebody has read the code and said yes. Raises ConfigError where that cannot be remembered."""
    for reward in opened.foreign:
        assert reward.foreign is not None
        store.trust(reward.foreign)
    return replace(opened, foreign=())


def opened_note(opened: Opened) -> Note:
    """What came of opening it: the code to read, or what was taken over."""
    if not opened.foreign:
        return Note(f"pattern and rewards are those of {opened.name}", level="info")
    names = ", ".join(one.name for one in opened.foreign)
    return Note(
        f"{opened.name} brings reward code that was not run here before ({names}). Read it; press Trust, and it runs "
        "with your rights.",
        level="warning",
        detail="\n\n".join(f"# {one.name}\n{(one.foreign or '').rstrip()}" for one in opened.foreign),
    )
