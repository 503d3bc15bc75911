"""The ways to write a workload: table, all_tables, marginals, linear."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import Subsets
from residua._limits import MOST_TABLES
from residua._text import listed_names, short
from residua.errors import SchemaError, WorkloadError, retold
from residua.schema import Schema
from residua.workload.explicit import Explicit, SparseMatrix, dense_numbers
from residua.workload.moments import stacked
from residua.workload.queries import Family, Queries, identity, spelled
from residua.workload.tables import Factor, Table, TableRun, at_levels, bound, checked_weight, table_name
from residua.workload.union import Workload, positions_of

Families = Family | Sequence[Family]
"""One family, or several that a table asks of one attribute."""
Spec = Mapping[str, Families] | Mapping[tuple[str, str], Families] | Mapping[Any, Families] | Sequence[str]


def table(
    schema: Schema,
    spec: Spec | None = None,
    /,
    *,
    name: str | None = None,
    weight: float = 1.0,
    where: str | Families | None = None,
    **families: Families,
) -> Workload:
    """A workload of one table: a product of query families, one per attribute or pair of attributes.

    `spec` maps names to families, or lists names for plain counts; a pair of names takes a family on two
    attributes, and a list of families asks all of them: `income=[rs.total, rs.sum]`. Attributes can also
    be keywords, unless they are called `name` or `weight`. Answers are row-major
    in the order given. `where` is a condition as SQL writes it, on any attributes, joined by `AND`, `OR` and
    `NOT`: only records that meet it count.

    >>> from residua.schema import Schema
    >>> from residua.workload import affine, prefix
    >>> schema = Schema.of_sizes([4, 3, 2])
    >>> table(schema, {("a0", "a1"): affine}, a2=prefix)
    Workload of 1 table, 12 queries: a0 x a1 x a2 (affine x prefix)
    >>> table(schema, ["a2"], where="a0 >= 2 OR a1 = 0")
    Workload of 1 table, 2 queries: a2 where a0 >= 2 OR a1 = 0 (identity x condition)
    """
    _refuse_other_schema(schema)
    if isinstance(where, Family | list | tuple):  # an attribute of that name
        families, where = {**families, "where": where}, None
    entries = [*_entries(spec), *(((key,), family) for key, family in families.items())]
    names = [attribute for key, _ in entries for attribute in key]
    title = table_name(map(str, names), where) if name is None else name
    positions_of(schema, names, f"table {title!r}")
    factors = tuple(_factor(schema, key, family, title) for key, family in entries)
    if where is not None:
        factors = _restricted(schema, factors, where, title)
    return Workload(schema, (Table(title, factors, checked_weight(weight, f"table {title!r}")),))


def all_tables(
    schema: Schema,
    ways: int | Iterable[int],
    family: Family | None = None,
    *,
    numeric: Family | None = None,
    categorical: Family | None = None,
    attributes: Sequence[str] | None = None,
    name: str | None = None,
) -> Workload:
    """A workload of the tables on every choice of `ways` attributes, the same family on each attribute.

    `ways` is a number or several, taken in the order given; the tables of one number are in lexicographic
    order of `attributes` (all but numbers without bins, in schema order). `numeric` and `categorical`
    override `family` for the attributes of their kind. A family on two attributes needs `ways=2`. Unless
    named, each table is called by its attributes.

    >>> from residua.schema import Schema
    >>> from residua.workload import prefix
    >>> all_tables(Schema.of_sizes([10] * 40), ways=(1, 2), family=prefix).count
    78400
    """
    _refuse_other_schema(schema)
    named = _countable(schema) if attributes is None else attributes
    positions = positions_of(schema, named, "the tables")
    several = _ways(ways, len(positions))
    for chosen in (family, numeric, categorical):
        if chosen is not None and not isinstance(chosen, Family):
            raise _no_family(chosen, "all_tables")
    runs = (_subsets(positions, each) for each in several)
    if family is not None and family.arity == 2:
        joint = _joint_queries(schema, several, named, family, numeric or categorical)
        return Workload(schema, tuple(TableRun(schema, subsets, joint=joint, name=name) for subsets in runs))
    factors: list[Factor | None] = [None] * len(schema.names)
    for position, attribute in zip(positions, named, strict=True) if any(several) else ():
        kind, own = ("numeric", numeric) if schema[attribute].numeric else ("categorical", categorical)
        chosen = own or family
        if chosen is None:
            raise WorkloadError(f"attribute {attribute!r} has no family; give family= or {kind}=")
        factors[position] = _factor(schema, (attribute,), chosen, "all_tables")
    return Workload(schema, tuple(TableRun(schema, subsets, tuple(factors), name=name) for subsets in runs))


def marginals(
    schema: Schema,
    ways: int | Iterable[int] | None = None,
    *,
    up_to: int | None = None,
    attributes: Sequence[str] | None = None,
    name: str | None = None,
) -> Workload:
    """A workload of every marginal on `ways` attributes, or on at most `up_to`, the total included.

    >>> from residua.schema import Schema
    >>> marginals(Schema.of_sizes([2, 3]), up_to=2)
    Workload of 4 tables, 12 queries: total, a0 (identity), a1 (identity), ...
    """
    _refuse_other_schema(schema)
    if up_to is not None and ways is None:
        most = len(_countable(schema) if attributes is None else attributes)
        ways = range(min(_whole(up_to, "up_to"), most) + 1)
    elif ways is None or up_to is not None:
        raise WorkloadError("marginals: give either ways= or up_to=")
    return all_tables(schema, ways, identity, attributes=attributes, name=name)


def levels(
    schema: Schema,
    attribute: str,
    spec: Spec = (),
    /,
    *,
    name: str | None = None,
    weight: float = 1.0,
    where: str | None = None,
) -> Workload:
    """A workload of the same table at every level of an attribute, the coarsest first.

    `spec` says what else the tables are on, as for `table`. A name is completed by the level: `T1 by county`.

    >>> from residua.schema import Categorical, Hierarchy
    >>> place = Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")])
    >>> levels(Schema(place=place, sex=Categorical("F", "M")), "place", ["sex"])
    Workload of 2 tables, 10 queries: place.state x sex (level('state') x identity), \
place.county x sex (identity x identity)
    """
    _refuse_other_schema(schema)
    own = schema[attribute].levels
    if not own:
        raise WorkloadError(f"attribute {attribute!r} has no levels; a Hierarchy and a Date have them")
    tables = []
    for level in own:
        asked = {(f"{attribute}.{level}",): identity, **dict(_entries(spec))}
        title = None if name is None else f"{name} by {level}"
        tables.append(table(schema, asked, name=title, weight=weight, where=where))
    return sum(tables[1:], tables[0])


def linear(
    schema: Schema,
    names: Sequence[str],
    matrix: "ArrayLike | SparseMatrix",
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> Workload:
    """A workload of any linear queries on one marginal.

    `matrix` has shape `(queries, cells)`, dense or scipy.sparse, the cells row-major over the attributes as
    named; `weights`, of shape `(queries,)`, multiply the queries' variances.

    >>> from residua.schema import Schema
    >>> linear(Schema.of_sizes([2, 3]), ("a1", "a0"), [[1, -1, 0, 0, 0, 0]])
    Workload of 1 table, 1 query: a1 x a0 (linear)
    """
    _refuse_other_schema(schema)
    names = listed_names(names)
    title = table_name(map(str, names)) if name is None else name
    who = f"linear queries {title!r}"
    positions = positions_of(schema, names, who)
    if not positions:
        raise WorkloadError(f"{who} need at least one attribute; table(schema) asks for the total")
    attributes = [schema[name] for name in names]
    sizes = tuple(attribute.size for attribute in attributes)
    values = dense_numbers(matrix, f"{who}: the matrix", f"(queries, {math.prod(sizes)})")
    row_weights = None if weights is None else dense_numbers(weights, f"{who}: the weights", "(queries,)")
    with retold(WorkloadError, WorkloadError, f"{who}: "):
        queries = at_levels(Explicit(sizes, values, row_weights), schema, names, attributes)
    return Workload(schema, (Table(title, (Factor(positions, queries),)),))


def _countable(schema: Schema) -> list[str]:
    """Names of the attributes whose records are counted by cells: all but numbers without bins."""
    return [name for name in schema.names if schema[name].counted is not None]


def _entries(spec: Spec | None) -> list[tuple[tuple[str, ...], Families]]:
    """Pairs of names and a family; a plain list of names means identity."""
    if isinstance(spec, Mapping):
        return [(key if isinstance(key, tuple) else (key,), family) for key, family in spec.items()]
    return [((name,), identity) for name in listed_names(() if spec is None else spec)]


def _factor(schema: Schema, names: tuple[str, ...], family: Families, title: str) -> Factor:
    positions = tuple(schema.resolve(name)[0] for name in names)
    if isinstance(family, list | tuple):
        parts = [_factor(schema, names, each, title).queries for each in family]
        if not parts:
            raise WorkloadError(f"table {title!r}: attribute {names[0]!r} is asked nothing; name a family")
        return Factor(positions, stacked(parts, [schema[name] for name in names], names))
    if not isinstance(family, Family):
        raise _no_family(family, f"table {title!r}, attribute {names[0]!r}")
    if family.arity != len(names):
        pair = f"a pair of attributes, such as {{('a', 'b'): {family!r}}}"
        takes = pair if family.arity == 2 else "one attribute"
        raise WorkloadError(f"table {title!r}: {family!r} takes {takes}, not {', '.join(map(repr, names))}")
    return Factor(positions, bound(family, schema, names))


def _restricted(schema: Schema, factors: tuple[Factor, ...], where: object, title: str) -> tuple[Factor, ...]:
    # The modules behind this one load sqlglot, which takes as long as the rest of the package.
    from residua.workload.sql.statements import restricted

    if not isinstance(where, str):
        raise WorkloadError(
            f"table {title!r}: where is a condition as text, such as 'age >= 65', not {where!r}"
        )
    with retold(WorkloadError, WorkloadError, f"table {title!r}: "):
        return restricted(schema, factors, where)


def _refuse_other_schema(schema: object) -> None:
    if not isinstance(schema, Schema):
        raise SchemaError(
            f"tables are described on a schema, such as rs.Schema(age=...), not on {short(schema)}"
        )


def _no_family(family: object, who: str) -> WorkloadError:
    return WorkloadError(f"{who}: {family!r} is not a query family such as prefix or width(3)")


def _ways(ways: int | Iterable[int], attributes: int) -> tuple[int, ...]:
    several = tuple(_whole(each, "ways") for each in (ways if isinstance(ways, Iterable) else (ways,)))
    if not several:
        raise WorkloadError("ways is empty, so there are no tables")
    for each in several:
        if each > attributes:
            raise WorkloadError(f"there are no {each}-way tables on {attributes} attributes")
        if math.comb(attributes, each) > MOST_TABLES:
            tables = f"all {each}-way tables on {attributes} attributes"
            raise WorkloadError(f"{tables} are {spelled(math.comb(attributes, each))}, which is too many")
    return several


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise WorkloadError(f"{what} is a whole number of attributes, not {value!r}")
    number = operator.index(value)
    if number < 0:
        raise WorkloadError(f"{what} is a whole number of attributes from 0 on, not {number}")
    return number


def _subsets(positions: Sequence[int], ways: int) -> Subsets:
    """Every choice of `ways` positions, shape `(tables, ways)`, in lexicographic order of the sequence."""
    tables = math.comb(len(positions), ways)
    flat = chain.from_iterable(combinations(positions, ways))
    return np.fromiter(flat, dtype=np.int32, count=tables * ways).reshape(tables, ways)


def _joint_queries(
    schema: Schema, several: tuple[int, ...], names: Sequence[str], family: Family, other: Family | None
) -> tuple[Queries, ...]:
    """The queries of a family on two attributes for each pair of names; refused where tables are no pairs."""
    if other is not None:
        raise WorkloadError(f"all_tables: {family!r} is on pairs of attributes; it leaves none for {other!r}")
    if any(each != 2 for each in several):
        raise WorkloadError(
            f"all_tables: {family!r} is on pairs of attributes, so ways must be 2, not {several}"
        )
    sizes = {each: schema[each].size if each in schema else each for each in names}
    found: dict[tuple[int | str, ...], Queries] = {}  # equal sizes share one object; a level has its own
    joint = []
    for pair in combinations(names, 2):
        key = tuple(sizes[each] for each in pair)
        if key not in found:
            found[key] = bound(family, schema, pair)
        joint.append(found[key])
    return tuple(joint)
