"""From real strategies to integer ones that answer exactly the same queries (claims I-001 to I-004).

Noise is exact only on integers, so what is measured must be integers; and a query must be *exactly* a
combination of what is measured, or its answer is biased in proportion to the counts. Three ways to round:

- a complete block: any integer rows of full rank whose sums along every axis are zero will do;
- a block that measures less: `round(s K) C`, with C integer rows that span exactly what is asked;
- a strategy on all cells: plain rounding.

Each takes as many bits as it needs, up to what fits 64-bit arithmetic (claim I-008).
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from residua._arrays import Array, Indices, Integers
from residua._limits import BALANCED_ENTRIES, BALANCED_PAIRS, FILLED_ROWS, REDUCED_ENTRIES
from residua.answering.blocks import Shape
from residua.errors import Infeasible
from residua.linalg.matrices import RANK_RATIO, join, pivoted_qr, pseudo_inverse, triangle_inverse
from residua.linalg.spans import apart
from residua.privacy import NoiseLaw

SURE_RANK = 1e-9  # ratio of singular values above which rounding cannot hide a rank defect
FILL = 1e-5  # share of the cost that measures directions nobody asked, to make a block complete
FAITHFUL = 1e-3  # relative change of what is measured that more bits would not be spent on
BIT_STEP = 4
MOST_MOVES = 16  # of entries of one column, to mend its length
EVEN_LENGTHS = 1e-8  # relative difference of squared lengths that is not mended
SOME_ROWS, SOME_COLUMNS = 128, 128  # that are looked at first for such moves, and at once
LARGEST_SCALE = 2.0**39  # of Laplace noise that is drawn; leaves room for counts in 64 bits
LARGEST_ENTRY = 2**42  # of a whole matrix: leaves room for two million records
LOOKS = 40
MANY_ENTRIES = 200_000  # of integer rows that are first chosen from without pivoting
PRIME = 2**31 - 1
EXACT = 2**50  # integers below this are exact in floating point, and so are small multiples of them
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)  # common in numbers of cells
FEW_LOOSE_BITS = 20  # of the entries of a matrix that is not centred
SMALL = 2**10  # entries of a matrix that is measured as it is
WHOLE = 1e-9  # how far from a whole number a multiple of such an entry may be, by rounding


def rounded_rows(matrix: Array, bits: int) -> Integers:
    """A multiple of the rows, rounded, with entries of about 2^bits (claim I-001)."""
    wanted = matrix * scale_of(matrix, bits)
    return balanced_columns(wanted, np.rint(wanted)).astype(np.int64)


def centred_rows(matrix: Array, sizes: tuple[int, ...], bits: int) -> Integers:
    """A multiple of rows that are centred, rounded to sum to exactly zero along every axis (claim I-002)."""
    wanted = matrix * scale_of(matrix, bits)
    if len(sizes) == 1:
        return balanced(wanted, _zero_sum(wanted)).astype(np.int64)
    tensor = np.rint(wanted).reshape(len(matrix), *sizes)
    for axis in range(1, tensor.ndim):  # the last slice along each axis is minus the sum of the others
        last = [slice(None)] * tensor.ndim
        rest = list(last)
        last[axis], rest[axis] = slice(-1, None), slice(None, -1)
        tensor[tuple(last)] = -tensor[tuple(rest)].sum(axis=axis, keepdims=True)
    return np.asarray(tensor.reshape(len(matrix), -1), dtype=np.int64)


def combined_rows(matrix: Array, span: Integers, bits: int) -> Integers:
    """`round(s K) C` for integer rows C = `span` with the same row space as the matrix (claim I-003)."""
    basis = span.astype(np.float64)
    combination = np.linalg.lstsq(basis.T, matrix.T, rcond=None)[0].T  # matrix = K C
    weights = np.rint(combination * scale_of(matrix, bits))
    bound = float(np.abs(weights).sum(axis=1).max()) * float(np.abs(basis).max())
    if bound >= EXACT:
        raise Infeasible(
            "the queries of a block have no common form in small integers; round them, or use coarser "
            "attributes"
        )
    return balanced_within(matrix * scale_of(matrix, bits), weights @ basis, basis).astype(np.int64)


def loose_rows(law: NoiseLaw, shape: Shape, span: Integers | None, bits: int) -> tuple[Integers, int]:
    """A multiple of rows over all cells in integers of at most so many bits, and their rank.

    Of less than full rank, `span` has integer rows with the same row space (claim I-003). Without it, entries
    are rounded one by one, so that equal columns stay equal: the rows answer the same queries if they have
    full rank on the distinct columns (claim H-005). Else every other direction is measured too (claim I-004).
    """
    matrix, rank, cells = shape.matrix, shape.rank, shape.matrix.shape[1]
    enough = partial(enough_bits, few=FEW_LOOSE_BITS, most=bits)
    if rank < cells and span is not None:
        return enough(partial(combined_rows, matrix, short_basis(span)), matrix, rank), rank
    if law == "laplace" or rank < cells:
        columns = matrix.T[np.abs(matrix).max(axis=0) > 0] + 0.0  # which makes every zero a positive one
        if rank == len({column.tobytes() for column in columns}):
            return enough(partial(_rounded_entries, matrix), matrix, rank), rank
    whole = _filled(matrix, cells, rank) if rank < cells else matrix
    return enough(partial(rounded_rows, whole), whole, cells), cells


def _rounded_entries(matrix: Array, bits: int) -> Integers:
    return np.rint(matrix * scale_of(matrix, bits)).astype(np.int64)


def _filled(matrix: Array, cells: int, rank: int) -> Array:
    """The strategy with every other direction added, measured with very little of the privacy (I-004)."""
    if cells > FILLED_ROWS:
        raise Infeasible(
            "queries that are not small multiples of whole numbers need every direction measured, and "
            f"{cells:,} cells are more than {FILLED_ROWS:,}; round the queries, or use coarser attributes"
        )
    extra = np.linalg.svd(matrix)[2][rank:]
    longest = math.sqrt(float(np.max(np.sum(matrix * matrix, axis=0))))
    return np.concatenate([matrix, math.sqrt(FILL) * longest * extra])


def small_multiple(matrix: Array) -> Array | None:
    """The rows multiplied so that all entries are small whole numbers, which need no rounding; or None."""
    sizes = np.abs(matrix[matrix != 0])
    rows = matrix / sizes.min()
    whole = np.rint(rows)
    if np.abs(whole).max() > SMALL or np.abs(rows - whole).max() > WHOLE:
        return None
    return np.asarray(whole)


def _inverse(matrix: Array, rank: int) -> tuple[Array, bool]:
    """What is as long as the pseudo-inverse, by itself and in products from its left, and if all is undone.

    That is the inverse, where there is one, or that of R in `Q R`: `R^-1 Q'` has orthonormal rows at its end.
    """
    if len(matrix) == rank == matrix.shape[1]:
        with suppress(np.linalg.LinAlgError):
            return np.asarray(np.linalg.inv(matrix)), True
    if rank == matrix.shape[1]:
        triangle = np.asarray(np.linalg.qr(matrix, mode="r"))
        pivots = np.abs(np.diagonal(triangle))
        if pivots.min() > RANK_RATIO * pivots.max():
            return triangle_inverse(triangle), True
    return pseudo_inverse(matrix), False


def enough_bits(
    rounding: Callable[[int], Integers], matrix: Array, rank: int, *, few: int, most: int
) -> Integers:
    """The rounding with the fewest bits from `few` to `most` that hardly changes what is measured (I-008).

    Else the one with `most`; Infeasible if that loses a direction.
    """
    inverse, undone = _inverse(matrix, rank)
    rows, kept = None, False
    for bits in (*range(min(few, most), most, BIT_STEP), most):
        try:
            rows = rounding(bits)
        except Infeasible:
            if rows is None:
                raise
            break  # so many bits are too many, and the rounding before had fewer
        change = (rows / scale_of(matrix, bits) - matrix) @ inverse
        if (changed := float(np.linalg.norm(change))) <= FAITHFUL:
            # All directions are kept where all can be undone: the rows are `1 + change` times the matrix.
            least = (1 - changed) / float(np.linalg.norm(inverse)) * scale_of(matrix, bits)
            kept = undone and least > SURE_RANK * float(np.linalg.norm(rows))
            break
    if rows is None or not (kept or has_rank(rows, rank)):
        raise Infeasible(
            f"rounding a block of {len(matrix)} rows to {most} bits loses a direction; use fewer attributes "
            "in one table, or weights that differ less"
        )
    return rows


def completed(matrix: Array, measures: Sequence[Array]) -> Array:
    """The strategy with every other centred direction added, measured with very little of the privacy.

    For blocks whose queries have no exact integer form: a complete block answers any query exactly (I-004).
    Centred are rows whose mean under each of the measures, weights on the cells of one axis, is zero.
    """
    rank = math.prod(len(weights) - 1 for weights in measures)
    if rank > FILLED_ROWS:
        raise Infeasible(
            "queries that are not small multiples of whole numbers need a complete block, and this one would "
            f"have {rank:,} rows, more than {FILLED_ROWS:,}; round the queries, or use coarser attributes"
        )
    centred = join(np.eye(len(p)) - np.outer(p, p) / np.dot(p, p) for p in measures)
    inside = np.linalg.qr(matrix.T)[0]
    left = centred - (centred @ inside) @ inside.T
    extra = np.linalg.svd(left)[2][: rank - len(matrix)]
    whole = np.concatenate([matrix, math.sqrt(FILL) * extra])
    return np.asarray(whole / math.sqrt(float(np.max(np.sum(whole * whole, axis=0)))))


def independent_integers(rows: Integers | None, rank: int) -> Integers | None:
    """`rank` independent rows among these, each divided by its greatest common divisor.

    None if they do not span all of them: floats may have found a smaller rank than there is (claim I-003);
    and of none at all.
    """
    if rows is None:
        return None

    divisors = np.gcd.reduce(rows, axis=1)
    rows = rows[divisors > 0] // divisors[divisors > 0, None]
    order = np.argsort(np.count_nonzero(rows, axis=1), kind="stable")  # plain cells come first
    if rows.size <= MANY_ENTRIES:
        pivots = order[_pivots(rows[order])]
        return rows[np.sort(pivots)] if len(pivots) == rank else None
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    quick = rows[np.sort(order[apart(unit[order], rank)])]
    if len(quick) == rank and _spans(quick, rows):
        return quick
    chosen = rows[np.sort(pivoted_qr(unit.T, mode="r")[1][:rank])]
    return chosen if _spans(chosen, rows) else None


def _pivots(rows: Integers) -> Indices:
    """Places of the rows that are independent, modulo a prime, of all before them."""
    from flint import nmod_mat

    echelon, rank = nmod_mat((rows.T % PRIME).tolist(), PRIME).rref()
    found, column = [], 0
    for line in range(rank):
        while int(echelon[line, column]) == 0:
            column += 1
        found.append(column)
    return np.array(found, dtype=np.intp)


def _spans(basis: Integers, rows: Integers) -> bool:
    """Whether all rows are combinations of a basis: if one is not, a random sum is outside half the time."""
    from flint import nmod_mat

    signs = np.random.default_rng(0).integers(0, 2, (LOOKS, len(rows)))
    both = np.concatenate([basis % PRIME, signs @ (rows % PRIME) % PRIME])
    return int(nmod_mat(both.tolist(), PRIME).rank()) == len(basis)


def has_rank(matrix: Integers, rank: int) -> bool:
    """Whether the rank is certainly at least this: singular values far above what rounding could invent."""
    scales = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    return len(scales) >= rank and bool(scales[rank - 1] > SURE_RANK * scales[0])


def scale_of(matrix: Array, bits: int) -> float:
    """What a real matrix is multiplied by before rounding to so many bits."""
    return float(2**bits - 1) / float(np.abs(matrix).max())


def _zero_sum(wanted: Array) -> Array:
    """Nearest integers with row sums of zero: the entries that were rounded furthest take the correction."""
    rounded = np.rint(wanted)
    excess = rounded.sum(axis=1).astype(np.int64)  # entries to lower (or raise) by one
    order = np.argsort((wanted - rounded) * np.sign(excess)[:, None], axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    rounded -= np.sign(excess)[:, None] * (rank < np.abs(excess)[:, None])
    return rounded


def balanced(wanted: Array, rounded: Array) -> Array:
    """Rounded rows that sum to zero with some entries moved by one, so that columns are as long as wanted.

    In an optimal strategy all columns that matter are equally long. Rounding disturbs their lengths far more
    than the answers, and the longest sets the cost: so mend the worst column, where that takes the least
    rounding error, until nothing is gained. Another entry of the row makes up for each move.
    """
    rounded = rounded.copy()
    aims = np.sum(wanted * wanted, axis=0)
    excess = np.sum(rounded * rounded, axis=0) - aims
    price = float(np.sqrt(aims.max()))  # of squared rounding error, small beside a squared excess
    for _ in range(min(4 * wanted.shape[1], BALANCED_ENTRIES // wanted.size)):
        worst = int(np.argmax(np.abs(excess)))
        own, error = rounded[:, [worst]], rounded[:, [worst]] - wanted[:, [worst]]
        move = np.where(own * excess[worst] > 0, -1.0, 1.0)  # (rows, 1)
        change = _change(excess[worst], move * own, price, move * error)
        change = change + _change(excess, -move * rounded, price, -move * (rounded - wanted))
        change[:, worst] = np.inf
        row, other = divmod(int(np.argmin(change)), change.shape[1])
        if change[row, other] >= 0:
            break
        rounded[row, worst] += move[row, 0]
        rounded[row, other] -= move[row, 0]
        moved = [worst, other]
        excess[moved] = np.sum(rounded[:, moved] ** 2, axis=0) - aims[moved]
    return rounded


def balanced_columns(wanted: Array, rounded: Array) -> Array:
    """The same where rows may sum to anything: every column by itself.

    Some rows do for most columns. Zeros stay zeros: a triangle stays one.
    """
    rounded = rounded.copy()
    aims = np.einsum("ri,ri->i", wanted, wanted)
    excess = np.einsum("ri,ri->i", rounded, rounded) - aims
    for step in sorted({1, max(1, len(wanted) // SOME_ROWS)}, reverse=True):
        _mend(wanted[::step], rounded[::step], excess, float(np.sqrt(aims.max())))
    return rounded


def _mend(wanted: Array, rounded: Array, excess: Array, price: float) -> None:
    """Move entries and excess in place, the worst columns first, but those nearer than one that stays."""
    moves, least = min(MOST_MOVES, BALANCED_ENTRIES // wanted.size), EVEN_LENGTHS * price**2
    order = np.argsort(-np.abs(excess), kind="stable")
    for left in np.split(order, range(SOME_COLUMNS, len(order), SOME_COLUMNS)):
        for _ in range(moves):
            left = left[np.abs(excess[left]) > least]
            if not len(left):
                break
            own, aim = rounded[:, left], wanted[:, left]
            move = np.where(own * excess[left] > 0, -1.0, 1.0)
            change = _change(excess[left], move * own, price, move * (own - aim))
            change[aim == 0] = np.inf
            row, columns = np.argmin(change, axis=0), np.arange(len(left))
            gains = change[row, columns] < 0
            least = max(least, float(np.abs(excess[left[~gains]]).max(initial=0.0)))
            row, columns, left = row[gains], columns[gains], left[gains]
            moved = move[row, columns]
            excess[left] += 2 * moved * own[row, columns] + 1
            rounded[row, left] += moved


def balanced_within(wanted: Array, rounded: Array, basis: Array) -> Array:
    """The same for rows that stay whole combinations of a basis: its rows, or their negatives, are added."""
    rounded = rounded.copy()
    aims = np.sum(wanted * wanted, axis=0)
    price = float(np.sqrt(aims.max()))
    for _ in range(min(4 * wanted.shape[1], BALANCED_PAIRS // (wanted.size * len(basis)))):
        excess = np.sum(rounded * rounded, axis=0) - aims
        worst = int(np.argmax(np.abs(excess)))
        steps = basis[basis[:, worst] != 0]
        if not len(steps):
            break  # nothing reaches this column: its excess is rounding, and no other's is larger
        steps = np.concatenate([steps, -steps])
        squares = steps * steps
        # For each row r and step s the sum of (excess + 2 r s + s^2)^2 - excess^2, multiplied out.
        change = 4 * (rounded * excess + price / 2 * (rounded - wanted)) @ steps.T
        change += 4 * (rounded * rounded) @ squares.T + 4 * rounded @ (squares * steps).T
        change += 2 * squares @ excess + price * squares.sum(axis=1) + (squares * squares).sum(axis=1)
        row, step = divmod(int(np.argmin(change)), change.shape[1])
        if change[row, step] >= 0:
            break
        rounded[row] += steps[step]
    return rounded


def _change(excess: Array | float, products: Array, price: float, errors: Array) -> Array:
    """What moving an entry by one changes: the squared excess of its column, and its squared error."""
    return np.asarray((excess + 2 * products + 1) ** 2 - excess**2 + price * (1 + 2 * errors))


def short_basis(rows: Integers) -> Integers:
    """As many short integer rows with the same row space; `rows` must be independent (claim I-003)."""
    if rows.size > REDUCED_ENTRIES:
        return rows
    for prime in PRIMES:
        while (divided := _divided(rows, prime)) is not None:
            rows = _reduced(divided)
    return _reduced(rows)


def _divided(rows: Integers, prime: int) -> Integers | None:
    """Rows with the combinations that the prime divides divided by it; None if there are no such."""
    from flint import nmod_mat

    kernel, nullity = nmod_mat(np.mod(rows, prime).T.tolist(), prime).nullspace()
    if nullity == 0:
        return None
    basis = np.array([[int(entry) for entry in row[:nullity]] for row in kernel.tolist()]).T
    echelon, _ = nmod_mat(basis.tolist(), prime).rref()
    result = rows.copy()
    for line in echelon.tolist():
        weights = np.array([int(entry) for entry in line])
        weights = np.where(weights > prime // 2, weights - prime, weights)
        pivot = int(np.flatnonzero(weights)[0])  # its weight is 1, and no other line has any there
        result[pivot] = weights @ rows // prime
    return result


def _reduced(rows: Integers) -> Integers:
    from flint import fmpz_mat

    return np.array([[int(entry) for entry in row] for row in fmpz_mat(rows.tolist()).lll().tolist()])
