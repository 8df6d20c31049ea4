"""The task that is trained on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from workbench.sections.section import Section


class TaskSection(Section):
    """A plain string is taken for ``name``."""

    name: str = "chain-arithmetic"
    """A task's name, a JSONL or Parquet file of prompts and columns, or a data set of the Hub: ``hub:openai/gsm8k``."""

    data: str | None = None
    """A file of pairs or demonstrations to train on, while accuracy is measured on the held-out prompts of `name`."""
    long_prompts: Literal["refuse", "skip"] = "refuse"
    """Prompts that leave no room for an answer in the policy's context: refuse the run, or leave out their rows."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data
