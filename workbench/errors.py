"""Every error a user can meet, each with the value, the limit and the next thing to do in its message.

::

    WorkbenchError
    ├── PatternError            a step pattern that cannot be used
    │   ├── PatternSyntaxError      does not compile (``position``)
    │   ├── PatternTooSlow          ran over the time limit (``sample``)
    │   └── TooManySteps            finds more steps in a text than can be shown
    ├── RewardError             a reward function that failed (``reward``, ``line``, ``rollout``, ``step``)
    │   ├── RewardCodeError         its source does not compile, or defines no reward
    │   ├── RewardValueError        returned something other than finite numbers or None
    │   └── RewardTimeout           ran over the deadline
    ├── ChildError              a child process that gave no reply
    │   ├── ChildDied               ended on its own
    │   ├── ChildTimeout            ran over the deadline and was killed (``seconds``)
    │   └── ChildFailed             its handler raised something unexpected
    ├── TaskError               a task or data file that cannot be read
    ├── PolicyError             a policy that cannot be loaded or sampled
    ├── EpisodeError            an environment that cannot be used, or failed in an episode (``line``)
    ├── ConfigError             a configuration that cannot work
    ├── CreditError             step rewards, step ends and lengths that do not fit together
    └── RunError                a run that cannot be started, stopped or read

Nothing of ours is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class WorkbenchError(Exception):
    """Base of all of them: catching this catches what a user's input can cause."""


class PatternError(WorkbenchError):
    pass


class PatternSyntaxError(PatternError):
    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class PatternTooSlow(PatternError):
    def __init__(self, message: str, sample: int | None = None) -> None:
        super().__init__(message)
        self.sample = sample


class TooManySteps(PatternError):
    pass


class RewardError(WorkbenchError):
    """A reward function failed: which one, at which line of its source, on which rollout and step (0-based)."""

    def __init__(
        self,
        message: str,
        *,
        reward: str | None = None,
        line: int | None = None,
        rollout: int | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reward = reward
        self.line = line
        self.rollout = rollout
        self.step = step


class RewardCodeError(RewardError):
    pass


class RewardValueError(RewardError):
    pass


class RewardTimeout(RewardError):
    pass


class ChildError(WorkbenchError):
    pass


class ChildDied(ChildError):
    pass


class ChildTimeout(ChildError):
    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class ChildFailed(ChildError):
    pass


class TaskError(WorkbenchError):
    pass


class PolicyError(WorkbenchError):
    pass


class EpisodeError(WorkbenchError):
    """An environment failed: at which line of its source, after it had ``printed`` what."""

    def __init__(self, message: str, *, line: int | None = None, printed: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.printed = printed


class ConfigError(WorkbenchError, ValueError):
    pass


class CreditError(WorkbenchError):
    pass


class RunError(WorkbenchError):
    pass


def did_you_mean(name: object, names: Iterable[object]) -> str:
    """``; did you mean 'x'?`` for a name that is close to one of ``names``, else nothing: the end of a message."""
    close = get_close_matches(str(name), [str(known) for known in names], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: object, most: int = 120) -> str:
    """A value as a message shows it: its ``repr``, cut where it is long."""
    return cut(repr(value), most)


def cut(text: str, most: int = 120) -> str:
    """The beginning of a text, and how long it is, where it is longer than a message should be."""
    return text if len(text) <= most else f"{text[:most]}…, {len(text):,} characters"
