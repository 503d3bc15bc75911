"""Privacy: budgets, the unit of privacy, what noise proves, and conversions that say which way they round."""

from residua.privacy.budgets import Budget, approx_dp, budget_from_manifest, gdp, privacy_cost, pure_dp, zcdp
from residua.privacy.conversions import (
    Number,
    cost_for,
    delta_of,
    epsilon_of,
    pure_delta_of,
    rho_for,
    zcdp_delta_of,
    zcdp_epsilon_of,
)
from residua.privacy.laws import NoiseLaw
from residua.privacy.statement import Privacy
from residua.privacy.unit import Neighbours, Unit

__all__ = [
    "Budget",
    "Neighbours",
    "NoiseLaw",
    "Number",
    "Privacy",
    "Unit",
    "approx_dp",
    "budget_from_manifest",
    "cost_for",
    "delta_of",
    "epsilon_of",
    "gdp",
    "privacy_cost",
    "pure_delta_of",
    "pure_dp",
    "rho_for",
    "zcdp",
    "zcdp_delta_of",
    "zcdp_epsilon_of",
]
