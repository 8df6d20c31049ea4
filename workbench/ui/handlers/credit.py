"""The credit form: which fields there are, which of them a scheme shows, and what they hold as a configuration.

The fields are the schemes' own options (``credit.Scheme.options``), each once, and the two that all schemes share; a
scheme that gets a new keyword argument gets a new field here without a line of the page being touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from workbench.config import CreditConfig
from workbench.credit import SCHEMES, Option
from workbench.errors import ConfigError

NOTHING = "nothing"
"""The choice that compares with no second scheme."""
LABELS = {
    "normalise": "Normalise",
    "scale": "÷ std",
    "gamma": "Discount γ",
    "temperature": "Softmax T",
    "threshold": "Error below",
    "outcome_weight": "Outcome weight",
    "clip": "Clip |A|",
}


def _fields() -> tuple[Option, ...]:
    own: dict[str, Option] = {}
    for scheme in SCHEMES.values():
        for option in scheme.options:
            own.setdefault(option.name, option)
    weight = Option("outcome_weight", "number", 0.0, "Weight α of α · z(R), added to every token", low=-100, high=100)
    clip = Option("clip", "number", 0.0, "Bound on the size of an advantage; 0 for none", low=0, high=1e6)
    return (weight, *own.values(), clip)


FIELDS = _fields()


@dataclass(frozen=True)
class CreditForm:
    """A scheme and what the fields hold, in the order of FIELDS; a field that the scheme does not show is not read."""

    scheme: str
    values: tuple[Any, ...]

    def config(self) -> CreditConfig:
        """Raises ConfigError naming the field that does not fit."""
        own = {option.name for option in SCHEMES[self.scheme].options}
        given = {field.name: value for field, value in zip(FIELDS, self.values, strict=True) if value is not None}
        if not given.get("clip"):  # a number field cannot be empty
            given.pop("clip", None)
        shared = {name for name in CreditConfig.model_fields if name in own or name in ("outcome_weight", "clip")}
        fields = {name: value for name, value in given.items() if name in shared}
        options = {name: value for name, value in given.items() if name in own - shared}
        try:
            return CreditConfig(scheme=self.scheme, **fields, options=options)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            raise ConfigError(f"credit {name}: {first['msg']} (got {first['input']})") from error

    @property
    def changed(self) -> dict[str, Any]:
        """What somebody set: the fields the scheme shows whose value is not its default."""
        fields = zip(FIELDS, self.values, default_values(self.scheme), visible_fields(self.scheme), strict=True)
        return {
            field.name: value
            for field, value, default, visible in fields
            if visible and value is not None and value != default
        }

    @property
    def summary(self) -> str:
        """The scheme and whatever is not its default, in a few words."""
        return ", ".join(
            [self.scheme, *(f"{LABELS.get(name, name)} {_shown(value)}" for name, value in self.changed.items())]
        )


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, int | float) else str(value).replace("_", " ")


def credit_form(scheme: str, values: Sequence[Any] | None = None) -> CreditForm:
    return CreditForm(scheme, tuple(values) if values is not None else default_values(scheme))


def visible_fields(scheme: str) -> tuple[bool, ...]:
    """Which of FIELDS the scheme has."""
    own = (
        {option.name for option in SCHEMES[scheme].options} | {"outcome_weight", "clip"} if scheme in SCHEMES else set()
    )
    return tuple(field.name in own for field in FIELDS)


def default_values(scheme: str) -> tuple[Any, ...]:
    """What FIELDS hold where nobody changed them; a field the scheme does not have keeps the first scheme's."""
    own = {option.name: option.default for option in SCHEMES[scheme].options} if scheme in SCHEMES else {}
    return tuple(own.get(field.name, field.default) for field in FIELDS)


def carried_over(before: str, after: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The fields when the scheme changes: what somebody set stays, the rest becomes the new scheme's default."""
    pairs = zip(values, default_values(before), default_values(after), strict=True)
    return tuple(new if value == old else value for value, old, new in pairs)
