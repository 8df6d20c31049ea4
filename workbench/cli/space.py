"""Whether the page is served to visitors: on a Space of Hugging Face, unless its owner says otherwise.

Spaces set SPACE_ID (OWNER/NAME) and SPACE_HOST, the names their proxy answers to
(https://huggingface.co/docs/hub/spaces-overview#helper-environment-variables), and expect the page at port 7860 of any
address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.errors import ConfigError, shown

CHOICES = ("on", "off")
VARIABLE = "WORKBENCH_VISITORS"
FRAMED_BY = ("https://huggingface.co",)


@dataclass(frozen=True)
class Place:
    """How the page is served: to visitors or to its owner, at which address, under which names, in whose frames."""

    visitors: bool
    host: str | None = None
    names: tuple[str, ...] = ()
    framed_by: tuple[str, ...] = ()


def place_of(environment: Mapping[str, str], visitors: str | None = None) -> Place:
    """``visitors`` is "on" or "off" where it was said on the command line. Raises ConfigError for another word."""
    space = bool(environment.get("SPACE_ID"))
    chosen = visitors or environment.get(VARIABLE, "").strip().lower() or ("on" if space else "off")
    if chosen not in CHOICES:
        raise ConfigError(f"{VARIABLE} is {shown(chosen)}; set it to {' or '.join(CHOICES)}")
    if not space:
        return Place(chosen == "on")
    names = tuple(name.strip() for name in environment.get("SPACE_HOST", "").split(",") if name.strip())
    return Place(chosen == "on", "0.0.0.0", names, FRAMED_BY if chosen == "on" else ())
