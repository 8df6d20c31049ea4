"""Stop strings: texts that end a completion.

A completion ends with the token that completes a stop string. That token and those before it are the completion's own,
as they are transformers' (``stop_strings``) and in vLLM's token ids, so that text, steps and advantages are those of
the sampled ids. What the prompt ends with is no part of a match.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
        """The stop string that the last of these tokens completes, None for none.

        A token stands for a byte at least, so that as many tokens as a stop string has bytes are looked at.
        """
        if not self._stop or not token_ids:
            return None
        text = str(self._tokenizer.decode(list(token_ids[-self._window :])))
        return next((stop for stop in self._stop if stop in text), None)
