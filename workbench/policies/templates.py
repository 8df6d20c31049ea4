"""Chat templates as text: which arguments one takes. Loads no tokenizer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, TemplateError, meta

from workbench.config import PromptSection
from workbench.errors import PolicyError, did_you_mean
from workbench.schema import Prompt

_FILLED_IN = frozenset(["messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"])
"""Names that ``apply_chat_template`` fills in; those of special tokens end in ``_token``."""
_MARKS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""transformers' own statement around what an assistant says, which plain Jinja does not know."""


def check_template_kwargs(template: Any, kwargs: Mapping[str, Any]) -> None:
    """Raises PolicyError for an argument that the template never reads: it would be ignored."""
    read = arguments_of(template) if kwargs and isinstance(template, str) else None
    ignored = [] if read is None else [name for name in kwargs if name not in read]
    if read is None or not ignored:
        return
    settable = sorted(name for name in read - _FILLED_IN if not name.endswith("_token"))
    raise PolicyError(
        f"prompt.template_kwargs: the policy's chat template reads no {ignored[0]!r} and would ignore it"
        f"{did_you_mean(ignored[0], settable)}. It reads {', '.join(settable) or 'no arguments'}; leave this one out"
    )


@lru_cache(maxsize=32)
def arguments_of(template: str) -> frozenset[str] | None:
    """The names that a template reads and does not set itself; None where it cannot be parsed here."""
    environment = Environment(extensions=["jinja2.ext.loopcontrols"])  # parsed, never rendered
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(_MARKS.sub("", template))))
    except TemplateError:
        return None


def plain_prompt_note(template: Any, section: PromptSection, prompt: Prompt) -> str:
    """What to say of a plain prompt that a policy with a chat template would get as it is; "" where that is meant."""
    if not template or section.apply_template != "auto" or not isinstance(section.of(prompt), str):
        return ""
    return (
        "the prompt is plain text and the policy has a chat template: it goes to the policy without one. Set "
        "prompt.apply_template to always to put it as a user's message, or to never where plain text is meant"
    )
