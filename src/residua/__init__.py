"""Residua publishes tables about people with the least noise that privacy allows."""

from residua import bounds
from residua._measure import measure
from residua._plan import Plan
from residua.combine import combine
from residua.errors import (
    BudgetError,
    BudgetExceeded,
    DataError,
    FileFormatError,
    Infeasible,
    LedgerError,
    NotConverged,
    NotInSpan,
    ResiduaError,
    SchemaError,
    WorkloadError,
)
from residua.ledger import Ledger
from residua.noise import simulated
from residua.planning import compare, plan
from residua.privacy import Unit, approx_dp, gdp, privacy_cost, pure_dp, zcdp
from residua.release import Release
from residua.schema import Binned, Categorical, Hierarchy, Integer, Schema
from residua.version import __version__
from residua.workload import (
    Workload,
    abs_diff,
    affine,
    all_tables,
    buckets,
    circular,
    identity,
    level,
    linear,
    marginals,
    predicates,
    prefix,
    ranges,
    table,
    total,
    width,
)
from residua.workload.sql import sql

__all__ = [
    "Binned",
    "BudgetError",
    "BudgetExceeded",
    "Categorical",
    "DataError",
    "FileFormatError",
    "Hierarchy",
    "Infeasible",
    "Integer",
    "Ledger",
    "LedgerError",
    "NotConverged",
    "NotInSpan",
    "Plan",
    "Release",
    "ResiduaError",
    "Schema",
    "SchemaError",
    "Unit",
    "Workload",
    "WorkloadError",
    "__version__",
    "abs_diff",
    "affine",
    "all_tables",
    "approx_dp",
    "bounds",
    "buckets",
    "circular",
    "combine",
    "compare",
    "gdp",
    "identity",
    "level",
    "linear",
    "marginals",
    "measure",
    "plan",
    "predicates",
    "prefix",
    "privacy_cost",
    "pure_dp",
    "ranges",
    "simulated",
    "sql",
    "table",
    "total",
    "width",
    "zcdp",
]
