"""Privacy: budgets, the unit of privacy, what noise proves, and conversions that say which way they round."""

from residua.privacy.budgets import Budget, approx_dp, budget_from_manifest, gdp, privacy_cost, pure_dp, zcdp
from residua.privacy.conversions import NoiseLaw, Number, amount_for, delta_of, epsilon_of
from residua.privacy.statement import Privacy
from residua.privacy.unit import MissingId, Neighbours, Unit

__all__ = [
    "Budget",
    "MissingId",
    "Neighbours",
    "NoiseLaw",
    "Number",
    "Privacy",
    "Unit",
    "amount_for",
    "approx_dp",
    "budget_from_manifest",
    "delta_of",
    "epsilon_of",
    "gdp",
    "privacy_cost",
    "pure_dp",
    "zcdp",
]
