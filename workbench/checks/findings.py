"""Findings: the one record of pre-flight, clinic, alarms and a reward held against labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "check", "stop"]
LEVELS: tuple[Level, ...] = ("ok", "check", "stop")


@dataclass(frozen=True)
class Finding:
    """One line: ``value`` is the measured number as text, ``meaning`` what it says, ``advice`` what to do ("" if fine).

    ``level``: ``ok``; ``check``, worth a look; ``stop``, nothing would be learnt: every advantage is 0, or a reward
    function fails. ``where`` is what to look at: curves of a run, a reward, an edit. ``since`` is the training step
    from which it has been so, None where that is not known.
    """

    name: str
    level: Level
    value: str
    meaning: str
    advice: str = ""
    where: tuple[str, ...] = ()
    since: int | None = None

    @property
    def text(self) -> str:
        return f"{self.level}: {self.meaning}" + (f"; {self.advice}" if self.advice else "")


def worst_level(findings: Iterable[Finding]) -> Level:
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")
