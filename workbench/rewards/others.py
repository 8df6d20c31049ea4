"""Reward functions as other tools have them, called as they are called there; told by the names of their parameters.

- verl: ``compute_score(data_source, solution_str, ground_truth, extra_info)`` of one completion, a number or a mapping
  with ``score``, and the one of a batch, with plural names (``verl/workers/reward_manager/naive.py``, ``batch.py``).
- OpenRLHF: ``reward_func(queries, prompts, labels)``, a query being prompt and response, which returns an array or a
  mapping with ``rewards`` (``examples/python/reward_func.py``).
- verifiers: functions of one ``completion`` that name what else they want of ``prompt``, ``answer``, ``state``,
  ``info`` and ``task``, and a ``Rubric`` of ``funcs`` and ``weights`` (``verifiers/rubrics/rubric.py``). One that
  returns a list scores the completion's steps.
- ms-swift: a class whose ``__call__(completions, **columns)`` scores (``swift/plugin/orm.py``).

The right answer is the column of the name that is asked for, or else the one that holds it by its name
(``with_answers``), for functions of ours and TRL's as well: open-r1's want ``solution``. ``columns_for`` is what all of
the workbench knows columns by: graders, tasks, and the page's guess of what a file holds.
"""

import asyncio
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Literal

from workbench.schema import RewardKind

ARGUMENTS = ("trainer_state", "log_extra", "log_metric")
"""What TRL's trainer passes by name beside the data's columns."""
VERL, VERL_BATCH = "verl's compute_score", "verl's compute_score of a batch"
OPENRLHF, VERIFIERS = "OpenRLHF's reward_func", "a function of a verifiers rubric"
_ASKED = {
    VERL: {"solution_str", "ground_truth"},
    VERL_BATCH: {"solution_strs", "ground_truths"},
    OPENRLHF: {"queries", "prompts"},
    VERIFIERS: {"completion"},
}
_ANSWER_OF = {VERL: "ground_truth", VERL_BATCH: "ground_truth", OPENRLHF: "labels", VERIFIERS: "answer"}
"""What a tool calls the right answer."""
Role = Literal["prompt", "completion", "answer", "reward"]
_NAMES: Mapping[Role, tuple[frozenset[str], frozenset[str]]] = {
    "prompt": (
        frozenset({"prompt", "question", "problem", "query", "instruction", "exercise"}),
        frozenset({"task", "input"}),
    ),
    "completion": (
        frozenset({"completion", "response", "output", "generation", "reply"}),
        frozenset({"rollout"}),
    ),
    "answer": (
        frozenset({"answer", "answers", "gold", "truth", "gt", "gts", "target", "expected"}),
        frozenset({"label", "labels", "solution", "solutions", "result"}),
    ),
    "reward": (frozenset({"reward", "score", "points", "rating", "grade"}), frozenset()),
}
"""Words in the names of a role's columns, and those that count where no column has one of these."""
_PLAIN = frozenset({"text", "value", "content", "final", "correct", "right", "true", "reference", "ground"})
"""Words beside those that leave a column what they say it is."""
_ABOUT = frozenset(
    {"id", "ids", "uid", "uuid", "hash", "index", "idx", "type", "kind", "format", "status", "source", "name", "level"}
    | {"category", "style", "mode", "version", "url", "system", "template"}
)
"""Words of columns that say something about what was asked or answered, and are not it."""
_OF_MODELS = frozenset(
    {"model", "pred", "predicted", "prediction", "extracted", "parsed", "student", "response", "generated", "llm"}
    | {"generation", "completion", "output", "rollout", "sampled"}
)
"""Words of columns with an answer that is not known to be right."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_OURS = {"completions", "step", "steps"}


def tool_of(signature: inspect.Signature) -> str:
    """Say which tool's a function is, or "" for none of these."""
    names = signature.parameters.keys()
    return next((tool for tool, asked in _ASKED.items() if names >= asked and not names & _OURS), "")


def as_messages(prompts: Sequence[Any], completions: Sequence[Any]) -> dict[str, Any]:
    """Return texts as chat messages, for a function that was written for these."""
    return {
        "prompts": [[{"role": "user", "content": prompt}] for prompt in prompts],
        "completions": [[{"role": "assistant", "content": completion}] for completion in completions],
    }


def as_texts(prompts: Sequence[Any], completions: Sequence[Any]) -> dict[str, Any]:
    """Return chat messages as texts: what a prompt's messages say, line by line, and a completion's last one."""
    return {"prompts": [text_of(one) for one in prompts], "completions": [text_of(one[-1:]) for one in completions]}


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else "\n".join(str(message.get("content") or "") for message in value)


def columns_for(role: Role, names: Iterable[str]) -> list[str]:
    """Return the columns that are of a role by their names, the surest alone: several where it cannot be told which.

    Names may be dotted (``meta.gold_answer``): their last part tells, unless it says as little as ``value`` does.
    """
    sureness = {name: _sureness(role, name) for name in names}
    best = max(sureness.values(), default=0)
    return [name for name, sure in sureness.items() if sure == best > 0]


def _sureness(role: Role, name: str) -> int:
    """Return 5 for the role's own name, 4 or 2 for one of its words alone, 3 or 1 for these among others, else 0."""
    last = _words(name.rpartition(".")[2])
    words = last if last - _PLAIN else _words(name)
    says_model = role == "answer" and bool(_words(name.replace("reward_model", "")) & _OF_MODELS)
    known = next((known for known in _NAMES[role] if words & known), None)
    if known is None or words & _ABOUT or says_model:
        return 0
    return 5 if name == role else (3 if known is _NAMES[role][0] else 1) + (words <= known | _PLAIN)


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


def answer_column(name: str, columns: Collection[str]) -> str | None:
    """Return the column given for ``name``: itself, or if it means the right answer, the only one that may hold it."""
    if name in columns or _sureness("answer", name) not in (2, 4, 5):
        return name if name in columns else None
    found = columns_for("answer", columns)
    return found[0] if len(found) == 1 else None


def with_answers(asked: Iterable[str], columns: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the columns with the right answer under every name that is asked for, and what says so of each."""
    there, said = dict(columns), []
    for name in asked:
        nested = columns.get("reward_model")  # verl's own data
        if name in columns:
            continue
        if name == "ground_truth" and isinstance(nested, list) and all("ground_truth" in (row or ()) for row in nested):
            there[name] = [row["ground_truth"] for row in nested]
            said.append("ground_truth is the column reward_model.ground_truth")
        elif other := answer_column(name, columns):
            there[name] = columns[other]
            said.append(f"{name} is the column {other}")
    return there, said


def scores_steps(signature: inspect.Signature, code: str) -> bool:
    """Return whether a function takes one completion and returns a list, as its annotation or last line says."""
    last = re.findall(r"\breturn\b *(.*)", code)[-1:]
    is_list = any(value[:1] == "[" or re.search(rf"\b{re.escape(value)}(: [^=\n]+)? = \[", code) for value in last)
    says_list = re.match(r"(<class '|typing\.)?[Ll]ist\b", str(signature.return_annotation)) is not None
    return (is_list or says_list) and tool_of(signature) in (VERIFIERS, VERL)


def called_as_there(
    function: Callable[..., Any], more: Mapping[str, Any] | None = None, kind: RewardKind | None = None
) -> Any:
    """Return a function of one of these tools as a reward; it may name what is in ``more``, a parser say.

    It is an outcome reward, or of the ``steps`` form if it takes one completion and ``kind`` is step. Without a
    ``kind`` its code tells.
    """
    signature = inspect.signature(function)
    tool = tool_of(signature) or VERIFIERS  # whose rubric may hold functions of the answer alone
    of_one, takes_all = tool in (VERIFIERS, VERL), any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    of_steps, code = of_one and kind == "step", ""
    if kind is None:
        with suppress(OSError, TypeError):  # there is no file to read it in
            code = inspect.getsource(function)
        of_steps = scores_steps(signature, code)

    def row_of(prompt: Any, completion: Any, columns: dict[str, Any]) -> dict[str, Any]:
        text = text_of(completion[-1:] if isinstance(completion, list) else completion)
        row = {"data_source": "", "extra_info": columns, "info": {}, "task": "", **columns, **(more or {})}
        row |= {"solution_str": text, "queries": text_of(prompt) + text, "prompts": text_of(prompt)}
        row |= {"prompt": prompt, "completion": completion}
        row["state"] = {name: row[name] for name in ("prompt", "completion", "answer", "info", "task") if name in row}
        return row

    def calls(prompts: Any, completions: Any, columns: dict[str, Any]) -> list[dict[str, Any]]:
        data = {name: each for name, each in columns.items() if name not in ARGUMENTS and isinstance(each, list)}
        rows = [
            row_of(prompt, completion, {name: each[i] for name, each in data.items()})
            for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
        ]
        if not of_one:
            ending = "s" if tool == VERL_BATCH else ""
            rows = [{f"{name}{ending}": [row.get(name) for row in rows] for name in rows[0]}]
        return [
            {name: value for name, value in row.items() if takes_all or name in signature.parameters} for row in rows
        ]

    def scores(returned: list[Any]) -> Any:
        if of_steps:
            return returned
        batch = returned if of_one else returned[0]
        batch = batch["rewards"] if isinstance(batch, Mapping) and "rewards" in batch else batch
        return batch if tool == OPENRLHF else [_number(value) for value in batch]

    def score(prompts: Any, completions: Any, **columns: Any) -> Any:
        return scores([function(**given) for given in calls(prompts, completions, columns)])

    async def awaited(prompts: Any, completions: Any, **columns: Any) -> Any:
        return scores(await asyncio.gather(*(function(**given) for given in calls(prompts, completions, columns))))

    reward: Any = wraps(function)(awaited if inspect.iscoroutinefunction(function) else score)
    reward.__signature__ = inspect.signature(
        (lambda prompts, completions, steps, **columns: 0) if of_steps else reward, follow_wrapped=False
    )
    reward.read_as, reward.answers = f"{tool}{', which scores steps' * of_steps}", (_ANSWER_OF[tool],)
    return reward


def rubric_reward(rubric: Any) -> Any:
    """Return a verifiers rubric as an outcome reward: the weighted sum of its functions, None where one gives None."""
    more = {"parser": getattr(rubric, "parser", None), **getattr(rubric, "class_objects", {})}
    parts = [called_as_there(function, more, "outcome") for function in rubric.funcs]

    async def score(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        calls = (part(prompts, completions, **columns) for part in parts)
        gave = [await scores if inspect.isawaitable(scores) else scores for scores in calls]
        return [
            None if None in scores else sum(w * score for w, score in zip(rubric.weights, scores, strict=True))
            for scores in zip(*gave, strict=True)
        ]

    reward: Any = score
    reward.read_as, reward.answers = "a verifiers rubric, the weighted sum of its functions", ("answer",)
    return reward


def _number(value: Any) -> Any:
    """Return the score: verl's functions may return a mapping that has it, or a tuple that begins with it."""
    if isinstance(value, Mapping):
        return value.get("score", value)
    return value[0] if isinstance(value, tuple) and value else value
