"""Dense matrices: rows and row spaces, grams, keys of equal rows, products along axes."""

import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._arrays import AnyArray, Array, Integers, Subsets

LARGE = 2_000  # rows from which a second thread surely makes a decomposition faster
SMALL_TRIANGLE = 64  # rows up to which halving a triangle gains nothing
SAME = 1e-9  # relative difference of entries, or of grams, that is rounding


@dataclass(slots=True)
class _Outermost:
    """What ends with the outermost `threads_for` that is open, and whether it knows of SciPy."""

    ending: ExitStack
    scipy: bool


_OUTERMOST: ContextVar[_Outermost | None] = ContextVar("_OUTERMOST", default=None)


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Within it, BLAS uses one thread for matrices of up to 2,000 rows, otherwise every processor.

    SciPy brings a BLAS of its own. Where it is loaded within an outer one, it keeps to one thread to the end
    of that: a BLAS that is given its threads back has them wait busily for a while, each time.
    """
    scipy = "scipy.linalg" in sys.modules
    limit = partial(_controller(scipy).limit, user_api="blas")
    with ExitStack() as own:
        if (outer := _OUTERMOST.get()) is None:
            outer = _Outermost(own, scipy)
            own.callback(_OUTERMOST.reset, _OUTERMOST.set(outer))
        elif scipy and not outer.scipy:
            outer.scipy = True
            outer.ending.enter_context(limit(limits=1))
        own.enter_context(limit(limits=1 if rows <= LARGE else processors()))
        yield


@cache
def _controller(with_scipy: bool) -> Any:
    """What knows the BLAS libraries that are loaded; looking for them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


FULL_RANK_RATIO = 1e-9  # of the smallest to the largest diagonal of a QR factor: no doubt about the rank
FAR_RATIO = 1e-2  # the same from which squares lose no digits that count
EVEN_LENGTHS = 100.0  # of the longest row to the shortest
CROWDED = 16  # possible keys a row up to which all are listed
RANK_RATIO = 1e-11  # below this a pivot is what rounding leaves of zero


def independent_rows(stack: Array, weights: Array | None = None) -> Array:
    """R with independent rows and `R'R = stack' diag(weights) stack`; shape (rank, columns).

    The rank is read off the *unweighted* rows, each scaled to length 1: positive weights do not change a
    row space, and however widely they spread they must not change what is counted (claim S-004).
    """
    rows, scales = _unit_rows(stack, weights)
    if not len(rows):
        return rows
    spanning = rows
    if rows.shape[0] >= rows.shape[1]:
        if (root := _even_root(rows, scales)) is not None:
            return root
        spanning = np.asarray(np.linalg.qr(rows, mode="r"))  # no more rows than columns
        pivots = np.abs(np.diagonal(spanning))
        if pivots.min() > FULL_RANK_RATIO * pivots.max():
            return graded_root(rows, scales)
    basis = _row_space(spanning)  # (columns, rank)
    if basis.shape[1] == rows.shape[1]:
        return graded_root(rows, scales)
    if basis.shape[1] == rows.shape[0]:
        return np.asarray(rows * scales[:, None])
    return np.asarray(graded_root(rows @ basis, scales) @ basis.T)


def _even_root(rows: Array, scales: Array) -> Array | None:
    """The root by Cholesky, None unless rows are of about one length and columns far from dependent."""
    graded = rows * scales[:, None]
    with suppress(np.linalg.LinAlgError):
        root: Array = np.asarray(np.linalg.cholesky(graded.T @ graded).T)
        even, pivots = scales.max() <= EVEN_LENGTHS * scales.min(), np.diagonal(root)
        return root if even and pivots.min() > FAR_RATIO * pivots.max() else None
    return None


def row_space(stack: Array) -> Array:
    """Orthonormal columns that span the rows, shape (columns, rank); the rank as in `independent_rows`."""
    rows = _unit_rows(stack, None)[0]
    if rows.shape[0] > rows.shape[1]:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    return _row_space(rows)


def _unit_rows(stack: Array, weights: Array | None) -> tuple[Array, Array]:
    """The rows that count, scaled to length 1, and the square root of what that leaves of the gram."""
    largest = np.max(np.abs(stack), axis=1, initial=0.0)
    alive = largest > 0 if weights is None else (largest > 0) & (weights > 0)
    rows = stack[alive] / largest[alive, None]  # squares of the largest entries might overflow
    lengths = np.linalg.norm(rows, axis=1)
    scales = lengths * largest[alive]
    return rows / lengths[:, None], scales if weights is None else scales * np.sqrt(weights[alive])


def pivoted_qr(matrix: Array, mode: str = "economic") -> tuple[Any, ...]:
    """QR with column pivoting, as SciPy's modes have it."""
    import scipy.linalg  # loading it takes longer than loading all of residua

    qr: Any = scipy.linalg.qr
    with threads_for(len(matrix)):
        return tuple(qr(matrix, mode=mode, pivoting=True, check_finite=False))


def _row_space(rows: Array) -> Array:
    if (quick := _plain_row_space(rows)) is not None:
        return quick
    basis, triangle, _ = pivoted_qr(rows.T)
    pivots = np.abs(np.diagonal(triangle))
    return np.asarray(basis[:, pivots > RANK_RATIO * pivots[0]])


def _plain_row_space(rows: Array) -> Array | None:
    """The same of rows of length 1 without pivoting, many times as fast; None where that leaves a doubt.

    It needs numpy only, so that marginals are planned without loading SciPy. Rows that are far from all
    before them are taken, if none of them is near the others together, and if what they leave of every
    other row is what rounding leaves of zero.
    """
    with threads_for(len(rows)):
        far = np.abs(np.diagonal(np.linalg.qr(rows.T, mode="r"))) > FULL_RANK_RATIO
        chosen = np.zeros(len(rows), dtype=bool)
        chosen[: len(far)] = far
        basis, triangle = np.linalg.qr(rows[chosen].T)
        others = rows[~chosen]
        missed = np.linalg.norm(others - (others @ basis) @ basis.T, axis=1)
        sure = np.abs(np.diagonal(triangle)).min() > FULL_RANK_RATIO
    return np.asarray(basis) if sure and missed.max(initial=0.0) <= RANK_RATIO else None


def graded_root(rows: Array, scales: Array) -> Array:
    """R with `R'R = rows' diag(scales^2) rows`: pivoted QR keeps small rows' digits if large rows come first
    (Cox and Higham, 1998); rows of about one length have none to lose, and a third of the work."""
    graded = rows * scales[:, None]
    lengths = np.linalg.norm(graded, axis=1)
    if lengths.max() <= EVEN_LENGTHS * lengths.min():
        return np.asarray(np.linalg.qr(graded, mode="r"))
    order = np.argsort(-lengths, kind="stable")
    triangle, permutation = pivoted_qr(graded[order], mode="r")
    root = np.empty_like(triangle[: rows.shape[1]])
    root[:, permutation] = triangle[: rows.shape[1]]
    return np.asarray(root, dtype=np.float64)


def pseudo_inverse(rows: Array, rank: int | None = None) -> Array:
    """Moore-Penrose inverse, (columns, rows); a `rank` that is known is kept to, whatever rounding leaves."""
    tall = rows.shape[0] >= rows.shape[1]
    if rank is None or rank == min(rows.shape):
        basis, upper = np.linalg.qr(rows if tall else rows.T)
        pivots = np.abs(np.diagonal(upper))
        if pivots.min() > RANK_RATIO * pivots.max():
            inverse = triangle_inverse(upper) @ basis.T if tall else basis @ triangle_inverse(upper).T
            return np.asarray(inverse, dtype=np.float64)
    left, scales, right = np.linalg.svd(rows, full_matrices=False)
    kept = int(np.sum(scales > RANK_RATIO * scales[0]))
    kept = kept if rank is None else min(kept, rank)
    return np.asarray((right[:kept].T / scales[:kept]) @ left[:, :kept].T, dtype=np.float64)


def occurring(numbers: NDArray[np.integer[Any]]) -> list[int]:
    """The numbers from zero on that occur, ascending; few of them in many places."""
    found: list[int] = np.flatnonzero(np.bincount(numbers.reshape(-1))).tolist()
    return found


def distinct_rows(codes: Integers) -> tuple[Integers, Integers]:
    """Index of the first of each distinct row, rows ascending, and for each row the place of its like."""
    base = int(codes.max(initial=0)) + 1
    if base ** codes.shape[1] < 2**62:
        return _distinct(_keys(codes, base), base ** codes.shape[1])
    _, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.reshape(-1).astype(np.int64)


def _distinct(keys: Integers, bound: int) -> tuple[Integers, Integers]:
    """The same of keys from 0 to below a bound; sorts where neither their order nor a list of all helps."""
    every = np.arange(len(keys))
    if (keys[1:] > keys[:-1]).all():
        return every, every.copy()
    if bound > CROWDED * len(keys):
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return first.astype(np.int64), inverse.astype(np.int64)
    listed = np.full(bound, -1)
    listed[keys[::-1]] = every[::-1]  # the first of each comes last, and stays
    present = np.flatnonzero(listed >= 0)
    first = listed[present]
    listed[present] = np.arange(len(present))
    return first, listed[keys]


def _keys(codes: NDArray[np.integer[Any]], base: int) -> Integers:
    radix = [base**place for place in range(codes.shape[1] - 1, -1, -1)]
    return np.asarray(codes.astype(np.int64) @ np.array(radix, dtype=np.int64).reshape(-1))


class RowIndex:
    """Where each row of several tables of rows is; no row may occur twice, nor a number from `base` on."""

    def __init__(self, tables: Sequence[Subsets], base: int) -> None:
        self._base = max(base, 2)
        self._found: dict[int, tuple[Integers, Integers, Integers]] = {}
        self._long: dict[tuple[int, ...], tuple[int, int]] = {}
        filled = [(number, table) for number, table in enumerate(tables) if len(table)]
        for size in sorted({table.shape[1] for _, table in filled}):
            numbered = [(number, table) for number, table in filled if table.shape[1] == size]
            if self._base**size >= 2**62:
                for number, table in numbered:
                    rows = (tuple(row) for row in table.tolist())
                    self._long.update({row: (number, place) for place, row in enumerate(rows)})
                continue
            keys = np.concatenate([_keys(table, self._base) for _, table in numbered])
            owners = np.concatenate([np.full(len(table), number) for number, table in numbered])
            places = np.concatenate([np.arange(len(table)) for _, table in numbered])
            order = np.argsort(keys, kind="stable")
            self._found[size] = (keys[order], owners[order].astype(np.int64), places[order].astype(np.int64))

    def find(self, rows: Subsets) -> tuple[Integers, Integers]:
        """Table and place of each row, both -1 where there is none; `rows` is (k, size)."""
        count, size = rows.shape
        missing = np.full(count, -1, dtype=np.int64)
        if self._base**size >= 2**62:
            pairs = [self._long.get(tuple(row), (-1, -1)) for row in rows.tolist()]
            owners, places = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
            return owners, places
        if size not in self._found:
            return missing, missing.copy()
        keys, owners, places = self._found[size]
        wanted = _keys(rows, self._base)
        spots = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        # A number from the base on would carry over into the key of another row.
        hit = (keys[spots] == wanted) & (rows < self._base).all(axis=1)
        return np.where(hit, owners[spots], -1), np.where(hit, places[spots], -1)


def subsets_of(items: Sequence[int], least: int = 0) -> Iterator[tuple[int, ...]]:
    """Every subset of at least so many, smaller ones first."""
    for size in range(least, len(items) + 1):
        yield from combinations(items, size)


def spread(rows: Array, sizes: Sequence[int], places: Sequence[int], width: Sequence[int]) -> Array:
    """Rows over attributes of `sizes` as rows over more: `rows E`, with E summing out the others.

    `rows` is (k, cells); the attributes sit at positions `places` of the wider product with sizes `width`.
    """
    if tuple(places) == tuple(range(len(width))):
        return rows
    tensor = rows.reshape(len(rows), *sizes).transpose(0, *(1 + np.argsort(places)))
    shape = [width[axis] if axis in places else 1 for axis in range(len(width))]
    tensor = np.broadcast_to(tensor.reshape(len(rows), *shape), (len(rows), *width))
    return np.ascontiguousarray(tensor).reshape(len(rows), math.prod(width))


def join(matrices: Iterable[Array]) -> Array:
    """Kronecker product of matrices, the last one fastest; of none, the number one."""
    product = np.ones((1, 1))
    for matrix in matrices:
        product = np.asarray(np.kron(product, matrix), dtype=np.float64)
    return product


CACHED_CELLS = 2**16  # that products are taken of at a time: half a megabyte stays in the cache


def along_axes(values: AnyArray, matrices: Sequence[AnyArray]) -> AnyArray:
    """Kronecker product of the matrices applied to each row of `values`, a few rows at a time."""
    rows, columns = (math.prod(matrix.shape[axis] for matrix in matrices) for axis in (0, 1))
    result = np.empty((len(values), rows), dtype=np.result_type(values, *matrices))
    step = max(1, CACHED_CELLS // max(rows, columns))
    for start in range(0, len(values), step):
        tensor, after = values[start : start + step], 1
        for matrix in reversed(matrices):
            if after == 1:  # the last axis is contiguous: one product for all
                tensor = tensor.reshape(-1, matrix.shape[1]) @ matrix.T
            else:
                tensor = matrix @ tensor.reshape(-1, matrix.shape[1], after)
            after *= len(matrix)
        result[start : start + step] = tensor.reshape(-1, rows)
    return result


VANISHING = 1e-12  # relative size below which something is what rounding leaves of zero
SETTLED = 1e-4  # relative size above which a row's own digits settle its direction


@dataclass(frozen=True, slots=True)
class Measure:
    """Weights p on the cells of one attribute that sum to 1 (uniform where none are given); only those in
    proportion to whole `numerators` can be measured."""

    size: int
    weights: bytes | None = None
    numerators: tuple[int, ...] | None = None

    @classmethod
    def of(cls, weights: Array) -> "Measure":
        return cls(len(weights), np.ascontiguousarray(weights, dtype=np.float64).tobytes())

    @classmethod
    def whole(cls, numerators: Sequence[int]) -> "Measure":
        """The measure with weights in proportion to whole numbers, whose sum must not be zero."""
        exact = tuple(int(entry) for entry in numerators)
        weights = np.array(exact, dtype=np.float64) / sum(exact)
        return cls(len(exact), weights.tobytes(), exact)

    def whole_numbers(self) -> tuple[int, ...]:
        """Whole numbers in proportion to the weights: ones for the uniform measure."""
        if self.weights is None:
            return (1,) * self.size
        if self.numerators is None:
            raise ValueError("a measure with real weights has no whole numbers")
        return self.numerators

    def vector(self) -> Array:
        """The weights, shape (size,)."""
        if self.weights is None:
            return np.full(self.size, 1.0 / self.size)
        return np.frombuffer(self.weights)


def project(rows: Array, sizes: Sequence[int], measures: Sequence[Measure], kept: Sequence[int]) -> Array:
    """Query rows `(k, product of sizes)` centred along the axes `kept`, and means along the others.

    The result is (k, product of the kept sizes): `q C` with `C = I - p 1'` along kept axes, else `q p`.
    """
    tensor = rows.reshape(len(rows), *sizes)
    for axis in reversed(range(len(sizes))):
        mean = np.tensordot(tensor, measures[axis].vector(), axes=(1 + axis, 0))
        tensor = tensor - np.expand_dims(mean, 1 + axis) if axis in kept else mean
    return np.asarray(tensor.reshape(len(rows), -1))


def standing_rows(rows: Array, lengths: Array) -> Array:
    """R with independent rows and `R'R = rows' rows`, counting only directions that stand out of rounding.

    `rows` is (k, cells), each a difference or sum of terms of length `lengths[i]`: where those cancel, what
    is left has few digits, and scaled to length 1 it would look like a direction of its own.
    """
    left = np.linalg.norm(rows, axis=1) / lengths
    rows, lengths, left = (each[left > VANISHING] for each in (rows, lengths, left))
    if left.min(initial=1.0) > SETTLED:
        return independent_rows(rows)
    basis, upper, _ = pivoted_qr((rows / lengths[:, None]).T)
    basis = np.asarray(basis[:, np.abs(np.diagonal(upper)) > VANISHING])  # (cells, rank)
    return np.asarray(independent_rows(rows @ basis) @ basis.T)


def centred_columns(columns: Array, sizes: Sequence[int], measures: Sequence[Measure]) -> Array:
    """`C` applied from the left along every axis of `(product of sizes, k)`: `C H = H - p (1'H)`."""
    tensor = columns.reshape(*sizes, columns.shape[1])
    for axis, measure in enumerate(measures):
        shape = [-1 if place == axis else 1 for place in range(tensor.ndim)]
        tensor = tensor - measure.vector().reshape(shape) * tensor.sum(axis=axis, keepdims=True)
    return np.asarray(tensor.reshape(columns.shape))


def triangle_inverse(upper: Array) -> Array:
    """The inverse of an upper triangle, half by half: a sixth of the work of any other matrix's."""
    half = len(upper) // 2
    if len(upper) <= SMALL_TRIANGLE:
        return np.asarray(np.linalg.inv(upper))
    result = np.zeros_like(upper)
    result[:half, :half] = first = triangle_inverse(upper[:half, :half])
    result[half:, half:] = last = triangle_inverse(upper[half:, half:])
    result[:half, half:] = -(first @ (upper[:half, half:] @ last))
    return result
