"""What is measured: equal blocks on different attributes, in integers, with noise of exact parameters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

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
