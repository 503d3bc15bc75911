"""OPT_0: the best strategy found for one gram matrix; for Laplace noise a p-Identity strategy."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256

import numpy as np

from residua._arrays import Array, Integers
from residua.linalg.grams import inverse_gram
from residua.linalg.matrices import threads_for
from residua.methods.hdmm.demand import Chain, chain_of
from residua.privacy import NoiseLaw
from residua.solve.cells import solve_cells
from residua.solve.descent import downhill

CELLS_PER_ROW = 16  # there is one weighted sum for so many cells, as in the paper
FEW_CELLS, MANY_CELLS = 128, 512  # up to these every kind of start is tried, and some kinds
RANDOM_STARTS = ((1, 0.3), (0, 1.0), (2, 0.3), (0, 0.1), (4, 0.3), (1, 1.0), (2, 0.1), (2, 1.0), (0, 0.3))
"""Random starts: how many more weighted sums than usual, and how large they are."""
HEIGHT = 0.3  # of weights in starts that are not random
FLAT = 0.1  # of random weights on many cells that are in no line, half as many sums as usual
TRIALS = ((30, 6), (100, 3))  # evaluations that every start gets, and how many of them go on
MIDDLE = 224  # cells up to which so many go on
TRIALS_OF_MANY = ((30, 3), (60, 1))  # the same above
MOST_STEPS, LEAST_STEPS, STEPS_TIMES_CELLS = 800, 300, 512_000  # evaluations of the search that goes on
LARGEST = 1e4  # weight of a cell in a sum: beyond it the cell itself is hardly measured any more
STEP_GAIN = 1e-7  # relative; the search ends where a step gains less
ALIKE = 1e-12  # relative difference of grams that is rounding
GAUSSIAN_GAP = 1e-4


@dataclass(frozen=True, eq=False)
class Found:
    """A strategy at cost 1, (rows, cells), and the total variance `tr(G (A'A)^+)` at noise variance 1."""

    matrix: Array
    value: float
    weights: Array | None = None
    """The T of a p-Identity strategy on the cells that differ, to start from again."""
    cell_weights: Array | None = None
    """The same of a strategy for Gaussian noise: the weights of those cells."""

    @cached_property
    def inverse(self) -> Array:
        """`(A'A)^+`, (cells, cells)."""
        return inverse_gram(self.matrix)[0]


def opt0(
    gram: Array,
    law: NoiseLaw,
    *,
    start: Found | None = None,
    known: dict[bytes, Found] | None = None,
    times: Callable[[Array], Array] | None = None,
) -> Found:
    """The best strategy found for a gram matrix, (cells, cells), of which no more than this is asked.

    The same gram gives the same strategy; `start` is one found for a similar gram. What was
    found for multiples of this gram is taken from `known`, and noted there. `times` multiplies rows by the
    gram, where there is a quicker way.
    """
    scale = float(np.abs(gram).max()) or 1.0
    small = gram / scale
    if known is None or start is not None:
        found = _found(small, law, start, None if times is None else lambda rows: times(rows) / scale)
    else:  # rounded, as multiples of a gram differ in their last digits
        key = sha256(small.astype(np.float32).tobytes()).digest()
        found = known[key] = known[key] if key in known else _found(small, law)
    return replace(found, value=scale * found.value)


def _found(
    gram: Array,
    law: NoiseLaw,
    start: Found | None = None,
    times: Callable[[Array], Array] | None = None,
) -> Found:
    owner, count = _classes(gram)
    if count == 0:
        raise ValueError("nothing is asked of these cells")
    if count == len(gram):
        return _gaussian(gram, start) if law == "gaussian" else _laplace(gram, start, times)
    first = np.array([np.flatnonzero(owner == number)[0] for number in range(count)])
    small = gram[np.ix_(first, first)]
    found = _gaussian(small, start) if law == "gaussian" else _laplace(small, start)
    matrix = np.zeros((len(found.matrix), len(gram)))
    matrix[:, owner >= 0] = found.matrix[:, owner[owner >= 0]]
    return replace(found, matrix=matrix)


def _classes(gram: Array) -> tuple[Integers, int]:
    """For each cell the number of its class, -1 where nothing is asked of it, and how many there are."""
    scale = ALIKE * float(np.abs(gram).max())
    own = np.diagonal(gram)
    apart = own[:, None] + own - 2 * gram
    if own.min() > scale and np.count_nonzero(apart <= scale) == len(gram):  # each is like itself alone
        return np.arange(len(gram)), len(gram)
    owner = np.full(len(gram), -1, dtype=np.int64)
    count = 0
    for cell in np.flatnonzero(own > scale).tolist():
        if owner[cell] < 0:
            # |q_i - q_j|^2 over all queries: zero where each treats the two cells alike.
            owner[(apart[cell] <= scale) & (owner < 0) & (own > scale)] = count
            count += 1
    return owner, count


def _gaussian(gram: Array, start: Found | None) -> Found:
    values, vectors = np.linalg.eigh(gram)
    kept = values > ALIKE * values[-1]
    root = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    near = None if start is None else start.cell_weights
    near = near if near is not None and len(near) == len(gram) else None
    with threads_for(len(root)):
        solution = solve_cells(root, GAUSSIAN_GAP, near).require(GAUSSIAN_GAP, "the solver of one attribute")
    found = Found(solution.strategy, 0.0, cell_weights=solution.cell_weights)
    object.__setattr__(found, "value", float(np.sum(gram * found.inverse)))
    return found


def _laplace(gram: Array, start: Found | None, times: Callable[[Array], Array] | None = None) -> Found:
    cells = len(gram)
    chain = chain_of(gram) if times is None else None
    order = np.arange(cells) if chain is None else chain.order
    in_line = gram if chain is None else np.ascontiguousarray(gram[np.ix_(order, order)])
    value_of = partial(evaluated, in_line, times=times if chain is None else chain.times)
    plain = np.zeros((0, cells))
    with threads_for(cells):
        if start is not None and start.weights is not None and start.weights.shape[1] == cells:
            found = descended(value_of, start.weights[:, order])
        else:
            found = _best(value_of, [plain, *_starts(in_line, chain)])
        best = min(plain, found, key=lambda each: value_of(each)[0])
    weights = np.empty_like(best)
    weights[:, order] = best
    return Found(p_identity(weights), value_of(best)[0], weights)


def _best(value_of: Callable[[Array], tuple[float, Array]], starts: Sequence[Array]) -> Array:
    """Where the most promising start leads: all get a few steps, and the best of them go on."""
    trials = TRIALS if starts[0].shape[1] <= MIDDLE else TRIALS_OF_MANY
    for steps, left in trials if len(starts) > 2 else ():
        starts = sorted((descended(value_of, each, steps) for each in starts), key=lambda x: value_of(x)[0])
        starts = starts[:left]
    return min((descended(value_of, each) for each in starts), key=lambda each: value_of(each)[0])


def _starts(gram: Array, chain: Chain | None) -> Iterator[Array]:
    """Weights to start from, (p, cells): trees, hats of one and two widths along the cells, random ones."""
    cells = len(gram)
    if cells == 1:
        return
    p = max(1, cells // CELLS_PER_ROW)
    random = np.random.default_rng(0)
    alike = gram[0, 0] - gram[0, 1]
    if np.abs(gram - gram[0, 1] - alike * np.eye(cells)).max() <= ALIKE * np.abs(gram).max():
        # All cells alike: one sum of all is all that can help, and only its weight is to be found.
        tried = [np.full((1, cells), weight) for weight in np.geomspace(1e-4, 10.0, 60)]
        yield min(tried, key=lambda weights: evaluated(gram, weights)[0])
        return
    if cells > MANY_CELLS and chain is None:
        yield FLAT * random.random((p // 2, cells))
    yield HEIGHT * _tree(cells)
    if cells > MANY_CELLS:
        return
    yield HEIGHT * _hats(cells, p)
    for fine in range(max(2, p - 1 if cells <= FEW_CELLS else p), p + 1):
        yield HEIGHT * np.concatenate([_hats(cells, fine), _hats(cells, max(2, p // 4))])
    for more, height in RANDOM_STARTS[: 9 if cells <= FEW_CELLS else 4]:
        yield height * random.random((p + more, cells))


def _hats(cells: int, count: int) -> Array:
    """Weights that rise to one and fall again, one after the other, (count, cells)."""
    at = (np.arange(cells) + 0.5) / cells * count
    return np.maximum(0.0, 1.0 - np.abs(at - np.arange(count)[:, None] - 0.5))


def _tree(cells: int) -> Array:
    """Sums of about 16 neighbouring cells, of 16 such sums, and so on, (p, cells)."""
    levels = []
    sums = max(1, cells // CELLS_PER_ROW)
    while sums:
        levels.append(np.arange(sums)[:, None] == np.arange(cells) * sums // cells)
        sums //= CELLS_PER_ROW
    return np.concatenate(levels).astype(np.float64)


def p_identity(weights: Array) -> Array:
    """The p-Identity strategy with these weighted sums, (p, cells), as rows whose columns sum to 1."""
    return np.asarray(np.concatenate([np.eye(weights.shape[1]), weights]) / (1.0 + weights.sum(axis=0)))


def descended(
    value_of: Callable[[Array], tuple[float, Array]], start: Array, steps: int | None = None
) -> Array:
    """The weights that quasi-Newton steps reach from `start`, rows of zeros left out."""
    if not len(start):
        return start
    steps = steps or min(MOST_STEPS, max(LEAST_STEPS, STEPS_TIMES_CELLS // start.shape[1]))
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
    # By its inverse: (p, p) is small, and of eigenvalues of at least 1.
    square = weights @ weights.T
    square.flat[:: p + 1] += 1.0
    lifted = np.linalg.inv(square) @ weights
    through = times(lifted * sums) if times is not None and p else (lifted * sums) @ gram
    own = sums * gram.diagonal() - np.einsum("ki,ki->i", weights, through)
    through *= sums
    gradient = (through @ weights.T) @ lifted
    gradient -= through
    gradient += own
    gradient *= 2.0
    return float(sums @ own), gradient
