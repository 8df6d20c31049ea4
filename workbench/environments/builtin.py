"""The built-in environments by name; they run in the process that samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workbench.environments.calculator import Calculator
from workbench.environments.protocol import TextEnvironment

ENVIRONMENTS: Mapping[str, Callable[[], TextEnvironment]] = {"calculator": Calculator}
