"""How a task's prompts are put to the policy: a system message, the chat template and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from workbench.schema import Prompt
from workbench.sections.section import Section

_TEMPLATES_OWN = frozenset(
    (
        *("conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt"),
        *("continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors"),
        *("return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
    )
)
"""What ``apply_chat_template`` takes itself, or a template gets from it."""
_SWITCHES = {"true": True, "false": False}


class PromptSection(Section):
    system: str | None = None
    """A system message before each prompt that has none; a plain prompt becomes the user's message after it."""
    template_kwargs: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Arguments of the policy's chat template, by name: `enable_thinking: false`, say."""
    apply_template: Literal["auto", "always", "never"] = "auto"
    """The chat template: auto for conversations, always for plain prompts too, never to join messages as plain text."""

    @field_validator("template_kwargs", mode="before")
    @classmethod
    def _switches_of_text(cls, kwargs: Any) -> Any:
        """A template takes the text ``false`` for true: it is not empty."""
        if not isinstance(kwargs, Mapping):
            return kwargs
        return {
            name: _SWITCHES.get(value.strip().lower(), value) if isinstance(value, str) else value
            for name, value in kwargs.items()
        }

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if taken := sorted(_TEMPLATES_OWN.intersection(self.template_kwargs)):
            raise ValueError(
                f"template_kwargs: {taken[0]!r} is filled in when the template is applied, and cannot be set; leave it "
                "out"
            )
        if self.apply_template == "never" and (self.system is not None or self.template_kwargs):
            name = "system" if self.system is not None else "template_kwargs"
            raise ValueError(
                f"{name}: there is no chat template to put it in while apply_template is 'never'; leave it out, or set "
                "apply_template to auto or always"
            )
        return self

    def of(self, prompt: Prompt) -> Prompt:
        """The prompt as the policy gets it: text, or messages that its chat template writes. Twice is as once."""
        if self.apply_template == "never":
            return prompt if isinstance(prompt, str) else joined(prompt)
        if isinstance(prompt, str):
            if self.system is None and self.apply_template == "auto":
                return prompt
            prompt = [{"role": "user", "content": prompt}]
        if self.system is None or any(message["role"] == "system" for message in prompt):
            return prompt
        return [{"role": "system", "content": self.system}, *prompt]

    @property
    def recorded(self) -> dict[str, Any]:
        """What a group's record needs beside its prompt, so that the prompt can be encoded again."""
        return {"template_kwargs": dict(self.template_kwargs)} if self.template_kwargs else {}


def joined(messages: Prompt) -> str:
    """Messages as plain text, a blank line between them."""
    return messages if isinstance(messages, str) else "\n\n".join(message["content"] for message in messages)
