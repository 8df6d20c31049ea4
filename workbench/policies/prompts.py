"""A prompt as token ids: plain text as it is, messages through the tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from jinja2 import TemplateError

from workbench.errors import PolicyError
from workbench.policies.templates import check_template_kwargs
from workbench.schema import Prompt
from workbench.schema.rollouts import ends_in_thinking

_LONGEST_TAIL = 64  # characters, of a template that writes messages otherwise where an answer follows


def encode_prompt(tokenizer: Any, prompt: Prompt, template_kwargs: Mapping[str, Any] | None = None) -> list[int]:
    """Ids of a prompt as TRL makes them: plain text as it is, messages through the chat template.

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
    """What to say where completions run on after a turn, by a group's ``sampling``; "" where they end."""
    if "turn_end" not in record:
        return ""
    end = record["turn_end"]
    return (
        f"the policy's chat template ends a turn with {end} and no completion ends there: they run on to the limit. "
        f"Add {end} to sampling.stop, or to eos_token_id in the policy's generation_config.json"
    )


def thinking_open(tokenizer: Any, prompt: Prompt, template_kwargs: Mapping[str, Any] | None = None) -> bool:
    """Whether a prompt, as the policy reads it, ends inside a ``<think>`` block."""
    return ends_in_thinking(prompt if isinstance(prompt, str) else prompt_tail(tokenizer, prompt, template_kwargs))


def prompt_tail(tokenizer: Any, prompt: Prompt, template_kwargs: Mapping[str, Any] | None = None) -> str:
    """What the chat template writes after the last message, for the policy to go on from; "" for plain text."""
    if isinstance(prompt, str):
        return ""

    def written(for_generation: bool) -> str:
        kwargs = dict(template_kwargs or {})
        text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=for_generation, **kwargs)
        return str(text)

    whole, messages = written(True), written(False)
    return whole.removeprefix(messages) if whole.startswith(messages) else whole[-_LONGEST_TAIL:]
