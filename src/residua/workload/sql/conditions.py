"""WHERE: conditions on columns to the cells where they hold, attribute by attribute where they come apart.

Conditions follow SQL's logic of three values: a cell where a condition is neither true nor false stays out
of both the condition and its negation. What ties several columns together looks only at classes of each one's
cells, so it is held by classes, whatever the number of cells (claim H-040).
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sqlglot import exp

from residua._arrays import Flags
from residua._limits import CELL_CLASSES
from residua.errors import SchemaError, retold
from residua.linalg.classes import Classes, coarsest, common_refinement, spread_over
from residua.schema import Attribute, Categorical
from residua.workload.sql.cells import SIGN_OF, Values, among_values, cellwise, compared_values, like_values
from residua.workload.sql.comparing import Unfit, Value, among, compared, missing, number_of
from residua.workload.sql.reading import Columns, bare, day_in, quoted, shown
from residua.workload.views import cells_of_classes

SUPPORTED = (
    "conditions are =, <>, <, <=, >, >=, IN, LIKE and BETWEEN on a column and constants, AND, OR and NOT"
)
LONGEST = 1_000  # letters of a condition that the words of a query repeat

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Cells of some attributes (positions, ascending), as combinations of classes of each attribute's cells.

    `text` is the SQL that left them, where that is about several attributes.
    """

    attributes: tuple[int, ...]
    partitions: tuple[Classes, ...]
    mask: Flags  # (number of classes...)
    text: str = ""

    @property
    def cells(self) -> Flags:
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
    cells: Flags  # (cells,)

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
        text = " AND ".join(_spelt(*parts[at]) for at in linked) if len(whole.attributes) > 1 else ""
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
    inside = f"({shown(node)})" if isinstance(node, exp.And | exp.Or) else shown(node)
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
    with columns.source.placing(node, Unfit):
        column, (true, false) = _single(columns, node)
    position, _ = columns.schema.resolve(column)
    columns.source.look_at(node, columns.schema.sizes[position])
    cells = false if negated else true
    whole = cells.size == columns.schema.sizes[position]
    return Chosen(position, cells if whole else cells[columns.schema.classes(column)])


def _joined(
    columns: Columns, node: exp.Expression, parts: Iterable[Region | Chosen], *, every: bool
) -> Region | Chosen:
    """Where every one of the parts holds, or else where any does."""
    join = np.logical_and if every else np.logical_or
    alone: dict[int, Flags] = {}
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


def _spread(region: Region, attributes: tuple[int, ...], partitions: Sequence[Classes]) -> Flags:
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


def _single(columns: Columns, node: exp.Expression) -> tuple[str, tuple[Flags, Flags]]:
    """A condition on one column: its name, where it is true and where false."""
    match node:
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            subject, value, mirrored = _sides(columns, node)
            sign = SIGN_OF[type(node)]
            return subject.column, subject.compared(_MIRRORED[sign] if mirrored else sign, value)
        case exp.EQ() | exp.NEQ():
            subject, value, _ = _sides(columns, node)
            equal, other = subject.among([value])
            return subject.column, (equal, other) if isinstance(node, exp.EQ) else (other, equal)
        case exp.In():
            columns.source.allow_only(node, ("this", "expressions"), "with IN; list constants: IN (1, 2)")
            if not node.expressions:
                raise Unfit("IN needs a list of constants, such as IN (1, 2)")
            values = [constant(columns, each) for each in node.expressions]
            subject = Subject.of(columns, node.this)
            return subject.column, subject.among(values)
        case exp.Between():
            columns.source.allow_only(node, ("this", "low", "high"), "with BETWEEN")
            subject = Subject.of(columns, node.this)
            low = subject.compared(">=", constant(columns, node.args["low"]))
            high = subject.compared("<=", constant(columns, node.args["high"]))
            return subject.column, (low[0] & high[0], low[1] | high[1])
        case exp.Like() | exp.ILike() | exp.StartsWith():
            column, texts = cellwise(columns, node.this)
            return column, like_values(texts, node, str(constant(columns, node.expression)))
        case exp.Is() if isinstance(node.expression, exp.Null):
            column = columns.named(node.this, SUPPORTED)
            return column, missing(column, _counted(columns, column))
        case exp.Column():
            column = columns.named(node, SUPPORTED)
            match _counted(columns, column):
                case Categorical(type="boolean", values=labels) as own if True in labels:
                    return column, among(column, own, [True])
            raise Unfit(f"attribute {column!r} is not a condition by itself; compare it with a constant")
    raise Unfit(f"{quoted(node)} is not supported in a condition; {SUPPORTED}")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a condition is about: a column, or an expression of one with a value for each of its cells."""

    columns: Columns
    column: str
    values: Values | None = None

    @classmethod
    def of(cls, columns: Columns, node: exp.Expression) -> "Subject":
        """The subject that an expression is."""
        node = bare(node)
        if isinstance(node, exp.Column) or node.find(exp.Column) is None or node.find(exp.Predicate):
            return cls(columns, columns.named(node, SUPPORTED))
        return cls(columns, *cellwise(columns, node))

    def compared(self, sign: str, value: Value) -> tuple[Flags, Flags]:
        """Where the comparison with a constant is true, and where it is false."""
        if self.values is None:
            return compared(self.column, _counted(self.columns, self.column), sign, value)
        return compared_values(self.values, sign, value)

    def among(self, values: Sequence[Value]) -> tuple[Flags, Flags]:
        """Where it is one of some constants, and where it is none of them."""
        if self.values is None:
            return among(self.column, _counted(self.columns, self.column), values)
        return among_values(self.values, values)


def _counted(columns: Columns, name: str) -> Attribute:
    """The attribute of a name, by the cells that conditions look at: of numbers, bins."""
    with retold(SchemaError, Unfit):
        return columns.schema.counted(name)


def _sides(columns: Columns, node: exp.Expression) -> tuple[Subject, Value, bool]:
    """The subject, the constant, and whether the constant comes first."""
    left, right = bare(node.this), bare(node.expression)
    mirrored = right.find(exp.Column) is not None and left.find(exp.Column) is None
    subject, other = (right, left) if mirrored else (left, right)
    return Subject.of(columns, subject), constant(columns, other), mirrored


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
    elif node.find(exp.Select):
        raise columns.refusal(
            node, "an answer cannot choose records; ask for it first, and write the number here"
        )
    raise columns.refusal(node, f"{quoted(node)} is not a constant that is supported; {SUPPORTED}")
