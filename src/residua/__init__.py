"""Residua publishes tables about people with the least noise that privacy allows."""

from importlib import import_module
from typing import TYPE_CHECKING

from residua.errors import (
    BudgetError,
    BudgetExceeded,
    DataError,
    ExtraMissing,
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
from residua.schema import Binned, Categorical, Date, Hierarchy, Integer, Number, Schema
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
    levels,
    linear,
    marginals,
    moment,
    predicates,
    prefix,
    ranges,
    table,
    total,
    width,
)
from residua.workload import sum_of as sum
from residua.workload.sql import sql

if TYPE_CHECKING:
    from residua import bounds, engines
    from residua._contributions import contributions
    from residua._measure import measure
    from residua.accuracy import half_width, relative, stddev, variance
    from residua.ledger import Ledger
    from residua.methods.registry import register_method
    from residua.noise import simulated
    from residua.planning import choose_bounds, compare, compare_max_records, plan
    from residua.plans import Plan
    from residua.postprocess import Fact, Processed, PublicFactWarning, impossible, known
    from residua.release import Release
    from residua.release.combining import DifferentDataWarning, combine
    from residua.stream import Stream
    from residua.workload.manifests import register_family

__all__ = [
    "Binned",
    "BudgetError",
    "BudgetExceeded",
    "Categorical",
    "DataError",
    "Date",
    "DifferentDataWarning",
    "ExtraMissing",
    "Fact",
    "FileFormatError",
    "Hierarchy",
    "Infeasible",
    "Integer",
    "Ledger",
    "LedgerError",
    "NotConverged",
    "NotInSpan",
    "Number",
    "Plan",
    "Processed",
    "PublicFactWarning",
    "Release",
    "ResiduaError",
    "Schema",
    "SchemaError",
    "Stream",
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
    "choose_bounds",
    "circular",
    "combine",
    "compare",
    "compare_max_records",
    "contributions",
    "engines",
    "gdp",
    "half_width",
    "identity",
    "impossible",
    "known",
    "level",
    "levels",
    "linear",
    "marginals",
    "measure",
    "moment",
    "plan",
    "predicates",
    "prefix",
    "privacy_cost",
    "pure_dp",
    "ranges",
    "register_family",
    "register_method",
    "relative",
    "simulated",
    "sql",
    "stddev",
    "sum",
    "table",
    "total",
    "variance",
    "width",
    "zcdp",
]

_ROOMS = {
    "residua": ("bounds", "engines"),
    "residua.release.combining": ("DifferentDataWarning", "combine"),
    "residua._measure": ("measure",),
    "residua._contributions": ("contributions",),
    "residua.accuracy": ("half_width", "relative", "stddev", "variance"),
    "residua.ledger": ("Ledger",),
    "residua.methods.registry": ("register_method",),
    "residua.noise": ("simulated",),
    "residua.planning": ("choose_bounds", "compare", "compare_max_records", "plan"),
    "residua.plans": ("Plan",),
    "residua.postprocess": ("Fact", "Processed", "PublicFactWarning", "impossible", "known"),
    "residua.release": ("Release",),
    "residua.stream": ("Stream",),
    "residua.workload.manifests": ("register_family",),
}
_LATER = {name: room for room, names in _ROOMS.items() for name in names}
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
