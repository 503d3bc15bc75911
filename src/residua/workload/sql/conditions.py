"""WHERE: conditions on columns to the cells where they hold, attribute by attribute where they come apart.

Conditions follow SQL's logic of three values: a cell where a condition is neither true nor false stays out
of both the condition and its negation.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from residua.errors import WorkloadError
from residua.schema import Categorical
from residua.workload.sql.columns import Columns
from residua.workload.sql.reading import bare, shown
from residua.workload.sql.values import Mask, Value, among, compared, number_of

MOST_JOINT_CELLS = 50_000

SUPPORTED = "conditions are =, <>, <, <=, >, >=, IN and BETWEEN on a column and constants, AND, OR and NOT"

_SIGNS: dict[type[exp.Expression], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Where a condition on some attributes (positions, ascending) is true and where false, an axis each."""

    attributes: tuple[int, ...]
    true: Mask  # (sizes...)
    false: Mask  # (sizes...)

    def negated(self) -> "Truth":
        """The condition's negation."""
        return Truth(self.attributes, self.false, self.true)


@dataclass(frozen=True, slots=True, eq=False)
class Restriction:
    """The cells of some attributes that a WHERE leaves; `text` is the SQL where there are several."""

    attributes: tuple[int, ...]
    mask: Mask  # (sizes...)
    text: str


def restrictions(columns: Columns, where: exp.Expression) -> list[Restriction]:
    """A WHERE as restrictions on disjoint attributes, all of which have to hold."""
    found = [
        (_truth(columns, node, negated), _spelt(node, negated)) for node, negated in _conjuncts(where, False)
    ]
    pieces: list[Restriction] = []
    for chain in _linked([truth for truth, _ in found]):
        text = " AND ".join(found[at][1] for at in chain)
        attributes = _union(found[at][0] for at in chain)
        _refuse_large(columns, where, attributes)
        mask = np.ones([columns.sizes[at] for at in attributes], dtype=np.bool_)
        for at in chain:
            mask &= _spread(found[at][0].true, found[at][0].attributes, attributes)
        pieces += _apart(Restriction(attributes, mask, text))
    if not all(piece.mask.any() for piece in pieces):
        raise columns.source.refusal(where, "no cell of the schema meets this WHERE; all counts are zero")
    return [piece for piece in pieces if not piece.mask.all()]


def truth_of(columns: Columns, node: exp.Expression) -> Truth:
    """Where a condition is true and where it is false."""
    return _truth(columns, node, False)


def _conjuncts(whole: exp.Expression, inverted: bool) -> list[tuple[exp.Expression, bool]]:
    """The conditions, and whether each is negated, whose AND is the whole (or its negation)."""
    found, waiting = [], [(whole, inverted)]
    while waiting:
        node, negated = waiting.pop()
        node = bare(node)
        if isinstance(node, exp.Not):
            waiting.append((node.this, not negated))
        elif isinstance(node, exp.Or if negated else exp.And):
            waiting += [(node.expression, negated), (node.this, negated)]
        else:
            found.append((node, negated))
    return found


def _spelt(node: exp.Expression, negated: bool) -> str:
    joined = isinstance(node, exp.And | exp.Or)
    inside = f"({shown(node)})" if joined else shown(node)
    return f"NOT {inside}" if negated else inside


def _linked(truths: Sequence[Truth]) -> list[list[int]]:
    """The conditions in groups that share no attribute with each other."""
    chains: list[tuple[set[int], list[int]]] = []
    for number, truth in enumerate(truths):
        touching = [chain for chain in chains if chain[0] & set(truth.attributes)]
        chains = [chain for chain in chains if chain not in touching]
        reach = set(truth.attributes).union(*(chain[0] for chain in touching))
        chains.append((reach, sorted([number, *(at for chain in touching for at in chain[1])])))
    return sorted(numbers for _, numbers in chains)


def _apart(whole: Restriction) -> Iterator[Restriction]:
    """The restriction with every attribute split off whose own cells are all that matters of it."""
    attributes, mask = list(whole.attributes), whole.mask
    for attribute in whole.attributes:
        if len(attributes) == 1:
            break
        axis = attributes.index(attribute)
        own = mask.any(axis=tuple(at for at in range(mask.ndim) if at != axis), keepdims=True)
        rest = mask.any(axis=axis, keepdims=True)
        if np.array_equal(own & rest, mask):
            yield Restriction((attribute,), own.reshape(-1), whole.text)
            mask = rest.reshape([size for at, size in enumerate(mask.shape) if at != axis])
            attributes.remove(attribute)
    yield Restriction(tuple(attributes), mask, whole.text)


def _truth(columns: Columns, node: exp.Expression, negated: bool) -> Truth:
    node = bare(node)
    if isinstance(node, exp.Not):
        return _truth(columns, node.this, not negated)
    if isinstance(node, exp.And | exp.Or):
        found = _joined(columns, node)
    else:
        try:
            found = _single(columns, node)
        except _Unfit as error:
            raise columns.source.refusal(node, str(error)) from error
    return found.negated() if negated else found


def _joined(columns: Columns, node: exp.And | exp.Or) -> Truth:
    """AND or OR of several conditions; OR is the negation of the AND of the negations."""
    either = isinstance(node, exp.Or)
    parts = [_truth(columns, part, negated) for part, negated in _conjuncts(node, either)]
    attributes = _union(parts)
    _refuse_large(columns, node, attributes)
    sizes = [columns.sizes[at] for at in attributes]
    true, false = np.ones(sizes, dtype=np.bool_), np.zeros(sizes, dtype=np.bool_)
    for part in parts:
        true &= _spread(part.true, part.attributes, attributes)
        false |= _spread(part.false, part.attributes, attributes)
    both = Truth(attributes, true, false)
    return both.negated() if either else both


def _union(parts: "Iterator[Truth] | Sequence[Truth]") -> tuple[int, ...]:
    return tuple(sorted({attribute for part in parts for attribute in part.attributes}))


def _spread(mask: Mask, own: tuple[int, ...], attributes: tuple[int, ...]) -> Mask:
    """The mask with an axis of length one for each attribute that it does not look at."""
    sizes = iter(mask.shape)
    return mask.reshape([next(sizes) if at in own else 1 for at in attributes])


def _refuse_large(columns: Columns, node: exp.Expression, attributes: tuple[int, ...]) -> None:
    cells = math.prod(columns.sizes[at] for at in attributes)
    if len(attributes) > 1 and cells > MOST_JOINT_CELLS:
        names = " x ".join(columns.schema.names[at] for at in attributes)
        raise columns.source.refusal(
            node,
            f"this condition ties {names} together, which have {cells:,} cells, more than the "
            f"{MOST_JOINT_CELLS:,} that one condition can look at; conditions joined by AND come apart: ask "
            "for the counts of A, of B and of A AND B, which are products, and count A OR B as "
            "A + B - (A AND B)",
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
            return Truth((column,), low.true & high.true, low.false | high.false)
        case exp.Is():
            raise _Unfit(
                "IS is not supported: nulls follow the schema's policy (outside=), and with 'other' they are "
                "counted in the cell '(other)'"
            )
        case exp.Column():
            return _flag(columns, columns.position(node, SUPPORTED))
    raise _Unfit(f"{shown(node)!r} is not supported in a condition; {SUPPORTED}")


def _ordered(columns: Columns, column: int, sign: str, value: Value) -> Truth:
    schema = columns.schema
    try:
        return Truth((column,), *compared(schema.names[column], schema.attributes[column], sign, value))
    except WorkloadError as error:
        raise _Unfit(str(error)) from error


def _one_of(columns: Columns, column: int, values: Sequence[Value]) -> Truth:
    schema = columns.schema
    try:
        return Truth((column,), *among(schema.names[column], schema.attributes[column], values))
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
    raise columns.source.refusal(node, f"{shown(node)!r} is not a constant that is supported; {SUPPORTED}")
