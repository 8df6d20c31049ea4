"""Real groups, four models' answers each, through import, scoring, credit and drawing: no token is misaligned.

Every fifth in the shipped policy's tokens, every fifteenth in those of each other tokenizer.

Tokenizers of different families are trained here on the very texts: a byte-level BPE, which splits characters, a
Unigram with Metaspace, to which some characters are unknown, and a WordPiece that lower-cases and drops all spaces.
"""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.imported import trained
from workbench.assets import GSM8K
from workbench.credit import credit_group
from workbench.data import read_groups
from workbench.rewards import score_group
from workbench.steps import PRESETS
from workbench.views.heatmap import credit_payload

LINES = PRESETS["line"].pattern
ROWS = [json.loads(line) for line in (GSM8K / "model-solutions-300.jsonl").read_text("utf-8").split("\n")[:-1]]
MODELS = ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"]
TEXTS = [[row[model]["solution"] for model in MODELS] for row in ROWS]


CORPUS = [text for texts in TEXTS for text in texts]


def byte_level_bpe() -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return trained(models.BPE(), split, decoders.ByteLevel(), trainer, CORPUS)


def unigram() -> Tokenizer:
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    # A quarter of them teaches as much; without what is not ASCII, so that curly quotes are unknown.
    plain = (text.encode("ascii", "ignore").decode() for text in CORPUS[::4])
    return trained(models.Unigram(), pre_tokenizers.Metaspace(), decoders.Metaspace(), trainer, plain)


def wordpiece() -> Tokenizer:
    """Trained on lower-cased texts, as it reads any."""
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    model, split = models.WordPiece(unk_token="[UNK]"), pre_tokenizers.BertPreTokenizer()
    tokenizer = trained(model, split, decoders.WordPiece(), trainer, map(str.lower, CORPUS))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    return tokenizer


MAKERS: dict[str, Any] = {"byte-level BPE": byte_level_bpe, "Unigram": unigram, "WordPiece": wordpiece}


@pytest.mark.parametrize("family", [*MAKERS, "tiny", "words"])
def test_every_group_is_imported_scored_and_drawn_without_a_misaligned_token(family: str) -> None:
    tokenizer = MAKERS[family]() if family in MAKERS else family
    found = read_groups("gsm8k", tokenizer=tokenizer)
    assert (found.facts.format, found.facts.preset, len(found)) == ("gsm8k", "line", 300)
    every = 5 if family == "tiny" else 15
    for group, row, texts in zip(found.groups[::every], ROWS[::every], TEXTS[::every], strict=True):
        assert (group.prompt, [r.columns["model"] for r in group.rollouts]) == (row["question"], MODELS)
        credit = credit_group(score_group(group, LINES, ["calculator_notes", "gsm8k_answer"]), "process")
        drawn = credit_payload(credit, explain_at_most=0)
        for i, (rollout, scored, text) in enumerate(zip(group.rollouts, credit.scored.scored, texts, strict=True)):
            assert rollout.text == text
            assert len(rollout.texts) == len(rollout.token_ids)
            check_spans(rollout.texts, [(s.start, s.end) for s in scored.steps], scored.spans)
            assert "".join(drawn["rollouts"][i]["texts"][:-1]) == text  # all but the end token
            assert len(drawn["rollouts"][i]["advantages"]) == len(rollout)
            lines = [line.strip() for line in text.split("\n") if line.strip()]
            assert [text[step.start : step.end].strip() for step in scored.steps] == lines


def check_spans(texts: tuple[str, ...], steps: list[tuple[int, int]], spans: tuple[tuple[int, int], ...]) -> None:
    """Every token is in exactly one step, the one whose last character it holds."""
    assert spans[0][0] == 0
    assert spans[-1][1] == len(texts) - 1
    assert all(later == last + 1 for (_, last), (later, _) in pairwise(spans))
    ends = np.cumsum([len(text) for text in texts])
    for (_, end), (_, last) in list(zip(steps, spans, strict=True))[:-1]:
        assert ends[last] - len(texts[last]) < end <= ends[last]
