"""Token texts on real tokenizers trained here, and token spans: the texts always join to what the tokenizer decodes."""

from collections.abc import Callable
from functools import cache, partial
from itertools import accumulate
from os.path import commonprefix
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.imported import trained
from workbench.schema import Step
from workbench.steps import StepPattern, align_steps, split_steps, token_texts
from workbench.steps.tokens import _byte_level_cuts, _window_cuts

CORPUS = [
    "Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nAnswer: 24",
    "数学题：从七开始，加五，乘以二。答案是二十四。",
    "emoji 🙂🚀👩‍👩‍👧 and a naïve café; don't stop, it 's fine !",
] * 20


@cache
def byte_level() -> Any:
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>", "<特殊 é>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = trained(models.BPE(), split, decoders.ByteLevel(), trainer, CORPUS)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


@cache
def llama_like() -> Any:
    """SentencePiece as Llama 2 has it: metaspaces, byte fallback, and the text's first space taken off."""
    trainer = trainers.UnigramTrainer(
        vocab_size=60,
        special_tokens=["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        unk_token="<unk>",
        show_progress=False,
    )
    decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = trained(models.Unigram(), pre_tokenizers.Metaspace(), decoder, trainer, [CORPUS[0]] * 20)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


@cache
def metaspace() -> Any:
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer = trained(models.Unigram(), pre_tokenizers.Metaspace(), decoders.Metaspace(), trainer, CORPUS)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


@cache
def word_piece(clean_up: bool = False) -> Any:
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    model, decoder = models.WordPiece(unk_token="[UNK]"), decoders.WordPiece(cleanup=clean_up)
    tokenizer = trained(model, pre_tokenizers.BertPreTokenizer(), decoder, trainer, CORPUS)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", sep_token="[SEP]", clean_up_tokenization_spaces=clean_up
    )


TOKENIZERS = [byte_level, llama_like, metaspace, word_piece, partial(word_piece, clean_up=True)]


def random_ids(make: Callable[[], Any]) -> st.SearchStrategy[list[int]]:
    # Beyond the vocabulary too: padded embeddings make such ids possible to sample.
    return st.lists(st.integers(0, len(make()) + 2), max_size=120)


@pytest.mark.parametrize("make", TOKENIZERS)
@settings(deadline=None, max_examples=50)
@given(st.data())
def test_token_texts_join_to_the_decoded_text_of_any_ids(make: Callable[[], Any], data: st.DataObject) -> None:
    ids = data.draw(random_ids(make))
    texts = token_texts(make(), ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == (make().decode(ids) if ids else "")


@pytest.mark.parametrize("make", TOKENIZERS)
@settings(deadline=None, max_examples=50)
@given(st.data())
def test_windows_find_what_decoding_every_prefix_finds(make: Callable[[], Any], data: st.DataObject) -> None:
    tokenizer, ids = make(), data.draw(random_ids(make))
    text = tokenizer.decode(ids) if ids else ""

    def decode(first: int, end: int) -> str:
        return tokenizer.decode(ids[first:end]) if first < end else ""

    # A character is there as soon as the prefix up to some token shows it.
    common = (len(commonprefix([decode(0, last), text])) for last in range(1, len(ids) + 1))  # noqa: RUF071
    cuts = list(accumulate(common, max))
    assert _window_cuts(decode, len(ids), text) == cuts


@settings(deadline=None)
@given(st.text(alphabet="Step 1:数学题🙂👩‍👧é", max_size=80))
def test_both_ways_agree_on_text_of_whole_characters(text: str) -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode(text)
    windows = _window_cuts(lambda a, b: tokenizer.decode(ids[a:b]) if a < b else "", len(ids), text)
    assert _byte_level_cuts(tokenizer, ids, text) == windows


@pytest.mark.parametrize(
    ("make", "tokens", "expected"),
    [
        # 中 is E4 B8 AD, 🙂 is F0 9F 99 82: a split character belongs to the token that completes it.
        (byte_level, ["a", *"ä¸Ń", *"ðŁĻĤ", "b"], ["a", "", "", "中", "", "", "", "🙂", "b"]),
        # E4 B8 with no third byte is one U+FFFD, known when "a" comes; FF is one by itself; the last E4 is cut off.
        (byte_level, ["ä", "¸", "a", "ÿ", "ä"], ["", "\ufffd", "a", "\ufffd", "\ufffd"]),
        (byte_level, ["<特殊 é>", "a", "<|end|>"], ["<特殊 é>", "a", "<|end|>"]),
        (byte_level, [], []),
        # Byte fallback completes a character with its last byte.
        (
            llama_like,
            ["▁", "1", "<0xE4>", "<0xB8>", "<0xAD>", "▁", "2", "</s>"],
            ["", "1", "", "", "中", " ", "2", "</s>"],
        ),
    ],
)
def test_which_text_is_a_tokens(make: Callable[[], Any], tokens: list[str], expected: list[str]) -> None:
    assert token_texts(make(), make().convert_tokens_to_ids(tokens)) == expected


def test_a_word_piece_carries_the_space_before_it_but_at_the_beginning() -> None:
    tokenizer = word_piece()
    assert token_texts(tokenizer, tokenizer.encode("Step 1 : 24", add_special_tokens=False))[:2] == ["Step", " 1"]


class Fussy:
    """Decodes in a way no window can foresee: a later token changes the whole text's case."""

    def decode(self, ids: list[int]) -> str:
        text = "".join(chr(ord("a") + one) for one in ids)
        return text.upper() if 25 in ids else text


def test_a_decoder_that_looks_ahead_is_still_cut_into_its_own_text() -> None:
    ids = [0, 1, 2] * 40 + [25] + [0, 1, 2]
    texts = token_texts(Fussy(), ids)
    # No prefix up to the "z" shows any of the text; that token completes all of it.
    assert texts[:120] == [""] * 120
    assert texts[120:] == ["ABC" * 40 + "Z", "A", "B", "C"]


# --- alignment ----------------------------------------------------------------------------------------------------


def test_steps_on_token_boundaries() -> None:
    texts = ["Step", " 1", ":", "a", "\n", "Step", " 2", ":", "b", "<eos>"]
    steps = split_steps("Step 1:a\nStep 2:b", StepPattern(r"(?m)^Step \d+:"))
    assert align_steps(texts, steps) == [(0, 4), (5, 8)]


def test_invariant_a_straddling_token_belongs_to_the_step_whose_last_character_it_contains() -> None:
    # "12\nS" ends step one and begins step two.
    assert align_steps(["Step 1:", "12\nS", "tep 2:", "4"], [Step(0, 10), Step(10, 18)]) == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("texts", "steps", "expected"),
    [
        # A token with the ends of two steps is the end of both.
        (["a|", "b|c|d", "e"], [(0, 2), (2, 4), (4, 6), (6, 8)], [(0, 0), (1, 1), (1, 1), (2, 2)]),
        # "o S" ends the preamble and begins the step; "2)" ends the step and begins text that is in none.
        (["S", "o S", "tep 1", "2)", " well"], [(3, 10)], [(1, 3)]),
        # 中 at character 2 begins the second step: its first two tokens complete nothing and are that step's too.
        (["a", "b", "", "", "中", "c"], [(0, 2), (2, 4)], [(0, 1), (2, 5)]),
        (["", "", "中", "c"], [(0, 2)], [(0, 3)]),
        # Here 中 is the second character of "b中": the parts before that token helped with "b", which is in no step.
        (["", "b中", "c"], [(1, 3)], [(1, 2)]),
        # A completion without a match is one step over all tokens.
        (["a", "b", "<eos>"], [(0, 2, False)], [(0, 2)]),
        (["<eos>"], [(0, 0, False)], [(0, 0)]),
        ([], [], []),
    ],
)
def test_which_tokens_are_a_steps(texts: list[str], steps: list[Any], expected: list[tuple[int, int]]) -> None:
    assert align_steps(texts, [Step(*step) for step in steps]) == expected


@pytest.mark.parametrize(
    ("texts", "steps", "named"),
    [
        *(
            (["a", "b"], steps, "overlaps")
            for steps in ([Step(0, 3)], [Step(1, 1)], [Step(0, 2), Step(1, 2)], [Step(1, 2), Step(0, 1)])
        ),
        ([], [Step(0, 0, matched=False)], "one token"),
    ],
)
def test_steps_that_do_not_fit_are_refused(texts: list[str], steps: list[Step], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        align_steps(texts, steps)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["", "a", "b", "|", "a|", "|b|", "中", "\n"]), min_size=1, max_size=40), st.data())
def test_every_step_ends_in_the_token_that_completes_its_last_character(texts: list[str], data: st.DataObject) -> None:
    text = "".join(texts)
    kind = data.draw(st.sampled_from(["starts", "ends", "is"]))
    steps = split_steps(text, StepPattern(r"\||中", kind))
    spans = align_steps(texts, steps)
    owner = [token for token, one in enumerate(texts) for _ in one]  # token that completes each character
    assert len(spans) == len(steps)
    if not steps[0].matched:
        return
    free = 0
    for step, (first, last) in zip(steps, spans, strict=True):
        assert first <= last == owner[step.end - 1]
        # Its first token is its own, unless its only token ends an earlier step too.
        assert first >= free or first == last == free - 1
        # Its first character's token is in its span, or ends an earlier step.
        assert first <= owner[step.start] or owner[step.start] < free
        free = last + 1
