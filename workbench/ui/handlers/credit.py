"""A credit scheme and its options as the page holds them: a section, which is what somebody set and nothing else.

A section has the names of ``CreditConfig``. Its options are those of the scheme's own signature
(``credit.Scheme.options``), so that a new keyword argument of a scheme has a field without a line of the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from workbench.config import CreditConfig, Leaf
from workbench.credit import OAR_OPTIONS, SCHEMES, Option
from workbench.ui.handlers.fields import CREDIT, OPTION_LABELS, Part, credit_form, in_words

Section = Mapping[str, Any]

NONE = "none"
"""The choice that compares with no second scheme."""
_OUTCOME = Option("outcome_weight", "number", 0.0, "Weight α of α · z(R), added to every token", low=-100, high=100)
_COMMON = (
    Option("clip", "number", 0.0, "Bound on the size of an advantage; 0 for none", low=0, high=1e6),
    Option(
        "drop_duplicates",
        "switch",
        False,
        "Compare each distinct completion once: an exact copy has advantage 0 and no part in the loss",
    ),
    Option("each_reward", "switch", False, "Normalise each reward function's scores before they are summed (GDPO)"),
    *OAR_OPTIONS,
)


def options_of(scheme: str) -> dict[str, Option]:
    """The options of a scheme by name, with its own defaults, in the order of its form."""
    return {option.name: option for option in (_OUTCOME, *SCHEMES[scheme].options, *_COMMON)}


def scheme_form(prefix: str, section: Section | None) -> list[Part]:
    """The field of a scheme, and those of its options; of the one that is compared with, no scheme can be chosen."""
    names = list(SCHEMES) if prefix == CREDIT else [NONE, *SCHEMES]
    about = "" if prefix == CREDIT else "Compare with"
    scheme = Leaf(f"{prefix}.scheme", Literal.__getitem__(tuple(names)), False, "", None, about or "Scheme")
    options = () if section is None else options_of(section["scheme"]).values()
    return [("", [scheme]), *credit_form(prefix, options)]


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
    return CreditConfig.parse(section, path)


def read_section(stored: Mapping[str, Any]) -> Section | None:
    """What was kept of a section, as far as there are such a scheme and such options; None without a scheme."""
    scheme = stored.get("scheme")
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        return None
    known, held = options_of(scheme), set_options(stored)
    fitting = {name: value for name, value in held.items() if name in known and _fits(known[name], value)}
    return credit_section(scheme, **fitting)


def _fits(option: Option, value: Any) -> bool:
    if option.kind == "switch":
        return isinstance(value, bool)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9
    return value in option.choices if option.kind == "choice" else is_number


def shown_values(section: Section) -> dict[str, Any]:
    """What each option's field shows, by name: what is set, or the scheme's default."""
    held = set_options(section)
    return {name: held.get(name, option.default) for name, option in options_of(section["scheme"]).items()}


def changed(section: Section) -> dict[str, Any]:
    """What differs from the scheme's defaults, by name."""
    options = options_of(section["scheme"])
    return {name: value for name, value in shown_values(section).items() if value != options[name].default}


def summary(section: Section) -> str:
    """The scheme and whatever is not its default, in a few words."""
    parts = (
        f"{OPTION_LABELS.get(name, name)} {in_words(value).replace('_', ' ')}"
        for name, value in changed(section).items()
    )
    return ", ".join([section["scheme"], *parts])


def for_scheme(section: Section, scheme: str) -> Section:
    """Another scheme, with what somebody set that it has too."""
    if scheme == section["scheme"]:
        return section
    options = options_of(scheme)
    kept = {name: value for name, value in changed(section).items() if name in options}
    return credit_section(scheme, **{name: v for name, v in kept.items() if v != options[name].default})


def with_settings(section: Section, settings: Mapping[str, Any]) -> Section:
    """The section with some settings changed, the scheme among them; what the new scheme has too stays.

    An option that is set to its default is not set any more.
    """
    section = for_scheme(section, settings.get("scheme", section["scheme"]))
    options, shown = options_of(section["scheme"]), shown_values(section)
    for name, value in settings.items():
        if name != "scheme" and value != shown.get(name):
            usual = name in options and value == options[name].default
            section = _with_option(section, name, None if usual else value)
    return section


def set_options(section: Section) -> dict[str, Any]:
    """The options that are set, by name, wherever a section holds them."""
    own = section.get("options")
    plain = {name: value for name, value in section.items() if name not in ("scheme", "options")}
    return {**plain, **own} if isinstance(own, Mapping) else plain


def _with_option(section: Section, name: str, value: Any) -> dict[str, Any]:
    unset = value is None or (name == "clip" and not value)  # a number field cannot be empty
    if name in CreditConfig.model_fields:
        rest = {key: held for key, held in section.items() if key != name}
        return rest if unset else {**rest, name: value}
    options = {key: held for key, held in section.get("options", {}).items() if key != name}
    options |= {} if unset else {name: value}
    rest = {key: held for key, held in section.items() if key != "options"}
    return {**rest, "options": options} if options else rest
