"""What is measured: equal blocks on different attributes, in integers, with noise of exact parameters.

And what one block costs a record of each cell, each pair of cells, and the dearest of them: exactly. Sums and
products of whole numbers never wrap around: they are of 64 bits where those will do, else objects.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._arrays import AnyArray, Integers, Subsets
from residua.errors import BudgetError
from residua.linalg.classes import JointClasses
from residua.linalg.matrices import along_axes
from residua.noise import DiscreteLaplace, Law, RoundedGaussian
from residua.privacy import NoiseLaw

LARGEST_ENTRY = 2**53  # of a matrix: floats hold it exactly
FLOATS = 2.0**52  # up to which whole numbers are added up in floats, and their sum is only about right
TAIL_BITS = 60  # a measured number wraps around with a probability below 2 to minus this
LEAST_RECORDS = 2**20  # that every plan can measure: what is left beside its largest entries and noise
Whole = NDArray[Any]
"""Whole numbers, exact: int64, or objects where those would not do."""

GRAIN_BITS = 61  # of the whole cost in grains: their sums fit 64 bits
FITS = 2**61  # in absolute value: four such numbers add up in 64 bits
EXACT_BITS = 52  # of whole numbers that floats hold, sums of products included
COMPARED = 100_000_000  # numbers gone through to compare the columns of one block with Laplace noise
CHUNK = 2**20  # entries of a Gram matrix held at once
FRONT = 2**9  # pairs of cells that none outdoes; where they are more, one bounds them all


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """Blocks that measure `multiplier * kron(matrices)` of their own marginals, plus noise of one law.

    `subsets` is (blocks, attributes), attributes in the order of the matrices' axes; `sizes` has the cells of
    each of them. `parameters` are the exact ones of the noise, each but once, variances of Gaussian noise
    before it is rounded or scales of Laplace noise; `owners`, (blocks,), says which is whose. Attributes in
    `derived` stand for those that they are made of. With `within`, the blocks are on the same attributes, and
    each sees the records of one cell of that attribute, in their order. What is not so is refused when it is
    made (claim K-001).
    """

    subsets: Subsets
    sizes: tuple[int, ...]
    matrices: tuple[Integers, ...]
    multiplier: int
    law: NoiseLaw
    parameters: tuple[Fraction, ...]
    owners: Integers
    derived: tuple[JointClasses, ...] = ()
    within: int | None = None

    def __post_init__(self) -> None:
        if type(self.multiplier) is not int or self.multiplier < 1:  # it may come from a file
            raise _refused(
                f"measured numbers are multiplied by a whole number of at least 1, not {self.multiplier!r}"
            )
        for matrix in self.matrices:
            if matrix.dtype != np.int64 or matrix.ndim != 2 or not matrix.size:
                raise _refused("what is measured are matrices of 64-bit integers")
            if not 0 < largest_size(matrix) <= LARGEST_ENTRY:
                raise _refused("only small whole numbers can be measured, and this plan has others")
        if math.prod(matrix.shape[1] for matrix in self.matrices) != self.cells:
            raise _refused(f"the matrices of a block are not those of {self.cells:,} cells")
        self._check_blocks()
        self._check_noise()

    def _check_blocks(self) -> None:
        found = self.subsets
        if found.dtype != np.int32 or found.ndim != 2 or found.shape[1] != len(self.sizes) or not len(found):
            raise _refused("each block names one attribute for each of its axes, and there is one at least")
        ordered = np.sort(found, axis=1)
        if (ordered[:, :1] < 0).any() or (ordered[:, 1:] == ordered[:, :-1]).any():
            raise _refused("the attributes of a block are not all different, or are none")
        if not all(part.whole for part in self.derived):
            raise _refused("this plan measures classes of cells that its schema does not have")
        sizes = {part.place: part.size for part in self.derived}
        used = [at for part in self.derived for at in part.attributes]
        gone = set(used) - sizes.keys()
        if len(set(used)) < len(used):
            raise _refused("an attribute is part of two derived ones")
        for axis, size in enumerate(self.sizes):
            own = np.unique(found[:, axis]).tolist() if self.derived else []
            if any(at in gone or sizes.get(at, size) != size for at in own):
                raise _refused("a block looks at an attribute that was made part of another")
        if self.within is not None:
            part = next((each for each in self.derived if self.within in each.attributes), None)
            whole = part is None or (len(part.attributes) == 1 and part.size == len(found))
            if self.within < 0 or (found == self.within).any() or (found != found[0]).any() or not whole:
                raise _refused("blocks within the cells of an attribute are not one for each of them")

    def cells_of_blocks(self) -> Integers:
        """For each cell of the attribute that blocks are within, the block that sees its records."""
        part = next((each for each in self.derived if self.within in each.attributes), None)
        return np.arange(len(self.subsets)) if part is None else part.partitions[0].classes

    def _check_noise(self) -> None:
        if self.law not in ("gaussian", "laplace"):
            raise _refused(f"there is no noise of the law {self.law!r}")
        if not all(isinstance(own, Fraction) and own > 0 for own in self.parameters):
            raise _refused("the parameters of noise are fractions above zero")
        if self.owners.dtype != np.int64 or self.owners.shape != (len(self.subsets),):
            raise _refused("each block has noise of one parameter")
        if not 0 <= self.owners.min() <= self.owners.max() < len(self.parameters):
            raise _refused("a block has noise of no parameter")

    @property
    def cells(self) -> int:
        """Cells of each block's marginal."""
        return math.prod(self.sizes)

    @property
    def rows(self) -> int:
        """Numbers measured in each block."""
        return math.prod(len(matrix) for matrix in self.matrices)

    def largest_entry(self) -> int:
        """Largest absolute entry of the whole matrix."""
        return self.multiplier * math.prod(largest_size(matrix) for matrix in self.matrices)

    def laws(self) -> list[Law]:
        """The law of the noise for each of the parameters; refuses those that no noise is drawn with."""
        law = RoundedGaussian if self.law == "gaussian" else DiscreteLaplace
        return [law(parameter) for parameter in self.parameters]

    def multiples(self, units: Sequence[int]) -> Integers:
        """What each block's answers on counts are multiplied by, (blocks,): the multiplier over its unit.

        A record counts in the cells of an attribute by whole numbers that add up to its unit, mostly 1, and
        in those of a block by their products; so a block measures the multiplier times the shares that
        records have in its cells (claim U-003). Refused where the multiplier is no multiple of a unit.
        """
        if max(units) == 1:
            return np.full(len(self.subsets), self.multiplier)
        own = np.array(units, dtype=object)
        for part in self.derived:
            own[part.place] = math.prod(units[at] for at in part.attributes)
        unit = own[self.subsets].prod(axis=1, initial=1)
        if (self.multiplier % unit).any():
            raise _refused("this plan measures parts of the whole numbers that records count by")
        return np.asarray(self.multiplier // unit, dtype=np.int64)

    def apply(self, counts: Integers, multiples: Integers) -> Integers:
        """Exact answers to the measured queries, modulo 2^64: (blocks, cells) to (blocks, rows)."""
        entry = math.prod(largest_size(matrix) for matrix in self.matrices)
        floats = counts.astype(np.float64)
        if entry * float(abs(floats).sum(axis=1).max()) < FLOATS:
            # Every product and partial sum is a whole number below 2^53: floating point is exact, and faster.
            answers = along_axes(floats, [m.astype(np.float64) for m in self.matrices]).astype(np.int64)
        else:
            answers = along_axes(counts, self.matrices)
        answers *= multiples[:, None]
        return answers


def largest_size(matrix: AnyArray) -> int:
    """Largest absolute entry: in 64 bits the absolute value of -2^63 would be negative."""
    return max(int(matrix.max()), -int(matrix.min()))


def record_limit(measurements: Sequence[Measurement]) -> int:
    """The most records for which no measured number can wrap around 2^63, whatever the data (claim I-006)."""
    tails = [max(law.bound(TAIL_BITS) for law in each.laws()) for each in measurements]
    pairs = zip(measurements, tails, strict=True)
    return min((2**63 - 1 - tail) // each.largest_entry() for each, tail in pairs)


def refuse_few_records(measurements: Sequence[Measurement]) -> None:
    """BudgetError where entries or noise leave fewer records in 64 bits than those of any plan do."""
    if (limit := record_limit(measurements)) < LEAST_RECORDS:
        raise _refused(
            f"this plan measures numbers that wrap around 64 bits above {limit:,} records, and plans are "
            f"made for at least {LEAST_RECORDS:,}"
        )


def _refused(reason: str) -> BudgetError:
    return BudgetError(f"{reason}; plan again")


def cost_power(law: NoiseLaw) -> int:
    """The power of a measured number that costs go with."""
    return 1 if law == "laplace" else 2


def column_costs(law: NoiseLaw, matrix: Whole) -> Whole:
    """Cost of a record of each cell at noise of parameter 1, (cells,): sums of squares, or of sizes.

    Exact for whole numbers; real matrices, of strategies that are not rounded yet, are added up in floats.
    """
    if matrix.dtype == np.float64:
        real = abs(matrix).sum(axis=0) if law == "laplace" else np.einsum("ri,ri->i", matrix, matrix)
        return np.asarray(real)
    power = cost_power(law)
    wide = largest_size(matrix) ** power * len(matrix) >= FITS
    return np.asarray((abs(matrix.astype(object) if wide else matrix) ** power).sum(axis=0))


def matrix_cost(law: NoiseLaw, matrix: Integers) -> int:
    """Cost of a record of the dearest cell at noise of parameter 1."""
    return int(column_costs(law, matrix).max())


def block_cost(measurement: Measurement, *, replaced: bool) -> int:
    """What a block costs the record that it costs most, at noise of parameter 1 (claims K-002, K-003).

    For replacing a record, twice the cost of adding one where Laplace noise is on too many numbers.
    """
    matrices, law = measurement.matrices, measurement.law
    largest = math.prod(matrix_cost(law, matrix) for matrix in matrices)
    if replaced and law == "gaussian":
        largest = dearest_pair(matrices)
    elif replaced:
        largest = int(_differences(matrices).max()) if _comparable(measurement) else 2 * largest
    return largest * int(measurement.multiplier ** cost_power(law))


def costs_by_cell(measurement: Measurement, *, replaced: bool) -> Whole:
    """Cost of a record of each cell, (cells,), or of each pair of cells, (cells, cells), at parameter 1.

    The multiplier is left out. Pairs are bounded by the sum of the two where `block_cost` does so.
    """
    law, matrices = measurement.law, measurement.matrices
    costs = kron(column_costs(law, matrix) for matrix in matrices)
    if not replaced:
        return costs
    if law == "gaussian":
        grams = kron(gram_rows(matrix, slice(None)) for matrix in matrices)
        return np.asarray(costs[:, None] + costs[None, :] - 2 * grams)
    if _comparable(measurement):
        return _differences(matrices)
    apart = costs[:, None] + costs[None, :]
    np.fill_diagonal(apart, 0)
    return np.asarray(apart)


def dearest_pair(matrices: Iterable[Integers]) -> int:
    """Largest squared distance of two columns of a Kronecker product.

    Of two cells `i` and `j` it is `a + b - 2 g` with `a` and `b` the squared lengths of their columns and `g`
    the product of these, and all three are products over the factors. So only such triples of a factor matter
    that no other outdoes in `a`, `b` and `-g`, or in `a`, `b` and `g`: the longest column with itself. Of one
    factor all pairs are compared.
    """
    matrices = tuple(matrices)
    if len(matrices) == 1:
        return _farthest(matrices[0])
    front, longest = np.ones((1, 3), dtype=object), 1
    for matrix in matrices:
        own, length = _front(matrix), matrix_cost("gaussian", matrix)
        ours = np.concatenate([front, [[longest] * 3]])
        theirs = np.concatenate([own, [[length] * 3]])
        front = _undominated((ours[:, None] * theirs[None]).reshape(-1, 3))
        longest *= length
    return max(int(a + b - 2 * g) for a, b, g in front)


def _farthest(matrix: Integers) -> int:
    """Largest squared distance of two columns of a matrix."""
    lengths = column_costs("gaussian", matrix)
    step = max(1, CHUNK // len(lengths))
    parts = [slice(start, start + step) for start in range(0, len(lengths), step)]
    return max(int((lengths[part, None] + lengths - 2 * gram_rows(matrix, part)).max()) for part in parts)


def _front(matrix: Integers) -> Whole:
    """The triples of a matrix that none outdoes in `a`, `b` and `-g`, (count, 3)."""
    lengths = column_costs("gaussian", matrix)
    order = np.argsort(-lengths, kind="stable")
    found = []
    step = max(1, CHUNK // len(lengths))
    for start in range(0, len(lengths), step):
        products = gram_rows(matrix, slice(start, start + step))[:, order]
        least = np.minimum.accumulate(products, axis=1)
        smaller = np.ones(products.shape, dtype=bool)  # than those with all longer columns
        smaller[:, 1:] = products[:, 1:] < least[:, :-1]
        one, other = np.nonzero(smaller)
        found.append(np.stack([lengths[start + one], lengths[order[other]], products[one, other]], axis=1))
    return _undominated(np.concatenate(found))


def _undominated(triples: Whole) -> Whole:
    """Those that none outdoes in `a`, `b` and `-g`; where they are many, one that outdoes them all."""
    left = triples[np.argsort(triples[:, 2], kind="stable")]
    left = left[np.argsort(-(left[:, 0] + left[:, 1]), kind="stable")]
    kept = []
    while len(left):
        kept.append(left[0])
        left = left[(left[:, 0] > left[0, 0]) | (left[:, 1] > left[0, 1]) | (left[:, 2] < left[0, 2])]
        if len(kept) > FRONT:
            return np.array([[*map(int, triples[:, :2].max(axis=0)), int(triples[:, 2].min())]], dtype=object)
    return np.array(kept, dtype=object)


def _comparable(measurement: Measurement) -> bool:
    """Whether a block with Laplace noise has so few numbers that all its columns are compared."""
    return measurement.rows * measurement.cells**2 <= COMPARED


def _differences(matrices: Iterable[Integers]) -> Whole:
    """Sum of the absolute differences of each two columns of a Kronecker product, (cells, cells)."""
    columns = np.ascontiguousarray(np.atleast_2d(kron(matrices)).T)
    if 2 * largest_size(columns) * columns.shape[1] >= FITS:
        columns = columns.astype(object)
    return np.stack([abs(columns - column).sum(axis=1) for column in columns])


def gram_rows(matrix: Integers, cells: slice) -> Whole:
    """Some rows of `matrix' matrix`: products of the columns of these cells with all columns.

    The entries are cut into digits so short that floats, which multiply fast, add up their products exactly.
    """
    largest, rows = largest_size(matrix), len(matrix)
    width = (EXACT_BITS - rows.bit_length()) // 2
    digits = [matrix]
    while largest >= 2 ** (width * len(digits)):
        high = digits[-1] >> width
        digits[-1:] = [digits[-1] - (high << width), high]
    floats = [digit.astype(np.float64) for digit in digits]
    kind = np.int64 if largest**2 * rows < FITS else object
    total = np.zeros((len(range(*cells.indices(matrix.shape[1]))), matrix.shape[1]), dtype=kind)
    for low, left in enumerate(floats):
        for high_place, right in enumerate(floats):
            found = (left[:, cells].T @ right).astype(np.int64).astype(kind)
            total = total + found * 2 ** (width * (low + high_place))
    return total


def grain_of(whole: Fraction) -> Fraction:
    """A grain so small that it takes many, and so large that `whole` is less than 2^GRAIN_BITS of them."""
    bits = whole.numerator.bit_length() - whole.denominator.bit_length() + 1  # whole < 2^bits
    return Fraction(2) ** (bits - GRAIN_BITS)


def kron(arrays: Iterable[Whole]) -> Whole:
    """Kronecker product of vectors or matrices of whole numbers; of none, the number one as a vector."""
    found: Whole = np.ones(1, dtype=np.int64)
    for each in arrays:
        wide = largest_size(found) * largest_size(each) >= FITS
        found = np.kron(found.astype(object), each.astype(object)) if wide else np.kron(found, each)
    return found
