"""The protocol of reward functions: their arguments, their calls, and the values that they may return.

========== ==================================================== =============================================
form       signature                                            returns
========== ==================================================== =============================================
outcome    ``f(prompts, completions, **columns)``               a number or None for each completion (as in TRL)
step       ``f(prompt, step, **columns)``                       a number or None
steps      ``f(prompts, completions, steps, **columns)``        for each completion a list, one entry a step
========== ==================================================== =============================================

``steps[i]`` are the texts of completion i's steps. Columns are the data row's other fields by name: a list with one
value a completion, or that completion's own value in the ``step`` form. Where a prompt is chat messages its completion
is too, as in TRL. A function that names ``completion_ids`` gets the sampled ids. One that scores steps and names
``observation`` gets what was written before the step's turn ("" in a first one), one that names ``turn`` that turn's
number, 0 for the first, and one that names ``text_before`` the completion's text before the step: a value in the
``step`` form, lists like ``steps`` in the other. ``trainer_state``,
``log_extra`` and ``log_metric`` are TRL's (``Log``): an ``outcome`` function gets them always, the other two where they
name them, and one of a single step no ``log_extra``. Any of the three may be ``async def``; one that scores single
steps is then awaited for many of them at once. A step function may also be written ``f(prompt, step_text)``, whatever
the two are called, and be the method ``forward`` of an object; functions of other tools (``others``) are called as they
are there (``as_reward``). An ``outcome`` function that takes texts for chat messages, or messages for texts, is called
again with what it takes.

It may return finite numbers or None, one for each completion or step. In messages rollouts and steps count from 1, as
they are labelled; in an error's attributes from 0. The sandbox calls users' functions with this module, so it knows
nothing of processes.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial, wraps
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any, Literal

from workbench.errors import RewardCodeError, RewardError, RewardValueError, cut
from workbench.rewards.answers import texts_of
from workbench.rewards.others import (
    ARGUMENTS,
    as_messages,
    as_texts,
    called_as_there,
    rubric_reward,
    tool_of,
    with_answers,
)
from workbench.sandbox.child import is_json
from workbench.schema import RewardKind

Form = Literal["outcome", "step", "steps"]
EXPECTED: dict[Form, str] = {
    "outcome": "{}(prompts, completions, **columns)",
    "step": "{}(prompt, step, **columns)",
    "steps": "{}(prompts, completions, steps, **columns)",
}
_OF_TRL = frozenset(ARGUMENTS)
_OF_STEPS = {"observation": "", "turn": 0, "text_before": ""}
"""What a step reward may name beside its columns, and its value in a completion of one turn."""
RESERVED = (
    _OF_TRL | _OF_STEPS.keys() | {"prompt", "prompts", "completion", "completions", "completion_ids", "step", "steps"}
)
"""Column names that would hide an argument; such columns are not passed on, as in TRL."""
_GIVEN: dict[Form, frozenset[str]] = {
    "outcome": _OF_TRL | {"prompts", "completions", "completion_ids"},
    "step": _OF_TRL - {"log_extra"} | _OF_STEPS.keys() | {"prompt", "step"},
    "steps": _OF_TRL | _OF_STEPS.keys() | {"prompts", "completions", "steps", "completion_ids"},
}
_LOG_ROWS = 50  # of a trainer's history that the sandbox is sent
_BY_THE_CALLER = frozenset({"step_ends", "environments"})
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


# --- the state of training that functions are told, and the values that they log beside their scores ---------------
#
# As TRL 1.16 has it (``GRPOTrainer._calculate_rewards``): ``trainer_state`` is the trainer's state, ``log_metric(name,
# value)`` logs a number whose mean becomes a curve, and ``log_extra(column, values)`` keeps a value for each
# completion, which is stored and shown with it. Here a function that scores all steps may log a list for each
# completion, one value a step. Outside training the state is that before a first step.

LONGEST_TEXT = 2000
"""Characters of a logged value that are kept."""


def preview_state(max_steps: int = 1) -> SimpleNamespace:
    """The fields of transformers' ``TrainerState`` as they are before a run's first step."""
    return SimpleNamespace(
        epoch=0.0, global_step=0, max_steps=max_steps, logging_steps=1, eval_steps=500, save_steps=500,
        num_train_epochs=1, train_batch_size=None, num_input_tokens_seen=0, total_flos=0, log_history=[],
        best_metric=None, best_global_step=None, best_model_checkpoint=None, is_local_process_zero=True,
        is_world_process_zero=True, is_hyper_param_search=False, trial_name=None, trial_params=None,
    )  # fmt: skip


@dataclass
class Log:
    """Values that one call of a reward function logged; ``extra[column]`` has a value, or a list of them, a completion.

    ``read_as`` says how one that was written for another tool, or other data, was called.
    """

    extra: dict[str, list[Any]] = field(default_factory=dict)
    metrics: list[tuple[str, float]] = field(default_factory=list)
    read_as: str = ""

    def arguments(self, state: Any, count: int) -> dict[str, Any]:
        """TRL's arguments for a function that sees ``count`` completions at once."""

        def log_extra(column: str, values: Sequence[Any]) -> None:
            listed = as_list(values)
            if listed is None or len(listed) != count:
                got = type(values).__name__ if listed is None else f"{len(listed)} values"
                raise ValueError(f"log_extra({column!r}) got {got} for {count} completions; give a list of {count}")
            self.extra[column] = [plain(value) for value in listed]

        return {"trainer_state": state, "log_extra": log_extra, "log_metric": self.log_metric}

    def log_metric(self, name: str, value: float) -> None:
        number: Any = value.item() if hasattr(value, "item") else value
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise ValueError(f"log_metric({name!r}) got {number!r}; give a finite number")
        self.metrics.append((name, float(number)))

    def of(self, completion: int, steps: int) -> dict[str, Any]:
        """Return what was logged of one completion with so many steps, without columns that hold nothing of it."""
        logged = {column: values[completion] for column, values in self.extra.items()}
        return {
            column: (tuple(value) if len(value) == steps else ", ".join(map(str, value)))
            if isinstance(value, list)
            else value
            for column, value in logged.items()
            if (any(entry is not None for entry in value) if isinstance(value, list) else value is not None)
        }


def plain(value: Any, *, nested: bool = True) -> Any:
    """A logged value as it is kept: text, a number, True, False, None, or a list of those."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    is_finite = math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and abs(value) < 2**63
    if value is None or is_finite:
        return value
    if nested and (listed := as_list(value)) is not None:
        return [plain(entry, nested=False) for entry in listed]
    return str(value)[:LONGEST_TEXT]


def as_list(values: Any) -> list[Any] | None:
    """Return a list of a list, a tuple or an array (numpy, torch, pandas); None for anything else."""
    if isinstance(values, list | tuple):
        return list(values)
    return list(values.tolist()) if getattr(values, "ndim", 0) >= 1 and hasattr(values, "tolist") else None


# --- the input of a call -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """The input of one call: B completions, of one prompt or of several.

    ``columns`` maps a name to B values; ``steps`` are each completion's step texts, and needed by the two step forms;
    ``step_ends`` the index of each step's last token, for functions of this process that name it; ``turn`` and
    ``observation`` are of each step its turn's number and what was written before that, None where no completion has
    several turns. ``trainer_state`` is the trainer's, None outside training, and ``log`` takes what the function logs.
    """

    prompts: Sequence[Any]
    completions: Sequence[Any]
    columns: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[Sequence[str]] = ()
    completion_ids: Sequence[Sequence[int]] | None = None
    step_ends: Sequence[Sequence[int]] | None = None
    turn: Sequence[Sequence[int]] | None = None
    observation: Sequence[Sequence[str]] | None = None
    trainer_state: Any = None
    log: Log = field(default_factory=Log, compare=False)

    @property
    def state(self) -> Any:
        """Return what a function gets as ``trainer_state``."""
        return preview_state() if self.trainer_state is None else self.trainer_state

    @property
    def as_json(self) -> dict[str, Any]:
        """Return what the sandbox is sent: its fields, without columns and fields of the state that are not JSON."""
        state: Any = self.trainer_state
        if state is not None:
            values = vars(state) | {"log_history": list(getattr(state, "log_history", ()))[-_LOG_ROWS:]}
            state = {name: value for name, value in values.items() if is_json(value)}
        columns = {name: values for name, values in self.columns.items() if is_json(values)}
        return vars(self) | {"columns": columns, "trainer_state": state, "log": None, "step_ends": None}

    def of_steps(self, name: str) -> list[list[Any]]:
        """``turn``, ``observation`` or ``text_before`` of each step."""
        if name == "text_before":
            return [texts_before(text, row) for text, row in zip(texts_of(self.completions), self.steps, strict=True)]
        values = {"turn": self.turn, "observation": self.observation}[name]
        return [[_OF_STEPS[name]] * len(row) for row in self.steps] if values is None else [list(row) for row in values]

    def __len__(self) -> int:
        return len(self.completions)


def texts_before(text: str, steps: Sequence[str]) -> list[str]:
    """Return the text before each of the steps that ``text`` was cut into."""
    before, end = list[str](), 0
    for step in steps:
        begin = max(text.find(step, end), end)
        before.append(text[:begin])
        end = begin + len(step)
    return before


def as_reward(function: Any, kind: RewardKind | None = None) -> Any:
    """Return ``function`` to be called by the names of its form.

    ``f(prompt, step_text)`` and ``f(step_text)`` become ``f(prompt, step, **columns)``, and so does the method
    ``forward`` of an object; what another tool calls in its own way becomes ``f(prompts, completions, **columns)``, or
    ``f(prompts, completions, steps, **columns)`` if it takes one completion and scores its steps, and a class an object
    of it. Anything else is returned as it is. A ``kind`` decides where a signature leaves it open.
    """
    if is_reward_class(function):
        function = function()
        function.read_as = "a class whose objects score, as ms-swift's ORM"
    if hasattr(function, "funcs") and hasattr(function, "weights"):
        return rubric_reward(function)
    called = getattr(function, "forward", function)
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return function
    if called is function and tool_of(signature):
        return called_as_there(called, kind=kind)
    is_model = called is not function and callable(function)  # whose two arguments may be ids and a mask
    count = step_arguments(signature, kind, by_name=is_model)
    if not count:
        return function if callable(function) else called
    others, takes_all = list(signature.parameters)[count:], _takes_all(signature)

    def score(prompt: Any, step: str, **columns: Any) -> Any:
        given = columns if takes_all else {name: columns[name] for name in others if name in columns}
        return called(*(prompt, step)[-count:], **given)

    reward: Any = wraps(called)(score)
    reward.is_async = is_async(called)
    reward.__signature__ = inspect.signature(reward, follow_wrapped=False)
    return reward


def is_reward_class(value: Any) -> bool:
    """Return whether it is a class whose objects are called with completions."""
    call = vars(value).get("__call__") if inspect.isclass(value) else None
    return inspect.isfunction(call) and "completions" in inspect.signature(call).parameters


def step_arguments(signature: inspect.Signature, kind: RewardKind | None = None, *, by_name: bool = False) -> int:
    """Return how many arguments a function of one step needs: 2, a prompt and the step's text; 1, the text; else 0.

    Where it takes any further argument, or ``by_name``, their names must say so, and of a lone one if it has no
    ``kind``.
    """
    needed, takes_all = _required(signature), _takes_all(signature)
    names = [one.name for one in needed if one.kind is not one.KEYWORD_ONLY]
    if tool_of(signature) or len(names) not in (1, 2) or len(names) < len(needed):
        return 0
    if names[:-1] in ([], ["prompt"]) and "step" in names[-1]:
        is_ours = names[-1] == "steps" or (names[-1] == "step" and takes_all)
        return 0 if is_ours or (by_name and len(names) == 1) else len(names)
    is_step = (len(names) == 2 or kind == "step") and not (by_name or takes_all)
    return len(names) if is_step and not RESERVED.intersection(names[len(names) == 2 and names[0] == "prompt" :]) else 0


def _takes_all(signature: inspect.Signature) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())


def read_signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    """Raises RewardCodeError for a function that cannot be called as a reward, showing the signature it has."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise RewardCodeError(f"reward {name!r} is no function with a signature: {error}", reward=name) from error
    shown, expected = f"{name}{signature}", EXPECTED[form_of(signature)].format(name)
    if not _takes_all(signature):
        raise RewardCodeError(
            f"reward {name!r} is '{shown}' and cannot take the data's columns; write '{expected}'", reward=name
        )
    if never := [one.name for one in _required(signature) if one.name in RESERVED - _GIVEN[form_of(signature)]]:
        raise RewardCodeError(
            f"reward {name!r} asks for {never[0]!r}, which it is never given, also where a column of the data has that "
            f"name; write '{expected}', and rename the column if that is meant",
            reward=name,
        )
    return signature


def form_of(signature: inspect.Signature) -> Form:
    names = signature.parameters.keys()
    if "steps" in names:
        return "steps"
    of_a_step = "step" in names and ("prompt" in names or not names & {"prompts", "completions"})
    return "step" if of_a_step or step_arguments(signature) else "outcome"


def kind_of(form: Form) -> RewardKind:
    return "outcome" if form == "outcome" else "step"


def columns_of(signature: inspect.Signature) -> tuple[str, ...]:
    """The columns of the data without which the function cannot be called."""
    return tuple(one.name for one in _required(signature) if one.name not in RESERVED | _BY_THE_CALLER)


def _required(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [one for one in signature.parameters.values() if one.default is one.empty and one.kind not in _VARIADIC]


def columns_left_out(columns: Iterable[str]) -> list[str]:
    """Return the columns of the data that would hide an argument, and that no reward function gets."""
    return sorted(RESERVED.intersection(columns))


def check_kind(name: str, signature: inspect.Signature, kind: RewardKind) -> None:
    """Raises RewardCodeError where a function is used as the other kind than its signature says."""
    form = form_of(signature)
    if kind_of(form) == kind:
        return
    choices = " or ".join(f"'{EXPECTED[other].format(name)}'" for other in EXPECTED if kind_of(other) == kind)
    mine, its = ("an outcome", "a step") if kind == "outcome" else ("a step", "an outcome")
    raise RewardCodeError(
        f"reward {name!r} is set as {mine} reward but its signature, {name}{signature}, is {its} reward's; set it as "
        f"{its} reward or write {choices}",
        reward=name,
    )


# --- calling ------------------------------------------------------------------------------------------------------


def call_reward(
    name: str,
    function: Callable[..., Any],
    batch: Batch,
    *,
    catch: type[BaseException] = Exception,
    on_rollout: Callable[[int], object] = lambda rollout: None,
) -> list[Any]:
    """Return one score a completion from an outcome function, else a list with one a step of each completion.

    ``catch`` is the widest exception that counts as the function's own. ``on_rollout`` is called before the steps of
    each completion are scored, if they are scored by themselves. Raises RewardError for what the function raises,
    RewardValueError for what it returns.
    """
    signature = inspect.signature(function)
    form, named = form_of(signature), signature.parameters.keys()
    columns = {column: values for column, values in batch.columns.items() if column not in RESERVED}
    columns, said = with_answers(getattr(function, "answers", columns_of(signature)), columns)
    if read_as := getattr(function, "read_as", ""):
        said = [f"read as {read_as}" + (": " + "; ".join(said) if said else "")]
    batch.log.read_as = "; ".join(said)
    of_steps = {asked: batch.of_steps(asked) for asked in _OF_STEPS if asked in named}
    if form == "step":
        return _call_for_steps(name, function, batch, columns, of_steps, catch, on_rollout)
    # Lists of its own, so that a function that sorts or pops does no harm to the next one.
    arguments: dict[str, Any] = {"prompts": list(batch.prompts), "completions": list(batch.completions)}
    arguments |= {column: list(v) if isinstance(v, list | tuple) else v for column, v in columns.items()}
    for asked, rows in (("completion_ids", batch.completion_ids), ("step_ends", batch.step_ends)):
        if asked in named and rows is not None:
            arguments[asked] = [list(row) for row in rows]
    logs = batch.log.arguments(batch.state, len(batch))
    if form == "steps":
        arguments |= {"steps": [list(texts) for texts in batch.steps], **of_steps}
        logs = {asked: logs[asked] for asked in logs if asked in named}

    def run(given: dict[str, Any]) -> Any:
        call = partial(function, **given, **logs)
        return results([call])[0] if is_async(function) else call()

    with _errors_named(name, function, catch, arguments | logs):
        try:
            returned = run(arguments)
        except (TypeError, AttributeError) as error:
            wanted = _wants(error, batch.completions[0] if len(batch) else None)
            if form == "steps" or wanted is None:
                raise
            other = (as_messages if wanted == "messages" else as_texts)(batch.prompts, batch.completions)
            try:
                returned = run(arguments | other)
            except Exception:
                raise error from None
            given = "chat messages" if wanted == "messages" else "texts"
            batch.log.read_as = "; ".join([*said, f"given {given}, for which it is written"])
    if form == "outcome":
        values = read_list(name, returned, len(batch), "one score for each completion")
        return [score_of(name, value, i) for i, value in enumerate(values)]
    scores = []
    rows = read_list(name, returned, len(batch), "one list for each completion, with one score a step")
    for i, (row, texts) in enumerate(zip(rows, batch.steps, strict=True)):
        values = read_list(name, row, len(texts), "one score for each step", i)
        scores.append([score_of(name, value, i, k, texts[k]) for k, value in enumerate(values)])
    return scores


def _call_for_steps(
    name: str,
    function: Callable[..., Any],
    batch: Batch,
    columns: Mapping[str, Any],
    of_steps: Mapping[str, Sequence[Sequence[Any]]],
    catch: type[BaseException],
    on_rollout: Callable[[int], object],
) -> list[list[Score]]:
    """Call a function of one step for each step; many calls of a coroutine function are awaited at once."""
    logs = {"trainer_state": batch.state, "log_metric": batch.log.log_metric}
    logs = {name: logs[name] for name in logs if name in inspect.signature(function).parameters}
    asked: dict[tuple[int, int], dict[str, Any]] = {}
    for i, texts in enumerate(batch.steps):
        row = {column: values[i] for column, values in columns.items()}
        for k, text in enumerate(texts):
            row |= {"prompt": batch.prompts[i], "step": text, **logs}
            asked[i, k] = row | {each: values[i][k] for each, values in of_steps.items()}

    async def awaited(place: tuple[int, int]) -> Any:
        with _errors_named(name, function, catch, asked[place], at=place):
            return await function(**asked[place])

    if is_async(function):
        returned = dict(zip(asked, results([partial(awaited, place) for place in asked]), strict=True))
    else:
        returned = {}
        for place, arguments in asked.items():
            if place[1] == 0:
                on_rollout(place[0])
            with _errors_named(name, function, catch, arguments, at=place):
                returned[place] = function(**arguments)
    return [
        [score_of(name, returned[i, k], i, k, text) for k, text in enumerate(texts)]
        for i, texts in enumerate(batch.steps)
    ]


@contextmanager
def _errors_named(
    name: str,
    function: Callable[..., Any],
    catch: type[BaseException],
    arguments: Mapping[str, Any],
    at: tuple[int | None, int | None] = (None, None),
) -> Iterator[None]:
    """Raises RewardError for what the function raises, with its line and the step it was called for."""
    try:
        yield
    except catch as error:
        where, line = "" if at[0] is None else place_of(at[0], at[1], arguments.get("step", "")), None
        said = f"{where}: {message_of(error)}"
        if not isinstance(error, RewardError):  # a reward model names itself, and has no line of its user's
            called = inspect.unwrap(function) if inspect.isroutine(function) else type(function).__call__
            said, line = raised(error, getattr(getattr(called, "__code__", None), "co_filename", None), where)
            said = f" {said}"
        raise RewardError(
            f"reward {name!r}{said}{_hint(error, arguments)}", reward=name, line=line, rollout=at[0], step=at[1]
        ) from error


def _hint(error: BaseException, arguments: Mapping[str, Any]) -> str:
    """Name the data's columns if the function looked for another one."""
    said = str(error)
    wanted = error.args[0] if isinstance(error, KeyError) and error.args else None
    lacks_argument = isinstance(error, TypeError) and "required" in said and "argument" in said
    if lacks_argument or (isinstance(wanted, str) and wanted not in arguments):
        columns = [column for column in arguments if column not in RESERVED]
        return f"; the data has {'the columns ' + ', '.join(columns) if columns else 'no columns'}"
    return ""


def _wants(error: BaseException, value: Any) -> Literal["messages", "texts"] | None:
    """Say what a function took ``value`` for that it is not, as far as its error tells."""
    said = str(error)
    if not isinstance(error, TypeError | AttributeError):
        return None
    if isinstance(value, str) and ("string indices must be" in said or "'str' object has no attribute 'get'" in said):
        return "messages"
    return "texts" if isinstance(value, list) and ("'list'" in said or "to list" in said) else None


def raised(error: BaseException, filename: str | None, where: str = "") -> tuple[str, int | None]:
    """Return an error in words, and the innermost line of ``filename`` that it came through."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == filename]
    line = lines[-1] if lines else None
    at_line = "" if line is None else f" at line {line}"
    return f"raised {type(error).__name__}{where}{at_line}: {message_of(error)}", line


def message_of(error: BaseException) -> str:
    return str(error)[:500] or "(no message)"


# --- what is returned -------------------------------------------------------------------------------------------------

Score = float | None
LARGEST = 1e6
"""Largest size of a score; one beyond it would drown its whole group."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def weighted_sum(scores: Mapping[str, Score], weights: Mapping[str, float]) -> Score:
    """The weighted sum of the scores there are; None where there is none, or all that are there weigh 0."""
    terms = [weights[name] * score for name, score in scores.items() if score is not None and weights[name]]
    return sum(terms) if terms else None


def read_list(name: str, returned: Any, count: int, what: str, rollout: int | None = None) -> list[Any]:
    """Return ``count`` values as a list. Raises RewardValueError for anything else."""
    values = as_list(returned)
    if values is None or len(values) != count:
        gave = show_value(returned) if values is None else f"{len(values)} values"
        where = "" if rollout is None else place_of(rollout)
        raise RewardValueError(
            f"reward {name!r} returned {gave}{where}; return a list of {count}, {what}", reward=name, rollout=rollout
        )
    return values


def score_of(name: str, value: Any, rollout: int, step: int | None = None, text: str = "") -> Score:
    if value is None:
        return None
    number: Any = value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
    # Compared before it is converted: 10**400 does not fit a float.
    if isinstance(number, int | float) and -LARGEST <= number <= LARGEST:
        return float(number)
    raise RewardValueError(
        f"reward {name!r} gave {show_value(value)}{place_of(rollout, step, text)}; give a finite number of at most "
        f"{LARGEST:,.0f} in size, or None for no score"
        + "; if the list has a score for each step, set the reward's kind to step"
        * (step is None and isinstance(value, list)),
        reward=name,
        rollout=rollout,
        step=step,
    )


def show_value(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, int) and value.bit_length() > 250:
        return f"an integer of {value.bit_length():,} bits"
    text = cut(_ADDRESS.sub("", repr(value)), 80)  # an address says nothing, and is another one in every process
    return text if isinstance(value, int | float) else f"the {type(value).__name__} {text}"


def place_of(rollout: int, step: int | None = None, text: str = "") -> str:
    if step is None:
        return f" for rollout {rollout + 1}"
    return f" for rollout {rollout + 1}, step {step + 1} ({cut(text, 80)!r})"


# --- coroutine functions ----------------------------------------------------------------------------------------------

# One event loop a process, on a thread of its own: functions keep what is bound to it (an HTTP session) from call to
# call, and run where a loop runs already, as in a notebook.

CONCURRENT = 32
"""Calls of one function that are under way at once, where it is called for each step."""
_lock = threading.Lock()

Call = Callable[[], Awaitable[Any]]


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling it gives something to await."""
    calls = function, getattr(function, "__call__", None)  # noqa: B004
    return getattr(function, "is_async", False) or any(map(inspect.iscoroutinefunction, calls))


def results(calls: Sequence[Call], *, at_once: int = CONCURRENT) -> list[Any]:
    """Return what all calls come to, ``at_once`` awaited together. Raises the error of the first that failed."""

    async def gather() -> list[tuple[Any, BaseException | None]]:
        room = asyncio.Semaphore(at_once)

        async def outcome(call: Call) -> tuple[Any, BaseException | None]:
            async with room:
                try:
                    return await call(), None
                except BaseException as error:  # SystemExit, say, would end the loop's thread and not be told
                    return None, error

        return await asyncio.gather(*map(outcome, calls))

    with _lock:
        loop = _loop()
    outcomes = asyncio.run_coroutine_threadsafe(gather(), loop).result()
    for _, error in outcomes:
        if error is not None:
            raise error
    return [value for value, _ in outcomes]


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="coroutines", daemon=True).start()
    return loop
