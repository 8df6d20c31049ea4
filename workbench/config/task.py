"""The task that is trained on: where its rows are, which of them are taken, and what their columns become."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from workbench.config.section import Section
from workbench.schema import Prompt

READING = (
    *("split", "held_out_split", "columns", "prompt_template", "filter", "max_prompt_characters"),
    *("rows", "held_out_rows", "sample_seed", "checker"),
)
"""The fields that say how rows are read."""
DRAWN = ("rows", "held_out_rows", "sample_seed", "checker")
"""Those of them that rows of any origin can be read with."""


class TaskSection(Section):
    """A plain string is taken for ``name``."""

    shorthand = "name"
    name: str = "chain-arithmetic"
    """A task's name, a data file or a folder of them, or a data set of the Hub: ``hub:openai/gsm8k``."""

    data: str | None = None
    """A file of pairs or demonstrations to train on, while accuracy is measured on the held-out prompts of `name`."""
    data_columns: dict[str, str] = Field(default_factory=dict)
    """What the columns of `data` become, as `columns` are those of `name`."""
    long_prompts: Literal["refuse", "skip"] = "refuse"
    """Prompts that leave no room for an answer in the policy's context: refuse the run, or leave out their rows."""
    split: str | None = None
    """The split to train on, of a folder or a data set of the Hub; none for train, or the first."""
    held_out_split: str | None = None
    """The split to measure on; none for test or validation, and without either the last tenth of the rows."""
    columns: dict[str, str] = Field(default_factory=dict)
    """What a row's columns become: answer=reward_model.ground_truth, prompt=question. Dots lead into objects and
    lists (messages.0.content)."""
    prompt_template: str | None = None
    """The prompt, with columns of the row in braces: Question: {question}\\nAnswer:. {text:.40} is a column's first 40
    characters."""
    filter: str | None = None
    """The rows to take, as pandas' query has it: level >= 3 and subject in ['algebra', 'geometry'] and
    text.str.contains('x'). Dots lead into objects."""
    max_prompt_characters: int | None = Field(title="Longest prompt (characters)", default=None, ge=1, le=100_000_000)
    """Leave out rows whose prompt is longer."""
    rows: int | None = Field(default=None, ge=1, le=100_000_000)
    """Training rows that are drawn; none for all."""
    held_out_rows: int | None = Field(title="Held-out rows", default=None, ge=1, le=100_000_000)
    """Held-out rows that are drawn; none for all."""
    checker: Literal["answer_correctness", "countdown_equation", "gsm8k_answer", "math_equality"] | None = None
    """The reward that says which held-out answers are right; none for math_equality if answers hold LaTeX,
    countdown_equation if they are targets with numbers, else answer_correctness."""
    sample_seed: int | None = Field(default=0, ge=0, lt=2**31)
    """Seed of these draws; none takes the first rows instead."""

    @field_validator("split", "held_out_split", "prompt_template", "filter", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return None if isinstance(value, str) and not value.strip() else value

    def reads(self, *, but: tuple[str, ...] = ()) -> list[str]:
        """Return the fields that say how rows are read and are set, without those in ``but``."""
        default = TaskSection.model_fields
        return [
            name
            for name in READING
            if name not in but and getattr(self, name) != default[name].get_default(call_default_factory=True)
        ]


_METHODS = ("isnull", "notnull")
"""What a filter may call of a column, beside the methods of its texts (``.str``)."""


@dataclass(frozen=True)
class RowFilter:
    """A filter as ``pandas.DataFrame.query`` reads it, with the columns it names as c0, c1, …"""

    expression: str
    columns: tuple[str, ...]


class _Columns(ast.NodeTransformer):
    """Replaces columns, whose dots lead into objects, by plain names."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self.names.setdefault(node.id, f"c{len(self.names)}"))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        path = ast.unparse(node)
        if "str" in path.split(".") or node.attr in _METHODS:
            return self.generic_visit(node)
        return self.visit_Name(ast.Name(path))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = node.func
        if not isinstance(called, ast.Attribute) or not (
            called.attr in _METHODS or (isinstance(called.value, ast.Attribute) and called.value.attr == "str")
        ):
            raise ValueError(f"{ast.unparse(called)} cannot be called; write column.str.contains('x'), column.isnull()")
        return self.generic_visit(node)


def parse_filter(text: str) -> RowFilter:
    """Return a filter's expression and columns. Raises ValueError for what pandas' ``query`` would not take."""
    columns = _Columns()
    try:
        expression = ast.unparse(columns.visit(ast.parse(text.strip(), mode="eval")))
    except SyntaxError as error:
        fit = "level >= 3 and subject in ['algebra']"
        raise ValueError(f"{error.msg} at character {error.offset}; write {fit}, say") from error
    return RowFilter(expression, tuple(columns.names))


_SWITCHES = {"true": True, "false": False}


class PromptSection(Section):
    system: str | None = Field(default=None, title="System message")
    """A system message before each prompt that has none, in place of the task's own; an empty one leaves that out."""
    template_kwargs: dict[str, bool | int | float | str] = Field(default_factory=dict, title="Template arguments")
    """Arguments of the policy's chat template, by name: `enable_thinking: false`, say."""
    apply_template: Literal["auto", "always", "never"] = Field(default="auto", title="Chat template")
    """The chat template: auto for conversations and questions, always for texts to continue too, never for none."""

    @field_validator("template_kwargs", mode="before")
    @classmethod
    def _switches_of_text(cls, kwargs: Any) -> Any:
        """Read true and false; a template takes the text ``false`` for true, as it is not empty."""
        if not isinstance(kwargs, Mapping):
            return kwargs
        return {
            name: _SWITCHES.get(value.strip().lower(), value) if isinstance(value, str) else value
            for name, value in kwargs.items()
        }

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.apply_template == "never" and (self.system is not None or self.template_kwargs):
            name = "system" if self.system is not None else "template_kwargs"
            raise ValueError(
                f"{name}: there is no chat template to put it in while apply_template is 'never'; leave it out, or set "
                "apply_template to auto or always"
            )
        return self

    def of(self, prompt: Prompt, *, has_template: bool = False, system: str = "") -> Prompt:
        """Return a prompt as the policy gets it: text, or messages that its chat template writes. Twice is as once.

        Args:
            prompt: text or messages.
            has_template: the policy has a chat template, which ``auto`` uses for questions (``is_question``), too.
            system: the task's own system message before a plain prompt (``Example.system``).
        """
        if self.apply_template == "never":
            return prompt if isinstance(prompt, str) else joined(prompt)
        told = self.system
        if isinstance(prompt, str):
            asks = has_template and is_question(prompt, expects_answer=bool(system))
            if self.apply_template == "auto" and not (asks or told):
                return prompt
            prompt = [{"role": "user", "content": prompt}]
            told = system if told is None else told
        if not told or any(message["role"] == "system" for message in prompt):
            return prompt
        return [{"role": "system", "content": told}, *prompt]

    @property
    def recorded(self) -> dict[str, Any]:
        """Return what a group's record needs beside its prompt, so that the prompt can be encoded again."""
        return {"template_kwargs": dict(self.template_kwargs)} if self.template_kwargs else {}


_CONTINUED = re.compile(r"(?:[:=,(<]|<think>)\s*\Z|\s\Z|<\|im_start\|>|\[INST\]|^(?:Assistant|User):", re.MULTILINE)
_ENDED = re.compile(r"[.?!…。？！][\"'”’)\]$}*]*\Z")


def is_question(text: str, *, expects_answer: bool = False) -> bool:
    """Return whether a plain prompt asks for something, rather than being a text to continue.

    It ends as a sentence does, or anyhow where the task ``expects_answer``; not in a colon, an equals sign or blank
    space, and it holds no turns of a conversation.
    """
    return _CONTINUED.search(text) is None and (expects_answer or _ENDED.search(text) is not None)


def joined(messages: Prompt) -> str:
    """Messages as plain text, a blank line between them."""
    return messages if isinstance(messages, str) else "\n\n".join(message["content"] for message in messages)


OnEnvironmentError = Literal["row", "run"]


class EnvironmentSection(Section):
    """A plain string is taken for ``name``."""

    shorthand = "name"
    name: str | None = None
    """A built-in environment's name, or the name of your own class in `code`; none for completions of one turn."""
    code: str | None = None
    """Python source that defines the class, which runs in the sandbox; none for a built-in."""
    max_turns: int = Field(default=8, ge=1, le=1000)
    """Turns of the policy's in one episode, at most."""
    max_observation_length: int = Field(default=256, ge=1, le=32_768)
    """Tokens of one observation at most; a longer one is cut, which the episode says."""
    deadline: float = Field(default=5.0, gt=0, le=3600, title="Deadline (s)")
    """Seconds one call of the environment's own code may take."""
    on_environment_error: OnEnvironmentError = "row"
    """When the environment raises, hangs or answers what is no text: end that episode (row), or the run."""
    rewritten_turns: Literal["refuse", "keep"] = "refuse"
    """Where the chat template writes earlier turns anew, without their thinking say: refuse the run, or keep the ids
    that were sampled, so that the policy sees more of them than the template would show."""

    @model_validator(mode="after")
    def _code_has_a_name(self) -> Self:
        if self.code is not None and self.name is None:
            raise ValueError("name: the class in `code` has no name here; give its name")
        return self
