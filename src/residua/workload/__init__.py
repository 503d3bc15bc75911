"""Which tables are wanted: query families with closed-form grams, tables, and their unions."""

from residua.workload.build import all_tables, levels, linear, marginals, table
from residua.workload.explicit import Combined, Explicit, Sets
from residua.workload.families import (
    abs_diff,
    affine,
    buckets,
    circular,
    level,
    predicates,
    prefix,
    ranges,
    width,
)
from residua.workload.groupings import AbsDiff, Affine, Partition
from residua.workload.intervals import Circular, Prefix, Ranges, Width
from residua.workload.manifests import queries_from_manifest
from residua.workload.moments import moment, sum_of
from residua.workload.predicates import Predicates
from residua.workload.queries import Family, Identity, Queries, Total, identity, total
from residua.workload.tables import Factor, Table, TableRun
from residua.workload.union import Workload

__all__ = [
    "AbsDiff",
    "Affine",
    "Circular",
    "Combined",
    "Explicit",
    "Factor",
    "Family",
    "Identity",
    "Partition",
    "Predicates",
    "Prefix",
    "Queries",
    "Ranges",
    "Sets",
    "Table",
    "TableRun",
    "Total",
    "Width",
    "Workload",
    "abs_diff",
    "affine",
    "all_tables",
    "buckets",
    "circular",
    "identity",
    "level",
    "levels",
    "linear",
    "marginals",
    "moment",
    "predicates",
    "prefix",
    "queries_from_manifest",
    "ranges",
    "sum_of",
    "table",
    "total",
    "width",
]
