"""The layout of a table on paper: rows and columns, which number stands where, which sums stand beside it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from residua._text import runs
from residua.schema import Hierarchy, Schema
from residua.workload import Factor, Identity, Table
from residua.workload.tables import COUNT

LABELS = {
    r"^>= (\S+) and < (\S+)$": r"\1 to under \2",
    r"^>= (\S+)$": r"\1 and above",
    r"^<= (\S+)$": r"up to \1",
    r"^< (\S+)$": r"under \1",
}
Labels = tuple[tuple[str, ...], ...]
MOST_COLUMNS = 12  # side by side on paper


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Names and labels of rows and columns, and the place of each number among the table's.

    `beside` and `below` are the tables of sums over all columns and over all rows, `corner` that over both;
    None where the parts of the table overlap or leave somebody out, so that they add up to nothing.
    """

    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    rows: Labels
    columns: Labels
    places: NDArray[np.int64]  # (rows, columns)
    parts: tuple[tuple[str, int], ...] = ()
    """Of places of a hierarchy: the regions in order, each with how many rows it has; one map for each."""
    beside: Table | None = None
    below: Table | None = None
    corner: Table | None = None


def grid_of(group: Table, schema: Schema) -> Grid:
    """The layout of a table: factors with few queries across, the longest and the others down."""
    counts = [factor.queries.count for factor in group.factors]
    across: list[int] = []
    for at in sorted(range(len(counts)), key=lambda at: (counts[at], -at))[: max(len(counts) - 1, 0)]:
        if prod(counts[each] for each in (*across, at)) <= MOST_COLUMNS:
            across.append(at)
    across.sort()
    down = [at for at in range(len(counts)) if at not in across]
    rows, columns = ([group.factors[at] for at in side] for side in (down, across))
    labels, parts = _regions(rows, schema)
    places = np.arange(group.count, dtype=np.int64).reshape(counts).transpose([*down, *across])
    whole = [all(each.queries.parts for each in side) for side in (rows, columns)]
    return Grid(
        _names(rows, schema),
        _names(columns, schema),
        labels,
        _labels(columns, schema),
        places.reshape(prod(counts[at] for at in down), -1),
        parts,
        Table(group.name, tuple(rows)) if whole[1] and across else None,
        Table(group.name, tuple(columns)) if whole[0] and down else None,
        Table(group.name, ()) if all(whole) and across else None,
    )


def _regions(rows: Sequence[Factor], schema: Schema) -> tuple[Labels, tuple[tuple[str, int], ...]]:
    """Labels of the rows, and the regions that they are in where they are places of a hierarchy."""
    labels = _labels(rows, schema)
    place = schema.attributes[rows[0].attributes[0]] if rows else None
    above = [label[0].rpartition("/")[0] for label in labels] if isinstance(place, Hierarchy) else []
    if len(set(above)) < 2:
        return labels, ()
    return tuple((label[0].rpartition("/")[2], *label[1:]) for label in labels), tuple(runs(above))


def labels_of(factor: Factor, schema: Schema) -> list[str]:
    """Words for each query of a factor; only the label where its heading says the rest."""
    attribute = schema.attributes[factor.attributes[0]]
    if isinstance(factor.queries, Identity):
        return list(attribute.labels())
    words = [factor.describe(index, schema) or COUNT for index in range(factor.queries.count)]
    name = schema.names[factor.attributes[0]]
    starts = (f"{name}.{factor.queries.level} = ", f"{name} in ", f"{name} = ", f"{name} ")
    return [_without(word, starts) for word in words] if len(factor.attributes) == 1 else words


def _without(word: str, starts: Sequence[str]) -> str:
    """The words about one attribute as a label: `>= 15 and < 25` is `15 to under 25`."""
    own = next((word.removeprefix(start) for start in starts if word.startswith(start)), word)
    for pattern, label in LABELS.items():
        own = re.sub(pattern, label, own)
    return own


def _names(factors: Sequence[Factor], schema: Schema) -> tuple[str, ...]:
    """Headings of factors: the level that one asks for, or its attributes."""
    joined = (" and ".join(schema.names[at] for at in factor.attributes) for factor in factors)
    return tuple(factor.queries.level or name for factor, name in zip(factors, joined, strict=True))


def _labels(factors: Sequence[Factor], schema: Schema) -> Labels:
    return tuple(product(*(labels_of(factor, schema) for factor in factors)))
