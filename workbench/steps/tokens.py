"""Sampled token ids → one string a token, and steps' character spans → token spans on those strings.

Nothing is tokenised again. A character belongs to the token that completes it; a token that completes none is "". The
strings always join to ``tokenizer.decode(token_ids)``. Byte-level tokenizers (GPT-2, Llama 3, Qwen) are read off their
vocabulary in one pass. For all others (SentencePiece, byte fallback, WordPiece, cleaned-up spaces) what a token adds to
the text is found by decoding ever longer prefixes, in windows checked against the whole text so that the cost stays
linear.

A token that straddles two steps belongs to the one whose last character it contains. So step k ends at the token that
holds its last character, and begins at the first token that no earlier step ends in. Tokens that complete no character
("") belong with the character they help to complete.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, islice, pairwise
from os.path import commonprefix
from sys import intern
from typing import Any

from workbench.schema import Step

Decode = Callable[[int, int], str]
"""Text of the tokens ``first`` to ``end`` (exclusive), decoded on their own."""
WINDOW = 32
CONTEXT = 8


def token_texts(tokenizer: Any, token_ids: Sequence[int]) -> list[str]:
    """One string a token; they join to ``tokenizer.decode(token_ids)``.

    ``token_ids`` are the sampled ids, special tokens included: they are decoded like the rest. Bytes that are no
    character are U+FFFD, which belongs to the token of the last such byte.
    """
    ids = [int(token_id) for token_id in token_ids]
    if not ids:
        return []
    text: str = tokenizer.decode(ids)
    cuts = _byte_level_cuts(tokenizer, ids, text)
    if cuts is None:
        cuts = _window_cuts(lambda first, end: tokenizer.decode(ids[first:end]) if first < end else "", len(ids), text)
    return [intern(text[start:end]) for start, end in pairwise([0, *cuts])]  # few are distinct: each is kept once


# --- byte-level vocabularies --------------------------------------------------------------------------------------


_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE}
"""The 256 characters that stand for bytes in a byte-level vocabulary (GPT-2's bytes_to_unicode, inverted)."""
_BYTE_OF |= {chr(256 + n): byte for n, byte in enumerate(sorted(set(range(256)).difference(_PRINTABLE)))}


def _byte_level_cuts(tokenizer: Any, ids: Sequence[int], text: str) -> list[int] | None:
    """Return where each token's text ends, or None where the vocabulary does not spell ``text`` byte by byte."""
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        return None
    pieces = []
    for token in tokenizer.convert_ids_to_tokens(ids):
        try:  # an id outside the vocabulary is None, which decodes to nothing
            pieces.append(bytes([_BYTE_OF[character] for character in token or ""]))
        except KeyError:  # an added token is spelled as it is
            pieces.append(token.encode("utf-8", "replace"))
    characters: list[str] = []
    lasts: list[int] = []  # index of the last byte of each character
    _decode_utf8(b"".join(pieces), characters, lasts)
    if "".join(characters) != text:
        return None
    return [bisect_left(lasts, end) for end in accumulate(len(piece) for piece in pieces)]


def _decode_utf8(data: bytes, characters: list[str], lasts: list[int]) -> None:
    """Decode with U+FFFD for what is no UTF-8; append each character and the index of its last byte."""
    view, at = memoryview(data), 0
    while at < len(data):
        try:
            good, bad_end = str(view[at:], "utf-8"), None
        except UnicodeDecodeError as error:
            good, bad_end = str(view[at : at + error.start], "utf-8"), at + error.end
        characters.extend(good)
        ends = accumulate((len(character.encode()) for character in good), initial=at - 1)
        lasts.extend(islice(ends, 1, None))
        if bad_end is None:
            return
        characters.append("\ufffd")
        lasts.append(bad_end - 1)
        at = bad_end


# --- everything else ----------------------------------------------------------------------------------------------


def _window_cuts(decode: Decode, count: int, text: str) -> list[int]:
    """Return where each token's text ends in ``text``.

    A window of tokens is decoded behind a few tokens of context, which settles what its first token looks like in the
    middle of a text, and accepted if what it adds stands next in ``text``. One that ends inside a character, or whose
    context is too short, is tried again longer; the longest try decodes all tokens and cannot fail.
    """
    cuts: list[int] = []
    while len(cuts) < count:
        start, at = len(cuts), cuts[-1] if cuts else 0
        window, context = WINDOW, CONTEXT
        while True:
            first, end = max(0, start - context), min(count, start + window)
            before, whole = decode(first, start), decode(first, end)
            added = whole[len(before) :]
            fits = whole.startswith(before) and text.startswith(added, at)
            if fits and (end < count or at + len(added) == len(text)):
                break
            if first == 0 and end == count:
                # What a prefix decodes to is not always how the text goes on; its common part with the text is.
                before, at, added = "", 0, text
                break
            window, context = window + window // 4, context * 2
        for last in range(start + 1, end):
            shared = commonprefix([decode(first, last)[len(before) :], added])  # noqa: RUF071  # of characters
            cuts.append(max(cuts[-1] if cuts else 0, at + len(shared)))
        cuts.append(at + len(added))
    return cuts


# --- character spans → token spans --------------------------------------------------------------------------------


def align_steps(texts: Sequence[str], steps: Sequence[Step]) -> list[tuple[int, int]]:
    """The (first, last) token of each step, last inclusive.

    ``texts`` are ``token_texts``; ``steps`` are ordered, disjoint and inside their join. Firsts and lasts never
    decrease. Steps share a token only where one token holds the ends of both: then the later one's span is that token
    alone. A step that stands for a completion without a match spans every token. Raises ValueError for steps that do
    not fit the texts.
    """
    if steps and not texts:
        raise ValueError("a completion without tokens has no steps; give at least one token")
    ends = list(accumulate(len(text) for text in texts))  # end of each token's characters
    spans: list[tuple[int, int]] = []
    free, previous_end = 0, 0  # first token no step ends in yet
    for step in steps:
        if not step.matched:
            spans.append((0, len(texts) - 1))
            continue
        if not previous_end <= step.start < step.end <= ends[-1]:
            raise ValueError(
                f"step ({step.start}, {step.end}) is empty, overlaps the one before, or ends after the text's "
                f"{ends[-1]} characters"
            )
        first, last = bisect_right(ends, step.start), bisect_right(ends, step.end - 1)
        if ends[first] - len(texts[first]) == step.start:  # tokens before it may only help to complete its character
            while first and not texts[first - 1]:
                first -= 1
        spans.append((min(max(free, first), last), last))
        free, previous_end = last + 1, step.end
    return spans
