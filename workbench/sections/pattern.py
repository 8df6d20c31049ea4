"""A step pattern in a configuration: ``steps.StepPattern`` itself, with secrets removed and its length bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BeforeValidator

from workbench.redact import redact_known
from workbench.steps import StepPattern
from workbench.steps.pattern import MAX_BYTES


def _checked(value: Any) -> Any:
    if isinstance(value, StepPattern):
        value = asdict(value)
    if not isinstance(value, Mapping) or not isinstance(regex := value.get("regex"), str):
        return value
    if len(regex) > MAX_BYTES:
        raise ValueError(f"regex has {len(regex):,} characters; the limit is {MAX_BYTES:,}")
    return {**value, "regex": redact_known(regex)}


Pattern = Annotated[StepPattern, BeforeValidator(_checked)]
