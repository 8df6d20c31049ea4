"""The credit form: its fields, which of them a scheme shows, and what they hold as a section of the configuration.

The fields are the schemes' own options (``credit.Scheme.options``), each once, and those that all schemes share; a
scheme that gets a new keyword argument gets a new field here without a line of the page being touched.

A section is plain: the scheme, and what somebody set, under the names of ``CreditConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.config import CreditConfig
from workbench.credit import SCHEMES, SHARED, Option
from workbench.errors import ConfigError

Section = Mapping[str, Any]

NONE = "none"
"""The choice that compares with no second scheme."""
LABELS = {
    "normalise": "Normalise",
    "scale": "÷ std",
    "gamma": "Discount γ",
    "temperature": "Softmax T",
    "threshold": "Error below",
    "right_from": "Right if reward ≥",
    "process_weight": "Process weight",
    "token_weight": "Token weight",
    "prior_mean": "Prior mean",
    "prior_std": "Prior std",
    "outcome_weight": "Outcome weight",
    "clip": "Clip |A|",
    "drop_duplicates": "Drop copies",
    "each_reward": "Each reward alone",
}


def _fields() -> tuple[Option, ...]:
    options: dict[str, Option] = {}
    for scheme in SCHEMES.values():
        for option in scheme.options:
            options.setdefault(option.name, option)
    weight = Option("outcome_weight", "number", 0.0, "Weight α of α · z(R), added to every token", low=-100, high=100)
    clip = Option("clip", "number", 0.0, "Bound on the size of an advantage; 0 for none", low=0, high=1e6)
    drop = Option(
        "drop_duplicates",
        "switch",
        False,
        "Compare each distinct completion once: an exact copy has advantage 0 and no part in the loss",
    )
    each = Option(
        "each_reward", "switch", False, "Normalise each reward function's scores before they are summed (GDPO)"
    )
    return (weight, *options.values(), clip, drop, each)


FIELDS = _fields()


# ── sections ─────────────────────────────────────────────────────────────────────────────────────────────────────


def credit_section(scheme: str, **options: Any) -> Section:
    """The section of a scheme with options by name; None and a clip of 0 stand for nothing set."""
    section: dict[str, Any] = {"scheme": scheme}
    for name, value in options.items():
        section = _with_option(section, name, value)
    return section


def section_of(config: CreditConfig) -> Section:
    return {"scheme": config.scheme} | config.model_dump(exclude_defaults=True)


def credit_config(section: Section, path: str = "method.credit") -> CreditConfig:
    """Raises ConfigError naming the field that does not fit."""
    try:
        return CreditConfig.parse(section)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{path}.{line}" for line in str(error).splitlines())) from error


def shown_values(section: Section | None) -> dict[str, Any]:
    """What each of FIELDS shows, by name: what is set, or its default; no section shows the first scheme's."""
    set_here = _options(section or {})
    defaults = zip(FIELDS, default_values(section["scheme"] if section else NONE), strict=True)
    return {field.name: set_here.get(field.name, default) for field, default in defaults}


def read_section(before: Section | None, scheme: Any, values: Mapping[str, Any]) -> Section | None:
    """The section that the form holds, None where no scheme is chosen; what shows as ``before`` stays as it was."""
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        return None
    section = before if before is not None and before["scheme"] == scheme else {"scheme": scheme}
    shown = shown_values(section)
    defaults = zip(FIELDS, default_values(scheme), visible_fields(scheme), strict=True)
    for field, default, visible in defaults:
        value = values.get(field.name)
        if visible and value != shown[field.name]:
            section = _with_option(section, field.name, None if value == default else value)
    return section


def changed(section: Section) -> dict[str, Any]:
    """What differs from the scheme's defaults, by name."""
    scheme = section["scheme"]
    set_here = _options(section)
    defaults = zip(FIELDS, default_values(scheme), visible_fields(scheme), strict=True)
    return {
        field.name: set_here[field.name]
        for field, default, visible in defaults
        if visible and set_here.get(field.name, default) != default
    }


def summary(section: Section) -> str:
    """The scheme and whatever is not its default, in a few words."""
    parts = (f"{LABELS.get(name, name)} {_in_words(value)}" for name, value in changed(section).items())
    return ", ".join([section["scheme"], *parts])


def for_scheme(section: Section, scheme: str) -> Section:
    """Another scheme, with what somebody set that it has too."""
    if scheme == section["scheme"]:
        return section
    values = tuple(shown_values(section).values())
    names = (field.name for field in FIELDS)
    moved = dict(zip(names, carried_over(section["scheme"], scheme, values), strict=True))
    return read_section(None, scheme, moved) or section


def with_settings(section: Section, settings: Mapping[str, Any]) -> Section:
    """The section with some settings changed, the scheme among them; what the new scheme has too stays."""
    section = for_scheme(section, settings.get("scheme", section["scheme"]))
    for name, value in settings.items():
        if name != "scheme":
            section = _with_option(section, name, value)
    return section


def _options(section: Section) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name not in ("scheme", "options")} | dict(
        section.get("options", {})
    )


def _with_option(section: Section, name: str, value: Any) -> dict[str, Any]:
    unset = value is None or (name == "clip" and not value)  # a number field cannot be empty
    if name in CreditConfig.model_fields:
        rest = {key: held for key, held in section.items() if key != name}
        return rest if unset else {**rest, name: value}
    options = {key: held for key, held in section.get("options", {}).items() if key != name}
    options |= {} if unset else {name: value}
    rest = {key: held for key, held in section.items() if key != "options"}
    return {**rest, "options": options} if options else rest


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, int | float) else str(value).replace("_", " ")


# ── fields ───────────────────────────────────────────────────────────────────────────────────────────────────────


def visible_fields(scheme: str) -> tuple[bool, ...]:
    """Which of FIELDS the scheme has."""
    names = {option.name for option in SCHEMES[scheme].options} | set(SHARED) if scheme in SCHEMES else set()
    return tuple(field.name in names for field in FIELDS)


def default_values(scheme: str) -> tuple[Any, ...]:
    """What FIELDS hold where nobody changed them; a field the scheme does not have keeps the first scheme's."""
    options = {option.name: option.default for option in SCHEMES[scheme].options} if scheme in SCHEMES else {}
    return tuple(options.get(field.name, field.default) for field in FIELDS)


def carried_over(before: str, after: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The fields when the scheme changes: what somebody set stays, the rest becomes the new scheme's default."""
    pairs = zip(values, default_values(before), default_values(after), strict=True)
    return tuple(new if value == old else value for value, old, new in pairs)
