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
    ├── EngineError             a server that trains a run gave no answer, or refused
    ├── EpisodeError            an environment that cannot be used, or failed in an episode (``line``)
    ├── ConfigError             a configuration that cannot work
    ├── CreditError             step rewards, step ends and lengths that do not fit together
    └── RunError                a run that cannot be started, stopped or read

Messages and logs are shown and kept without secrets: tokens, keys and passwords become ``[redacted]``. ``redact_known``
takes out what cannot be anything else: a token in a provider's own format, the password of a URL, the very values that
this process's environment holds under names like HF_TOKEN. It is safe on source code. ``redact`` also takes out the
values of ``password=…`` and the like. A secret in no known format that is not in the environment either is not found.
Formats: https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns

Nothing of ours is imported here.
"""

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TextIO


class WorkbenchError(Exception):
    """Base of all of them: catching this catches what a user's input can cause. Keywords become attributes."""

    def __init__(self, message: str = "", **about: Any) -> None:
        super().__init__(message)
        vars(self).update(about)


class PatternError(WorkbenchError):
    """A step pattern that cannot be used."""


class PatternSyntaxError(PatternError):
    position: int | None = None


class PatternTooSlow(PatternError):
    sample: int | None = None


class TooManySteps(PatternError):
    """A pattern finds more steps in a text than can be shown."""


class RewardError(WorkbenchError):
    """A reward function failed: which one, at which line of its source, on which rollout and step (0-based).

    ``prints`` is what its code had printed by then, as ``RewardSummary`` has it.
    """

    reward: str | None = None
    line: int | None = None
    rollout: int | None = None
    step: int | None = None
    prints: Mapping[int | None, str] = {}


class RewardCodeError(RewardError):
    """A reward's source does not compile, or defines no reward."""


class RewardValueError(RewardError):
    """A reward function returned something other than finite numbers or None."""


class RewardTimeout(RewardError):
    """A reward function ran over the deadline."""


class ChildError(WorkbenchError):
    """A child process gave no reply."""


class ChildDied(ChildError):
    """A child process ended on its own."""


class ChildTimeout(ChildError):
    seconds: float | None = None


class ChildFailed(ChildError):
    """A child process's handler raised something unexpected."""


class TaskError(WorkbenchError):
    """A task or data file cannot be read."""


class PolicyError(WorkbenchError):
    """A policy cannot be loaded or sampled."""


class EngineError(WorkbenchError):
    """A server that trains a run gave no answer, or refused."""


class EpisodeError(WorkbenchError):
    """An environment failed: at which line of its source, after it had ``printed`` what."""

    line: int | None = None
    printed: str = ""


class ConfigError(WorkbenchError, ValueError):
    """A configuration cannot work."""


class CreditError(WorkbenchError):
    """Step rewards, step ends and lengths do not fit together."""


class RunError(WorkbenchError):
    """A run cannot be started, stopped or read."""


def did_you_mean(name: object, names: Iterable[object]) -> str:
    """Return ``; did you mean 'x'?`` for a name like one of ``names``, "" if none is: the end of a message.

    Alike are words of nearly the same letters, and one that is a good part of the other.
    """
    word, known = str(name), [str(one) for one in names]
    close = get_close_matches(word, known, n=1, cutoff=0.7)
    if not close and len(word.lstrip("-")) > 2:
        close = [one for one in get_close_matches(word, known) if word in one or one in word]
    return f"; did you mean {close[0]!r}?" if close else ""


def quote(value: object, most: int = 120) -> str:
    """A value as a message shows it: its ``repr``, cut where it is long."""
    return cut(repr(value), most)


def cut(text: str, most: int = 120) -> str:
    """The beginning of a text, and how long it is, where it is longer than a message should be."""
    return text if len(text) <= most else f"{text[:most]}…, {len(text):,} characters"


REDACTED = "[redacted]"

_TOKENS = re.compile(
    r"""(?<![A-Za-z0-9_])(?:
        hf_[A-Za-z0-9]{16,} | api_org_[A-Za-z0-9]{16,}          # Hugging Face
      | sk-(?=[\w-]{0,60}\d)[\w-]{20,}                          # OpenAI, Anthropic and who copies them
      | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}
      | AKIA[0-9A-Z]{16} | AIza[\w-]{30,} | xox[abposr]-[\w-]{10,}
      | wandb_v\d_\w{20,} | nvapi-[\w-]{20,} | gsk_\w{20,} | r8_\w{20,} | pypi-[\w-]{20,}
      | eyJ[\w-]{10,2000}\.eyJ[\w-]{10,2000}\.[\w-]{10,}                # a JSON Web Token
    )""",
    re.VERBOSE,
)
_URL_PASSWORD = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{1,20}://)[^\s/?#@'\"]{1,400}@", re.IGNORECASE)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,20000}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)
_NAMED = re.compile(
    r"""(?P<name>(?<![A-Za-z0-9])[\w-]{0,40}?(?:password|passwd|secret|api[_-]?key|access[_-]?key|auth[_-]?token|
        access[_-]?token|hf[_-]?token|(?<=[?&])token)['"]?\s{0,3})
        (?P<sign>=\s{0,3}['"]?|:\s{0,3}['"]?(?![^\s'"]*[^\S\n]+\w))                # not the first of some words
        (?!\[redacted)[^\s'"&,;)\]}]{4,}""",
    re.VERBOSE | re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<name>\b(?:bearer|basic)\s{1,3})[A-Za-z0-9._~+/=-]{12,}", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|SECRET_?KEY|ACCESS_?KEY|_AUTH)$", re.I
)
_SHORTEST_OF_ALL = 7  # characters of an address with a password, ab://x@
_SHORTEST = 8  # characters of an environment's secret; a shorter one would blank out ordinary words


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """``text`` for a log or a message, without its secrets. ``environment`` is by default this process's own."""
    text = _NAMED.sub(lambda match: match["name"] + match["sign"] + REDACTED, redact_known(text, environment))
    return _BEARER.sub(lambda match: match["name"] + REDACTED, text)


def redact_known(text: str, environment: Mapping[str, str] | None = None) -> str:
    """``text`` without what is certainly a secret; everything else is left as it was, code included."""
    if len(text) < _SHORTEST_OF_ALL:
        return text
    values = os.environ if environment is None else environment
    found = (values.get(name, "") for name in values if _is_secret(name))  # not items(): os.environ decodes every value
    secret_values = _own_values(tuple(sorted(found)))
    if secret_values is not None:
        text = secret_values.sub(REDACTED, text)
    text = _TOKENS.sub(REDACTED, text)
    text = _PRIVATE_KEY.sub(REDACTED, text)
    return _URL_PASSWORD.sub(lambda match: f"{match['scheme']}{REDACTED}@", text)


class RedactedStream:
    """A text stream that takes the secrets out of whatever is written to it, one ``write`` at a time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redact(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


@lru_cache(maxsize=8)
def _own_values(values: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return what matches any of the values, the longest first; None without one long enough to be a secret."""
    secrets = sorted({value for value in values if len(value) >= _SHORTEST}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, secrets))) if secrets else None
