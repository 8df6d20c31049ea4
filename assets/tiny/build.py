"""How the embedded policy ``tiny`` was made: ``python assets/tiny/build.py`` does it again, from nothing.

A Llama-shaped model of about 0.9M parameters and a byte-level BPE of 320 tokens are taught the chain-arithmetic task by
its *noisy teacher* (``teacher.py``). A teacher that is wrong in a fifth of the steps leaves a policy whose
greedy answer is nearly always right and whose sampled answers are right a third of the time: the
distribution is calibrated to the noise, and reinforcement learning has something clean to sharpen. Clean data cut short
instead leaves a policy that does not know the sums, and GRPO destroys it.

Everything is drawn from a seed, so one machine rebuilds the same file; another machine's floating point may differ.
This module knows nothing of GRPO.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    get_cosine_schedule_with_warmup,
)

from assets.tiny.teacher import noisy_answer
from workbench.data import chain_arithmetic, load_task
from workbench.policies.load import load_policy
from workbench.policies.sampler import sample_group

EOS, PAD = "<|end|>", "<|pad|>"
Lesson = Sequence[tuple[str, bool]]
"""Texts, and whether the policy is to learn to write each; an end-of-sequence token follows the last."""
Report = Callable[[int, float, float], None]


@dataclass(frozen=True)
class Recipe:
    """The numbers of the recipe; the defaults made the shipped policy."""

    steps: int = 2000
    decay_steps: int | None = None
    """Steps over which the learning rate would fall to 0, where there are more than are taken."""
    batch_size: int = 64
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    wrong: float = 0.2
    slip: float = 0.04
    tags_share: float = 0.15
    vocabulary: int = 320
    hidden_size: int = 128
    layers: int = 4
    heads: int = 4
    intermediate_size: int = 384
    max_length: int = 512
    seed: int = 0


def build_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE.

    A digit is a token of its own, so numbers are spelled, and so is a line break, so no token lies in two steps.
    Anything else may merge, across spaces too: a label is several tokens ("Step ", "1", ": ").
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=[EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (text for lesson in _islice(teach(recipe), 4000) for text, _ in lesson)
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def teach(recipe: Recipe) -> Iterator[Lesson]:
    """The noisy teacher's endless lessons: a prompt and an answer, never a held-out problem."""
    rng = random.Random(f"teacher/{recipe.seed}")
    while True:
        chain = chain_arithmetic.draw_chain(rng)
        if chain_arithmetic.is_held_out(chain):
            continue
        style: chain_arithmetic.Style = "tags" if rng.random() < recipe.tags_share else "steps"
        answer = noisy_answer(chain, rng, style, recipe.wrong, recipe.slip)
        yield [(chain.prompt(style), False), (answer, True)]


def _islice(lessons: Iterator[Lesson], count: int) -> list[Lesson]:
    return [next(lessons) for _ in range(count)]


def build_tiny(folder: Path, recipe: Recipe | None = None, report: Report | None = None) -> None:
    """Teach the policy and save model and tokenizer to ``folder``; ``report`` as for ``teach_and_save``."""
    recipe = recipe or Recipe()
    torch.manual_seed(recipe.seed)
    tokenizer = build_tokenizer(recipe)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=recipe.hidden_size,
            intermediate_size=recipe.intermediate_size,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads,
            max_position_embeddings=recipe.max_length,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    teach_and_save(model, tokenizer, teach(recipe), recipe, folder, report)


def teach_and_save(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    lessons: Iterator[Lesson],
    recipe: Recipe,
    folder: Path,
    report: Report | None = None,
) -> None:
    """Teach a model the lessons and save it and its tokenizer to ``folder``.

    ``report(step, loss, seconds)`` is called every 50 steps. The loss is cross-entropy in nats per taught token.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, betas=(0.9, 0.98)
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, recipe.warmup_steps, recipe.decay_steps or recipe.steps)
    started = time.monotonic()
    for step in range(1, recipe.steps + 1):
        loss = model(**_batch(tokenizer, _islice(lessons, recipe.batch_size))).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if report and (step % 50 == 0 or step == recipe.steps):
            report(step, loss.item(), time.monotonic() - started)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_first_group(policy_folder: Path, file: Path, *, index: int = 1) -> None:
    """Sample the group that the page shows before any policy is loaded, and save it as JSON."""
    policy = load_policy(str(policy_folder), device="cpu")
    task = load_task("chain-arithmetic")
    group = sample_group(policy, task[index], max_completion_length=task.max_completion_length)
    named = dataclasses.replace(group, policy="tiny")
    file.write_text(json.dumps(named.to_json(), ensure_ascii=False) + "\n", encoding="utf-8")


def _batch(tokenizer: PreTrainedTokenizerFast, lessons: Sequence[Lesson]) -> dict[str, torch.Tensor]:
    """Right-padded ids, mask and labels, each (B, T) int64; labels are -100 on what is not taught and on padding."""
    rows, labels = [], []
    for lesson in lessons:
        pieces = [(tokenizer(text)["input_ids"], is_taught) for text, is_taught in lesson]
        pieces.append(([tokenizer.eos_token_id], True))
        rows.append([token for ids, _ in pieces for token in ids])
        labels.append([token if is_taught else -100 for ids, is_taught in pieces for token in ids])
    width = max(map(len, rows))
    pad = tokenizer.pad_token_id
    return {
        "input_ids": torch.tensor([row + [pad] * (width - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]),
        "labels": torch.tensor([row + [-100] * (width - len(row)) for row in labels]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Teach the embedded policy again from nothing.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to save it in (default: here)")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="teaching steps (default: %(default)s)")
    args = parser.parse_args()
    recipe = Recipe(steps=args.steps)
    build_tiny(
        args.out, recipe, lambda step, loss, _: print(f"step {step}/{recipe.steps}  loss {loss:.4f}", flush=True)
    )
    write_first_group(args.out, args.out.parent / "first-group.json")


if __name__ == "__main__":
    main()
