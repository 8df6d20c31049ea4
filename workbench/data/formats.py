"""File formats of rollouts: one row of a file → its completions.

========== ================================================= =====================================================
format     a row                                             source
========== ================================================= =====================================================
group      ``prompt``, ``rollouts[]``                        this workbench: ``sample --json``
gsm8k      ``question``, per model ``{solution, is_correct}``  Cobbe et al. 2021, grade-school-math
processbench ``problem``, ``steps[]``, ``label``             Zheng et al. 2024 (arXiv 2412.06559), Qwen/ProcessBench
prm800k    ``question``, ``label`` with rated ``steps[]``    Lightman et al. 2023 (arXiv 2305.20050), openai/prm800k
math-shepherd ``input`` with ки, ``label``                   Wang et al. 2023 (arXiv 2312.08935), its Hub data set
stepwise   ``prompt``, ``completions[]``, ``labels[]``       TRL's dataset format "stepwise supervision"
rlhflow    ``conversations[]``, every second one + or -      Dong et al. 2024 (arXiv 2405.07863), RLHFlow's PRM data
prime-rl   ``token_ids``, ``loss_mask``, …                   prime-rl's ``TokenExporter``
lm-eval    ``doc``, ``arguments``, ``resps[]``               lm-evaluation-harness ``--log_samples``
verifiers  ``example_id``, ``prompt``, ``completion``        verifiers' ``results.jsonl``
traces     ``task``, ``nodes[]`` or ``traces[]``             verifiers 0.4's ``traces.jsonl``; prime-rl's
                                                             ``train_rollouts.jsonl``
verl       ``input``, ``output``, ``score``, ``gts``         verl's ``trainer.rollout_data_dir``: N.jsonl
openrlhf   ``input``, ``output``, ``reward``                 OpenRLHF's ``batch_inference``
messages   ``messages[]``, or ``conversations[]``            OpenAI's chat format; ShareGPT
trl        ``step``, ``prompt``, ``completion``,             TRL 1.16 ``GRPOTrainer._log`` with
           ``advantage``, a column a reward                  ``log_completions``: completions_NNNNN.parquet
plain      ``prompt``, ``completion`` or ``token_ids``       anything else
========== ================================================= =====================================================

What a row says of one completion goes to ``Record.columns``, under these names where it is one of these things:
``reward`` (a number for the whole completion), ``correct`` (whether its answer is right), ``labelled_steps`` (the
file's own steps) and ``labels`` (1 right, 0 wrong, None unknown, one a labelled step). This module does not know how
completions are grouped or tokenised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from workbench.data.engines import (
    is_conversation_row,
    is_lm_eval,
    is_openrlhf,
    is_prime_rl,
    is_traces,
    is_verifiers,
    is_verl,
    read_conversation,
    read_lm_eval,
    read_openrlhf,
    read_prime_rl,
    read_traces,
    read_verifiers,
    read_verl,
)
from workbench.data.records import (
    Record,
    answered,
    are_numbers,
    check_reward,
    is_finished,
    is_math_shepherd,
    is_prm800k,
    is_processbench,
    is_rlhflow,
    mask_of,
    prompt_text,
    read_math_shepherd,
    read_prm800k,
    read_processbench,
    read_rlhflow,
    read_stepwise,
    step_labels,
    texts_of,
    token_ids,
)
from workbench.errors import TaskError, cut
from workbench.schema import Rollout, Turn
from workbench.schema.rollouts import checked_turns

Read = Callable[[str, Mapping[str, Any]], list[Record]]


@dataclass(frozen=True)
class Format:
    """A format: which rows have it, how to read one, and the separators its steps may be joined with.

    ``columns`` are in every row; ``needs`` says to a person what a row must hold where that is not all.
    """

    name: str
    fits: Callable[[Mapping[str, Any]], bool]
    read: Read
    columns: tuple[str, ...]
    needs: str = ""
    separators: tuple[str, ...] = ("\n", "\n\n")


def detect(values: Mapping[str, Any]) -> Format:
    """The format of a row, by its columns. Raises TaskError listing what would fit."""
    for format in FORMATS.values():
        if format.fits(values):
            return format
    if {"question", "answer"} <= values.keys() or "prompt" in values:
        raise TaskError(
            f"there are no completions (columns {cut(', '.join(values), 300)}); give each row a 'completion', or load "
            "the file as a task"
        )
    raise TaskError(
        f"the columns {cut(', '.join(map(repr, values)), 300) or '(none)'} are no known format: there is no 'prompt'; "
        f"give each row a 'prompt' and a 'completion', or say which columns are: prompt=…,completion=… (formats: "
        f"{', '.join(FORMATS)})"
    )


# --- one reader a format -------------------------------------------------------------------------------------------


def _read_plain(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``prompt`` and ``completion`` (text, a chat message, or those of an episode) or ``token_ids``."""
    rest = dict(values)
    prompt = rest.pop("prompt", None)
    ids = token_ids(where, rest.pop("token_ids", None))
    answer = rest.pop("completion", None)
    if answer is None and ids is None:
        raise TaskError(f"{where}: 'completion' is missing; give text, or 'token_ids'")
    finished = is_finished(rest)
    mask = mask_of(where, rest.pop("mask", None), ids)
    logprobs = rest.pop("logprobs", None)
    if logprobs is not None and (ids is None or not are_numbers(logprobs) or len(logprobs) != len(ids)):
        raise TaskError(f"{where}: 'logprobs' must be one number a token id")
    if "is_correct" in rest:
        rest.setdefault("correct", rest.pop("is_correct"))
    check_reward(where, rest)
    if rest.get("labels") is not None and rest.get("labelled_steps") is not None:
        steps = texts_of(where, "labelled_steps", rest["labelled_steps"])
        rest["labels"] = step_labels(where, "labelled_steps", steps, rest["labels"])
    if answer is None:
        record = Record(where, prompt_text(where, prompt), finished=finished, columns=rest)
    else:
        record = answered(where, prompt, answer, rest.pop("tools", None), finished=finished, columns=rest)
    return [
        replace(
            record,
            token_ids=ids,
            mask=mask,
            logprobs=None if logprobs is None else tuple(map(float, logprobs)),
        )
    ]


def _read_trl(where: str, values: Mapping[str, Any]) -> list[Record]:
    """TRL's log: a reward that scored nothing is NaN there, ``None`` here. ``trl.with_rewards`` adds ``reward``."""
    rest = dict(values)
    step, rest["logged_advantage"] = rest.pop("step"), rest.pop("advantage")
    [record] = _read_plain(where, rest)
    record.columns["training_step"] = step
    return [replace(record, series=str(step))]


def _read_gsm8k(where: str, values: Mapping[str, Any]) -> list[Record]:
    """Every column that is an object with a ``solution`` is one model's completion."""
    rest = {name: value for name, value in values.items() if not _is_solution(value)}
    prompt = prompt_text(where, rest.pop("question"), "question")
    if "ground_truth" in rest:
        rest["answer"] = rest.pop("ground_truth")
    records = []
    for model, answer in values.items():
        if not _is_solution(answer):
            continue
        right = answer.get("is_correct")
        if not isinstance(answer["solution"], str) or not isinstance(right, bool | None):
            raise TaskError(f"{where}: {model!r} needs a text 'solution' and a true or false 'is_correct'")
        verdict = {} if right is None else {"correct": right, "reward": float(right)}
        records.append(Record(where, prompt, answer["solution"], columns=rest | {"model": model} | verdict))
    return records


def _read_group(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A group as this workbench prints it, whose tokens' texts are kept as they are, or a list of plain completions."""
    prompt = prompt_text(where, values.get("prompt"))
    shared, sampling = values.get("columns") or {}, values.get("sampling") or {}
    sampling = sampling if isinstance(sampling, dict) else {}
    records: list[Record] = []
    for number, rollout in enumerate(values["rollouts"], start=1):
        if not isinstance(rollout, dict):
            raise TaskError(f"{where}: rollout {number} must be an object with 'completion' or 'token_ids'")
        columns = rollout.get("columns") or {}
        if not isinstance(shared, dict) or not isinstance(columns, dict):
            raise TaskError(f"{where}: 'columns' of a group and of rollout {number} must be objects with named values")
        columns = shared | columns
        if "texts" not in rollout:
            row = {name: value for name, value in rollout.items() if name != "columns"} | {"prompt": prompt}
            [record] = _read_plain(f"{where}: rollout {number}", row)
            record = replace(record, where=where, series=where, columns=columns | record.columns)
            records.append(replace(record, policy=str(values.get("policy") or ""), sampling=sampling))
            continue
        columns = {name: value for name, value in rollout.items() if name not in _OF_ROLLOUT} | columns
        ids = token_ids(where, rollout.get("token_ids"))
        texts = texts_of(where, "texts", rollout.get("texts")) if ids is not None else ()
        if ids is None or len(ids) != len(texts):
            raise TaskError(f"{where}: rollout {number} needs 'token_ids' and 'texts', one text an id")
        records.append(
            Record(
                where,
                prompt,
                token_ids=ids,
                texts=texts,
                logprobs=_a_token(where, number, "logprobs", rollout, len(ids)),
                entropies=_a_token(where, number, "entropies", rollout, len(ids)),
                ref_logprobs=_a_token(where, number, "ref_logprobs", rollout, len(ids)),
                raw_logprobs=_a_token(where, number, "raw_logprobs", rollout, len(ids)),
                mask=mask_of(f"{where}: rollout {number}", rollout.get("mask"), ids),
                finished=bool(rollout.get("finished")),
                stop=None if rollout.get("stop") is None else str(rollout["stop"]),
                episode=_episode(where, number, rollout, len(ids)),
                series=where,
                columns=columns,
                policy=str(values.get("policy") or ""),
                sampling=sampling,
            )
        )
    return records


_OF_ROLLOUT = {field.name for field in fields(Rollout)}


def _a_token(where: str, number: int, name: str, rollout: Mapping[str, Any], count: int) -> tuple[float, ...] | None:
    """What a group says of each token of a rollout, or None where it says nothing."""
    if (values := rollout.get(name)) is None:
        return None
    if not are_numbers(values) or len(values) != count:
        raise TaskError(f"{where}: {name!r} of rollout {number} must be one number a token, {count} of them")
    return tuple(map(float, values))


def _episode(where: str, number: int, rollout: Mapping[str, Any], count: int) -> tuple[dict[str, Any], ...] | None:
    try:
        turns = checked_turns([Turn.from_json(turn) for turn in rollout.get("turns") or ()], count)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TaskError(f"{where}: 'turns' of rollout {number} are no turns of its {count} tokens: {error}") from error
    return tuple(turn.to_json() for turn in turns) or None


def _is_solution(value: Any) -> bool:
    return isinstance(value, dict) and "solution" in value


FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format(
            "group",
            lambda row: isinstance(row.get("rollouts"), list),
            _read_group,
            ("prompt", "rollouts"),
            "`prompt`, and `rollouts`: a list of objects with `completion` or `token_ids`",
        ),
        Format(
            "prm800k",
            is_prm800k,
            read_prm800k,
            ("question", "label"),
            "`question` with `problem`, and `label` with `steps`: a list of rated `completions` each",
        ),
        Format(
            "math-shepherd",
            is_math_shepherd,
            read_math_shepherd,
            ("input", "label"),
            "`input` with ки after each step, and `label`, the same with + or - in its place",
        ),
        Format(
            "gsm8k",
            lambda row: "question" in row and any(map(_is_solution, row.values())),
            _read_gsm8k,
            ("question",),
            "`question`, and for each model a column that is an object with `solution` (and `is_correct`)",
        ),
        Format(
            "processbench",
            is_processbench,
            read_processbench,
            ("problem", "steps", "label"),
            separators=("\n\n", "\n"),
        ),
        Format(
            "stepwise",
            lambda row: {"prompt", "completions", "labels"} <= row.keys(),
            read_stepwise,
            ("prompt", "completions", "labels"),
        ),
        Format(
            "rlhflow",
            is_rlhflow,
            read_rlhflow,
            ("conversations",),
            "`conversations`: steps, each with + or - behind it",
        ),
        Format("prime-rl", is_prime_rl, read_prime_rl, ("token_ids", "loss_mask", "inference_logprobs")),
        Format("lm-eval", is_lm_eval, read_lm_eval, ("doc_id", "doc", "arguments", "resps")),
        Format("verifiers", is_verifiers, read_verifiers, ("example_id", "prompt", "completion", "reward")),
        Format("verl", is_verl, read_verl, ("input", "output", "score")),
        Format("openrlhf", is_openrlhf, read_openrlhf, ("input", "output")),
        Format(
            "traces",
            is_traces,
            read_traces,
            ("task",),
            "`task`, and `nodes`, or `traces` with them: messages, with `token_ids` and `mask` where they are known",
        ),
        Format(
            "messages",
            is_conversation_row,
            read_conversation,
            (),
            "`messages` with `role`, `content` and `tool_calls`, or `conversations` with `from` and `value`",
        ),
        Format(
            "trl",
            lambda row: {"step", "prompt", "completion", "advantage"} <= row.keys(),
            _read_trl,
            ("step", "prompt", "completion", "advantage"),
        ),
        Format(
            "plain",
            lambda row: "prompt" in row and bool({"completion", "token_ids"} & row.keys()),
            _read_plain,
            ("prompt",),
            "`prompt`, and `completion` or `token_ids`",
        ),
    )
}
"""Name → format, in the order in which a row is tried."""
