"""A small process reward model for chain arithmetic, trained by ``python -m workbench build-prm``.

The recipe's 1000 steps took 1,367 s on two CPU cores busy with other work; ``--steps`` takes fewer, for a worse judge.
The noisy teacher's answers have planted errors and ``step_correctness`` knows which steps they are, so every step has
its true label. The embedded policy's body, which can add and multiply already, gets a token-classification head in
TRL's stepwise format and learns to tell right steps from wrong ones; how well is the AUC on held-out problems. What it
is good for is a step reward that is a model and not a rule. This module knows nothing of GRPO.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    get_cosine_schedule_with_warmup,
)

from workbench.policies.find import policy_path
from workbench.rewards.builtin import step_correctness
from workbench.rewards.models.formats import FORMATS, read_steps
from workbench.rewards.models.model import ProcessModel, padded
from workbench.steps import StepPattern, split_steps
from workbench.tasks import chain_arithmetic, load_task


@dataclass(frozen=True)
class PrmRecipe:
    """The numbers of the recipe. ``wrong`` is the share of steps that go wrong in the answers it learns from.

    The first ``short_share`` of training sees chains of ``short`` operations, in which there is little to learn but
    sums; the rest, and the measure, see the task's ``lengths``.
    """

    base: str = "tiny"
    steps: int = 1000
    batch_size: int = 64
    learning_rate: float = 1e-3
    warmup_steps: int = 30
    wrong: float = 0.4
    short_share: float = 0.8
    short: tuple[int, ...] = (1, 2)
    lengths: tuple[int, ...] = (4, 5, 6, 7, 8)
    slip: float = 0.04
    held_out: int = 200
    seed: int = 0


@dataclass(frozen=True)
class Lesson:
    """A prompt, an answer's steps, whether each is right, and up to which character it agrees with the right one."""

    prompt: str
    steps: tuple[str, ...]
    right: tuple[bool, ...]
    agreed: tuple[int, ...]


@dataclass(frozen=True)
class PrmReport:
    """``auc``: the chance that a right step scores over a wrong one, on ``steps`` held-out steps of which ``wrong``."""

    auc: float
    steps: int
    wrong: int


def draw_lesson(
    rng: random.Random, recipe: PrmRecipe, operations: Sequence[int] | None = None, *, held_out: bool = False
) -> Lesson:
    """An answer of the noisy teacher to a chain of one of ``operations`` lengths, with its true labels."""
    while True:
        chain = chain_arithmetic.draw_chain(rng, recipe.lengths if operations is None else operations)
        if chain_arithmetic.is_held_out(chain) is held_out:
            break
    text = chain_arithmetic.noisy_answer(chain, rng, wrong=recipe.wrong, slip=recipe.slip)
    pattern = load_task("chain-arithmetic").pattern
    steps = [text[s.start : s.end].strip() for s in split_steps(text, StepPattern(pattern.regex, pattern.kind))]
    todo: list[list[object]] = [[chain_arithmetic.SYMBOL[name], str(operand)] for name, operand in chain.operations]
    scores = step_correctness([chain.prompt()], [text], [steps], start=[chain.start], operations=[todo])[0]
    right = tuple(score == 1.0 for score in scores)
    return Lesson(chain.prompt(), tuple(steps), right, tuple(map(agreed_characters, steps)))


def agreed_characters(step: str) -> int:
    """Characters of a worked line up to where its result leaves the right one; all of any other line."""
    match = _WORKED.fullmatch(step)
    if match is None:
        return len(step)
    names = {symbol: name for name, symbol in chain_arithmetic.SYMBOL.items()}
    result = chain_arithmetic.apply(names[match[3]], int(match[2]), int(match[4]))
    if match[5] == str(result):
        return len(step)
    claimed = zip(match[5], str(result), strict=False)
    return len(match[1]) + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], claimed))


_WORKED = re.compile(r"(.*?([0-9]+) ([+*-]) ([0-9]+) = )(-?[0-9]+)")


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
    labels = {0: "wrong", 1: "right"}
    config = AutoConfig.from_pretrained(where, id2label=labels, label2id={name: i for i, name in labels.items()})
    config.classifier_dropout = 0.0
    model = AutoModelForTokenClassification.from_pretrained(
        where, config=config, dtype=torch.float32, use_safetensors=True
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98))
    schedule = get_cosine_schedule_with_warmup(optimizer, recipe.warmup_steps, recipe.steps)
    rng = random.Random(f"prm/{recipe.seed}")
    for step in range(1, recipe.steps + 1):
        lengths = recipe.short if step <= recipe.short_share * recipe.steps else recipe.lengths
        lessons = [draw_lesson(rng, recipe, lengths) for _ in range(recipe.batch_size)]
        loss = model(**lesson_batch(tokenizer, lessons)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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


def lesson_batch(tokenizer: PreTrainedTokenizerBase, lessons: Sequence[Lesson]) -> dict[str, torch.Tensor]:
    """Right-padded ids, mask and labels, each (B, T) int64; labels are 1 right, 0 wrong, -100 elsewhere.

    A step's label stands on its separator's last token, where it is read. The tokens of its result have labels too:
    whether they agree with the right one so far, which shows the model what there is to compare.
    """
    form = FORMATS["stepwise"]
    after = len(tokenizer(form.separator, add_special_tokens=False)["input_ids"])
    readings = [read_steps(tokenizer, form, lesson.prompt, lesson.steps) for lesson in lessons]
    whole = [reading for readings_of_lesson in readings for reading in readings_of_lesson or ()]
    ids, mask = padded([reading.ids for reading in whole], tokenizer.pad_token_id, "cpu")
    labels = torch.full_like(ids, -100)
    for row, reading, lesson in zip(labels, whole, lessons, strict=True):
        for step, right, agreed, at in zip(lesson.steps, lesson.right, lesson.agreed, reading.positions, strict=True):
            row[at] = int(right)
            offsets = tokenizer(step, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            result = step.rfind("= ") + 2 if _WORKED.fullmatch(step) else len(step)
            first = at - after - len(offsets) + 1
            for token, (start, end) in enumerate(offsets):
                if start >= result:
                    row[first + token] = int(end <= agreed)
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
