"""Workloads from JSON-able records beside named arrays, and the classes of queries that they may have."""

from collections.abc import Sequence

import numpy as np

from residua._arrays import Arrays, Manifest
from residua._limits import TABLE_ATTRIBUTES
from residua._manifests import checked_array, fetch, number, optional, submanifests, text, whole, wholes
from residua.errors import FileFormatError, WorkloadError, retold
from residua.linalg.classes import Classes
from residua.schema import Attribute, Schema
from residua.workload.explicit import Combined, Explicit, Sets
from residua.workload.groupings import AbsDiff, Affine, Partition
from residua.workload.intervals import Circular, Prefix, Ranges, Width
from residua.workload.predicates import Predicates
from residua.workload.queries import KINDS, Identity, Queries, Total
from residua.workload.tables import Factor, Table, TableRun, checked_weight

_SIZED: tuple[type[Queries], ...] = (Identity, Total, Predicates, Prefix, Ranges, Width, Circular)
_OTHERS: tuple[type[Queries], ...] = (Affine, AbsDiff, Partition, Sets, Explicit, Combined)
KINDS.update({cls.kind: cls for cls in _SIZED + _OTHERS})


def queries_from_manifest(record: Manifest, arrays: Arrays) -> Queries:
    """The queries that a manifest describes."""
    kind = text(record, "kind")
    if kind not in KINDS:
        raise FileFormatError(f"queries of kind {kind!r} are not known to this version of residua")
    with retold(WorkloadError, FileFormatError, f"saved {kind} queries make no sense: "):
        return KINDS[kind].from_manifest(record, arrays)


def register_family(kind: type[Queries]) -> type[Queries]:
    """Make a class of queries of your own known, so that plans and releases that ask them can be loaded.

    `kind` is a subclass of `residua.workload.Queries` with a `kind` of its own, which files carry; whoever
    loads such a file must have registered it too. Can be used as a decorator.
    """
    if not (isinstance(kind, type) and issubclass(kind, Queries)):
        raise WorkloadError(f"a family is registered by its class, a subclass of Queries, not {kind!r}")
    name = getattr(kind, "kind", None)
    if not isinstance(name, str) or not name or KINDS.get(name, kind) is not kind:
        raise WorkloadError(f"{kind.__name__} needs a kind of its own, a word that no other class has")
    KINDS[name] = kind
    return kind


def parts_from_manifest(record: Manifest, arrays: Arrays, schema: Schema) -> tuple[Table | TableRun, ...]:
    """The groups and runs of tables recorded, checked against the schema."""
    queries = [queries_from_manifest(item, arrays) for item in submanifests(record, "queries")]
    parts: list[Table | TableRun] = []
    for item in submanifests(record, "parts"):
        kind = text(item, "kind")
        with retold(WorkloadError, FileFormatError, "a saved workload makes no sense: "):
            if kind == "group":
                parts.append(_read_group(item, queries, schema))
            elif kind == "tables":
                parts.append(_read_tables(item, queries, arrays, schema))
            else:
                raise FileFormatError(f"a saved workload has a part of unknown kind {kind!r}")
    if not parts:
        raise FileFormatError("a saved workload has no tables")
    return tuple(parts)


def _read_group(item: Manifest, queries: Sequence[Queries], schema: Schema) -> Table:
    factors = tuple(
        _factor(wholes(factor, "attributes"), whole(factor, "queries"), queries, schema)
        for factor in submanifests(item, "factors")
    )
    return Table(text(item, "name"), factors, checked_weight(number(item, "weight"), "a saved table"))


def _read_tables(item: Manifest, queries: Sequence[Queries], arrays: Arrays, schema: Schema) -> TableRun:
    subsets = checked_array(fetch(item, "subsets", arrays), "of tables", "i", (None, None))
    if not len(subsets) or (subsets.size and not 0 <= subsets.min() <= subsets.max() < len(schema.names)):
        raise FileFormatError("a saved workload has tables on attributes that the schema does not have")
    if subsets.shape[1] > TABLE_ATTRIBUTES:
        raise FileFormatError(f"a saved workload has tables on {subsets.shape[1]} attributes")
    if (np.diff(np.sort(subsets, axis=1), axis=1) == 0).any():
        raise FileFormatError("a saved workload has a table with an attribute twice")
    name = optional(text, item, "name")
    weight = checked_weight(number(item, "weight"), "a saved run of tables")
    if "joint" in item:
        rows = list(zip(subsets.tolist(), _numbers(item, "joint", arrays, len(subsets)), strict=True))
        joint = tuple(_factor(tuple(row), number, queries, schema).queries for row, number in rows)
        return TableRun(schema, subsets, (), joint, weight, name)
    used = set(np.unique(subsets).tolist())
    numbers = _numbers(item, "by_attribute", arrays, len(schema.names))
    factors = tuple(
        _factor((at,), number, queries, schema) if at in used else None for at, number in enumerate(numbers)
    )
    return TableRun(schema, subsets, factors, None, weight, name)


def _numbers(item: Manifest, key: str, arrays: Arrays, count: int) -> list[int]:
    numbers: list[int] = checked_array(fetch(item, key, arrays), repr(key), "i", (count,)).tolist()
    return numbers


def _factor(attributes: tuple[int, ...], number: int, queries: Sequence[Queries], schema: Schema) -> Factor:
    """The factor of recorded queries, refused if the schema's sizes are others."""
    if not 0 <= number < len(queries):
        raise FileFormatError(f"a saved workload refers to queries {number} of {len(queries)}")
    for attribute in attributes:
        if not 0 <= attribute < len(schema.names):
            raise FileFormatError(f"a saved workload uses attribute {attribute!r}, which the schema lacks")
    factor = Factor(attributes, queries[number])
    sizes = tuple(schema.attributes[attribute].size for attribute in attributes)
    if sizes != factor.queries.sizes:
        raise FileFormatError(f"a saved workload has {factor.queries!r} where the schema has {sizes} cells")
    if isinstance(factor.queries, Partition) and factor.queries.level is not None:
        _check_level(factor.queries, factor.queries.level, schema.attributes[attributes[0]])
    return factor


def _check_level(queries: Partition, level: str, attribute: Attribute) -> None:
    """Nothing, or the refusal of classes that are not the nodes of a level, or with labels some of them."""
    classes = queries.classes
    nodes = attribute.level_of(level) if level in attribute.levels else None
    kept = np.flatnonzero(classes >= 0) if queries.labels is not None else slice(None)
    if nodes is None or not np.array_equal(Classes(classes[kept]).classes, Classes(nodes[kept]).classes):
        raise FileFormatError(f"a saved workload asks for a level {level!r} that the schema does not have")
