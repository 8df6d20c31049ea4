"""The form of a credit scheme: a function of a batch, the parts that it returns, and what it needs of a group.

The keyword arguments of a scheme's function are its options, beside those that every scheme has (``SHARED``); checks
and the page's form are made from them. Laying parts out in tokens and explaining them is the parts' own business
(``schema.credit``). Knows no scheme by name.

Notation of all schemes: completion i has steps k with rewards r_{i,k} that end at token e_{i,k}; R_i is its outcome
reward; r~ and z are the normalisation of ``normalise`` over the group's scored values (or whatever ``normalise``
selects).
"""

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from workbench.credit.batch import Batch, Floats, Normalise, Normalised, z_within
from workbench.errors import CreditError, did_you_mean, quote
from workbench.schema import Carry, CreditPart, PartKind, Unit

# --- a scheme's options, from its own signature -----------------------------------------------------------------------

Value = bool | float | str | None


@dataclass(frozen=True)
class Range:
    """A number's meaning and its bounds, both included."""

    help: str
    low: float
    high: float


@dataclass(frozen=True)
class Option:
    """One option as a form shows it; ``choices`` for a name, ``low`` and ``high`` for a number."""

    name: str
    kind: Literal["switch", "number", "choice"]
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    def check(self, value: Any) -> Value:
        """The value, as its kind. Raises CreditError naming the option, the value and what would fit."""
        if self.kind == "switch":
            if not isinstance(value, bool):
                raise CreditError(f"{self.name} is {quote(value)}; use true or false")
            return value
        if self.kind == "choice":
            if value not in self.choices:
                raise CreditError(f"{self.name} is {quote(value)}; choose one of {', '.join(self.choices)}")
            return str(value)
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        assert self.low is not None and self.high is not None  # noqa: PT018
        if not fits or not self.low <= value <= self.high or not math.isfinite(value):
            raise CreditError(f"{self.name} is {quote(value)}; use a number from {self.low:g} to {self.high:g}")
        return float(value)

    def from_text(self, text: str) -> Value:
        """Read text from a shell or a file as this option's kind; text that means nothing comes back as it is."""
        if self.kind == "switch":
            return {"true": True, "false": False}.get(text.lower(), text)
        if self.kind == "number":
            with suppress(ValueError):
                return float(text)
        return text


SHARED_HELP = {
    "normalise": "What a reward is compared with before it becomes an advantage",
    "scale": "Divide by the standard deviation (off is Dr. GRPO's choice)",
}
MODIFIERS: dict[str, Option] = {
    option.name: option
    for option in (
        Option(
            "outcome_weight",
            "number",
            0.0,
            "Weight α of α · z(R), the normalised outcome reward, added to every token; no effect in schemes that "
            "count the outcome themselves",
            low=-100.0,
            high=100.0,
        ),
        Option("clip", "number", 0.0, "Bound on the size of an advantage; 0 for none", low=0.0, high=1e6),
        Option(
            "drop_duplicates",
            "switch",
            False,
            "Compare each distinct completion once: an exact copy has advantage 0 and no part in the loss",
        ),
        Option("each_reward", "switch", False, "Normalise each reward function's scores before they are summed (GDPO)"),
        Option("oar", "switch", False, "Weigh each token by how much the right answer's probability depends on it"),
        Option("oar_threshold", "number", 0.25, "Share of an answer's tokens that OAR weakens", low=0.0, high=1.0),
        Option(
            "oar_boost", "number", 1.0, "What OAR adds to the weight of the most important token", low=0.0, high=100.0
        ),
        Option(
            "gate",
            "choice",
            "none",
            "Which groups train: all, or those whose answers differ in outcome; others have advantage 0",
            ("none", "outcome"),
        ),
    )
}
"""What every scheme has beside its own options: configuration, trainer, page and docs take it from here."""
SHARED = tuple(MODIFIERS)
OF_SCORES = ("drop_duplicates", "each_reward")
"""The modifiers of a scored group's rewards, which are settled before a scheme sees them."""
GAMMA = Option("gamma", "number", 1.0, "Discount of a step for each step before it", low=0.0, high=1.0)


@cache  # of as many as there are schemes
def options_of(compute: Callable[..., Any]) -> tuple[Option, ...]:
    """The keyword arguments of a scheme's function as options."""
    hints, options = get_type_hints(compute, include_extras=True), []
    for name, parameter in inspect.signature(compute).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        # Annotated[float, Range(…)], or Annotated with a help text of a bool or a Literal
        hint, default = hints[name], parameter.default
        kind, about = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, SHARED_HELP.get(name))
        assert about is not None, f"option {name!r} needs a help text, or a Range for a number"
        if isinstance(about, Range):
            options.append(Option(name, "number", default, about.help, low=about.low, high=about.high))
        else:
            choices = get_args(kind)
            options.append(Option(name, "choice" if choices else "switch", default, about, choices))
    return tuple(options)


def resolve(scheme: str, options: tuple[Option, ...], values: Mapping[str, Any]) -> tuple[dict[str, Value], list[str]]:
    """Every option of a scheme with its value, given or default (a given None is the default); and what has no effect.

    Raises CreditError for an option that is unknown or out of range.
    """
    known = {option.name: option for option in options}
    values = {name: value for name, value in values.items() if value is not None}
    idle = []
    for name, value in values.items():
        if name in known:
            continue
        if name != "gamma":
            raise CreditError(
                f"scheme {scheme!r} has no option {quote(name)}{did_you_mean(name, known)}; it has "
                f"{', '.join((*known, *SHARED))}"
            )
        if GAMMA.check(value) != 1.0:
            idle.append(f"gamma {value:g} has no effect with scheme {scheme!r}, which sums no later steps")
    settled = {name: option.check(values.get(name, option.default)) for name, option in known.items()}
    if values.get("scale") is True and settled.get("normalise") == "none":
        idle.append("scale has no effect while normalise is 'none'")
    return settled, idle


# --- schemes and their parts ---------------------------------------------------------------------------------------

Gamma = Annotated[float, Range("Discount of a step for each step before it", 0.0, 1.0)]
Threshold = Annotated[float, Range("A step with a lower reward is an error", -1e6, 1e6)]
RightFrom = Annotated[float, Range("An answer whose outcome reward is at least this is right", -1e6, 1e6)]

Need = Literal["steps", "outcome", "token_ids", "states"]
"""What a scheme cannot do without: step rewards, outcome rewards, the completions' token ids, the states in which steps
begin."""


@dataclass(frozen=True)
class Part:
    """A ``CreditPart`` of a whole batch, before it is cut into groups.

    ``values`` has an entry a step, a sampled token where that is the ``unit``, or a completion for the carry ``all``;
    ``factor`` (None for 1) multiplies it.
    """

    kind: PartKind
    carry: Carry
    values: Normalised
    factor: Floats | None = None
    gamma: float = 1.0
    warnings: dict[int, str] = field(default_factory=dict)
    """What to say of a completion, by its number in the batch."""
    group_warnings: dict[int, str] = field(default_factory=dict)
    """What to say of a group, by its number in the batch."""
    unit: Unit = "step"

    def of_members(self, batch: Batch, first: int, after: int) -> CreditPart:
        """The part of the completions ``first`` to ``after`` (exclusive) of the batch."""
        offsets = self._offsets(batch)[first : after + 1]
        entries = slice(offsets[0], offsets[-1])
        factor = np.ones(len(self.values.raw)) if self.factor is None else self.factor
        values = self.values
        return CreditPart(
            self.kind,
            self.carry,
            offsets - offsets[0],
            values.raw[entries],
            values.mean[entries],
            values.std[entries],
            values.value[entries],
            factor[entries],
            self.gamma,
            self.unit,
            values.centre,
        )

    def _offsets(self, batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return where each completion's entries lie, (B + 1,)."""
        if self.carry == "all":
            return np.arange(batch.completions + 1)
        return batch.token_offsets if self.unit == "token" else batch.offsets


@dataclass(frozen=True)
class Scheme:
    """A function of a batch, with what is said of it and what it needs. Its options are its own; it may have none."""

    name: str
    _: KW_ONLY
    formula: str
    reference: str
    compute: Callable[..., Part | tuple[Part, ...]]
    """The parts whose sum an advantage is; the first one's numbers are shown beside the steps."""
    counts: str = ""
    """What a token's advantage is made of, in words."""
    needs: tuple[Need, ...] = ("steps",)
    per_completion: bool = False
    """All tokens of a completion have the same advantage."""
    takes_outcome: bool = False
    """It counts the outcome reward where there is one, though it can do without."""

    @property
    def summary(self) -> str:
        return (self.compute.__doc__ or "").strip().splitlines()[0]

    @property
    def options(self) -> tuple[Option, ...]:
        """The scheme's own options, from its signature."""
        return options_of(self.compute)

    @property
    def counts_outcome(self) -> bool:
        """The outcome is part of it already, so that ``outcome_weight`` would count it twice: it has no effect."""
        return self.takes_outcome or "outcome" in self.needs

    @property
    def outcome_only(self) -> bool:
        """It reads outcome rewards alone, so that step rewards teach nothing under it."""
        return "steps" not in self.needs and "states" not in self.needs


def pooled(batch: Batch, values: Floats, how: Normalise, scale: bool) -> Normalised:
    """One value a step, compared with all steps of its group."""
    return z_within(values, batch.step_group, batch.completion, how, scale)


def by_completion(batch: Batch, values: Floats, how: Normalise, scale: bool) -> Normalised:
    """One value a completion, compared with all completions of its group."""
    return z_within(values, batch.group, np.arange(batch.completions), how, scale)


def outcomes_of(batch: Batch) -> Floats:
    """R of each completion, (B,), of a batch whose scheme needs it."""
    assert batch.outcomes is not None, "what a scheme needs is checked before it is computed"
    return batch.outcomes
