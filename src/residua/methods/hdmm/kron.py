"""OPT_kron: the best single product found, one axis improved at a time (claim H-012)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Placed, Shape
from residua.linalg.rows import inverse_gram
from residua.methods.draft import Draft, Progress
from residua.methods.hdmm.bounds import lower_bound
from residua.methods.hdmm.p_identity import Found, opt0
from residua.methods.hdmm.products import Axis, Products
from residua.privacy import NoiseLaw
from residua.privacy.laws import unit_variance
from residua.strategy.build import of_blocks
from residua.strategy.strategy import Strategy
from residua.workload import Workload

Array = NDArray[np.float64]

MIXED = (0.0, 0.3, 0.6, 0.9)  # parts of the cost that starts give to totals
ROUNDS = 20
ROUND_GAIN = 1e-5  # relative; axes are improved in turn until a round gains less


def kron(work: Workload, law: NoiseLaw, progress: Progress | None = None) -> Draft:
    """The best product of one strategy per axis that was found, at cost 1."""
    asked = Products.of(work)
    found = best_product(asked, law, progress)
    spans = kind_spans(found) if law == "gaussian" else {}
    return Draft(product_strategy(work, asked, found, law), *lower_bound(work, law), spans=spans)


def kind_spans(found: Sequence[Found]) -> dict[int, NDArray[np.int64] | None]:
    """For strategies that see only kinds of cells, one row of ones and zeros for each kind."""
    spans: dict[int, NDArray[np.int64] | None] = {}
    for at, each in enumerate(found):
        seen = each.matrix[:, np.abs(each.matrix).max(axis=0) > 0]
        kinds = np.unique(seen, axis=1)
        rank = int(np.linalg.matrix_rank(kinds))
        if rank < each.matrix.shape[1]:
            rows = np.array([(each.matrix == kind[:, None]).all(axis=0) for kind in kinds.T], dtype=np.int64)
            spans[at] = rows if rank == len(rows) else None
    return spans


def product_strategy(work: Workload, asked: Products, found: Sequence[Found], law: NoiseLaw) -> Strategy:
    """The product of these strategies, one per axis, with noise that makes it cost 1."""
    factors = [
        Placed(axis.attributes, Shape.of(axis.sizes, each.matrix))
        for axis, each in zip(asked.axes, found, strict=True)
    ]
    return of_blocks(work.schema.sizes, [(factors, unit_variance(law))], law)


def best_product(asked: Products, law: NoiseLaw, progress: Progress | None = None) -> list[Found]:
    """One strategy per axis: the best that is found from plain cells, and from cells mixed with totals."""
    best: list[Found] | None = None
    value = math.inf
    many = len(asked.weights) > 1 and len(asked.axes) > 1
    for part in MIXED if many else MIXED[:1]:
        found = _improved(asked, law, [_mixed(axis, part) for axis in asked.axes], progress)
        if value_of(asked, found) < value:
            best, value = found, value_of(asked, found)
    return best or []


def _mixed(axis: Axis, part: float) -> Array:
    """`tr(G M)` of every family where this part of the cost goes to the total and the rest to the cells."""
    cells, rest = axis.cells, 1.0 - part
    # (rest^2 I + part^2 11')^-1
    shared = part * part / (rest * rest + cells * part * part)
    sums = [(float(np.trace(gram)), float(gram.sum())) for gram in axis.grams]
    return np.array([(own - shared * whole) / (rest * rest) for own, whole in sums])


def value_of(asked: Products, found: Sequence[Found]) -> float:
    """Total weighted variance of a product of strategies at noise variance 1."""
    traces = asked.traces([inverse_gram(each.matrix)[0] for each in found])
    return float(np.sum(asked.weights * _products(asked, traces)))


def _improved(asked: Products, law: NoiseLaw, traces: list[Array], progress: Progress | None) -> list[Found]:
    found: list[Found | None] = [None] * len(asked.axes)
    value = math.inf
    for turn in range(ROUNDS):
        before = value
        for at, axis in enumerate(asked.axes):
            others = asked.weights * _products(asked, traces, without=at)
            shares = np.bincount(asked.families[:, at], others, minlength=len(axis.grams))
            gram = np.asarray(np.tensordot(shares, np.array(axis.grams), axes=1), dtype=np.float64)
            known = found[at]
            new = opt0(gram, law, seed=at, start=None if known is None else known.weights)
            if known is None or new.value < float(np.sum(gram * inverse_gram(known.matrix)[0])):
                found[at] = new
                inverse = inverse_gram(new.matrix)[0]
                traces[at] = np.array([float(np.sum(each * inverse)) for each in axis.grams])
        value = float(np.sum(asked.weights * _products(asked, traces)))
        if progress is not None:
            progress("improving a product strategy", (turn + 1) / ROUNDS)
        if len(asked.weights) == 1 or value > (1 - ROUND_GAIN) * before:
            break
    return [each for each in found if each is not None]


def _products(asked: Products, traces: Sequence[Array], without: int | None = None) -> Array:
    """For each table the product of its traces over all axes, or over all but one, (tables,)."""
    result = np.ones(len(asked.weights))
    for at, each in enumerate(traces):
        if at != without:
            result *= each[asked.families[:, at]]
    return result
