"""Credit assignment: from step and outcome rewards of a group to token advantages and their explanations."""

from workbench.credit.assign import (
    GAE,
    OAR_OPTIONS,
    GAEOptions,
    Measured,
    assign_credit,
    credit_by_gae,
    credit_group,
    credit_groups,
    gae,
    importance_weights,
)
from workbench.credit.batch import NORMALISATIONS, Batch, GroupRewards, Normalise
from workbench.credit.explain import (
    LOGGED,
    NO_SPREAD,
    Comparison,
    GradientShare,
    NoSpread,
    Remedy,
    StepDifference,
    compare_credits,
    gradient_shares,
    logged_credit,
    unused_rewards,
    what_counts,
    why_no_spread,
)
from workbench.credit.loss import (
    LENS_LOSSES,
    LOSS_TYPES,
    LossType,
    TokenLosses,
    group_losses,
    group_normalisers,
    length_normalisers,
    loss_weights,
    pass_losses,
    pass_normalisers,
    token_losses,
)
from workbench.credit.schemes import SCHEMES, Scheme, check_options
from workbench.credit.schemes.scheme import SHARED, Option, Part, Range, pooled
from workbench.schema import Credit, Explanation, Term

__all__ = [
    "GAE",
    "LENS_LOSSES",
    "LOGGED",
    "LOSS_TYPES",
    "NORMALISATIONS",
    "NO_SPREAD",
    "OAR_OPTIONS",
    "SCHEMES",
    "SHARED",
    "Batch",
    "Comparison",
    "Explanation",
    "GAEOptions",
    "GradientShare",
    "GroupRewards",
    "LossType",
    "Measured",
    "NoSpread",
    "Normalise",
    "Option",
    "Part",
    "Range",
    "Remedy",
    "Scheme",
    "StepDifference",
    "Term",
    "TokenLosses",
    "assign_credit",
    "check_options",
    "compare_credits",
    "credit_by_gae",
    "credit_group",
    "credit_groups",
    "explain",
    "gae",
    "gradient_shares",
    "group_losses",
    "group_normalisers",
    "importance_weights",
    "length_normalisers",
    "logged_credit",
    "loss_weights",
    "pass_losses",
    "pass_normalisers",
    "pooled",
    "token_losses",
    "unused_rewards",
    "what_counts",
    "why_no_spread",
]


def explain(credit: Credit, rollout: int, token: int) -> Explanation:
    """``credit.explain(rollout, token)``: the terms whose sum is the token's advantage."""
    return credit.explain(rollout, token)
