"""What no mechanism can go below, from the queries alone: the lower bound of a certificate, found again.

For weights v >= 0 on cells, `(sum of singular values of R V^1/2)^2 / sum(v)` bounds the total variance of any
mechanism of privacy cost 1 that answers queries with Gram matrix `R'R` (claim S-001), and the same weights
give a mechanism, whose total variance bounds it from the other side (claim X-004). A few steps of a fixed
point make the two meet; no solver of planning is used.
"""

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from residua._arrays import Array
from residua.verify.variances import JOINT_CELLS, Pieces, Tensor, tensor_of
from residua.workload import Table, Workload

Bracket = tuple[float, float]
"""What is proved to be impossible, and what is shown to be possible: total variances at privacy cost 1."""

STEPS, CLOSE = 80, 1e-7  # of the fixed point, and relative width at which it has gone far enough
GRAM_ENTRIES = 200_000_000  # of the Gram matrices of all blocks, over all tables


def over_all_cells(work: Workload) -> Bracket | None:
    """The best of all mechanisms, where the attributes in use have few joint cells."""
    gram = gram_of(work, {at: np.eye(work.schema.sizes[at]) for at in work.attributes})
    return None if gram is None else bracket(gram)


def gram_of(work: Workload, records: Mapping[int, Array]) -> Array | None:
    """Gram matrix of all queries over joint records; None where they are many.

    `records` has the shares that some of each attribute have of its cells, (records, cells).
    """
    used = list(work.attributes)
    sizes = {at: len(records[at]) for at in used}
    if math.prod(sizes.values()) > JOINT_CELLS:
        return None
    total = np.zeros((math.prod(sizes.values()),) * 2)
    for table in work.groups():
        parts = _parts(table)
        if parts is None:
            return None
        asked = {at for attributes, _ in parts for at in attributes}
        own = [
            (attributes, _of_records(rows, [records[at] for at in attributes])) for attributes, rows in parts
        ]
        own += [((at,), np.ones((1, sizes[at]))) for at in used if at not in asked]
        total += table.weight * _gram(own, used)
    return total


def _of_records(rows: Array, records: Sequence[Array]) -> Array:
    for each in records:  # the first axis of cells goes last, over records
        rows = np.tensordot(rows, each, axes=(1, 1))
    return rows


def over_blocks(work: Workload, pieces: Pieces) -> Bracket | None:
    """The best that measures the same centred blocks and adds up their costs (claim M-001)."""
    grams = {attributes: np.zeros((block.cells, block.cells)) for attributes, block in pieces.blocks.items()}
    entries = 0
    for table in work.groups():
        parts = _parts(table)
        if parts is None or any(block.cells > JOINT_CELLS for block in pieces.blocks.values()):
            return None
        for attributes, own in pieces.cut(parts):
            if attributes in grams:
                entries += grams[attributes].size
                if entries > GRAM_ENTRIES:
                    return None
                grams[attributes] += table.weight * _gram(own, pieces.blocks[attributes].attributes)
    known: dict[bytes, Bracket] = {}
    low = high = 0.0
    for gram in grams.values():
        key = np.round(gram, 9).tobytes()
        if key not in known:
            known[key] = bracket(gram)
        low, high = low + math.sqrt(known[key][0]), high + math.sqrt(known[key][1])
    return low**2, high**2


def bracket(gram: Array) -> Bracket:
    """Bounds from below and above on the least total variance at cost 1, as near as a few steps get."""
    return weighed(gram)[:2]


def weighed(gram: Array) -> tuple[float, float, Array]:
    """The same, with the weights of the cells there."""
    low, high = 0.0, math.inf
    cells = np.ones(len(gram))
    for _ in range(STEPS):
        root = np.sqrt(cells)
        values, vectors = np.linalg.eigh(gram * root * root[:, None])
        square_root = np.sqrt(np.maximum(values, 0.0))
        whole = float(square_root.sum())
        if whole == 0:
            return 0.0, 0.0, cells
        slopes = (vectors**2 @ square_root) / cells  # diagonal of V^-1/2 (V^1/2 G V^1/2)^1/2 V^-1/2
        low = max(low, whole**2 / float(cells.sum()))
        high = min(high, whole * float(slopes.max()))
        if high <= low * (1 + CLOSE):
            break
        cells = np.maximum(cells * slopes**1.5, 1e-12 * cells.max())
        cells /= cells.max()
    return low, high, cells


def _parts(table: Table) -> list[Tensor] | None:
    """The factors of a table, rows times the roots of their weights."""
    found = []
    for factor in table.factors:
        part = tensor_of(factor)
        if part is None:
            return None
        attributes, rows = part
        weights = factor.queries.weights
        if weights is not None:
            rows = rows * np.sqrt(weights).reshape(-1, *(1,) * (rows.ndim - 1))
        found.append((attributes, rows))
    return found


def _gram(parts: Sequence[Tensor], attributes: Sequence[int]) -> Array:
    """Gram matrix of every product of one row of each part, cells in the order of these attributes."""
    grams = [np.tensordot(rows, rows, axes=(0, 0)) for _, rows in parts]  # (sizes..., sizes...)
    found = reduce(np.multiply.outer, grams, np.ones(()))
    left: dict[int, int] = {}
    right: dict[int, int] = {}
    at = 0
    for own, _ in parts:
        left |= {attribute: at + place for place, attribute in enumerate(own)}
        right |= {attribute: at + len(own) + place for place, attribute in enumerate(own)}
        at += 2 * len(own)
    order = [left[each] for each in attributes] + [right[each] for each in attributes]
    cells = math.isqrt(found.size)
    return found.transpose(order).reshape(cells, cells)
