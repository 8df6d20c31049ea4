"""The policy that is trained: where it is loaded from, and the adapter that is trained on it."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from workbench.sections.section import Section


class LoraConfig(Section):
    r: int = Field(default=16, ge=1, le=1024)
    """Rank of the adapter."""
    alpha: int = Field(default=32, ge=1, le=4096)
    """Scale of the adapter."""


class PolicySection(Section):
    """A plain string is taken for ``path``."""

    path: str = "tiny"
    """The embedded policy's name, a Hub id, a local folder, or a run's checkpoint: run:NAME, run:NAME@STEP."""
    adapter: str | None = None
    """A PEFT adapter to put on the policy: a Hub id, a local folder, or a run's checkpoint."""
    trust_remote_code: bool = False
    """Run modelling code that the policy's own repository brings, with your rights; read it first."""
    lora: LoraConfig | None = None
    """Train an adapter instead of all weights."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return {"path": data} if isinstance(data, str) else data
