"""Families that add up what numbers are: sums and moments, and several families asked at once (claim U-002).

By default the variance of a sum is weighed by one over the square of the largest value, so that a sum is as
important as a count; a weight of the table multiplies that, and targets are in the sum's own unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array, Indices
from residua._limits import MATRIX_ENTRIES
from residua.errors import SchemaError, WorkloadError, retold
from residua.schema import Attribute, Binned, Integer, Number
from residua.workload.explicit import Explicit
from residua.workload.queries import Family, Queries


@dataclass(frozen=True, slots=True, repr=False)
class Moment(Family):
    """The family that adds up a power of a number; of power 0 it counts the records that have one."""

    power: int = 1

    def bind(self, *attributes: Attribute, names: Sequence[str] = ()) -> Queries:
        (attribute,) = attributes
        return _sums(self.power, self.word, attribute, *names)


def moment(power: int) -> Moment:
    """One query: the sum of a power of a number over all records; `moment(0)` counts those that have one.

    >>> from residua.schema import Number
    >>> moment(2).bind(Number(0, 10, step=1, degree=2)).matrix().tolist()
    [[0.0, 0.0, 100.0]]
    """
    if isinstance(power, bool) or not isinstance(power, int) or power < 0:
        raise WorkloadError(f"moment({power!r}): a power is a whole number from 0 on")
    word = "sum" if power == 1 else f"moment({power})"
    return Moment(word, lambda attributes, _: _sums(power, word, attributes[0]), of_values=True, power=power)


def _sums(power: int, word: str, attribute: Attribute, name: str = "value") -> Queries:
    with retold(SchemaError, WorkloadError, f"attribute {name!r}: {word} "):
        values, largest = attribute.moment(power), float(np.abs(attribute.moment(1)).max())
    if not values.any():
        raise WorkloadError(f"attribute {name!r}: {word} of {attribute!r} is always zero")
    weights = np.array([largest ** (-2.0 * power)])
    words, adds = (moment_words(power, name),), (power_words(power, name),)
    return Explicit((attribute.size,), values[None], weights, words, word, adds)


def moment_words(power: int, name: str) -> str:
    """What the sum of a power of a number is called."""
    return f"sum of {power_words(power, name)}" if power else f"count of {name}"


def power_words(power: int, name: str) -> str:
    """A power of a number; nothing where it is one, so that records are counted."""
    return {0: "", 1: name}.get(power, f"{name}^{power}")


sum_of = moment(1)
"""One query: the sum of a number over all records; missing values add nothing."""


def stacked(parts: Sequence[Queries], attributes: Sequence[Attribute], names: Sequence[str]) -> Queries:
    """The queries of several families on the same attributes, one after the other."""
    if sum(each.count for each in parts) * parts[0].cells > MATRIX_ENTRIES:
        raise WorkloadError(f"{names[0]!r} is asked too much for one table; ask it in several")
    rows = np.concatenate([each.matrix() for each in parts])
    weights = np.concatenate([each.every_weight for each in parts])
    words = tuple(each.describe(at, names, attributes) for each in parts for at in range(each.count))
    adds = tuple(own for each in parts for own in each.adds or ("",) * each.count)
    title = f"[{', '.join(each.title for each in parts)}]"
    return Explicit(parts[0].sizes, rows, weights, words, title, adds if any(adds) else None)


def cell_numbers(name: str, attribute: Attribute, *, power: int = 1, ends: bool = False) -> Array:
    """The number, to a power, that each cell counts as, (cells,); `(other)` counts nothing.

    Bins count at their declared values, at their middles, or at their upper ends.
    """
    if isinstance(attribute, Number) and ends:
        if not attribute.binned:
            raise WorkloadError(
                f"{name!r}: quantiles of {attribute!r} are where its bins end; give it bins=[...]"
            )
        return np.array([float(edge) for edge in attribute.edges[1:]])
    valued = isinstance(attribute, Binned) and attribute.values and not ends
    if valued or isinstance(attribute, Number | Integer):
        with retold(SchemaError, WorkloadError, f"{name!r}: a sum of powers "):
            return attribute.moment(power)
    if not isinstance(attribute, Binned) or attribute.above:
        what = "its last bin has no end" if isinstance(attribute, Binned) else "its cells are no numbers"
        raise WorkloadError(f"{name!r}: {what}; say with values= what each cell counts as")
    edges = np.array(attribute.edges, dtype=np.float64)
    found = edges[1:] if ends else (edges[1:] + edges[:-1]) / 2
    return np.append(found**power, np.zeros(attribute.size - attribute.inner_size))


def quantile_rows(
    name: str, attribute: Attribute, orders: Sequence[float], *, smooth: bool = False
) -> tuple[Array, Array, bool]:
    """Queries whose answers cross zero at quantiles (claim F-002), the points that they are at, and whether
    something is between those.

    For each order and point: the count up to the point less its part of all that have a value, shape
    (orders * points, cells). Points are cells of whole numbers, and upper ends of bins; with `smooth`, the
    lower end of the first bin too, between which and the next ones the records are taken as spread evenly.
    """
    found = cell_numbers(name, attribute, ends=True)
    cells = len(found) if isinstance(attribute, Number) else attribute.inner_size
    steps, points = np.tril(np.ones((cells, cells))), found[:cells]
    if not isinstance(attribute, Binned | Number):
        smooth = False
    elif smooth:
        steps = np.concatenate([np.zeros((1, cells)), steps])
        points = np.append(float(attribute.edges[0]), points)
    rows = np.concatenate([steps - order for order in orders])
    known = np.append(rows, np.zeros((len(rows), 1)), axis=1)  # a missing value has no part in it
    return known[:, np.minimum(attribute.counted_by, cells)], points, smooth


def first_crossing(curves: Array, points: Array, smooth: bool) -> Array:
    """The point where each of some curves, (curves, points), is first at zero; the last where none is."""
    reached = curves >= 0
    at = np.where(reached.any(axis=1), reached.argmax(axis=1), len(points) - 1)
    return _between(curves, points, at) if smooth else points[at]


def last_crossing(curves: Array, points: Array, smooth: bool) -> Array:
    """The point from which on each curve is no more below zero; the first where it never is."""
    below = curves < 0
    after = np.minimum(len(points) - below[:, ::-1].argmax(axis=1), len(points) - 1)
    at = np.where(below.any(axis=1), after, 0)
    return _between(curves, points, at) if smooth else points[at]


def _between(curves: Array, points: Array, at: Indices) -> Array:
    """Where lines between the points before and these cross zero; these points where they do not."""
    before = np.maximum(at - 1, 0)
    low, high = (np.take_along_axis(curves, each[:, None], 1)[:, 0] for each in (before, at))
    crosses = (low < 0) & (high >= 0)
    part = np.where(crosses, -low / np.where(crosses, high - low, 1.0), 1.0)
    return np.asarray(points[before] + part * (points[at] - points[before]))
