"""The configuration of one run: a tree of typed sections that is YAML, command line and form at once.

``RunConfig`` is what every run shares and one method's section, of those in ``training.methods``. Configurations of
0.3.0 are read too (``config.migrate``). Importing this loads neither torch, TRL nor gradio.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Field, Tag, model_validator

from workbench.config import MethodSection, SharedConfig
from workbench.config.migrate import migrate
from workbench.config.reading import read_text, read_yaml
from workbench.training.methods import METHODS, Method, grpo, sampled
from workbench.training.methods.grpo import GRPOSection
from workbench.training.methods.sampled import SampledSection

__all__ = ["METHODS", "Method", "RunConfig"]


def _name_of(method: Any) -> Any:
    return method.get("name") if isinstance(method, Mapping) else getattr(method, "name", None)


if TYPE_CHECKING:
    AnyMethod = MethodSection
else:
    _SECTIONS = tuple(Annotated[method.section, Tag(name)] for name, method in METHODS.items())
    AnyMethod = Annotated[Union[_SECTIONS], Discriminator(_name_of)]  # noqa: UP007


class RunConfig(SharedConfig):
    """Everything a run is made of; a run's ``run.yaml`` is this, whole."""

    method: AnyMethod = Field(default_factory=GRPOSection)
    """The training method, by ``name``, with its settings."""

    @model_validator(mode="before")
    @classmethod
    def _of_any_version(cls, data: Any) -> Any:
        return migrate(data) if isinstance(data, Mapping) else data

    @property
    def grpo(self) -> GRPOSection:
        """The method's section where it is GRPO. Raises ConfigError for another method."""
        return grpo.section_of(self)

    @property
    def sampled(self) -> SampledSection:
        """The method's section where it samples completions. Raises ConfigError for a method on stored rows."""
        return sampled.section_of(self)

    @classmethod
    def from_yaml(cls, text: str) -> RunConfig:
        """Raises ConfigError, with a line for every field that does not fit."""
        data = read_yaml(text, "the configuration")
        return cls.parse(data if data is not None else {})

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Raises ConfigError as ``from_yaml`` does, and for a file that cannot be read."""
        return cls.from_yaml(read_text(path, str(path)))
