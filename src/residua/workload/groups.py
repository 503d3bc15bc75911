"""One table: a product of query families on disjoint attributes."""

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from residua.errors import Infeasible, WorkloadError
from residua.schema import Schema
from residua.schema.wording import short
from residua.workload.queries import Queries
from residua.workload.symmetric import Total

TIMES = " x "
MOST_ATTRIBUTES = 60  # of one table; arrays of numpy have at most 64 axes
MOST_WAYS = 15  # attributes of a table that is split into pieces: 2^15 of them take about a minute
NAME_WIDTH = 80  # characters of a name that tells a condition


@dataclass(frozen=True, slots=True)
class Factor:
    """Queries on the attributes at these positions of the schema, in the order of the queries' sizes."""

    attributes: tuple[int, ...]
    queries: Queries

    def __post_init__(self) -> None:
        if len(self.attributes) != len(self.queries.sizes):
            raise WorkloadError(f"{self.queries!r} cannot be put on {len(self.attributes)} attributes")

    def describe(self, index: int, schema: Schema) -> str:
        """Words for one query."""
        names = [schema.names[attribute] for attribute in self.attributes]
        attributes = [schema.attributes[attribute] for attribute in self.attributes]
        return self.queries.describe(index, names, attributes)


@dataclass(frozen=True, slots=True)
class Table:
    """A table: every product of one query from each factor, row-major, the last factor fastest.

    `weight` multiplies the variance of each of its queries, on top of the queries' own weights. A group
    without factors asks for the number of records.
    """

    name: str
    factors: tuple[Factor, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        attributes = self.attributes
        if len(set(attributes)) != len(attributes):
            raise WorkloadError(f"table {self.name!r} has an attribute twice")
        if len(attributes) > MOST_ATTRIBUTES:
            raise WorkloadError(
                f"table {short(self.name)} is on {len(attributes)} attributes, more than the "
                f"{MOST_ATTRIBUTES} that arrays have axes for; use fewer attributes in one table"
            )

    @property
    def attributes(self) -> tuple[int, ...]:
        """Positions of its attributes, in the order of its factors."""
        return tuple(attribute for factor in self.factors for attribute in factor.attributes)

    @property
    def count(self) -> int:
        """Number of queries, exactly."""
        return math.prod(factor.queries.count for factor in self.factors)

    @property
    def listable(self) -> bool:
        """Whether its queries can be gone through one by one; `predicates` of many cells cannot."""
        return all(factor.queries.listable for factor in self.factors)

    @property
    def title(self) -> str:
        """Its families: `prefix x identity`."""
        return TIMES.join(factor.queries.title for factor in self.factors)

    def describe(self, index: int, schema: Schema) -> str:
        """Words for one query: `age <= 17 and sex = F`; `all` where it asks nothing of a record."""
        if not 0 <= index < self.count:
            raise IndexError(f"table {self.name!r} has no query {index}")
        words = []
        for factor in reversed(self.factors):
            index, place = divmod(index, factor.queries.count)
            words.append(factor.describe(place, schema))
        return _joined(reversed(words))

    def descriptions(self, schema: Schema) -> Iterator[str]:
        """Words for every query in order; each factor's are made once, not once per product."""
        words = [
            [factor.describe(index, schema) for index in range(factor.queries.count)]
            for factor in self.factors
        ]
        return (_joined(parts) for parts in product(*words))


def splits(group: Table) -> Iterator[tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]]:
    """Every way to keep some of a table's attributes: the places kept of each factor, and the attributes.

    The attributes are positions in the schema, ascending; there are two to the number of attributes ways, but
    for those of which a total is asked: nothing is left of that but its mean.
    """
    refuse_many_ways(len(without_totals(group).attributes), f"table {short(group.name)}")
    each = [
        [()] if isinstance(factor.queries, Total) else list(choices(len(factor.attributes)))
        for factor in group.factors
    ]
    for kept in product(*each):
        pairs = zip(group.factors, kept, strict=True)
        yield kept, tuple(sorted(factor.attributes[place] for factor, places in pairs for place in places))


def choices(ways: int) -> Iterator[tuple[int, ...]]:
    """Every choice of some of so many places, the smaller ones first; Infeasible if there are too many.

    >>> list(choices(2))
    [(), (0,), (1,), (0, 1)]
    """
    refuse_many_ways(ways, "a table")
    return (chosen for size in range(ways + 1) for chosen in combinations(range(ways), size))


def refuse_many_ways(ways: int, what: str) -> None:
    """Nothing, or Infeasible where a table would be split into too many pieces, one per choice of places."""
    if ways > MOST_WAYS:
        raise Infeasible(
            f"{what} is on {ways} attributes and would be split into 2^{ways} pieces, more than the "
            f"2^{MOST_WAYS} that can be gone through; use fewer attributes in one table, or plan with method "
            "'identity' or 'hdmm-kron', which measure all its cells together"
        )


def without_totals(group: Table) -> Table:
    """The same queries without the attributes of which they ask for the total."""
    kept = tuple(factor for factor in group.factors if not isinstance(factor.queries, Total))
    return group if len(kept) == len(group.factors) else replace(group, factors=kept)


def _joined(parts: Iterator[str] | tuple[str, ...]) -> str:
    return " and ".join(part for part in parts if part) or "all"


def table_name(names: Iterator[str] | list[str]) -> str:
    """The name of a table on these attributes that nobody named: `age x sex`, or `total` for none.

    >>> table_name(["age", "sex"]), table_name([])
    ('age x sex', 'total')
    """
    return TIMES.join(names) or "total"


def checked_weight(weight: object, who: str) -> float:
    """A weight of variances as a float, refused unless it is positive and finite."""
    if isinstance(weight, bool | np.bool_) or not isinstance(weight, numbers.Real):
        raise WorkloadError(f"{who}: a weight is a positive number, not {weight!r}")
    try:
        value = float(weight)
    except OverflowError:  # of a whole number or a fraction
        value = math.inf
    if not (math.isfinite(value) and value > 0):
        raise WorkloadError(f"{who}: a weight is a positive finite number, not {short(weight)}")
    return value
