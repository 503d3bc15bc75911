"""WHERE: conditions on columns to the cells where they hold, attribute by attribute where they come apart.

Conditions follow SQL's logic of three values: a cell where a condition is neither true nor false stays out
of both the condition and its negation. What ties several columns together looks only at kinds of each one's
cells, so it is held by kinds, whatever the number of cells (claim H-040).
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from residua._limits import CELL_CLASSES
from residua.errors import WorkloadError
from residua.linalg.classes import Classes, spread_over, together, told_apart
from residua.schema import Categorical
from residua.workload.sql.columns import Columns
from residua.workload.sql.reading import bare, quoted, shown
from residua.workload.sql.values import Mask, Value, among, compared, number_of
from residua.workload.views import cells_of_classes

SUPPORTED = "conditions are =, <>, <, <=, >, >=, IN and BETWEEN on a column and constants, AND, OR and NOT"

LONGEST = 1_000  # letters of a condition that the words of a query repeat

_SIGNS: dict[type[exp.Expression], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Where a condition on one attribute is true and where false."""

    attribute: int
    true: Mask  # (cells,)
    false: Mask  # (cells,)

    def negated(self) -> "Truth":
        """The condition's negation."""
        return Truth(self.attribute, self.false, self.true)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Cells of some attributes (positions, ascending), as combinations of kinds of each attribute's cells."""

    attributes: tuple[int, ...]
    kinds: tuple[Classes, ...]
    mask: Mask  # (number of kinds...)

    @property
    def cells(self) -> Mask:
        """The cells of the one attribute there is, `(cells,)`."""
        (kinds,) = self.kinds
        return np.asarray(self.mask[kinds.classes])


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Cells of one attribute, one by one: as much as a condition on one column needs."""

    attribute: int
    cells: Mask  # (cells,)

    @property
    def attributes(self) -> tuple[int, ...]:
        """The one attribute."""
        return (self.attribute,)

    def region(self) -> Region:
        """The same by kinds of cells."""
        kinds = Classes(self.cells.astype(np.int64))
        return Region((self.attribute,), (kinds,), self.cells[kinds.first])


@dataclass(frozen=True, slots=True, eq=False)
class Restriction(Region):
    """The cells of some attributes that a WHERE leaves; `text` is the SQL where there are several."""

    text: str


def restrictions(columns: Columns, where: exp.Expression) -> list[Restriction]:
    """A WHERE as restrictions on disjoint attributes, all of which have to hold."""
    parts = _chain(where, False, every=True)
    found = [_region(columns, node, negated) for node, negated in parts]
    pieces: list[Restriction] = []
    for linked in _linked(found):
        whole = _by_kinds(_joined(columns, where, [found[at] for at in linked], every=True))
        tied = len(whole.attributes) > 1
        text = " AND ".join(_spelt(*parts[at]) for at in linked) if tied else ""
        text = textwrap.shorten(text, LONGEST, placeholder=" ...")
        pieces += _apart(Restriction(whole.attributes, whole.kinds, whole.mask, text))
    if not all(piece.mask.any() for piece in pieces):
        raise columns.source.refusal(where, "no cell of the schema meets this WHERE; all counts are zero")
    return [piece for piece in pieces if not piece.mask.all()]


def region_of(columns: Columns, node: exp.Expression) -> Region | Chosen:
    """Where a condition is true."""
    return _region(columns, node, False)


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


def _apart(whole: Restriction) -> Iterator[Restriction]:
    """The restriction with every attribute split off whose own cells are all that matters of it."""
    kinds, mask = dict(zip(whole.attributes, whole.kinds, strict=True)), whole.mask
    for attribute in whole.attributes:
        if len(kinds) == 1:
            break
        axis = list(kinds).index(attribute)
        own = mask.any(axis=tuple(at for at in range(mask.ndim) if at != axis), keepdims=True)
        rest = mask.any(axis=axis, keepdims=True)
        if np.array_equal(own & rest, mask):
            yield Restriction((attribute,), (kinds.pop(attribute),), own.reshape(-1), whole.text)
            mask = rest.reshape([size for at, size in enumerate(mask.shape) if at != axis])
    yield Restriction(tuple(kinds), tuple(kinds.values()), mask, whole.text)


def _region(columns: Columns, node: exp.Expression, negated: bool) -> Region | Chosen:
    """Where a condition, or its negation, is true; NOT is moved inwards until it meets one column."""
    node = bare(node)
    if isinstance(node, exp.Not):
        return _region(columns, node.this, not negated)
    if isinstance(node, exp.And | exp.Or):
        every = isinstance(node, exp.And) != negated
        parts = (_region(columns, part, inner) for part, inner in _chain(node, negated, every=every))
        return _joined(columns, node, parts, every=every)
    try:
        truth = _single(columns, node)
    except _Unfit as error:
        raise columns.source.refusal(node, str(error)) from error
    columns.source.look_at(node, columns.sizes[truth.attribute])
    return Chosen(truth.attribute, truth.false if negated else truth.true)


def _by_kinds(region: Region | Chosen) -> Region:
    return region if isinstance(region, Region) else region.region()


def _joined(
    columns: Columns, node: exp.Expression, parts: Iterable[Region | Chosen], *, every: bool
) -> Region | Chosen:
    """Where every one of the parts holds, or else where any does."""
    join = np.logical_and if every else np.logical_or
    alone: dict[int, Mask] = {}
    regions = []
    for part in parts:
        if len(part.attributes) > 1:
            regions.append(_by_kinds(part))
        else:
            (at,) = part.attributes
            alone[at] = join(alone[at], part.cells) if at in alone else part.cells
    if not regions and len(alone) == 1:
        return Chosen(*alone.popitem())
    regions += [Chosen(at, cells).region() for at, cells in alone.items()]
    if len(regions) == 1:
        return regions[0]
    attributes = tuple(sorted({attribute for region in regions for attribute in region.attributes}))
    kinds = [
        together([r.kinds[r.attributes.index(at)] for r in regions if at in r.attributes])
        for at in attributes
    ]
    _refuse_large(columns, node, attributes, cells_of_classes(kinds))
    mask = np.full([own.count for own in kinds], every, dtype=np.bool_)
    for region in regions:
        mask = join(mask, _spread(region, attributes, kinds))
    return Region(attributes, *_fewer(kinds, mask))


def _spread(region: Region, attributes: tuple[int, ...], kinds: Sequence[Classes]) -> Mask:
    """The region's mask over finer kinds, an axis of length one for each attribute it does not look at."""
    finer = [kinds[attributes.index(at)] for at in region.attributes]
    inner = [Classes(own.classes[each.first]) for own, each in zip(region.kinds, finer, strict=True)]
    sizes = iter([each.count for each in finer])
    shape = [next(sizes) if at in region.attributes else 1 for at in attributes]
    return spread_over(region.mask, inner).reshape(shape)


def _fewer(kinds: Sequence[Classes], mask: Mask) -> tuple[tuple[Classes, ...], Mask]:
    """The kinds that the mask tells apart, and the mask over those."""
    found = []
    for axis, own in enumerate(kinds):
        alike = told_apart(mask, axis)
        mask = np.take(mask, alike.first, axis=axis)
        found.append(Classes(alike.classes[own.classes]))
    return tuple(found), mask


def _refuse_large(columns: Columns, node: exp.Expression, attributes: tuple[int, ...], kinds: int) -> None:
    if kinds > CELL_CLASSES:
        names = " x ".join(columns.schema.names[at] for at in attributes)
        raise columns.source.refusal(
            node,
            f"this condition ties {names} together in {kinds:,} combinations of kinds of cells, more than "
            f"the {CELL_CLASSES:,} that are held; conditions joined by AND come apart, and so does NOT (A OR "
            "B): count that and the total, and take A OR B as their difference",
        )


class _Unfit(WorkloadError):
    """A comparison that makes no sense; the place is added by the one who knows it."""


def _single(columns: Columns, node: exp.Expression) -> Truth:
    """A condition on one column."""
    for kind, sign in _SIGNS.items():
        if isinstance(node, kind):
            column, value, mirrored = _sides(columns, node)
            return _ordered(columns, column, _MIRRORED[sign] if mirrored else sign, value)
    match node:
        case exp.EQ() | exp.NEQ():
            column, value, _ = _sides(columns, node)
            equal = _one_of(columns, column, [value])
            return equal if isinstance(node, exp.EQ) else equal.negated()
        case exp.In():
            columns.source.allow_only(node, ("this", "expressions"), "with IN; list constants: IN (1, 2)")
            if not node.expressions:
                raise _Unfit("IN needs a list of constants, such as IN (1, 2)")
            values = [constant(columns, each) for each in node.expressions]
            return _one_of(columns, columns.position(node.this, SUPPORTED), values)
        case exp.Between():
            columns.source.allow_only(node, ("this", "low", "high"), "with BETWEEN")
            column = columns.position(node.this, SUPPORTED)
            low = _ordered(columns, column, ">=", constant(columns, node.args["low"]))
            high = _ordered(columns, column, "<=", constant(columns, node.args["high"]))
            return Truth(column, low.true & high.true, low.false | high.false)
        case exp.Is():
            raise _Unfit(
                "IS is not supported: nulls follow the schema's policy (outside=), and with 'other' they are "
                "counted in the cell '(other)'"
            )
        case exp.Column():
            return _flag(columns, columns.position(node, SUPPORTED))
    raise _Unfit(f"{quoted(node)} is not supported in a condition; {SUPPORTED}")


def _ordered(columns: Columns, column: int, sign: str, value: Value) -> Truth:
    schema = columns.schema
    try:
        return Truth(column, *compared(schema.names[column], schema.attributes[column], sign, value))
    except WorkloadError as error:
        raise _Unfit(str(error)) from error


def _one_of(columns: Columns, column: int, values: Sequence[Value]) -> Truth:
    schema = columns.schema
    try:
        return Truth(column, *among(schema.names[column], schema.attributes[column], values))
    except WorkloadError as error:
        raise _Unfit(str(error)) from error


def _flag(columns: Columns, column: int) -> Truth:
    """A column of booleans that is a condition by itself."""
    attribute = columns.schema.attributes[column]
    if isinstance(attribute, Categorical) and attribute.type == "boolean" and True in attribute.values:
        return _one_of(columns, column, [True])
    name = columns.schema.names[column]
    raise _Unfit(f"attribute {name!r} is not a condition by itself; compare it with a constant")


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
    elif isinstance(node, exp.Null):
        raise columns.source.refusal(node, "no comparison with NULL is ever true; nulls follow the schema")
    raise columns.source.refusal(node, f"{quoted(node)} is not a constant that is supported; {SUPPORTED}")
