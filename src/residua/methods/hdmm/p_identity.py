"""Quasi-Newton steps downhill over numbers that must not be negative."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from residua._arrays import Array, Integers
from residua.linalg.matrices import inverse_gram, threads_for
from residua.methods.hdmm.demand import Chain, chain_of
from residua.privacy import NoiseLaw
from residua.solve.cells import solve_cells
from residua.solve.newton import quasi_newton


def downhill(
    value_of: Callable[[Array], tuple[float, Array]],
    start: Array,
    *,
    steps: int,
    gain: float,
    most: float = np.inf,
) -> Array:
    """The point that steps from `start`, of any shape, reach; `value_of` gives a value and its gradient.

    They end where one gains less than `gain`, relative to the value at the start; no number exceeds `most`.
    """

    unit = value_of(start)[0]

    def scaled(flat: Array) -> tuple[float, Array]:
        value, gradient = value_of(flat.reshape(start.shape))
        return value / unit, gradient.reshape(-1) / unit

    flat, bounds = start.reshape(-1), [(0.0, most)] * start.size
    ends = {"maxiter": steps, "maxfun": 4 * steps, "ftol": gain, "gtol": 1e-10}
    return quasi_newton(scaled, flat, bounds=bounds, maxcor=15, **ends).reshape(start.shape)


CELLS_PER_ROW = 16  # there is one weighted sum for so many cells, as in the paper
FEW_CELLS, MANY_CELLS = 128, 512  # up to these every kind of start is tried, and some kinds
MOST_RANDOM = 2_048  # cells up to which a random start is worth its time where cells are in no line
MORE_STARTS = ((0, 0.1), (2, 0.1), (1, 0.3), (1, 1.0), (2, 0.3), (2, 1.0), (4, 0.3), (0, 0.3))
"""Further random starts: how many more weighted sums, and how large they are."""
HEIGHTS = (0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)  # of a strategy for runs of cells, tried as weights
STEPS, STEPS_OF_MANY = 500, 120  # up to MOST_RANDOM cells, and beyond
LARGEST = 1e4  # weight of a cell in a sum: beyond it the cell itself is hardly measured any more
STEP_GAIN = 1e-8  # relative; the search ends where a step gains less
ALIKE = 1e-12  # relative difference of grams that is rounding
GAUSSIAN_GAP = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A strategy at cost 1, (rows, cells), and the total variance `tr(G (A'A)^+)` at noise variance 1."""

    matrix: Array
    value: float
    weights: Array | None = None
    """The T of a p-Identity strategy on the cells that differ, to start from again."""


def opt0(gram: Array, law: NoiseLaw, *, seed: int = 0, start: Array | None = None) -> Found:
    """The best strategy found for a gram matrix, (cells, cells), of which no more than this is asked.

    The same seed gives the same strategy; `start` is the `weights` of one found for a similar gram.
    """
    owner, count = _classes(gram)
    if count == 0:
        raise ValueError("nothing is asked of these cells")
    first = np.array([np.flatnonzero(owner == number)[0] for number in range(count)])
    small = gram[np.ix_(first, first)]
    found = _gaussian(small) if law == "gaussian" else _laplace(small, seed, start)
    if count == len(gram):
        return found
    matrix = np.zeros((len(found.matrix), len(gram)))
    matrix[:, owner >= 0] = found.matrix[:, owner[owner >= 0]]
    return Found(matrix, found.value, found.weights)


def _classes(gram: Array) -> tuple[Integers, int]:
    """For each cell the number of its class, -1 where nothing is asked of it, and how many there are."""
    scale = ALIKE * float(np.abs(gram).max())
    own = np.diagonal(gram)
    owner = np.full(len(gram), -1, dtype=np.int64)
    count = 0
    for cell in np.flatnonzero(own > scale).tolist():
        if owner[cell] < 0:
            # |q_i - q_j|^2 over all queries: zero where each treats the two cells alike.
            apart = own + own[cell] - 2 * gram[cell]
            owner[(apart <= scale) & (owner < 0) & (own > scale)] = count
            count += 1
    return owner, count


def _gaussian(gram: Array) -> Found:
    values, vectors = np.linalg.eigh(gram)
    kept = values > ALIKE * values[-1]
    root = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    with threads_for(len(root)):
        solution = solve_cells(root, GAUSSIAN_GAP).require(GAUSSIAN_GAP, "the solver of one attribute")
    matrix = solution.strategy
    inverse = inverse_gram(matrix)[0]
    return Found(matrix, float(np.sum(gram * inverse)))


def _laplace(gram: Array, seed: int, start: Array | None) -> Found:
    cells = len(gram)
    chain = chain_of(gram)
    order = np.arange(cells) if chain is None else chain.order
    in_line = gram if chain is None else np.ascontiguousarray(gram[np.ix_(order, order)])
    value_of = partial(evaluated, in_line, times=None if chain is None else chain.times)
    starts = _starts(in_line, seed, chain)
    if start is not None and start.shape[1] == cells:
        starts = iter([start[:, order]])
    with threads_for(cells):
        best = min((descended(value_of, each) for each in starts), key=lambda each: value_of(each)[0])
    weights = np.empty_like(best)
    weights[:, order] = best
    return Found(p_identity(weights), value_of(best)[0], weights)


def _starts(gram: Array, seed: int, chain: Chain | None) -> Iterator[Array]:
    """Weights to start from, (p, cells): none, trees and overlapping hats along the cells, random ones."""
    cells = len(gram)
    yield np.zeros((0, cells))
    if cells == 1:
        return
    p = max(1, cells // CELLS_PER_ROW)
    random = np.random.default_rng(seed)
    alike = gram[0, 0] - gram[0, 1]
    if np.abs(gram - gram[0, 1] - alike * np.eye(cells)).max() <= ALIKE * np.abs(gram).max():
        # All cells alike: one sum of all is all that can help, and only its weight is to be found.
        tried = [np.full((1, cells), weight) for weight in np.geomspace(1e-4, 10.0, 60)]
        yield min(tried, key=lambda weights: evaluated(gram, weights)[0])
        return
    if cells <= MANY_CELLS or (chain is None and cells <= MOST_RANDOM):
        yield random.random((p, cells))
    if cells > MANY_CELLS:
        lifted = _lifted(gram, seed)
        yield min((height * lifted for height in HEIGHTS), key=lambda weights: evaluated(gram, weights)[0])
        return
    if cells > CELLS_PER_ROW:
        tree = _tree(cells)
        yield 0.5 * tree + 0.01 * random.random(tree.shape)
    at = (np.arange(cells) + 0.5) / cells * p
    yield 0.3 * np.maximum(0.0, 1.0 - np.abs(at - np.arange(p)[:, None] - 0.5))
    for more, height in MORE_STARTS if cells <= FEW_CELLS else MORE_STARTS[:3]:
        yield height * random.random((p + more, cells))


def _lifted(gram: Array, seed: int) -> Array:
    """The strategy found for runs of 16 cells, every run taken as one cell, as weights on the cells.

    A tree where the queries only compare cells of one run, so that nothing is asked of whole runs.
    """
    cells = len(gram)
    runs = cells // CELLS_PER_ROW
    run = np.arange(cells) * runs // cells
    first = np.searchsorted(run, np.arange(runs))
    shares = 1.0 / np.bincount(run)
    coarse = np.add.reduceat(np.add.reduceat(gram, first, axis=0), first, axis=1)
    coarse = coarse * shares * shares[:, None]
    if np.diagonal(coarse).max() <= ALIKE * np.diagonal(gram).max():
        return _tree(cells)
    return np.asarray(opt0(coarse, "laplace", seed=seed).matrix[:, run])


def _tree(cells: int) -> Array:
    """Sums of about 16 neighbouring cells, of 16 such sums, and so on, (p, cells)."""
    levels = []
    sums = cells // CELLS_PER_ROW
    while sums:
        levels.append(np.arange(sums)[:, None] == np.arange(cells) * sums // cells)
        sums //= CELLS_PER_ROW
    return np.concatenate(levels).astype(np.float64)


def p_identity(weights: Array) -> Array:
    """The p-Identity strategy with these weighted sums, (p, cells), as rows whose columns sum to 1."""
    return np.asarray(np.concatenate([np.eye(weights.shape[1]), weights]) / (1.0 + weights.sum(axis=0)))


def descended(value_of: Callable[[Array], tuple[float, Array]], start: Array) -> Array:
    """The weights that quasi-Newton steps reach from `start`, rows of zeros left out."""
    if not len(start):
        return start
    steps = STEPS if start.shape[1] <= MOST_RANDOM else STEPS_OF_MANY
    weights = downhill(value_of, start, steps=steps, gain=STEP_GAIN, most=LARGEST)
    return np.asarray(weights[weights.max(axis=1) > 0])


def evaluated(
    gram: Array, weights: Array, times: Callable[[Array], Array] | None = None
) -> tuple[float, Array]:
    """`tr(G (A'A)^-1)` of a p-Identity strategy and its gradient in the weights, (p, cells) (claim H-011).

    One product of (p, cells) with (cells, cells), `times` where that is known to be quicker;
    `(A'A)^-1 = D^-1 (I - T'(I + T T')^-1 T) D^-1`.
    """
    p = len(weights)
    sums = 1.0 + weights.sum(axis=0)
    lifted = np.linalg.solve(np.eye(p) + weights @ weights.T, weights)
    through = (lifted * sums) @ gram if times is None else times(lifted * sums)
    own = sums * np.diagonal(gram) - np.einsum("ki,ki->i", weights, through)
    through *= sums
    gradient = (through @ weights.T) @ lifted
    gradient -= through
    gradient += own
    gradient *= 2.0
    return float(sums @ own), gradient
