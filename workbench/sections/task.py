"""The task that is trained on: where its rows are, which of them are taken, and what their columns become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from workbench.errors import shown
from workbench.sections.row_filter import parse_filter
from workbench.sections.section import Section

READING = (
    *("split", "held_out_split", "columns", "prompt_template", "filter", "max_prompt_characters"),
    *("rows", "held_out_rows", "sample_seed", "checker"),
)
"""The fields that say how rows are read."""
DRAWN = ("rows", "held_out_rows", "sample_seed", "checker")
"""Those of them that rows of any origin can be read with."""


def columns_of_text(text: str) -> dict[str, str]:
    """``prompt=question,answer=meta.truth`` as name → source. Raises ValueError for a part without =."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise ValueError(f"{shown(wrong[0].strip())} has no '='; write before it what it becomes, prompt=…")
    return {name.strip(): source.strip() for name, _, source in pairs}


def text_of_columns(columns: Mapping[str, str]) -> str:
    """What ``columns_of_text`` reads."""
    return ",".join(f"{name}={source}" for name, source in columns.items())


class TaskSection(Section):
    """A plain string is taken for ``name``."""

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
    """The prompt, with columns of the row in braces: Question: {question}\\nAnswer:"""
    filter: str | None = None
    """The rows to take, by columns: level >= 3 and subject in [algebra, geometry] and text contains x. There are
    == != < <= > >= in, not in, contains."""
    max_prompt_characters: int | None = Field(default=None, ge=1, le=100_000_000)
    """Leave out rows whose prompt is longer."""
    rows: int | None = Field(default=None, ge=1, le=100_000_000)
    """Training rows that are drawn; none for all."""
    held_out_rows: int | None = Field(default=None, ge=1, le=100_000_000)
    """Held-out rows that are drawn; none for all."""
    checker: Literal["answer_correctness", "gsm8k_answer", "math_equality"] | None = None
    """The reward that says which held-out answers are right; none for math_equality if answers hold LaTeX, else
    answer_correctness."""
    sample_seed: int | None = Field(default=0, ge=0, lt=2**31)
    """Seed of these draws; none takes the first rows instead."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @field_validator("columns", "data_columns", mode="before")
    @classmethod
    def _columns_of_text(cls, value: Any) -> Any:
        return columns_of_text(value) if isinstance(value, str) else value

    @field_validator("columns", "data_columns")
    @classmethod
    def _columns_have_names(cls, value: dict[str, str]) -> dict[str, str]:
        if empty := next((name for name, source in value.items() if not name or not source.strip(".")), None):
            raise ValueError(f"{shown(empty)} names no column of the rows; write prompt=question")
        return value

    @field_validator("split", "held_out_split", "prompt_template", "filter", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return None if isinstance(value, str) and not value.strip() else value

    @field_validator("filter")
    @classmethod
    def _filter_can_be_read(cls, value: str | None) -> str | None:
        if value is not None:
            parse_filter(value)
        return value

    @model_validator(mode="after")
    def _columns_are_of_something(self) -> Self:
        if self.data_columns and self.data is None:
            raise ValueError("data_columns: there is no task.data whose columns they are; give it, or leave them out")
        return self

    def reads(self, *, but: tuple[str, ...] = ()) -> list[str]:
        """The fields that say how rows are read and are set, without those in ``but``."""
        default = TaskSection.model_fields
        return [
            name
            for name in READING
            if name not in but and getattr(self, name) != default[name].get_default(call_default_factory=True)
        ]
