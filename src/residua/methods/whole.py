"""One attribute kept whole: its cells are measured as one matrix says, and only the others are split.

A person with one record in each cell of an attribute costs a centred block as much as several records in one
cell, and a matrix of that attribute whose columns are at right angles no more than one record each (claim
K-012). With the matrix `M` of the attribute given, a table that asks `W` of it asks of the others what it
does, `tr(W (M'M)^-1 W')` times as heavily; the best measurements of the others are those of that workload
(claim M-020).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from residua._arrays import Array
from residua._limits import WHOLE_CELLS
from residua.answering.blocks import Layer, Shape
from residua.linalg.matrices import independent_rows, pseudo_inverse
from residua.methods.blocks import Optimal
from residua.methods.draft import Draft
from residua.workload import Table, TableRun, Workload


def whole_draft(work: Workload, at: int, rows: Array, drafting: Callable[[Workload], Draft]) -> Draft | None:
    """The draft that measures square `rows` of one attribute times what `drafting` measures of the others.

    None where queries are on that attribute and another together, or the others are seen by classes.
    """
    rows = rows / np.sqrt(np.max(np.sum(rows * rows, axis=0)))
    others = _others(work, at, pseudo_inverse(rows))
    if others is None:
        return None
    draft = drafting(others)
    strategy = draft.strategy
    if strategy.coarsened:
        return None
    shapes = (*strategy.shapes, Shape.independent((rows.shape[1],), rows))
    layers = tuple(lifted for layer in strategy.layers for lifted in _lifted(layer, at, len(shapes) - 1))
    lifted = replace(strategy, shapes=shapes, layers=layers, memory=type(strategy.memory)())
    return replace(draft, strategy=lifted, lower_bound=0.0, uniform_total=None)


def demand(work: Workload, at: int) -> Array:
    """Rows that ask of one attribute what all tables together do, weighted as they are."""
    found = []
    for part in work.parts:
        queries = _queries(part, at)
        found.append(
            np.sqrt(part.weight) * (np.ones((1, work.schema.sizes[at])) if queries is None else queries)
        )
    return np.concatenate(found)


def _queries(part: Table | TableRun, at: int) -> Array | None:
    factors = part.factors
    return next((own.queries.root() for own in factors if own is not None and own.attributes == (at,)), None)


def _others(work: Workload, at: int, inverse: Array) -> Workload | None:
    """What the tables ask of all other attributes, by how heavily they ask it."""
    total = float(np.sum(inverse.sum(axis=0) ** 2))
    parts: list[Table | TableRun] = []
    for part in work.parts:
        queries = _queries(part, at)
        if queries is None and at in part.attributes:
            return None
        asked = total if queries is None else float(np.sum((queries @ inverse) ** 2))
        parts += _without(part, at, asked, total)
    return Workload(work.schema, tuple(parts))


def _without(part: Table | TableRun, at: int, asked: float, total: float) -> Iterator[Table | TableRun]:
    """The tables without one attribute; those that have it are asked so much of it, the others the total."""
    if isinstance(part, Table):
        kept = tuple(factor for factor in part.factors if factor.attributes != (at,))
        yield replace(part, factors=kept, weight=part.weight * asked)
        return
    has = (part.subsets == at).any(axis=1)
    for rows, heavy in ((~has, total), (has, asked)):
        if rows.any():
            subsets = part.subsets[rows]
            narrow = subsets[subsets != at].reshape(len(subsets), -1)
            yield replace(part.take(np.flatnonzero(rows)), subsets=narrow, weight=part.weight * heavy)


def _lifted(layer: Layer, at: int, number: int) -> Iterator[Layer]:
    """The blocks of a layer with one more attribute, of which each measures the shape of that number."""
    places = (layer.subsets < at).sum(axis=1)
    for place in np.unique(places).tolist():
        some = layer.take(places == place)
        own = tuple(tuple(each + (each >= place) for each in axes) for axes in layer.layout)
        yield replace(
            some,
            subsets=np.insert(some.subsets, place, at, axis=1).astype(np.int32),
            layout=(*own, (place,)),
            shapes=np.column_stack([some.shapes, np.full(len(some.noise), number)]),
        )


def wholes(work: Workload, at: int, gap: float) -> Iterator[Array]:
    """Square matrices by which an attribute may be kept whole; none where it has many cells."""
    size = work.schema.sizes[at]
    if size <= WHOLE_CELLS:
        yield np.eye(size)
        asked = independent_rows(demand(work, at))
        if len(asked) == size:
            yield Optimal().solve(asked, (size,), (0,), gap, "an attribute").strategy
