"""Layouts of rows: of rollouts, a row of a file → its completions, and of tasks (``recognise``).

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
agent-r1   ``input``, ``output``, ``steps[]``                Agent-R1's dump of trajectories
verl       ``input``, ``output``, ``score``, ``gts``         verl's ``trainer.rollout_data_dir``: N.jsonl
openrlhf   ``input``, ``output``, ``reward``                 OpenRLHF's ``batch_inference``
nemo-rl    ``content``, ``token_ids``, ``token_loss_mask``   NeMo-RL's ``train_data_step*.jsonl``
nemo-gym   ``responses_create_params``, ``response``         NeMo Gym's rollouts
torchtitan ``turns[]`` with ``completion_message``           torchtitan's ``rl`` rollouts
art        ``trajectories[]``                                OpenPipe ART's trajectory groups
miles      ``tokens``, ``response_length``, ``prompt``       slime's and miles' ``Sample``
messages   ``messages[]``, or ``conversations[]``            OpenAI's chat format; ShareGPT
trl        ``step``, ``prompt``, ``completion``,             TRL 1.16 ``GRPOTrainer._log`` with
           ``advantage``, a column a reward                  ``log_completions``: completions_NNNNN.parquet
ms-swift   the same as lists, ``advantages``                 ms-swift's ``completions.jsonl``
step-credit ``prompt``, ``ids``, ``steps[]``, ``advantages`` docs/step-credit.schema.json: ``export RUN --rows``
plain      ``prompt``, ``completion`` or ``token_ids``       anything else
========== ================================================= =====================================================

What a row says of one completion goes to ``Record.columns``, under these names where it is one of these things:
``reward`` (a number for the whole completion), ``correct`` (whether its answer is right), ``labelled_steps`` (the
file's own steps) and ``labels`` (1 right, 0 wrong, None unknown, one a labelled step). This module does not know how
completions are grouped or tokenised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from string import ascii_uppercase
from typing import Any

from pydantic import StrictBool, TypeAdapter

from workbench.data.conversations import is_conversation, sharegpt_messages
from workbench.data.engines import (
    conversation_turns,
    read_agent_r1,
    read_art,
    read_conversation,
    read_lm_eval,
    read_miles,
    read_nemo_gym,
    read_nemo_rl,
    read_openrlhf,
    read_prime_rl,
    read_step_credit,
    read_torchtitan,
    read_traces,
    read_verifiers,
    read_verl,
)
from workbench.data.kinds import MISSING, PROMPTS, kind_of, value_at
from workbench.data.records import (
    MASK,
    TEXT,
    Kind,
    Record,
    check_value,
    each_token,
    prompt_text,
    read_math_shepherd,
    read_prm800k,
    read_processbench,
    read_rlhflow,
    read_row,
    read_stepwise,
)
from workbench.errors import TaskError, cut
from workbench.schema import Rollout

_VERDICT: Kind[bool | None] = Kind(TypeAdapter(StrictBool | None), "true, false or null")
Read = Callable[[str, Mapping[str, Any]], list[Record]]


@dataclass(frozen=True)
class Format:
    """A format: how to read a row, which rows have it, and the separators its steps may be joined with.

    ``columns`` are in every row, and ``holds`` says whether they are what they should be; ``needs`` says to a person
    what a row must hold where the columns are not all. ``called`` is what a person calls a file of it.
    """

    name: str
    read: Read
    columns: tuple[str, ...]
    needs: str = ""
    called: str = ""
    holds: Callable[[Mapping[str, Any]], bool] = lambda row: True
    separators: tuple[str, ...] = ("\n", "\n\n")

    def fits(self, values: Mapping[str, Any]) -> bool:
        return set(self.columns) <= values.keys() and self.holds(values)

    def records(self, where: str, values: Mapping[str, Any]) -> list[Record]:
        """Return a row's completions. Raises TaskError, naming the row, for whatever the reader stumbles over."""
        if missing := [name for name in self.columns if name not in values]:
            raise TaskError(f"{where}: {missing[0]!r} is missing, which every row of the format {self.name!r} needs")
        try:
            return self.read(where, values)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise TaskError(
                f"{where}: a value is not what the format {self.name!r} has there ({type(error).__name__}: {error}); "
                "correct the row, leave it out, or give another format"
            ) from error


def detect(where: str, values: Mapping[str, Any]) -> Format:
    """Return the format of a row, by its columns. Raises TaskError listing what would fit."""
    found = next((format for format in FORMATS.values() if format.fits(values)), None)
    if found is not None:
        return found
    raise TaskError(
        f"{where}: the columns {cut(', '.join(map(repr, values)), 300) or '(none)'} are no known format of "
        "rollouts; give each row a 'prompt' and a 'completion', say which columns are: prompt=…,completion=…, or load "
        f"the file as a task (formats: {', '.join(FORMATS)})"
    )


def stepwise_rows(where: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row of ProcessBench, PRM800K, Math-Shepherd or RLHFlow as TRL's stepwise supervision; another as it is.

    Raises TaskError for a row that does not fit its format.
    """
    labelled = (FORMATS[name] for name in ("processbench", "prm800k", "math-shepherd", "rlhflow"))
    found = next((format for format in labelled if format.fits(values)), None)
    if found is None:
        return [values]
    return [
        {"prompt": record.prompt, "completions": record.columns.pop("labelled_steps"), **record.columns}
        for record in found.records(where, values)
    ]


# --- one reader a format -------------------------------------------------------------------------------------------


def _read_trl(where: str, values: Mapping[str, Any]) -> list[Record]:
    """TRL's log: a reward that scored nothing is NaN there, ``None`` here. ``with_rewards`` adds ``reward``."""
    return [read_row(where, values, series=values["step"], training_step="step", logged_advantage="advantage")]


def _read_swift(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A line is a table: each column is a list with an entry a completion. Else as TRL's log."""
    rest = dict(values)
    rest["step"], rest["advantage"] = rest.pop("step", None) or rest.pop("gen_step"), rest.pop("advantages")
    count = len(rest["prompt"])
    for name, column in rest.items():
        if not isinstance(column, list) or len(column) != count:
            raise TaskError(f"{where}: {name!r} must be a list of {count} values, one a completion")
    rest = {"logged_entropy" if name == "entropy" else name: column for name, column in rest.items()}
    rows = ({name: column[i] for name, column in rest.items()} for i in range(count))
    return [record for row in rows for record in _read_trl(where, row)]


def _read_gsm8k(where: str, values: Mapping[str, Any]) -> list[Record]:
    """Read every column that is an object with a ``solution``: one model's completion."""
    rest = {name: value for name, value in values.items() if not _is_solution(value)}
    records = []
    for model, answer in values.items():
        if _is_solution(answer):
            right = check_value(where, f"{model}.is_correct", answer.get("is_correct"), _VERDICT)
            verdict = {} if right is None else {"correct": right, "reward": float(right)}
            row = {
                **rest,
                "completion": check_value(where, f"{model}.solution", answer["solution"], TEXT),
                "model": model,
            }
            records.append(read_row(where, row | verdict, prompt="question", answer="ground_truth"))
    return records


def _read_group(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A group as this workbench prints it, whose tokens' texts are kept as they are, or a list of plain completions."""
    prompt = prompt_text(where, values.get("prompt"))
    policy, sampling = str(values.get("policy") or ""), values.get("sampling")
    sampling = sampling if isinstance(sampling, dict) else {}
    records: list[Record] = []
    for number, rollout in enumerate(values["rollouts"], start=1):
        at = f"{where}: rollout {number}"
        try:
            columns = {**(values.get("columns") or {}), **(rollout.get("columns") or {})}
            if "texts" in rollout:
                columns = {name: value for name, value in rollout.items() if name not in _OF_ROLLOUT} | columns
                each_token(at, "mask", rollout.get("mask"), MASK, len(rollout["texts"]))
                kept = Rollout.from_json({"finished": False, **rollout, "columns": columns})
                record = Record(where, prompt, rollout=kept, columns=columns)
            else:
                row = {name: value for name, value in rollout.items() if name != "columns"} | {"prompt": prompt}
                record = read_row(at, row)
                record = replace(record, where=where, columns=columns | record.columns)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            needs = "it is an object with a 'completion', or with 'token_ids' and 'texts', one text an id"
            raise TaskError(f"{at}: {error}; {needs}; and 'columns' are named values") from error
        records.append(replace(record, series=where, policy=policy, sampling=sampling))
    return records


_OF_ROLLOUT = {field.name for field in fields(Rollout)}


def _has_parts(value: Any, *names: str) -> bool:
    """Return whether this is a list of objects with these names."""
    parts = value if isinstance(value, list) else []
    return bool(parts) and all(isinstance(part, dict) and part.keys() >= {*names} for part in parts)


def _is_solution(value: Any) -> bool:
    return isinstance(value, dict) and "solution" in value


FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format(
            "group",
            _read_group,
            ("prompt", "rollouts"),
            "`prompt`, and `rollouts`: a list of objects with `completion` or `token_ids`",
            holds=lambda row: isinstance(row["rollouts"], list),
            called="a group's JSON",
        ),
        Format(
            "prm800k",
            read_prm800k,
            ("question", "label"),
            "`question` with `problem`, and `label` with `steps`: a list of rated `completions` each",
            holds=lambda row: (
                isinstance(row["question"], dict) and isinstance(row["label"], dict) and "steps" in row["label"]
            ),
            called="PRM800K",
        ),
        Format(
            "math-shepherd",
            read_math_shepherd,
            ("input", "label"),
            "`input` with ки after each step, and `label`, the same with + or - in its place",
            holds=lambda row: isinstance(row["input"], str) and isinstance(row["label"], str) and "ки" in row["input"],
            called="Math-Shepherd",
        ),
        Format(
            "gsm8k",
            _read_gsm8k,
            ("question",),
            "`question`, and for each model a column that is an object with `solution` (and `is_correct`)",
            holds=lambda row: any(map(_is_solution, row.values())),
            called="GSM8K's model answers",
        ),
        Format(
            "processbench",
            read_processbench,
            ("problem", "steps", "label"),
            separators=("\n\n", "\n"),
            called="ProcessBench",
        ),
        Format("stepwise", read_stepwise, ("prompt", "completions", "labels"), called="stepwise data"),
        Format(
            "rlhflow",
            read_rlhflow,
            ("conversations",),
            "`conversations`: steps, each with + or - behind it",
            holds=lambda row: (
                is_conversation(row["conversations"])
                and len(row["conversations"]) % 2 == 0
                and {turn["content"].strip() for turn in row["conversations"][1::2]} <= {"+", "-"}
            ),
            called="RLHFlow's data",
        ),
        Format(
            "step-credit",
            read_step_credit,
            ("format", "prompt", "ids", "steps", "advantages", "divisor"),
            holds=lambda row: str(row["format"]).startswith("step-credit/"),
            called="rows of step credit",
        ),
        Format("nemo-rl", read_nemo_rl, ("content", "token_ids", "token_loss_mask"), called="a NeMo-RL log"),
        Format("miles", read_miles, ("prompt", "tokens", "response_length"), called="a miles log"),
        Format("prime-rl", read_prime_rl, ("token_ids", "loss_mask", "inference_logprobs"), called="a prime-rl log"),
        Format("lm-eval", read_lm_eval, ("doc_id", "doc", "arguments", "resps"), called="an lm-eval log"),
        Format("verifiers", read_verifiers, ("example_id", "prompt", "completion", "reward"), called="a verifiers log"),
        Format("nemo-gym", read_nemo_gym, ("responses_create_params", "response"), called="a NeMo Gym log"),
        Format(
            "torchtitan",
            read_torchtitan,
            ("turns",),
            "`turns`, each with `prompt_messages`, `completion_message` and `env_messages`",
            holds=lambda row: _has_parts(row["turns"], "prompt_messages", "completion_message"),
            called="a torchtitan log",
        ),
        Format(
            "art",
            read_art,
            ("trajectories",),
            "`trajectories`, each with `messages_and_choices` and `reward`",
            holds=lambda row: _has_parts(row["trajectories"], "messages_and_choices"),
            called="ART's trajectories",
        ),
        Format(
            "agent-r1",
            read_agent_r1,
            ("input", "output", "score", "steps"),
            "`score`, and `steps`, each with `input` and `output`",
            holds=lambda row: _has_parts(row["steps"], "input", "output"),
            called="an Agent-R1 log",
        ),
        Format(
            "verl",
            read_verl,
            ("input", "output", "score"),
            holds=lambda row: isinstance(row["output"], str | None),
            called="a verl log",
        ),
        Format(
            "openrlhf",
            read_openrlhf,
            ("input", "output"),
            holds=lambda row: "instruction" not in row and isinstance(row["output"], str | None),
            called="an OpenRLHF log",
        ),
        Format(
            "traces",
            read_traces,
            ("task",),
            "`task`, and `nodes`, or `traces` with them: messages, with `token_ids` and `mask` where they are known",
            holds=lambda row: (
                isinstance(row["task"], dict) and any(isinstance(row.get(name), list) for name in ("traces", "nodes"))
            ),
            called="a log of traces",
        ),
        Format(
            "messages",
            read_conversation,
            (),
            "`messages` with `role`, `content` and `tool_calls`, or `conversations` with `from` and `value`",
            holds=lambda row: "prompt" not in row and conversation_turns(row) is not None,
        ),
        Format("trl", _read_trl, ("step", "prompt", "completion", "advantage"), called="a TRL log"),
        Format(
            "ms-swift",
            _read_swift,
            ("prompt", "completion", "advantages"),
            "`step` (or `gen_step`), `prompt`, `completion`, `advantages` and a column a reward, each a list",
            holds=lambda row: isinstance(row.get("step", row.get("gen_step")), list),
            called="an ms-swift log",
        ),
        Format(
            "plain",
            lambda where, values: [read_row(where, values)],
            ("prompt",),
            "`prompt`, and `completion` or `token_ids`",
            holds=lambda row: bool({"completion", "token_ids"} & row.keys()),
        ),
    )
}
"""Name → format, in the order in which a row is tried."""


# --- layouts of tasks: rows without an answer of a policy's, or with the one to learn -------------------------------


def recognise(values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the layout's name ("" for the columns of a task), and the row with the columns that it becomes.

    ========== ========================================================== ========================================
    layout     a row                                                      becomes
    ========== ========================================================== ========================================
    verl       ``prompt`` (messages), ``reward_model.ground_truth``       ``answer``
    alpaca     ``instruction``, ``input``, ``output``                     ``prompt``, ``completion``
    sharegpt   ``conversations`` of ``from`` and ``value``, ``system``    ``messages``
    messages   ``messages``, the last not the assistant's                 ``prompt``
    input      ``input``, ``output``                                      ``prompt``, ``completion``
    choices    ``question``, ``options`` or ``choices``                   ``prompt`` with options, ``answer`` a letter
    ========== ========================================================== ========================================

    Sources: verl's ``examples/data_preprocess``, Stanford Alpaca's and ShareGPT's files as LLaMA-Factory and Axolotl
    read them, OpenRLHF's ``--input_key``, verl's ``_dump_generations``, the rows of AQuA-RAT, SAT, MMLU, ARC and MedQA.
    """
    has_prompt = any(name in values for name in PROMPTS)
    instruction, text, output = (values.get(name) for name in ("instruction", "input", "output"))
    completion = {"completion": output} if isinstance(output, str) and "completion" not in values else {}
    truth = value_at(values, "reward_model.ground_truth")
    if truth not in (None, MISSING) and "prompt" in values and "answer" not in values:
        return "verl", {**values, "answer": truth}
    if isinstance(instruction, str) and not has_prompt:
        prompt = f"{instruction}\n\n{text}" if isinstance(text, str) and text.strip() else instruction
        return "alpaca", {**values, "prompt": prompt, **completion}
    if (messages := sharegpt_messages(values)) is not None:
        return "sharegpt", {**values, "messages" if messages[-1]["role"] == "assistant" else "prompt": messages}
    messages = values.get("messages")
    if "prompt" not in values and is_conversation(messages) and messages[-1]["role"] != "assistant":
        return "messages", {**values, "prompt": messages}
    if (isinstance(text, str) or is_conversation(text)) and not has_prompt:
        return "input", {**values, "prompt": text, **completion}
    if kind_of(values) == "prompts" and (choices := _choices(values)):
        return "choices", {**values, **choices}
    return "", dict(values)


_RIGHT = ("correct", "answerKey", "answer_idx", "answer_index", "Answer", "label", "answer")
"""The columns that may say which option is right."""


def _choices(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a multiple-choice row's prompt with its options, and the letter of the right one; {} for other rows."""
    question = next((values[name] for name in PROMPTS if isinstance(values.get(name), str)), None)
    options = next((values[name] for name in ("options", "choices") if values.get(name)), None)
    if isinstance(options, str):
        options = {"": options}
    elif isinstance(options, Mapping) and "text" in options:
        options = dict(zip(options["label"], options["text"], strict=True))
    elif isinstance(options, list):
        options = dict(zip(ascii_uppercase, options, strict=False))
    if question is None or not options or not all(isinstance(text, str) for text in options.values()):
        return {}
    marked = [
        text if re.match(rf"\(?{mark}\s*[).:]|$", text) or not mark else f"{mark}. {text}"
        for mark, text in options.items()
    ]
    prompt = question if all(text in question for text in options.values()) else "\n".join([question, *marked])
    right = next((values[name] for name in _RIGHT if values.get(name) is not None), None)
    by_text = dict(zip(options.values(), options, strict=True)) | dict(enumerate(options))
    answer = by_text.get(right, right) if isinstance(right, str | int) else right
    return {"prompt": prompt} | ({} if answer is None else {"answer": answer})
