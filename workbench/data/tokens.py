"""Texts of imported completions → token ids and one string a token, which always join to the text byte for byte.

Where a tokenizer's ids decode to the very text, the strings are ``steps.token_texts``, as for sampled rollouts. One
that normalises (lower case, Unicode forms) or drops spaces cannot give the text back; then its offsets into the
original say which part each token stands for: text between two tokens goes to the second, up to a line end to the
first.
Without a tokenizer a text is cut into words, digits and marks, which are no model's tokens and are called ``words``.

Only ``tokenizers`` is used, so that nothing here loads transformers or torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from workbench.assets import ASSETS
from workbench.data.conversations import ChatTemplate, read_json, template_of, template_of_tokenizer
from workbench.errors import TaskError
from workbench.places import is_hub_id, local_path, no_folder
from workbench.steps import token_texts

WORDS = "words"
_TEMPLATE = "chat_template.jinja"
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


class Tokeniser(Protocol):
    """What importing needs of a tokenizer.

    ``end`` is the (id, text) that closes a finished completion, ``ends`` are the texts of all that do, and ``template``
    is the chat template, if it has one.
    """

    @property
    def name(self) -> str: ...
    @property
    def end(self) -> tuple[int, str]: ...
    @property
    def template(self) -> ChatTemplate | None: ...
    @property
    def ends(self) -> Sequence[str]: ...
    def tokens(self, text: str) -> Tokens: ...
    def decoded(self, ids: Sequence[int]) -> tuple[str, ...] | None:
        """One string for each of these ids, or None where ids mean nothing. Raises ValueError for one unknown."""

    def is_end(self, token: int) -> bool: ...
    def is_pad(self, token: int) -> bool: ...


class Words:
    """Cuts at words; ids number the words in the order in which they are first seen, 0 closes a completion."""

    name = WORDS
    end = (0, "")
    ends: Sequence[str] = ()
    template = None

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def tokens(self, text: str) -> Tokens:
        texts = tuple(_WORD.findall(text))
        return Tokens(tuple(self._ids.setdefault(word, len(self._ids) + 1) for word in texts), texts)

    def decoded(self, ids: Sequence[int]) -> None:
        return None

    def is_end(self, token: int) -> bool:
        return token == 0

    def is_pad(self, token: int) -> bool:
        return False


class Subwords:
    """A trained tokenizer (``tokenizers.Tokenizer``). ``ends`` are the ids that end a sequence, the usual one first,
    and ``pad`` is the one that fills a batch."""

    def __init__(
        self,
        tokenizer: Any,
        name: str,
        ends: Sequence[int] = (),
        template: ChatTemplate | None = None,
        pad: int | None = None,
    ) -> None:
        self.name, self.template, self._pad = name, template, pad
        self._tokenizer = tokenizer
        self._ends = tuple(ends) or self._guessed_ends()

    def _guessed_ends(self) -> tuple[int, ...]:
        ids = (self._tokenizer.token_to_id(token) for token in _USUAL_ENDS)
        return tuple(token_id for token_id in ids if token_id is not None)[:1]

    @cached_property
    def size(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @cached_property
    def end(self) -> tuple[int, str]:
        if not self._ends:
            return self.size, ""  # it has none: an id of its own
        return self._ends[0], str(self._tokenizer.id_to_token(self._ends[0]) or "")

    @property
    def ends(self) -> Sequence[str]:
        return [text for token in self._ends if (text := self._tokenizer.id_to_token(token))]

    def is_end(self, token: int) -> bool:
        return token in self._ends or token == self.end[0]

    def is_pad(self, token: int) -> bool:
        return token == self._pad

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


def load_tokeniser(tokenizer: Any) -> Tokeniser:
    """What ``tokenizer`` stands for: None, the embedded ``tiny``, a folder or file, a Hub name, or an object.

    A folder or repository needs a ``tokenizer.json``. An object is a ``tokenizers.Tokenizer`` or a transformers
    tokenizer with one inside (a "fast" one). Raises TaskError.
    """
    if tokenizer is None or tokenizer == WORDS:
        return Words()
    if isinstance(tokenizer, str | Path):
        return _from_files(str(tokenizer))
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(inner, "encode") or not hasattr(inner, "id_to_token"):
        raise TaskError(
            f"{type(tokenizer).__name__} is no fast tokenizer; give one with a backend_tokenizer, a folder or a name"
        )
    end = getattr(tokenizer, "eos_token_id", None)
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    return Subwords(
        inner,
        str(name),
        () if end is None else (int(end),),
        template_of_tokenizer(tokenizer),
        getattr(tokenizer, "pad_token_id", None),
    )


def _from_files(name: str) -> Subwords:
    from tokenizers import Tokenizer

    embedded = local_path(str(ASSETS / name)) if re.fullmatch(r"[\w-]+", name) else None
    folder = embedded if embedded is not None and embedded.is_dir() else local_path(name)
    if folder is None:
        if not is_hub_id(name):
            raise TaskError(f"tokenizer: {no_folder(name)}; give 'tiny', a folder or file, or a Hub name")
        files = _from_hub(name)
    elif folder.is_dir():
        files = {file.name: file for file in [*folder.glob("*.json"), *folder.glob(_TEMPLATE)]}
    else:
        files = {"tokenizer.json": folder}
    if "tokenizer.json" not in files:
        raise TaskError(
            f"tokenizer {name!r} has no tokenizer.json; load it with transformers and save it with save_pretrained"
        )
    try:
        tokenizer = Tokenizer.from_file(str(files["tokenizer.json"]))
    except Exception as error:  # the package raises plain Exception
        raise TaskError(f"tokenizer {name!r}: tokenizer.json cannot be read ({error})") from error
    config = read_json(files.get("tokenizer_config.json"))
    return Subwords(
        tokenizer,
        name,
        _ends(tokenizer, files, config),
        template_of(config, files.get(_TEMPLATE)),
        _id_of(tokenizer, config, "pad_token"),
    )


def _id_of(tokenizer: Any, config: Mapping[str, Any], name: str) -> int | None:
    """Return the id of a special token that ``tokenizer_config.json`` names; a token is text, or an object with it."""
    named = config.get(name)
    token = named.get("content") if isinstance(named, dict) else named
    return tokenizer.token_to_id(token) if isinstance(token, str) else None


def _from_hub(name: str) -> dict[str, Path]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    paths = {}
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", _TEMPLATE):
        try:
            paths[file] = Path(hf_hub_download(name, file))
        except EntryNotFoundError as error:
            # Offline, a file that is not there and one never fetched look alike.
            if file == "tokenizer.json":
                raise TaskError(f"tokenizer {name!r} has no tokenizer.json that can be fetched ({error})") from error
        except Exception as error:  # names, network and rights each fail in their own way
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise TaskError(
                f"tokenizer {name!r} cannot be loaded: {first}; give 'tiny', a folder or a Hub name"
            ) from error
    return paths


def _ends(tokenizer: Any, files: Mapping[str, Path], config: Mapping[str, Any]) -> tuple[int, ...]:
    """Ids that end a sequence, as the folder's configurations name them."""
    listed = read_json(files.get("generation_config.json")).get("eos_token_id")
    more = listed if isinstance(listed, list) else [listed]
    ends = [_id_of(tokenizer, config, "eos_token"), *more]
    return tuple(dict.fromkeys(token_id for token_id in ends if isinstance(token_id, int)))
