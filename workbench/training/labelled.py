"""Training on labelled steps: rows as token ids, the loss, the trainer, and measures on held-out rows.

What a step is read as, and where its score stands, is the reward models' own (``rewards.models``): a process reward
model is trained on the very ids and through the very logits that it will score with.

For a step with logits z of wrong and right, p = softmax(z)_right and label y in [0, 1] the loss is the cross-entropy
-(y log p + (1 - y) log(1 - p)), averaged over the labelled steps of the batch: of hard labels that of Math-Shepherd
(arXiv 2312.08935, eq. 2), of soft ones its soft estimation.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.checks.difficulty import auc, calibration_error
from workbench.checks.reward_check import Chain, first_error
from workbench.data.rows import LabelledSteps, first_wrong, is_right
from workbench.rewards.models.formats import Format, Reading, question_of, read_steps
from workbench.rewards.models.model import REFERENCE, StepHead, step_batch
from workbench.schema import Step, TokenMeasure
from workbench.steps import token_texts
from workbench.training.methods.base import Seen
from workbench.training.saving import MergedAtTheEnd

UNKNOWN = -100.0
"""The label of a step that is not trained on; what transformers leaves out of its counts."""
THRESHOLD = 0.5
"""A step that scores below it is taken for wrong, as in ProcessBench."""


def until_first_error(row: LabelledSteps) -> LabelledSteps:
    """Return the row without the steps after the first that is labelled wrong."""
    wrong = (k for k, label in enumerate(row.labels) if label is not None and not is_right(label))
    end = next(wrong, len(row.labels)) + 1
    return replace(row, steps=row.steps[:end], labels=row.labels[:end])


def token_rows(
    tokenizer: Any, rows: Sequence[LabelledSteps], *, form: Format, separator: str | None, max_length: int
) -> list[dict[str, Any]]:
    """``readings`` (ids and positions) and ``labels`` of each completion that can be read and is not too long."""
    read = [(read_steps(tokenizer, form, row.prompt, row.steps, separator), row.labels) for row in rows]
    return [
        {
            "readings": [
                {"ids": list(reading.ids), "positions": list(reading.positions), "begins": reading.begins}
                for reading in readings
            ],
            "labels": [UNKNOWN if label is None else label for label in labels],
        }
        for readings, labels in read
        if readings is not None and max(len(reading.ids) for reading in readings) <= max_length
    ]


def collate(pad: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """Return a ``step_batch`` of rows of ``token_rows``, with ``labels`` (S,) and each row's ``steps`` (B,)."""
    readings = [
        Reading(tuple(reading["ids"]), tuple(reading["positions"]), reading["begins"])
        for row in rows
        for reading in row["readings"]
    ]
    return {
        **step_batch(readings, pad),
        "labels": torch.tensor([label for row in rows for label in row["labels"]], dtype=torch.float32),
        "steps": torch.tensor([len(row["labels"]) for row in rows]),
    }


def step_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Each step's loss, (S,), of its logits (S, 2) of wrong and right and its label (S,) in [0, 1]; 0 where unknown."""
    log_p = logits.log_softmax(-1)
    return -(labels * log_p[:, 1] + (1 - labels) * log_p[:, 0]).masked_fill(labels == UNKNOWN, 0.0)


class ProcessTrainer(MergedAtTheEnd):
    """transformers' trainer with the loss above; each labelled step of a batch has the same weight, on any rank."""

    def __init__(self, *args: Any, head: StepHead, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.head = head
        self.loss_is_scaled_for_ga = True
        self._metrics: dict[str, dict[str, list[float]]] = {"train": defaultdict(list)}

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> tuple[list[Any], Any]:
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        labelled = sum((batch["labels"] != UNKNOWN).sum() for batch in batches)
        return batches, self.accelerator.gather(torch.as_tensor(labelled, device=device)).sum()

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        logits, labels = self.head(model, inputs), inputs["labels"]
        known = labels != UNKNOWN
        right = ((logits[:, 1] >= logits[:, 0]) == (labels > THRESHOLD)) & known
        counts = self.accelerator.reduce(torch.stack([right.sum(), known.sum()]), reduction="sum")
        self._metrics["train"]["step_accuracy/train"].append(float(counts[0] / counts[1]))
        # transformers averages over ranks, so that a rank's share counts as often as there are ranks
        share = known.sum() if num_items_in_batch is None else num_items_in_batch / self.accelerator.num_processes
        loss = step_losses(logits, labels).sum() / share
        return (loss, logits) if return_outputs else loss

    def seal(self, draft: Path, target: Path) -> None:
        if self.head.reference is not None:
            self.head.reference.save_pretrained(draft / REFERENCE)
        super().seal(draft, target)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        means = {name: sum(values) / len(values) for name, values in self._metrics["train"].items()}
        self._metrics["train"].clear()
        super().log({**logs, **means}, *args, **kwargs)

    def scores(self, batch: Mapping[str, torch.Tensor]) -> list[tuple[list[float], list[float]]]:
        """Scores and labels of each completion of a batch; the scores are those of ``ProcessModel``."""
        right = self.head(self.model_wrapped, batch).softmax(-1)[:, 1]
        counts = batch["steps"].tolist()
        parts = zip(right.split(counts), batch["labels"].split(counts), strict=True)
        return [(scores.tolist(), labels.tolist()) for scores, labels in parts]


PREDICTED = TokenMeasure(
    "score",
    "predicted score, P(step is right)",
    "score",
    "the stronger, the surer the model is that the step is right; its label stands on the step's chip",
)


def view(trainer: ProcessTrainer, row: LabelledSteps, batch: Mapping[str, torch.Tensor]) -> Seen:
    """Return a watched completion: each step's predicted score, on all its tokens, and its label.

    The text is the steps as they are labelled, tokenised each on its own; what the model reads has the format's marks.
    """
    ((scores, labels),) = trainer.scores(batch)
    tokenizer = trainer.processing_class
    pieces = [tokenizer(f"{step.strip()}\n", add_special_tokens=False)["input_ids"] for step in row.steps]
    ids = [token for piece in pieces for token in piece]
    offsets = [0, *accumulate(map(len, token_texts(tokenizer, ids)))]
    borders = [0, *accumulate(map(len, pieces))]
    text = {
        "name": "completion",
        "ids": ids,
        "values": {PREDICTED.key: [score for piece, score in zip(pieces, scores, strict=True) for _ in piece]},
        "steps": [Step(offsets[first], offsets[after]) for first, after in pairwise(borders)],
        "labels": [None if label == UNKNOWN else label for label in labels],
    }
    known = {name: value for name, value in step_metrics([(scores, labels)]).items() if name == "step_accuracy"}
    return question_of(row.prompt), [text], {name.replace("_", " "): value for name, value in known.items()}


def step_metrics(completions: Sequence[tuple[Sequence[float], Sequence[float]]]) -> dict[str, float]:
    """``step_accuracy``, ``auc``, ``first_error_f1`` and ``calibration_error`` of completions' scores and labels.

    A soft label counts as right over one half. A metric that is not defined (no wrong step, no completion without one)
    is left out.
    """
    pairs = [
        (score, is_right(label))
        for scores, labels in completions
        for score, label in zip(scores, labels, strict=True)
        if label != UNKNOWN
    ]
    scores, right = [score for score, _ in pairs], [label for _, label in pairs]
    first = [first_wrong([None if label == UNKNOWN else label for label in labels]) for _, labels in completions]
    chains = [
        Chain(tuple(of_steps), place)
        for (of_steps, _), place in zip(completions, first, strict=True)
        if place is not None
    ]
    f1 = first_error(chains, THRESHOLD).f1
    metrics = {
        "step_accuracy": float(np.mean([(score >= THRESHOLD) == label for score, label in pairs])),
        "auc": auc(scores, right),
        "first_error_f1": float("nan") if f1 is None else f1,
        "calibration_error": calibration_error(scores, [float(label) for label in right]),
    }
    return {name: value for name, value in metrics.items() if np.isfinite(value)}
