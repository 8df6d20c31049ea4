"""Prompts as token ids, chat templates as text, stop strings. Imports neither torch nor transformers.

Plain text is tokenised as it is, messages go through the tokenizer's chat template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from jinja2 import Environment, TemplateError, meta

from workbench.config import PromptSection
from workbench.errors import PolicyError, WorkbenchError, did_you_mean
from workbench.places import local_path
from workbench.policies.find import base_of, is_adapter, policy_path
from workbench.schema import Prompt, ends_in_thinking

_LONGEST_TAIL = 64  # characters, of a template that writes messages otherwise where an answer follows


def encode_prompt(tokenizer: Any, prompt: Prompt, template_kwargs: Mapping[str, Any] | None = None) -> list[int]:
    """Return ids of a prompt as TRL makes them: plain text as it is, messages through the chat template.

    Raises PolicyError for a conversation where there is no chat template, and for arguments that it does not use.
    """
    kwargs = dict(template_kwargs or {})
    if isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    elif tokenizer.chat_template is None:
        raise PolicyError(
            "the prompt is a conversation and this tokenizer has no chat template; give the prompt as text, or set "
            "prompt.apply_template to never, which joins its messages"
        )
    else:
        check_template_kwargs(tokenizer.chat_template, kwargs)
        try:
            encoded = tokenizer.apply_chat_template(
                prompt, add_generation_prompt=True, tokenize=True, return_dict=True, **kwargs
            )
        except TemplateError as error:  # a template raises for roles that it has no place for
            roles = ", ".join(dict.fromkeys(message["role"] for message in prompt))
            raise PolicyError(
                f"the policy's chat template refuses a prompt of the messages {roles} ({error}); leave prompt.system "
                "out, or change the messages"
            ) from error
        ids = encoded["input_ids"]
    if not ids:
        raise PolicyError("the prompt is empty; write something for the policy to answer")
    return list(ids)


def prompt_record(
    tokenizer: Any,
    prompt: Prompt,
    template_kwargs: Mapping[str, Any] | None,
    ends: Collection[int],
    stop: Sequence[str],
) -> dict[str, Any]:
    """What a group's ``sampling`` says of a conversation's prompt: the template's arguments, how the prompt ends once
    the template is through with it, as templates may open a tag there, and ``turn_end``, what it ends a turn with
    where neither the token ids ``ends`` nor the texts ``stop`` end a completion there."""
    if isinstance(prompt, str):
        return {}
    kwargs = {"template_kwargs": dict(template_kwargs)} if template_kwargs else {}
    record = kwargs | {"prompt_tail": prompt_tail(tokenizer, prompt, kwargs.get("template_kwargs"))}
    end = turn_end(tokenizer, template_kwargs, ends)
    return record | ({"turn_end": end} if end and not any(text in end for text in stop) else {})


def turn_end(tokenizer: Any, template_kwargs: Mapping[str, Any] | None, ends: Collection[int]) -> str | None:
    """Return the text of the token with which the chat template ends an assistant's turn.

    None where a token of ``ends`` is there, which ends a completion, or the template writes no special token there.
    """
    said = "an answer"
    turn = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": said}]
    with suppress(TemplateError):
        written = tokenizer.apply_chat_template(turn, tokenize=False, **(template_kwargs or {}))
        after = tokenizer(written.rpartition(said)[2], add_special_tokens=False)["input_ids"]
        special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        if not set(after) & set(ends):
            return next((str(tokenizer.convert_ids_to_tokens(token)) for token in after if token in special), None)
    return None


def turn_end_note(record: Mapping[str, Any]) -> str:
    """Say what to do if completions run on after a turn, by a group's ``sampling``; "" if they end."""
    if "turn_end" not in record:
        return ""
    end = record["turn_end"]
    return (
        f"the policy's chat template ends a turn with {end} and no completion ends there: they run on to the limit. "
        f"Add {end} to sampling.stop, or to eos_token_id in the policy's generation_config.json"
    )


def thinking_open(tokenizer: Any, prompt: Prompt, template_kwargs: Mapping[str, Any] | None = None) -> bool:
    """Return whether a prompt, as the policy reads it, ends inside a ``<think>`` block."""
    return ends_in_thinking(prompt if isinstance(prompt, str) else prompt_tail(tokenizer, prompt, template_kwargs))


def prompt_tail(tokenizer: Any, prompt: Prompt, template_kwargs: Mapping[str, Any] | None = None) -> str:
    """Return what the chat template writes after the last message; "" for plain text."""
    if isinstance(prompt, str):
        return ""

    def written(for_generation: bool) -> str:
        kwargs = dict(template_kwargs or {})
        text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=for_generation, **kwargs)
        return str(text)

    whole, messages = written(True), written(False)
    return whole.removeprefix(messages) if whole.startswith(messages) else whole[-_LONGEST_TAIL:]


# --- chat templates as text: what is in a policy's files, and which arguments it takes ----------------------------

_FILLED_IN = frozenset(["messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"])
"""Names that ``apply_chat_template`` fills in; those of special tokens end in ``_token``."""
_MARKS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""transformers' own statement around what an assistant says, which plain Jinja does not know."""


def known_chat_template(name: str) -> str | None:
    """Return the chat template of a policy's files on this machine; None where it has none or they are not here."""
    try:
        where = policy_path(name)
        if is_adapter(folder := Path(where)) and not (folder / "tokenizer_config.json").is_file():
            return known_chat_template(base_of(folder))
    except WorkbenchError:
        return None  # whoever loads it says what is wrong
    if local_path(where) is None:
        cached = try_to_load_from_cache(where, "tokenizer_config.json")
        folder = Path(cached).parent if isinstance(cached, str) else folder
    try:
        if (file := folder / "chat_template.jinja").is_file():
            return file.read_text(encoding="utf-8")
        template = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None  # a tokenizer of another form
    return template if isinstance(template, str) else None


def check_template_kwargs(template: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise PolicyError for an argument that the template never reads: it would be ignored."""
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
    """Return the names that a template reads and does not set itself; None where it cannot be parsed here."""
    environment = Environment(extensions=["jinja2.ext.loopcontrols"])  # parsed, never rendered
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(_MARKS.sub("", template))))
    except TemplateError:
        return None


def plain_prompt_note(template: Any, section: PromptSection, prompt: Prompt) -> str:
    """Warn of a plain prompt to a policy with a chat template; "" if that is meant."""
    if not template or section.apply_template != "auto" or not isinstance(section.of(prompt), str):
        return ""
    return (
        "the prompt is plain text and the policy has a chat template: it goes to the policy without one. Set "
        "prompt.apply_template to always to put it as a user's message, or to never where plain text is meant"
    )


# --- stop strings: texts that end a completion --------------------------------------------------------------------

# A completion ends with the token that completes a stop string. That token and those before it are the completion's
# own, as they are transformers' (``stop_strings``) and in vLLM's token ids, so that text, steps and advantages are
# those of the sampled ids. What the prompt ends with is no part of a match.

_MARGIN = 8
"""Tokens decoded beyond a stop string's length: the first of them may begin inside a character."""


class StopStrings:
    """Tells whether the newest token of a completion completed a stop string."""

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        self._window = max((len(text.encode()) for text in stop), default=0) + _MARGIN

    def __bool__(self) -> bool:
        return bool(self._stop)

    def ends(self, token_ids: Sequence[int]) -> str | None:
        """Return the stop string that the last of these tokens completes, None for none.

        A token stands for a byte at least, so that as many tokens as a stop string has bytes are looked at.
        """
        if not self._stop or not token_ids:
            return None
        text = str(self._tokenizer.decode(list(token_ids[-self._window :])))
        return next((stop for stop in self._stop if stop in text), None)
