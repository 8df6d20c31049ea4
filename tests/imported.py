"""Rows read as rollouts, without a file."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from workbench.data.read import Row
from workbench.data.rollouts import Builder, read_drafts
from workbench.data.tokens import load_tokeniser
from workbench.schema import Group, Rollout

CASES = Path(__file__).parent / "data" / "cases"
EPISODES = Path(__file__).parent / "data" / "episodes"
TEMPLATES = Path(trl.__file__).parent / "chat_templates"


def put(file: Path, *rows: Any) -> Path:
    """Write JSON lines; a text is a line as it is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    file.write_text("".join(lines), encoding="utf-8")
    return file


def episodes_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EPISODES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def read(*rows: dict[str, Any], tokenizer: Any = None, **how: Any) -> tuple[list[Group], str, str]:
    """Return the rows' groups, which are as they were after a round trip through JSON, their format and the notes."""
    drafts, facts = read_drafts([Row(f"line {n}", row) for n, row in enumerate(rows, 1)], "rows.jsonl", **how)
    builder = Builder(load_tokeniser(tokenizer), facts, "rows.jsonl")
    groups = [builder.build(draft) for draft in drafts]
    assert [Group.from_json(json.loads(json.dumps(group.to_json()))) for group in groups] == groups
    return groups, facts.format, "\n".join(builder.facts().notes)


def stretches(rollout: Rollout) -> list[tuple[str, str]]:
    """Return (role, text) of each turn and observation; the mask says the same."""
    for turn in rollout.turns:
        assert set(rollout.mask[turn.start : turn.end]) <= {int(turn.is_sampled)}
    return [(turn.role, "".join(rollout.texts[turn.start : turn.end])) for turn in rollout.turns]


def trained(model: Any, pre_tokenizer: Any, decoder: Any, trainer: Any, texts: Iterable[str]) -> Tokenizer:
    """Return a tokenizer of this model, trained on texts."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoder
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokenizer_with(template: str) -> PreTrainedTokenizerFast:
    """A token a byte, with one of TRL's chat templates."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **special)
    tokenizer.chat_template = (TEMPLATES / template).read_text(encoding="utf-8")
    return tokenizer
