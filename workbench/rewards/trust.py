"""Trusted reward code: hashes of code that a user typed or approved.

Code that came with a shared configuration is shown and not run until its SHA-256 is in the workspace's ``trusted.txt``:
one hash a line, readable by its owner alone. This is about not running what nobody has looked at; the reward worker's
seal does not make foreign code safe.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from workbench.config import EnvironmentSection, RewardConfig
from workbench.errors import ConfigError, RewardError

FILE = "trusted.txt"
Foreign = RewardConfig | EnvironmentSection
"""What may bring code of somebody's."""


def hash_of(code: str) -> str:
    """SHA-256 of the code's UTF-8, as 64 hexadecimal digits."""
    return sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


class TrustStore:
    """The hashes trusted in one workspace. Several processes may add at once."""

    def __init__(self, workspace: Path) -> None:
        self.path = workspace / FILE

    def is_trusted(self, code: str) -> bool:
        return hash_of(code) in self._hashes()

    def trust(self, code: str) -> None:
        """Remember that this very code may run. Raises ConfigError where the workspace cannot be written."""
        if self.is_trusted(code):
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(file, 0o600)
                os.write(file, f"{hash_of(code)}\n".encode())
            finally:
                os.close(file)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written ({error.strerror}); nothing was trusted") from error

    def untrusted(self, rewards: Iterable[Foreign]) -> Iterator[Foreign]:
        """Those whose code is not trusted yet."""
        return (reward for reward in rewards if reward.foreign is not None and not self.is_trusted(reward.foreign))

    def require(self, rewards: Sequence[Foreign], source: str) -> None:
        """Raises ConfigError, with the code itself, where ``source`` brings code that nobody has trusted yet."""
        foreign = list(self.untrusted(rewards))
        if not foreign:
            return
        shown = "\n\n".join(
            f"# {reward.name} (sha256 {hash_of(reward.foreign or '')[:16]}…)\n{(reward.foreign or '').rstrip()}"
            for reward in foreign
        )
        names = ", ".join(repr(reward.name) for reward in foreign)
        raise ConfigError(
            f"{source} brings code that was not run here before ({names}); read it and, if it may run with your "
            f"rights, pass --trust:\n\n{shown}\n"
        )

    def require_agreed(self, reward: RewardConfig) -> None:
        """Raises RewardError for a reward that leaves the seal where nobody agreed to this very one."""
        if reward.leaves_the_seal is not None and not self.is_trusted(reward.foreign or ""):
            raise RewardError(
                f"reward {reward.name!r} {reward.leaves_the_seal}, and nobody agreed to it as it is now; read it, then "
                "press trust below it, or pass --trust",
                reward=reward.name,
            )

    def _hashes(self) -> frozenset[str]:
        try:
            return frozenset(self.path.read_text(encoding="ascii", errors="replace").split())
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read ({error.strerror}); no imported code is trusted") from error
