"""The public kinds of process reward models: the text that each reads, and the token that each step's score is at.

=========== ============================================================================ =========================
format      what the model reads                                                         a step's score
=========== ============================================================================ =========================
stepwise    prompt ids, then each step's ids and the separator's ("\\\\n"), each tokenised   softmax(2 logits)[1] on the
            on its own, as TRL's ``PRMTrainer`` made its training rows                   separator's last token
ki          ``question step ки`` newline ``step ки`` … (Math-Shepherd)                   P(+) of {+, −} on ки
extra-0     chat: system, question, ``step<extra_0>step<extra_0>`` (Qwen2.5-Math-PRM)    softmax(2 logits)[1] on it
turns       chat: each step a user turn, each answered "+" (RLHFlow)                     P(+) of {+, −} before the "+"
implicit    the policy's own prompt, then steps and separators as in stepwise            σ(β Σ log π/π_ref)
=========== ============================================================================ =========================

Steps are shown without the white space around them, as the public models were trained; text outside every step is not
shown. A separator that the policy wrote itself is taken out first: it is the judge's mark, no way to be scored twice.
As a part of a word or a number (``реки``, ``3.5``) it is no mark. Scores stand where the format put a separator,
whatever question and steps say.

Sources: TRL's ``prm_trainer.py`` (``tokenize_row``; gone from TRL 1.16, its data format is not); the model card of
peiyi9979/math-shepherd-mistral-7b-prm; that of Qwen/Qwen2.5-Math-PRM-7B; RLHFlow/RLHF-Reward-Modeling,
``math-rm/prm_evaluate.py``; for ``implicit`` the Q-value of arXiv 2412.01981, proposition 3.1. This module knows
tokenizers only by what it calls on them, and no torch.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from workbench.config import ModelFormat
from workbench.errors import RewardError
from workbench.models.find import model_path
from workbench.places import STEP_FORMAT
from workbench.schema import Prompt

QWEN_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
"""The system message Qwen2.5-Math-PRM was trained with; a conversation that brings its own keeps that."""


@dataclass(frozen=True)
class Reading:
    """One pass of the model: token ids, the positions after which the steps' scores stand, where the answer begins."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    begins: int = 0


Encode = Callable[[Any, Prompt, Sequence[str], str], list[Reading]]
"""Tokenizer, prompt, clean steps, separator → readings whose positions together are one a step."""


@dataclass(frozen=True)
class Format:
    """``answer``: what a score is: P(+) of a language model (signs), the second of a head's two logits, or how far a
    language model's likelihood of the answer has moved from its reference's.
    """

    name: ModelFormat
    separator: str
    answer: Literal["signs", "head", "likelihood"]
    encode: Encode


def read_steps(
    tokenizer: Any, form: Format, prompt: Prompt, steps: Sequence[str], separator: str | None = None
) -> list[Reading] | None:
    """Return what the model reads of a completion; None if the tokenizer merges a separator with the text around it."""
    separator = form.separator if separator is None else separator
    mark = separator.strip()
    beside = r"[^\W\d_]" if mark.isalpha() else r"(?!)" if re.search(r"\w", mark) else r"\S"
    alone = re.compile(rf"(?<!{beside}){re.escape(mark)}(?!{beside})" if mark else r"(?!)")
    clean = [alone.sub("", step).strip() for step in steps]
    if not clean:
        return []
    readings = form.encode(tokenizer, prompt, clean, separator)
    return readings if sum(len(reading.positions) for reading in readings) == len(clean) else None


def question_of(prompt: Prompt) -> str:
    """A prompt as one text: plain text as it is, of a conversation what the user says."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(message["content"] for message in prompt if message["role"] == "user")


def sign_ids(tokenizer: Any, form: Format) -> tuple[int, int]:
    """Ids of "+" and "-" as they open an assistant's turn in the format ``turns``, else as they stand in running text.

    Of running text "+ -" is tokenised, as the model cards do. Raises RewardError for a tokenizer that has no single
    token for each.
    """
    if form.name == "turns":
        plus, minus = (tokenizer(sign, add_special_tokens=False)["input_ids"] for sign in "+-")
        return plus[-1], minus[-1]
    ids = tokenizer("+ -", add_special_tokens=False)["input_ids"]
    if len(ids) != 2 or ids[0] == ids[1]:
        raise RewardError(f"this tokenizer spells '+ -' as the ids {ids}; two are needed, one for each sign")
    return ids[0], ids[1]


def _stepwise(
    tokenizer: Any, prompt: Prompt, steps: Sequence[str], separator: str, *, in_chat: bool = False
) -> list[Reading]:
    """The prompt's ids, or those of its conversation, then each step's and the separator's, where its score stands."""
    texts = (question_of(prompt), separator, *steps)
    first, after, *rows = (list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    ids = first if tokenizer.bos_token_id is None else [tokenizer.bos_token_id, *first]
    if in_chat and not isinstance(prompt, str):
        ids = _template(tokenizer, prompt, tokenize=True, add_generation_prompt=True)
    begins, positions = len(ids), []
    for row in rows:
        ids += row + after
        positions.append(len(ids) - 1)
    return [Reading(tuple(ids), tuple(positions), begins)]


def _ki(tokenizer: Any, prompt: Prompt, steps: Sequence[str], separator: str) -> list[Reading]:
    written = f" {separator}"
    question, parts = f"{question_of(prompt).strip()} ", [step + written for step in steps]
    return [_find_marks(tokenizer, written, question + "\n".join(parts), len(question), parts, between=1)]


def _extra_0(tokenizer: Any, prompt: Prompt, steps: Sequence[str], separator: str) -> list[Reading]:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if not any(message["role"] == "system" for message in messages):
        messages.insert(0, {"role": "system", "content": QWEN_SYSTEM})
    parts = [step + separator for step in steps]
    text = _template(tokenizer, [*messages, {"role": "assistant", "content": "".join(parts)}], tokenize=False)
    return [_find_marks(tokenizer, separator, text, text.rfind("".join(parts)), parts)]


def _find_marks(tokenizer: Any, written: str, text: str, start: int, parts: Sequence[str], between: int = 0) -> Reading:
    """Scores stand on the last id of ``written``, the separator, at the end of each part.

    The parts begin at ``start`` of ``text``, with so many characters ``between`` two of them.
    """
    mark = tokenizer(written, add_special_tokens=False)["input_ids"][-1]
    ends = {start + end - between for end in accumulate(len(part) + between for part in parts)}
    encoded = tokenizer(text, return_offsets_mapping=True)
    found = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    positions = tuple(i for i, (token_id, (_, end)) in enumerate(found) if token_id == mark and end in ends)
    return Reading(tuple(encoded["input_ids"]), positions)


def _turns(tokenizer: Any, prompt: Prompt, steps: Sequence[str], separator: str) -> list[Reading]:
    """One reading of all turns where the template only appends, else one a step; the first step has the question."""
    talk: list[dict[str, str]] = []
    prefixes = []
    for k, step in enumerate(steps):
        text = f"{question_of(prompt)} {step}" if k == 0 else step
        talk.append({"role": "user", "content": text})
        prefixes.append(_template(tokenizer, talk, tokenize=True, add_generation_prompt=True))
        talk.append({"role": "assistant", "content": "+"})
    longest = prefixes[-1]
    if all(longest[: len(ids)] == ids for ids in prefixes):
        return [Reading(tuple(longest), tuple(len(ids) - 1 for ids in prefixes))]
    return [Reading(tuple(ids), (len(ids) - 1,)) for ids in prefixes]


def _template(tokenizer: Any, messages: Sequence[dict[str, str]], *, tokenize: bool, **options: Any) -> Any:
    if tokenizer.chat_template is None:
        raise RewardError("this format reads a conversation and the reward model's tokenizer has no chat template")
    written = tokenizer.apply_chat_template(list(messages), tokenize=tokenize, return_dict=tokenize, **options)
    return list(written["input_ids"]) if tokenize else written


FORMATS: dict[ModelFormat, Format] = {
    format.name: format
    for format in (
        Format("stepwise", "\n", "head", _stepwise),
        Format("ki", "ки", "signs", _ki),
        Format("extra-0", "<extra_0>", "head", _extra_0),
        Format("turns", "", "signs", _turns),
        Format("implicit", "\n", "likelihood", partial(_stepwise, in_chat=True)),
    )
}
"""Name → format of process reward models."""


def guess_format(path: str) -> ModelFormat:
    """A folder's format, as it was trained here or by its architecture.

    Raises RewardError where that leaves a choice, naming the choices.
    """
    choices = ", ".join(("classifier", *FORMATS))
    file = Path(model_path(path)) / "config.json"
    if not file.is_file():
        raise RewardError(f"the format of reward model {path!r} must be said; one of {choices}")
    try:
        described = json.loads(file.read_text(encoding="utf-8"))
        trained, names = described.get(STEP_FORMAT), described.get("architectures") or [""]
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise RewardError(f"reward model {path!r}: its config.json cannot be read ({error}); save it again") from error
    fitting = [form for ending, form in _ARCHITECTURES.items() if str(names[0]).endswith(ending)]
    fitting = [FORMATS[trained].name] if trained in FORMATS else fitting
    if not fitting:
        raise RewardError(f"{path!r} is a {names[0] or 'model'}, which fits several formats; say which of {choices}")
    return fitting[0]


_ARCHITECTURES: dict[str, ModelFormat] = {
    "ForTokenClassification": "stepwise",
    "ForSequenceClassification": "classifier",
    "ForProcessRewardModel": "extra-0",
}
