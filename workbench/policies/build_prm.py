"""A small process reward model for chain arithmetic: ``python -m workbench build-prm`` trains one in about a minute.

The noisy teacher's answers have planted errors and ``step_correctness`` knows which steps they are, so every step has
its true label. The embedded policy's body, which can add and multiply already, gets a token-classification head in
TRL's stepwise format and learns to tell right steps from wrong ones; how well is the AUC on held-out problems. What it
is good for is a step reward that is a model and not a rule. This module knows nothing of GRPO.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForTokenClassification,
    PreTrainedTokenizerBase,
    get_cosine_schedule_with_warmup,
)

from workbench.policies.load import policy_path
from workbench.rewards.builtin import step_correctness
from workbench.rewards.models.formats import FORMATS, read_steps
from workbench.rewards.models.model import ProcessModel, padded
from workbench.steps import StepPattern, split_steps
from workbench.tasks import chain_arithmetic, load_task


@dataclass(frozen=True)
class PrmRecipe:
    """The numbers of the recipe. ``wrong`` is the share of steps that go wrong in the answers it learns from."""

    base: str = "tiny"
    new_layers: int = 2
    steps: int = 300
    batch_size: int = 32
    learning_rate: float = 1e-3
    warmup_steps: int = 20
    wrong: float = 0.25
    slip: float = 0.04
    held_out: int = 200
    seed: int = 0


@dataclass(frozen=True)
class Lesson:
    """A prompt, an answer's steps, and whether each of them is right."""

    prompt: str
    steps: tuple[str, ...]
    right: tuple[bool, ...]


@dataclass(frozen=True)
class PrmReport:
    """``auc``: the chance that a right step scores over a wrong one, on ``steps`` held-out steps of which ``wrong``."""

    auc: float
    steps: int
    wrong: int


def draw_lesson(rng: random.Random, recipe: PrmRecipe, *, held_out: bool = False) -> Lesson:
    """An answer of the noisy teacher with its true labels."""
    while True:
        chain = chain_arithmetic.draw_chain(rng)
        if chain_arithmetic.is_held_out(chain) is held_out:
            break
    text = chain_arithmetic.noisy_answer(chain, rng, wrong=recipe.wrong, slip=recipe.slip)
    pattern = load_task("chain-arithmetic").pattern
    steps = [text[s.start : s.end] for s in split_steps(text, StepPattern(pattern.regex, pattern.kind))]
    operations: list[list[object]] = [
        [chain_arithmetic.SYMBOL[name], str(operand)] for name, operand in chain.operations
    ]
    scores = step_correctness([chain.prompt()], [text], [steps], start=[chain.start], operations=[operations])[0]
    return Lesson(chain.prompt(), tuple(steps), tuple(score == 1.0 for score in scores))


def build_prm(
    folder: Path, recipe: PrmRecipe | None = None, report: Callable[[int, float], None] | None = None
) -> PrmReport:
    """Train the reward model, save it with its tokenizer to ``folder``, and measure it.

    ``report(step, loss)`` is called every 20 steps; the loss is cross-entropy in nats a step. Raises PolicyError for a
    base that cannot be found.
    """
    recipe = recipe or PrmRecipe()
    torch.manual_seed(recipe.seed)
    where = policy_path(recipe.base)
    tokenizer = AutoTokenizer.from_pretrained(where)
    model = grown(where, recipe)
    new = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(new, lr=recipe.learning_rate)
    schedule = get_cosine_schedule_with_warmup(optimizer, recipe.warmup_steps, recipe.steps)
    rng = random.Random(f"prm/{recipe.seed}")
    for step in range(1, recipe.steps + 1):
        lessons = [draw_lesson(rng, recipe) for _ in range(recipe.batch_size)]
        loss = model(**lesson_batch(tokenizer, lessons)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(new, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if report is not None and (step % 20 == 0 or step == recipe.steps):
            report(step, loss.item())
    folder.mkdir(parents=True, exist_ok=True)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    rng = random.Random(f"prm/{recipe.seed}/held-out")
    held_out = [draw_lesson(rng, recipe, held_out=True) for _ in range(recipe.held_out)]
    return measure(ProcessModel(model, tokenizer, FORMATS["stepwise"], batch_size=32), held_out)


def grown(where: str, recipe: PrmRecipe) -> LlamaForTokenClassification:
    """The policy's layers, frozen, under ``new_layers`` fresh ones and a head of 2 labels (wrong, right).

    The policy's last layer holds what it expects next; a layer above it can compare that with what was written.
    """
    body = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, use_safetensors=True).model
    config = LlamaConfig.from_pretrained(where)
    config.num_hidden_layers += recipe.new_layers
    config.num_labels, config.classifier_dropout = 2, 0.0
    config.id2label, config.label2id = {0: "wrong", 1: "right"}, {"wrong": 0, "right": 1}
    model = LlamaForTokenClassification(config)
    known = body.state_dict()
    model.model.load_state_dict(known, strict=False)
    for name, parameter in model.model.named_parameters():
        parameter.requires_grad_(name not in known or name == "norm.weight")
    return model.train()


def lesson_batch(tokenizer: PreTrainedTokenizerBase, lessons: Sequence[Lesson]) -> dict[str, torch.Tensor]:
    """Right-padded ids, mask and labels, each (B, T) int64; labels are -100 but after a step: 1 right, 0 wrong."""
    readings = [
        one
        for lesson in lessons
        for one in read_steps(tokenizer, FORMATS["stepwise"], lesson.prompt, lesson.steps) or ()
    ]
    ids, mask = padded([one.ids for one in readings], tokenizer.pad_token_id, "cpu")
    labels = torch.full_like(ids, -100)
    for i, (reading, lesson) in enumerate(zip(readings, lessons, strict=True)):
        labels[i, list(reading.positions)] = torch.tensor([int(right) for right in lesson.right])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def measure(model: ProcessModel, lessons: Sequence[Lesson]) -> PrmReport:
    """How well the model's scores tell right steps from wrong ones."""
    scored = model.score([lesson.prompt for lesson in lessons], [lesson.steps for lesson in lessons])
    pairs = [
        (score, right)
        for scores, lesson in zip(scored, lessons, strict=True)
        for score, right in zip(scores, lesson.right, strict=True)
        if score is not None
    ]
    right = [label for _, label in pairs]
    return PrmReport(auc([score for score, _ in pairs], right), len(pairs), right.count(False))


def auc(scores: Sequence[float], good: Sequence[bool]) -> float:
    """Area under the ROC curve (Mann and Whitney's U, ties count half); NaN where all labels are alike."""
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(good, dtype=bool)
    positive, negative = values[labels], np.sort(values[~labels])
    if not len(positive) or not len(negative):
        return float("nan")
    below = np.searchsorted(negative, positive, side="left") + np.searchsorted(negative, positive, side="right")
    result: Any = below.sum() / 2 / (len(positive) * len(negative))
    return float(result)
