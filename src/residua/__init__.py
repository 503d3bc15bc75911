"""Residua publishes tables about people with the least noise that privacy allows."""

from importlib import import_module
from typing import TYPE_CHECKING

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
from residua.privacy import Unit, approx_dp, gdp, privacy_cost, pure_dp, zcdp
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

if TYPE_CHECKING:
    from residua import bounds, engines
    from residua._combine import DifferentDataWarning, combine
    from residua._measure import measure
    from residua.accuracy import half_width, stddev, variance
    from residua.ledger import Ledger
    from residua.methods.registry import register_method
    from residua.noise import simulated
    from residua.planning import compare, plan
    from residua.plans import Plan
    from residua.postprocess import Fact, Processed, PublicFactWarning, impossible, known
    from residua.release import Release
    from residua.workload.manifests import register_family

__all__ = [
    "Binned",
    "BudgetError",
    "BudgetExceeded",
    "Categorical",
    "DataError",
    "DifferentDataWarning",
    "Fact",
    "FileFormatError",
    "Hierarchy",
    "Infeasible",
    "Integer",
    "Ledger",
    "LedgerError",
    "NotConverged",
    "NotInSpan",
    "Plan",
    "Processed",
    "PublicFactWarning",
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
    "engines",
    "gdp",
    "half_width",
    "identity",
    "impossible",
    "known",
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
    "register_family",
    "register_method",
    "simulated",
    "sql",
    "stddev",
    "table",
    "total",
    "variance",
    "width",
    "zcdp",
]

_LATER = {
    "bounds": "residua",
    "engines": "residua",
    "DifferentDataWarning": "residua._combine",
    "Fact": "residua.postprocess",
    "Ledger": "residua.ledger",
    "Plan": "residua.plans",
    "Processed": "residua.postprocess",
    "PublicFactWarning": "residua.postprocess",
    "Release": "residua.release",
    "combine": "residua._combine",
    "compare": "residua.planning",
    "half_width": "residua.accuracy",
    "impossible": "residua.postprocess",
    "known": "residua.postprocess",
    "measure": "residua._measure",
    "plan": "residua.planning",
    "register_family": "residua.workload.manifests",
    "register_method": "residua.methods.registry",
    "simulated": "residua.noise",
    "stddev": "residua.accuracy",
    "variance": "residua.accuracy",
}
"""Names whose rooms are opened on first use, so that importing residua stays quick."""

if not TYPE_CHECKING:  # for a type checker every name is imported above, and no other exists

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module 'residua' has no attribute {name!r}")
        room = _LATER[name]
        found = import_module(f"residua.{name}") if room == "residua" else getattr(import_module(room), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
