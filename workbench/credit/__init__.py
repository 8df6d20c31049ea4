"""Credit assignment: step and outcome rewards of one group in, token advantages and their explanations out."""

from workbench.credit.assign import Explanation, Term, assign_credit, credit_group, explain
from workbench.credit.pool import Pool
from workbench.credit.schemes import SCHEMES, Scheme

__all__ = ["SCHEMES", "Explanation", "Pool", "Scheme", "Term", "assign_credit", "credit_group", "explain"]
