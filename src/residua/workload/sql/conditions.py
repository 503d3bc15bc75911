"""WHERE: conditions on columns to the cells where they hold, attribute by attribute where they come apart.

Conditions follow SQL's logic of three values: a cell where a condition is neither true nor false stays out
of both the condition and its negation. What ties several columns together looks only at classes of each one's
cells, so it is held by classes, whatever the number of cells (claim H-040).

A comparison with constants selects cells by a pair of masks (cells,): where it is true, and where it is
false. In the cell `(other)` it is neither, as with NULL in SQL, unless the constant is '(other)' itself.
"""

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from residua._limits import CELL_CLASSES, MASK_CELLS
from residua.errors import DataError, SchemaError, WorkloadError
from residua.linalg.classes import Classes, coarsest, common_refinement, spread_over
from residua.schema import OTHER, Attribute, Binned, Categorical, Date, Integer
from residua.schema.attributes import plain
from residua.schema.coding import hint, listing, short
from residua.schema.dates import day_of
from residua.workload.sql.reading import Columns, bare, day_in, quoted, shown
from residua.workload.views import cells_of_classes

Mask = NDArray[np.bool_]
Value = str | bool | int | float

SUPPORTED = "conditions are =, <>, <, <=, >, >=, IN and BETWEEN on a column and constants, AND, OR and NOT"
LONGEST = 1_000  # letters of a condition that the words of a query repeat

_SIGNS: dict[type[exp.Expression], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Cells of some attributes (positions, ascending), as combinations of classes of each attribute's cells.

    `text` is the SQL that left them, where that is about several attributes.
    """

    attributes: tuple[int, ...]
    partitions: tuple[Classes, ...]
    mask: Mask  # (number of classes...)
    text: str = ""

    @property
    def cells(self) -> Mask:
        """The cells of the one attribute there is, `(cells,)`."""
        (partitions,) = self.partitions
        return np.asarray(self.mask[partitions.classes])

    def region(self) -> "Region":
        """Itself: what `Chosen` has too."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Cells of one attribute, one by one: as much as a condition on one column needs."""

    attribute: int
    cells: Mask  # (cells,)

    @property
    def attributes(self) -> tuple[int, ...]:
        return (self.attribute,)

    def region(self) -> Region:
        """The same by classes of cells."""
        partitions = Classes(self.cells.astype(np.int64))
        return Region((self.attribute,), (partitions,), self.cells[partitions.first])


def restrictions(columns: Columns, where: exp.Expression) -> list[Region]:
    """A WHERE as regions of disjoint attributes, all of which have to hold."""
    parts = _chain(where, False, every=True)
    found = [region_of(columns, node, negated) for node, negated in parts]
    pieces: list[Region] = []
    for linked in _linked(found):
        whole = _joined(columns, where, [found[at] for at in linked], every=True).region()
        tied = len(whole.attributes) > 1
        text = " AND ".join(_spelt(*parts[at]) for at in linked) if tied else ""
        pieces += _apart(replace(whole, text=textwrap.shorten(text, LONGEST, placeholder=" ...")))
    if not all(piece.mask.any() for piece in pieces):
        raise columns.refusal(where, "no cell of the schema meets this WHERE; all counts are zero")
    return [piece for piece in pieces if not piece.mask.all()]


def _chain(whole: exp.Expression, inverted: bool, *, every: bool) -> list[tuple[exp.Expression, bool]]:
    """The conditions, and whether each is negated, whose AND (or else OR) is the whole, or its negation."""
    found, waiting = [], [(whole, inverted)]
    while waiting:
        node, negated = waiting.pop()
        node = bare(node)
        if isinstance(node, exp.Not):
            waiting.append((node.this, not negated))
        elif isinstance(node, exp.And if every != negated else exp.Or):
            waiting += [(node.expression, negated), (node.this, negated)]
        else:
            found.append((node, negated))
    return found


def _spelt(node: exp.Expression, negated: bool) -> str:
    joined = isinstance(node, exp.And | exp.Or)
    inside = f"({shown(node)})" if joined else shown(node)
    return f"NOT {inside}" if negated else inside


def _linked(regions: Sequence[Region | Chosen]) -> list[list[int]]:
    """The regions in groups that share no attribute with each other."""
    group: dict[int, set[int]] = {}  # of each attribute, all attributes that are tied to it
    for region in regions:
        whole = set(region.attributes).union(*(group.get(at, ()) for at in region.attributes))
        if whole != group.get(region.attributes[0]):
            group |= dict.fromkeys(whole, whole)
    found: dict[int, list[int]] = {}
    for number, region in enumerate(regions):
        found.setdefault(id(group[region.attributes[0]]), []).append(number)
    return list(found.values())


def _apart(whole: Region) -> Iterator[Region]:
    """The region with every attribute split off whose own cells are all that matters of it."""
    partitions, mask = dict(zip(whole.attributes, whole.partitions, strict=True)), whole.mask
    for attribute in whole.attributes:
        if len(partitions) == 1:
            break
        axis = list(partitions).index(attribute)
        own = mask.any(axis=tuple(at for at in range(mask.ndim) if at != axis), keepdims=True)
        rest = mask.any(axis=axis, keepdims=True)
        if np.array_equal(own & rest, mask):
            yield Region((attribute,), (partitions.pop(attribute),), own.reshape(-1), whole.text)
            mask = np.squeeze(rest, axis)
    yield Region(tuple(partitions), tuple(partitions.values()), mask, whole.text)


def region_of(columns: Columns, node: exp.Expression, negated: bool = False) -> Region | Chosen:
    """Where a condition, or its negation, is true; NOT is moved inwards until it meets one column."""
    node = bare(node)
    if isinstance(node, exp.Not):
        return region_of(columns, node.this, not negated)
    if isinstance(node, exp.And | exp.Or):
        every = isinstance(node, exp.And) != negated
        parts = (region_of(columns, part, inner) for part, inner in _chain(node, negated, every=every))
        return _joined(columns, node, parts, every=every)
    try:
        column, (true, false) = _single(columns, node)
    except Unfit as error:
        raise columns.refusal(node, str(error)) from error
    columns.source.look_at(node, columns.schema.sizes[column])
    return Chosen(column, false if negated else true)


def _joined(
    columns: Columns, node: exp.Expression, parts: Iterable[Region | Chosen], *, every: bool
) -> Region | Chosen:
    """Where every one of the parts holds, or else where any does."""
    join = np.logical_and if every else np.logical_or
    alone: dict[int, Mask] = {}
    regions = []
    for part in parts:
        if len(part.attributes) > 1:
            regions.append(part.region())
        else:
            (at,) = part.attributes
            alone[at] = join(alone[at], part.cells) if at in alone else part.cells
    if not regions and len(alone) == 1:
        return Chosen(*alone.popitem())
    regions += [Chosen(at, cells).region() for at, cells in alone.items()]
    if len(regions) == 1:
        return regions[0]
    attributes = tuple(sorted({attribute for region in regions for attribute in region.attributes}))
    partitions = [
        common_refinement([r.partitions[r.attributes.index(at)] for r in regions if at in r.attributes])
        for at in attributes
    ]
    _refuse_large(columns, node, attributes, cells_of_classes(partitions))
    mask = np.full([own.count for own in partitions], every, dtype=np.bool_)
    for region in regions:
        mask = join(mask, _spread(region, attributes, partitions))
    return Region(attributes, *coarsest(partitions, mask))


def _spread(region: Region, attributes: tuple[int, ...], partitions: Sequence[Classes]) -> Mask:
    """The region's mask over finer classes, an axis of length one for each attribute it does not look at."""
    finer = [partitions[attributes.index(at)] for at in region.attributes]
    inner = [own.over(each) for own, each in zip(region.partitions, finer, strict=True)]
    others = [axis for axis, at in enumerate(attributes) if at not in region.attributes]
    return np.expand_dims(spread_over(region.mask, inner), others)


def _refuse_large(columns: Columns, node: exp.Expression, attributes: tuple[int, ...], classes: int) -> None:
    if classes > CELL_CLASSES:
        names = " x ".join(columns.schema.names[at] for at in attributes)
        raise columns.refusal(
            node,
            f"this condition ties {names} together in {classes:,} combinations of classes of cells, more "
            f"than the {CELL_CLASSES:,} that are held; conditions joined by AND come apart, and so does "
            "NOT (A OR B): count that and the total, and take A OR B as their difference",
        )


def _single(columns: Columns, node: exp.Expression) -> tuple[int, tuple[Mask, Mask]]:
    """A condition on one column: its position, where it is true and where false."""
    match node:
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            column, value, mirrored = _sides(columns, node)
            sign = _SIGNS[type(node)]
            return column, compared(*columns.attribute(column), _MIRRORED[sign] if mirrored else sign, value)
        case exp.EQ() | exp.NEQ():
            column, value, _ = _sides(columns, node)
            equal, other = among(*columns.attribute(column), [value])
            return column, (equal, other) if isinstance(node, exp.EQ) else (other, equal)
        case exp.In():
            columns.source.allow_only(node, ("this", "expressions"), "with IN; list constants: IN (1, 2)")
            if not node.expressions:
                raise Unfit("IN needs a list of constants, such as IN (1, 2)")
            values = [constant(columns, each) for each in node.expressions]
            column = columns.position(node.this, SUPPORTED)
            return column, among(*columns.attribute(column), values)
        case exp.Between():
            columns.source.allow_only(node, ("this", "low", "high"), "with BETWEEN")
            column = columns.position(node.this, SUPPORTED)
            low = compared(*columns.attribute(column), ">=", constant(columns, node.args["low"]))
            high = compared(*columns.attribute(column), "<=", constant(columns, node.args["high"]))
            return column, (low[0] & high[0], low[1] | high[1])
        case exp.Is():
            raise Unfit(
                "IS is not supported: nulls follow the schema's policy (outside=), and with 'other' they are "
                "counted in the cell '(other)'"
            )
        case exp.Column():
            column = columns.position(node, SUPPORTED)
            name, attribute = columns.attribute(column)
            if (
                isinstance(attribute, Categorical)
                and attribute.type == "boolean"
                and True in attribute.values
            ):
                return column, among(name, attribute, [True])
            raise Unfit(f"attribute {name!r} is not a condition by itself; compare it with a constant")
    raise Unfit(f"{quoted(node)} is not supported in a condition; {SUPPORTED}")


def _sides(columns: Columns, node: exp.Expression) -> tuple[int, Value, bool]:
    """The column, the constant, and whether the constant comes first."""
    left, right = bare(node.this), bare(node.expression)
    mirrored = isinstance(right, exp.Column) and not isinstance(left, exp.Column)
    column, other = (right, left) if mirrored else (left, right)
    return columns.position(column, SUPPORTED), constant(columns, other), mirrored


def constant(columns: Columns, node: exp.Expression) -> Value:
    """The value of a constant: text, a number or a boolean."""
    node = bare(node)
    inner = bare(node.this) if isinstance(node, exp.Neg) else node
    if isinstance(inner, exp.Literal) and not inner.is_string:
        number = number_of(str(inner.this))
        if number is not None:
            return number if inner is node else -number
    elif isinstance(node, exp.Literal):
        return str(node.this)
    elif isinstance(node, exp.Boolean):
        return bool(node.this)
    elif (day := day_in(node)) is not None:
        return day
    elif isinstance(node, exp.Null):
        raise columns.refusal(node, "no comparison with NULL is ever true; nulls follow the schema")
    raise columns.refusal(node, f"{quoted(node)} is not a constant that is supported; {SUPPORTED}")


class Unfit(WorkloadError):
    """A comparison that makes no sense; the place is added by the one who knows it."""


def among(name: str, attribute: Attribute, values: Sequence[Value]) -> tuple[Mask, Mask]:
    """Where the attribute is one of the values, and where it is none of them."""
    _refuse_many_cells(name, attribute)
    true = np.zeros(attribute.size, dtype=np.bool_)
    for kind in (str, bool, int, float):
        some = list(dict.fromkeys(value for value in values if type(value) is kind))
        if some:
            true[_cells(name, attribute, some)] = True
    false = ~true
    if attribute.other is not None and OTHER not in values:
        false[attribute.other] = False
    return true, false


def compared(name: str, attribute: Attribute, sign: str, value: Value) -> tuple[Mask, Mask]:
    """Where `attribute sign value` is true, and where it is false; sign is one of <, <=, > and >=."""
    _refuse_many_cells(name, attribute)
    if sign in (">", ">="):
        false, true = compared(name, attribute, {">": "<=", ">=": "<"}[sign], value)
        return true, false
    inner = _below(name, attribute, value, or_equal=sign == "<=")
    true, false = np.zeros((2, attribute.size), dtype=np.bool_)
    true[: attribute.inner_size] = inner
    false[: attribute.inner_size] = ~inner
    return true, false


def _below(name: str, attribute: Attribute, value: Value, *, or_equal: bool) -> Mask:
    """The inner cells whose values are below a number, or days before a day."""
    if isinstance(attribute, Date):
        return _days_below(name, attribute, value, or_equal=or_equal)
    number = _number(name, attribute, value)
    if isinstance(attribute, Integer):
        first = math.floor(number) + 1 if or_equal else math.ceil(number)
        return np.arange(attribute.inner_size) < min(max(first - attribute.low, 0), attribute.inner_size)
    if isinstance(attribute, Binned):
        return _bins_below(name, attribute, number, or_equal=or_equal)
    labels = [int(attribute.label(cell)) for cell in range(attribute.inner_size)]
    return np.array([label < number or (or_equal and label == number) for label in labels])


def _days_below(name: str, attribute: Date, value: Value, *, or_equal: bool) -> Mask:
    if not isinstance(value, str) or (day := day_of(value)) is None:
        raise Unfit(f"attribute {name!r} holds dates, and {short(value)} is none; write '2024-02-29'")
    before = attribute.before(day + np.timedelta64(int(or_equal), "D"))
    if before is None:
        where = f"within a {attribute.by}; compare by < or >= at the first day of a {attribute.by}"
        raise Unfit(f"attribute {name!r}: {value} falls {where}")
    return before


def _bins_below(name: str, attribute: Binned, number: int | float, *, or_equal: bool) -> Mask:
    lower = attribute.edges[: attribute.inner_size]
    upper = [*attribute.edges[1:], math.inf][: attribute.inner_size]
    below = np.array([end <= number for end in upper])
    above = np.array([number < start or (not or_equal and number == start) for start in lower])
    if (below | above).all():
        return below
    edges = listing([plain(edge) for edge in attribute.edges])
    if number in attribute.edges:
        raise Unfit(
            f"attribute {name!r}: its bins begin with their lower edges, so {plain(float(number))} is no "
            f"border by itself; compare by < or >= at an edge: {edges}"
        )
    raise Unfit(f"attribute {name!r}: {number} falls within a bin; compare by < or >= at an edge: {edges}")


def _cells(name: str, attribute: Attribute, values: list[Value]) -> list[int]:
    """The cell of each of some values of one type."""
    if isinstance(attribute, Binned):
        labels = attribute.labels()
        places: dict[Value, int] = {label: cell for cell, label in enumerate(labels)}
        for value in values:
            if value not in places:
                near = hint(value, labels)
                raise Unfit(
                    f"attribute {name!r} holds bins, which {short(value)} does not name{near}; "
                    f"use {listing(labels)}, or compare by < and >= at an edge"
                )
        return [places[value] for value in values]
    if isinstance(attribute, Integer) and isinstance(values[0], bool):
        raise Unfit(f"attribute {name!r} holds numbers, not {str(values[0]).upper()}")
    try:
        found: list[int] = attribute.cells(values).tolist()
        return found
    except (SchemaError, DataError) as error:
        raise Unfit(f"attribute {name!r}: {error}") from error


def _number(name: str, attribute: Attribute, value: Value) -> int | float:
    if not attribute.numeric and not (isinstance(attribute, Categorical) and attribute.type == "integer"):
        some = listing([attribute.label(cell) for cell in range(min(attribute.inner_size, 12))])
        raise Unfit(f"attribute {name!r} holds labels, which have no order; use =, <> or IN with {some}")
    number = number_of(value) if isinstance(value, str) else value
    if number is None or isinstance(number, bool):
        raise Unfit(f"attribute {name!r} holds numbers, and {short(value)} is none")
    return number


def number_of(text: str) -> int | float | None:
    """The finite number that a text spells, exactly if it is whole, or None."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _refuse_many_cells(name: str, attribute: Attribute) -> None:
    if attribute.size > MASK_CELLS:
        raise Unfit(
            f"attribute {name!r} has {attribute.size:,} cells; conditions select cells one by one, up to "
            f"{MASK_CELLS:,}"
        )
