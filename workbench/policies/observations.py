"""An observation as token ids: plain text as it is, and in a conversation as the user's next message.

Where the prompt is a conversation, the chat template writes what stands between two turns of the policy's: the end of
the one, the message, and the beginning of the next. It is asked for that alone; what the policy wrote stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.config import EnvironmentSection
from workbench.errors import ConfigError, PolicyError
from workbench.schema import Prompt

_TURN, _THOUGHT = "a turn of the policy's", "a thought of the policy's"
_CHARACTERS = 64
"""Characters of a token, at most, that an observation is tokenised for: beyond the limit it is cut as text."""


class Observations:
    """Token ids of what an environment answers; ``settings`` are its limits."""

    def __init__(
        self, tokenizer: Any, settings: EnvironmentSection, template_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self._tokenizer, self._settings, self._kwargs = tokenizer, settings, dict(template_kwargs or {})

    def check(self, prompt: Prompt) -> None:
        """Raises ConfigError for a template that writes earlier turns anew, where nothing says which ids count."""
        if isinstance(prompt, str) or self._settings.rewritten_turns == "keep":
            return
        if _THOUGHT not in self._written(f"<think>\n{_THOUGHT}\n</think>\n\n{_TURN}", "more"):
            raise ConfigError(
                "environment.rewritten_turns: the policy's chat template leaves the thinking out of earlier turns, and "
                "the sampled ids have it; set it to keep, so that the sampled ids count as they are, or turn thinking "
                "off and set it to keep"
            )

    def ids(self, prompt: Prompt, text: str, *, after_eos: bool) -> tuple[list[int], str]:
        """The ids, and a note where the observation was cut. ``after_eos``: the turn ended with that token."""
        most, note, cut = (
            self._settings.max_observation_length,
            "",
            text[: self._settings.max_observation_length * _CHARACTERS],
        )
        ids = self._encoded(cut)
        if len(ids) > most or len(cut) < len(text):
            cut = str(self._tokenizer.decode(ids[:most])).rstrip("\ufffd")
            note = f"cut to {most} tokens, {len(cut):,} of {len(text):,} characters"
            ids = ids[:most]
        if isinstance(prompt, str):
            return ids, note
        _, _, between = self._written(_TURN, cut).partition(_TURN)
        eos = str(self._tokenizer.eos_token or "")
        return self._encoded(between.removeprefix(eos) if after_eos and eos else between), note

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []

    def _written(self, turn: str, text: str) -> str:
        messages = [
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": turn},
            {"role": "user", "content": text},
        ]
        written = str(
            self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **self._kwargs)
        )
        if _TURN not in written:
            raise PolicyError("the policy's chat template does not write the assistant's messages as they are")
        return written
