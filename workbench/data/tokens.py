"""Texts of imported completions → token ids and one string a token, which always join to the text byte for byte.

Where a tokenizer's ids decode to the very text, the strings are ``steps.token_texts``, as for sampled rollouts. One
that normalises (lower case, Unicode forms) or drops spaces cannot give the text back; then its offsets into the
original say which part each token stands for: text between two tokens goes to the second, up to a line end to the
first.
Without a tokenizer a text is cut into words, digits and marks, which are no model's tokens and are called ``words``.

A chat template is rendered by transformers. Nothing here loads torch.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from sys import intern
from typing import Any

from workbench.assets import ASSETS
from workbench.errors import TaskError, cut
from workbench.places import hub_problem, is_hub_id, local_path, no_folder
from workbench.steps import token_texts

WORDS = "words"
_WORD = re.compile(r"(?:(?![\u2e80-\u9fff\uac00-\ud7a3\uff66-\uff9f])[^\W\d_])+|\d+|.", re.DOTALL)
"""A run of letters (ideographs one by one), a run of digits, or any other character."""
_USUAL_ENDS = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end|>", "</s>", "<eos>", "[SEP]")
_MARKS = "|".join(map(re.escape, (*_USUAL_ENDS[:-1], "<end_of_turn>", "<pad>", "[PAD]")))
WRITTEN_END = re.compile(rf"(?:{_MARKS})(?:\s|{_MARKS})*\Z")
"""End-of-sequence tokens, and padding, at the end of a text that was decoded with its special tokens."""


@dataclass(frozen=True)
class Tokens:
    """Ids and as many strings, which join to the text. ``exact``: the ids alone decode to that text."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    exact: bool = True


class Words:
    """Cuts at words; ids number the words in the order in which they are first seen, 0 closes a completion."""

    name = WORDS
    end = (0, "")
    end_ids = frozenset({0})
    ends: Sequence[str] = ()
    pad = None

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def tokens(self, text: str) -> Tokens:
        texts = tuple(map(intern, _WORD.findall(text)))  # few are distinct: each is kept once
        return Tokens(tuple(self._ids.setdefault(word, len(self._ids) + 1) for word in texts), texts)

    def decoded(self, ids: Sequence[int]) -> None:
        """Ids mean nothing here."""


class Subwords:
    """A fast tokenizer of transformers, or one of ``tokenizers``.

    ``ends`` are the ids that end a sequence, beside the tokenizer's own. ``end`` closes a completion; where the
    tokenizer has no such token, it is an id of its own.
    """

    def __init__(self, tokenizer: Any, name: str, ends: Sequence[int | None] = ()) -> None:
        self.name = name
        self._outer = tokenizer
        self._tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
        own = getattr(tokenizer, "eos_token_id", None)
        usual = (self._tokenizer.token_to_id(token) for token in _USUAL_ENDS)
        known = [token_id for token_id in (own, *ends) if token_id is not None]
        all_ends = tuple(dict.fromkeys(known)) or tuple(token for token in usual if token is not None)[:1]
        end_texts = [str(self._tokenizer.id_to_token(token) or "") for token in all_ends]
        self.size = int(self._tokenizer.get_vocab_size(with_added_tokens=True))
        self.end = (all_ends[0], end_texts[0]) if all_ends else (self.size, "")
        self.end_ids = frozenset({*all_ends, self.end[0]})
        self.ends: Sequence[str] = [text for text in end_texts if text]
        self.pad: int | None = getattr(tokenizer, "pad_token_id", None)
        self.has_template = bool(getattr(tokenizer, "chat_template", None))

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], *, to_answer: bool
    ) -> str:
        """Return the messages as the policy reads them, with the prompt of a generation behind them or not.

        Raises TaskError for a conversation that the chat template refuses.
        """
        from jinja2 import TemplateError

        try:
            text: str = self._outer.apply_chat_template(
                list(messages), tools=list(tools) or None, tokenize=False, add_generation_prompt=to_answer
            )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise TaskError(
                f"the chat template does not take this conversation ({str(error)[:200] or type(error).__name__}); give "
                "the tokenizer of the policy that it is of, or 'words'"
            ) from error
        return text

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        return [self._tokenizer.id_to_token(token_id) for token_id in ids]

    def tokens(self, text: str) -> Tokens:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids = tuple(encoding.ids)
        if ids and self.decode(ids) == text:
            return Tokens(ids, tuple(token_texts(self, ids)))
        texts = cut_by_offsets(text, encoding.offsets)
        if "".join(texts) != text:
            raise TaskError(
                f"tokenizer {self.name!r} cannot show {text[:60]!r}: its tokens cover no part of it; take another"
            )
        return Tokens(ids, texts, exact=not text)

    def decoded(self, ids: Sequence[int]) -> tuple[str, ...]:
        wrong = next((token_id for token_id in ids if not 0 <= token_id < self.size), None)
        if wrong is not None:
            raise ValueError(f"token id {wrong} is outside the {self.size:,} of tokenizer {self.name!r}")
        return tuple(token_texts(self, ids))


def cut_by_offsets(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Cut ``text`` into one string a token.

    ``offsets`` are each token's (start, end) in characters. A character that several tokens share goes to the last of
    them; text between two tokens goes to the second, but as far as its last line end to the first.
    """
    if not offsets:
        return ()
    cuts, at = [0], 0
    for (_, end), (start, _) in pairwise(offsets):
        cut = min(end, start)
        cut += text[cut:start].rfind("\n") + 1
        at = min(max(at, cut), len(text))
        cuts.append(at)
    return tuple(text[first:last] for first, last in pairwise([*cuts, len(text)]))


Tokeniser = Words | Subwords


def load_tokeniser(tokenizer: Any) -> Tokeniser:
    """Return what ``tokenizer`` stands for: None, the embedded ``tiny``, a folder or file, a Hub name, or an object.

    An object is a ``tokenizers.Tokenizer`` or a fast tokenizer of transformers. Raises TaskError.
    """
    if tokenizer is None or tokenizer == WORDS:
        return Words()
    if isinstance(tokenizer, str | Path):
        return _from_files(str(tokenizer))
    return Subwords(tokenizer, str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__))


def _from_files(name: str) -> Subwords:
    """Load a tokenizer.json and what lies beside it; also the end tokens that generation_config.json names."""
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import cached_file

    path = next(filter(None, (local_path(str(ASSETS / name)) if name.isidentifier() else None, local_path(name))), None)
    if path is None and not is_hub_id(name):
        raise TaskError(f"tokenizer: {no_folder(name)}; give 'tiny', a folder or file, or a Hub name")
    if path is None and (problem := hub_problem(name, "tokenizer.json", certain=True)):
        raise TaskError(f"tokenizer {name!r} cannot be loaded: {problem}")
    try:
        if path is not None and path.is_file():
            return Subwords(PreTrainedTokenizerFast(tokenizer_file=str(path)), name)
        source = str(path or name)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(source)
        generation = cached_file(source, "generation_config.json", _raise_exceptions_for_missing_entries=False)
        ends = json.loads(Path(generation).read_bytes()).get("eos_token_id") if generation else None
    except Exception as error:  # tokenizers raises plain Exception
        raise TaskError(
            f"tokenizer {name!r} cannot be loaded ({cut(str(error), 300)}); it needs a tokenizer.json, as "
            "save_pretrained writes it"
        ) from error
    return Subwords(tokenizer, name, ends if isinstance(ends, list) else [ends])
