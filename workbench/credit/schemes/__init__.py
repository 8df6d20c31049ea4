"""The credit schemes: how the rewards of a batch of groups become additive parts of every token's advantage.

A scheme is one pure function of a ``Batch`` and its options, and an entry of ``SCHEMES`` in the same module. Its
keyword arguments *are* its options: their defaults, choices and ranges are read from the signature by whoever checks
them or draws a form.
"""

from collections.abc import Mapping
from typing import Any

from workbench.credit.schemes import outcomes, steps
from workbench.credit.schemes.scheme import Need, Part, Scheme, Value, resolve
from workbench.errors import CreditError, did_you_mean, quote

__all__ = ["SCHEMES", "Need", "Part", "Scheme", "check_options", "find_scheme"]

SCHEMES = {scheme.name: scheme for scheme in (*steps.SCHEMES, *outcomes.SCHEMES)}


def find_scheme(name: str) -> Scheme:
    """Raises CreditError naming the schemes there are."""
    if not isinstance(name, str) or name not in SCHEMES:
        guess = did_you_mean(name, SCHEMES)
        raise CreditError(f"unknown credit scheme {quote(name)}{guess}; choose one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


def check_options(scheme: str, values: Mapping[str, Any]) -> dict[str, Value]:
    """``values`` with text parsed to the options' types. Raises CreditError for what does not fit the scheme."""
    options = {option.name: option for option in find_scheme(scheme).options}
    parsed = {
        name: options[name].from_text(value) if isinstance(value, str) and name in options else value
        for name, value in values.items()
    }
    settled, _ = resolve(scheme, tuple(options.values()), parsed)
    return {name: settled[name] for name in values if name in settled}
