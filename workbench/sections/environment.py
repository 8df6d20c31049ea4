"""Who answers the policy's turns, where a completion is an episode of several."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from workbench.sections.section import Section

OnEnvironmentError = Literal["row", "run"]


class EnvironmentSection(Section):
    """A plain string is taken for ``name``."""

    name: str | None = None
    """A built-in environment's name, or the name of your own class in `code`; none for completions of one turn."""
    code: str | None = None
    """Python source that defines the class, which runs in the sealed worker; none for a built-in."""
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

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _code_has_a_name(self) -> Self:
        if self.code is not None and self.name is None:
            raise ValueError("name: the class in `code` has no name here; give its name")
        return self

    @property
    def foreign(self) -> str | None:
        """What of it is asked for before it runs: its code; None for a built-in."""
        return self.code
