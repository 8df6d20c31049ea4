"""All layouts of rows that are known, and which of them a row or a file has.

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
verl-data  ``prompt`` (messages), ``reward_model``           verl's ``examples/data_preprocess``
alpaca     ``instruction``, ``input``, ``output``            Stanford Alpaca's, as LLaMA-Factory and Axolotl read it
choices    ``question``, ``options`` or ``choices``          AQuA-RAT, SAT, MMLU, ARC, MedQA
input      ``input``                                         OpenRLHF's ``--input_key``
========== ================================================= =====================================================

A format says how a row's completions are read (``records``), and what columns of a task the row has (``task_rows``:
``prompt``, ``completion``, ``answer``, those of labelled steps); some have no completions. A row that has none of these
layouts has a task's columns by their names (``data.rows``). What a row says of one completion goes to
``Record.columns``, under these names where it is one of these things: ``reward`` (a number for the whole completion),
``correct`` (whether its answer is right), ``labelled_steps`` (the file's own steps) and ``labels`` (1 right, 0 wrong,
None unknown, one a labelled step). How completions are grouped or tokenised is not known here.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal, get_args

from workbench.data import labelled, logs
from workbench.data.conversations import conversation_turns, is_conversation
from workbench.data.read import EVERY, is_of_a_run, resolve, rows_and_faults
from workbench.data.rows import MISSING, PROMPTS, Record, columns_of, guess, kind_of, names_of, read_row, value_at
from workbench.errors import TaskError, cut
from workbench.rewards.others import Role


@dataclass(frozen=True)
class Format:
    """A format: which rows have it, how their completions are read, and what columns of a task they have.

    ``columns`` are in every row, and ``holds`` says whether they are what they should be; ``needs`` says to a person
    what a row must hold where the columns are not all. ``called`` is what a person calls a file of it. Without ``read``
    a row has no completions; ``as_task`` gives the columns that it gets in a task, beside its own. ``separators`` are
    what its steps may be joined with. Rows of ``labels_steps`` become rows of labelled steps in a task, one a
    completion; ``may_teach`` says that rows to learn from have the layout, too.
    """

    name: str
    read: Callable[[str, Mapping[str, Any]], list[Record]] | None = None
    columns: tuple[str, ...] = ()
    needs: str = ""
    called: str = ""
    holds: Callable[[Mapping[str, Any]], bool] = lambda row: True
    separators: tuple[str, ...] = ("\n", "\n\n")
    as_task: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    labels_steps: bool = False
    may_teach: bool = False

    def records(self, where: str, values: Mapping[str, Any]) -> list[Record]:
        """Return a row's completions. Raises TaskError, naming the row, for whatever the reader stumbles over."""
        if missing := [name for name in self.columns if name not in values]:
            raise TaskError(f"{where}: {missing[0]!r} is missing, which every row of the format {self.name!r} needs")
        if self.read is None:
            raise _no_rollouts(where, values)
        try:
            return self.read(where, values)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise TaskError(
                f"{where}: a value is not what the format {self.name!r} has there ({type(error).__name__}: {error}); "
                "correct the row, leave it out, or give another format"
            ) from error

    def task_rows(self, where: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a row with a task's columns, or several of labelled steps. Raises TaskError as ``records``."""
        if not self.labels_steps:
            return [{**values, **(self.as_task(values) if self.as_task else {})}]
        return [
            {"prompt": record.prompt, "completions": record.columns.pop("labelled_steps"), **record.columns}
            for record in self.records(where, values)
        ]


def recognise(values: Mapping[str, Any]) -> Format:
    """Return the format of a row, by its columns: ``COLUMNS`` for one of no known layout."""
    fitting = (one for one in FORMATS.values() if set(one.columns) <= values.keys() and one.holds(values))
    return next(fitting, COLUMNS)


def _no_rollouts(where: str, values: Mapping[str, Any]) -> TaskError:
    likely = {role: (*guess(role, [values]), "…")[0] for role in ROLES[:2]}
    told = ",".join(f"{role}={name}" for role, name in likely.items())
    return TaskError(
        f"{where}: the columns {cut(', '.join(map(repr, values)), 300) or '(none)'} are no known format of "
        f"rollouts; give each row a 'prompt' and a 'completion', say which columns are: {told}, or load the file as a "
        f"task (formats: {', '.join(ROLLOUTS)})"
    )


# --- what rows become in a task --------------------------------------------------------------------------------------

_RIGHT = ("correct", "answerKey", "answer_idx", "answer_index", "Answer", "label", "answer")
"""The columns that may say which option is right."""


def _has_prompt(row: Mapping[str, Any]) -> bool:
    return any(name in row for name in PROMPTS)


def _prompt_and_output(prompt: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    learnt = isinstance(row.get("output"), str) and "completion" not in row
    return {"prompt": prompt} | ({"completion": row["output"]} if learnt else {})


def _of_instruction(row: Mapping[str, Any]) -> dict[str, Any]:
    text = row.get("input")
    told = f"{row['instruction']}\n\n{text}" if isinstance(text, str) and text.strip() else row["instruction"]
    return _prompt_and_output(told, row)


def _of_input(row: Mapping[str, Any]) -> dict[str, Any]:
    asks = isinstance(row["input"], str) or is_conversation(row["input"])
    return _prompt_and_output(row["input"], row) if asks and not _has_prompt(row) else {}


def _of_dialogue(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dialogue to learn the end of, or to go on with."""
    turns = conversation_turns(row) or []
    return {"messages" if turns[-1]["role"] == "assistant" else "prompt": turns}


def _choices(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a multiple-choice row's prompt with its options, and the letter of the right one; {} for other rows."""
    question = next((row[name] for name in PROMPTS if isinstance(row.get(name), str)), None)
    options = next((row[name] for name in ("options", "choices") if row.get(name)), None)
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
    right = next((row[name] for name in _RIGHT if row.get(name) is not None), None)
    by_text = dict(zip(options.values(), options, strict=True)) | dict(enumerate(options))
    answer = by_text.get(right, right) if isinstance(right, str | int) else right
    return {"prompt": prompt} | ({} if answer is None else {"answer": answer})


# --- the registry ----------------------------------------------------------------------------------------------------


def _has_parts(value: Any, *names: str) -> bool:
    """Return whether this is a list of objects with these names."""
    parts = value if isinstance(value, list) else []
    return bool(parts) and all(isinstance(part, dict) and part.keys() >= {*names} for part in parts)


def _are_signs(turns: Any) -> bool:
    """Return whether every second message is + or -."""
    return (
        is_conversation(turns)
        and len(turns) % 2 == 0
        and {turn["content"].strip() for turn in turns[1::2]} <= {"+", "-"}
    )


FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format(
            "group",
            logs.read_group,
            ("prompt", "rollouts"),
            "`prompt`, and `rollouts`: a list of objects with `completion` or `token_ids`",
            holds=lambda row: isinstance(row["rollouts"], list),
            called="a group's JSON",
        ),
        Format(
            "prm800k",
            labelled.read_prm800k,
            ("question", "label"),
            "`question` with `problem`, and `label` with `steps`: a list of rated `completions` each",
            holds=lambda row: (
                isinstance(row["question"], dict) and isinstance(row["label"], dict) and "steps" in row["label"]
            ),
            called="PRM800K",
            labels_steps=True,
        ),
        Format(
            "math-shepherd",
            labelled.read_math_shepherd,
            ("input", "label"),
            "`input` with ки after each step, and `label`, the same with + or - in its place",
            holds=lambda row: (
                isinstance(row["input"], str) and isinstance(row["label"], str) and labelled.MARK in row["input"]
            ),
            called="Math-Shepherd",
            labels_steps=True,
        ),
        Format(
            "gsm8k",
            labelled.read_gsm8k,
            ("question",),
            "`question`, and for each model a column that is an object with `solution` (and `is_correct`)",
            holds=lambda row: any(map(labelled.is_solution, row.values())),
            called="GSM8K's model answers",
        ),
        Format(
            "processbench",
            labelled.read_processbench,
            ("problem", "steps", "label"),
            separators=("\n\n", "\n"),
            called="ProcessBench",
            labels_steps=True,
        ),
        Format("stepwise", labelled.read_stepwise, ("prompt", "completions", "labels"), called="stepwise data"),
        Format(
            "rlhflow",
            labelled.read_rlhflow,
            ("conversations",),
            "`conversations`: steps, each with + or - behind it",
            holds=lambda row: _are_signs(row["conversations"]),
            called="RLHFlow's data",
            labels_steps=True,
        ),
        Format(
            "step-credit",
            logs.read_step_credit,
            ("format", "prompt", "ids", "steps", "advantages", "divisor"),
            holds=lambda row: str(row["format"]).startswith("step-credit/"),
            called="rows of step credit",
        ),
        Format("nemo-rl", logs.read_nemo_rl, ("content", "token_ids", "token_loss_mask"), called="a NeMo-RL log"),
        Format("miles", logs.read_miles, ("prompt", "tokens", "response_length"), called="a miles log"),
        Format(
            "prime-rl", logs.read_prime_rl, ("token_ids", "loss_mask", "inference_logprobs"), called="a prime-rl log"
        ),
        Format("lm-eval", logs.read_lm_eval, ("doc_id", "doc", "arguments", "resps"), called="an lm-eval log"),
        Format(
            "verifiers", logs.read_verifiers, ("example_id", "prompt", "completion", "reward"), called="a verifiers log"
        ),
        Format("nemo-gym", logs.read_nemo_gym, ("responses_create_params", "response"), called="a NeMo Gym log"),
        Format(
            "torchtitan",
            logs.read_torchtitan,
            ("turns",),
            "`turns`, each with `prompt_messages`, `completion_message` and `env_messages`",
            holds=lambda row: _has_parts(row["turns"], "prompt_messages", "completion_message"),
            called="a torchtitan log",
        ),
        Format(
            "art",
            logs.read_art,
            ("trajectories",),
            "`trajectories`, each with `messages_and_choices` and `reward`",
            holds=lambda row: _has_parts(row["trajectories"], "messages_and_choices"),
            called="ART's trajectories",
        ),
        Format(
            "agent-r1",
            logs.read_agent_r1,
            ("input", "output", "score", "steps"),
            "`score`, and `steps`, each with `input` and `output`",
            holds=lambda row: _has_parts(row["steps"], "input", "output"),
            called="an Agent-R1 log",
            as_task=_of_input,
        ),
        Format(
            "verl",
            logs.read_verl,
            ("input", "output", "score"),
            holds=lambda row: isinstance(row["output"], str | None),
            called="a verl log",
            as_task=_of_input,
        ),
        Format(
            "openrlhf",
            logs.read_openrlhf,
            ("input", "output"),
            holds=lambda row: "instruction" not in row and isinstance(row["output"], str | None),
            called="an OpenRLHF log",
            as_task=_of_input,
            may_teach=True,
        ),
        Format(
            "traces",
            logs.read_traces,
            ("task",),
            "`task`, and `nodes`, or `traces` with them: messages, with `token_ids` and `mask` where they are known",
            holds=lambda row: (
                isinstance(row["task"], dict) and any(isinstance(row.get(name), list) for name in ("traces", "nodes"))
            ),
            called="a log of traces",
        ),
        Format(
            "messages",
            logs.read_conversation,
            (),
            "`messages` with `role`, `content` and `tool_calls`, or `conversations` with `from` and `value`",
            holds=lambda row: "prompt" not in row and conversation_turns(row) is not None,
            as_task=_of_dialogue,
            may_teach=True,
        ),
        Format("trl", logs.read_trl, ("step", "prompt", "completion", "advantage"), called="a TRL log"),
        Format(
            "ms-swift",
            logs.read_swift,
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
            may_teach=True,
        ),
        Format(
            "verl-data",
            columns=("prompt", "reward_model"),
            holds=lambda row: "answer" not in row and value_at(row, "reward_model.ground_truth") not in (None, MISSING),
            as_task=lambda row: {"answer": value_at(row, "reward_model.ground_truth")},
        ),
        Format(
            "alpaca",
            columns=("instruction",),
            holds=lambda row: isinstance(row["instruction"], str) and not _has_prompt(row),
            as_task=_of_instruction,
        ),
        Format("input", columns=("input",), holds=lambda row: bool(_of_input(row)), as_task=_of_input),
        Format("choices", holds=lambda row: kind_of(row) == "prompts" and bool(_choices(row)), as_task=_choices),
    )
}
"""Name → format, in the order in which a row is tried."""
COLUMNS = Format("")
"""A row of no known layout: its columns are a task's by their names."""
ROLLOUTS = tuple(format.name for format in FORMATS.values() if format.read is not None)
"""Names of the formats with completions."""


# --- a first look at somebody's file ---------------------------------------------------------------------------------

ROLES: tuple[Role, ...] = get_args(Role)
OF_ROLLOUTS = frozenset({"reward", "score", "correct", "is_correct", "labels", "token_ids"})
"""Columns that rows to learn from do not have."""
LOOKED_AT = 64
"""Rows of a file by which its columns are told."""


@dataclass(frozen=True)
class Look:
    """A file at first sight; ``names`` are its columns, and ``columns`` says what is known of which of them is what.

    ``mapping`` is that of it which a reader has to be told. ``missing`` has to be chosen before the file can be read.
    """

    holds: Literal["problems", "rollouts"]
    names: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    mapping: Mapping[str, str] = field(default_factory=dict)
    missing: Role | None = None


def look_at(path: str | Path, chosen: Mapping[str, str] | None = None) -> Look:
    """Find out what a file or folder holds. ``chosen`` says of columns what they are, "" that there is none.

    Rollouts have a format with completions and come in groups or with scores; what a task can be made of is problems.
    Columns of other names ("Problem Text", ``gold_value``) are guessed by the words in them (``rows.guess``), but not
    where two fit; what somebody chose goes before any guess.

    Raises TaskError for a file without a row that can be read, and for a chosen column that is not there.
    """
    file, chosen = resolve(path), chosen or {}
    if is_of_a_run(file):
        return Look("rollouts")
    read = [row for row in islice(rows_and_faults(file, EVERY), LOOKED_AT) if not row.left_out]
    rows = [row.values for row in read if not row.fault]
    if not rows:
        raise TaskError(read[0].fault if read else f"{file.name} has no rows")
    values, format = rows[0], recognise(rows[0])
    names = tuple(dict.fromkeys(name for row in rows for name in names_of(row)))
    mapping = {role: name for role, name in chosen.items() if name}
    where = next(row.where for row in read if not row.fault)
    columns_of(f"{file.name} {where}", values, mapping, "columns")
    columns: dict[str, str] = {role: role for role in ROLES if role in values}
    columns |= [("prompt", name) for name in reversed(PROMPTS) if name in values]
    columns = {role: name for role, name in (columns | mapping).items() if chosen.get(role) != ""}

    def guess_columns(*roles: Role) -> None:
        for role in roles:
            found = [] if role in columns or role in chosen else guess(role, rows, columns.values())
            if len(found) == 1:
                columns[role] = mapping[role] = found[0]

    if format.read is not None and not chosen.keys() & {"prompt", "completion"}:
        if not format.may_teach:
            return Look("rollouts", names)
        prompts = {
            json.dumps(row.get("prompt", row.get("input", (conversation_turns(row) or ())[:-1]))) for row in rows
        }
        if OF_ROLLOUTS & values.keys() or len(prompts) < len(rows):
            guess_columns("answer", "reward")
            return Look("rollouts", names, columns, mapping)
        columns.pop("completion", None)
    if format.as_task is None and not {"messages", "chosen"} & values.keys():
        guess_columns("prompt")
        if "prompt" not in columns:
            return Look("problems", names, columns, mapping, "prompt")
        if format is COLUMNS:
            guess_columns("completion")
    if "answer" not in {**values, **(format.as_task(values) if format.as_task else {})}:
        guess_columns("answer")
    if "completion" not in columns:
        return Look("problems", names, columns, mapping)
    guess_columns("reward")
    return Look("rollouts", names, columns, columns)
