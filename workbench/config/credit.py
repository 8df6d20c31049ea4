"""From step rewards to token advantages: a scheme and its options, checked against ``credit.SCHEMES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from workbench.config.section import Section
from workbench.credit import SCHEMES, SHARED, Gate, Normalise, check_options
from workbench.errors import CreditError, did_you_mean, redact_known
from workbench.steps import MAX_BYTES, StepPattern


class CreditConfig(Section):
    scheme: str = "process"
    """How step rewards become token advantages: a name in `workbench.credit.SCHEMES`."""
    normalise: Normalise | None = None
    """What a reward is compared with; None for the scheme's own choice (mostly pooled, all steps of the group)."""
    scale: bool | None = None
    """Divide by the standard deviation (off is Dr. GRPO's choice); None for the scheme's own choice (mostly on)."""
    gamma: float | None = Field(default=None, ge=0, le=1)
    """Discount of a step for each step before it, in schemes that carry steps to earlier tokens; None for 1."""
    outcome_weight: float = Field(default=0.0, ge=-100, le=100)
    """Weight of the normalised outcome reward added to every token; 0 in schemes that count the outcome themselves."""
    clip: float | None = Field(default=None, gt=0)
    """Bound on the size of an advantage; None for no bound."""
    drop_duplicates: bool = False
    """Compare each distinct completion of a group once: an exact copy has advantage 0 and no part in the loss."""
    each_reward: bool = False
    """Normalise each reward function's scores over the group on their own before they are summed (GDPO)."""
    oar: bool = Field(default=False, title="Weigh tokens by importance (OAR)")
    """Weigh each token's advantage by how much the policy's probability of the right answer depends on the token."""
    oar_threshold: float = Field(default=0.25, ge=0, le=1)
    """Share of an answer's tokens that `oar` weakens, those of least importance."""
    oar_boost: float = Field(default=1.0, ge=0, le=100)
    """What `oar` adds to the weight of an answer's most important token."""
    gate: Gate = Field(default="none", title="Gate by the outcome")
    """outcome: a group trains only if its answers differ in outcome; others have advantage 0, whatever else differs."""
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Options that only this scheme has, by name (`threshold` of first_error, `temperature` and `signed` of min, …)."""

    @model_validator(mode="after")
    def _is_a_scheme(self) -> Self:
        if self.scheme not in SCHEMES:
            raise ValueError(
                f"unknown credit scheme {self.scheme!r}{did_you_mean(self.scheme, SCHEMES)}; choose one of "
                f"{', '.join(SCHEMES)}"
            )
        try:
            checked = check_options(self.scheme, self.keywords(but=("scheme", *SHARED)))
        except CreditError as error:
            raise ValueError(str(error)) from error
        for name in self.options:  # in place: an assignment would be validated in turn
            self.options[name] = cast(bool | float | str, checked[name])
        if SCHEMES[self.scheme].counts_outcome:
            self.__dict__["outcome_weight"] = 0.0
        return self

    def keywords(self, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
        """Everything that is set, as `assign_credit` and `credit_group` take it, without what is named in `but`."""
        values = self.model_dump(exclude={"options"}) | self.options
        return {name: value for name, value in values.items() if value is not None and name not in but}


def _checked(value: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(regex := value.get("regex"), str):
        if len(regex) > MAX_BYTES:
            raise ValueError(f"regex has {len(regex):,} characters; the limit is {MAX_BYTES:,}")
        return {**value, "regex": redact_known(regex)}
    return value


Pattern = Annotated[StepPattern, BeforeValidator(_checked)]
