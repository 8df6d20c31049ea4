"""From step rewards to token advantages: a scheme and its options, checked against ``credit.SCHEMES``."""

from collections.abc import Mapping
from typing import Annotated, Any, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from workbench.config.section import Section
from workbench.credit import MODIFIERS, SCHEMES, SHARED, Gate, Normalise, check_options
from workbench.errors import CreditError, did_you_mean, redact_known
from workbench.steps import MAX_BYTES, StepPattern


def _modifier(name: str, title: str | None = None) -> Any:
    """A field for one of the options that every scheme has (``credit.MODIFIERS``)."""
    option = MODIFIERS[name]
    return Field(default=option.default, ge=option.low, le=option.high, title=title, description=f"{option.help}.")


class CreditConfig(Section):
    scheme: str = "process"
    """How step rewards become token advantages: a name in `workbench.credit.SCHEMES`."""
    normalise: Normalise | None = None
    """What a reward is compared with; None for the scheme's own choice (mostly pooled, all steps of the group)."""
    scale: bool | None = None
    """Divide by the standard deviation (off is Dr. GRPO's choice); None for the scheme's own choice (mostly on)."""
    gamma: float | None = Field(default=None, ge=0, le=1)
    """Discount of a step for each step before it, in schemes that carry steps to earlier tokens; None for 1."""
    outcome_weight: float = _modifier("outcome_weight")
    clip: float | None = Field(default=None, gt=0, description="Bound on the size of an advantage; None for no bound.")
    drop_duplicates: bool = _modifier("drop_duplicates")
    each_reward: bool = _modifier("each_reward")
    oar: bool = _modifier("oar", "Weigh tokens by importance (OAR)")
    oar_threshold: float = _modifier("oar_threshold")
    oar_boost: float = _modifier("oar_boost")
    gate: Gate = _modifier("gate", "Gate by the outcome")
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


def _check_regex(value: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(regex := value.get("regex"), str):
        if len(regex) > MAX_BYTES:
            raise ValueError(f"regex has {len(regex):,} characters; the limit is {MAX_BYTES:,}")
        return {**value, "regex": redact_known(regex)}
    return value


Pattern = Annotated[StepPattern, BeforeValidator(_check_regex)]
