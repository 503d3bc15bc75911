"""One measurement: a Kronecker product of matrices on disjoint attributes, and its least-squares answers.

With `X = kron_s B_s'B_s / sigma^2`, the pseudo-inverse is a Kronecker product too, so a query that is a
product over the same attributes has a variance that is a product (claim A-002). Nothing larger than
the square of one factor, or of the factors that one of the group's joint families ties together, is formed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError, NotInSpan, WorkloadError
from residua.linalg.rows import inverse_gram
from residua.linalg.squares import join, spread, sum_out
from residua.strategy.integers import column_norm
from residua.strategy.mechanism import totals_by_table
from residua.workload import Factor, Group, Tables, Total
from residua.workload.groups import TIMES

Array = NDArray[np.float64]

COVARIANCE_LIMIT = 10_000_000  # entries
TIED_CELLS = 5_000  # joint cells of factors that have to be multiplied out
ROUNDING = float(np.finfo(np.float64).eps)
SPAN_TOLERANCE = 1e-7  # of a query's squared length: what rounding may leave outside the row space


@dataclass(frozen=True, slots=True, eq=False)
class StrategyFactor:
    """A matrix of measured queries on some attributes: B, shape (rows, cells), cells row-major.

    `inverse` is the pseudo-inverse of `B'B`; `projector` projects on B's row space, None if that is all.
    """

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    matrix: Array
    inverse: Array = field(init=False, repr=False)
    projector: Array | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or self.matrix.shape[1] != math.prod(self.sizes):
            raise ValueError(
                f"a matrix of shape {self.matrix.shape} does not fit cells of sizes {self.sizes}"
            )
        inverse, projector = inverse_gram(self.matrix)
        object.__setattr__(self, "inverse", inverse)
        object.__setattr__(self, "projector", projector)

    def costs(self) -> Array:
        """Squared length of each column, shape (cells,)."""
        return np.asarray(np.einsum("ri,ri->i", self.matrix, self.matrix))


@dataclass(frozen=True, slots=True, eq=False)
class ProductStrategy:
    """`(kron_s B_s) x` plus independent Gaussian noise of one variance.

    An integer strategy costs exactly `share` grains of `2^-grain`; a real one serves to be compared with.
    """

    factors: tuple[StrategyFactor, ...]
    noise_variance: float
    share: int | None = None
    grain: int | None = None

    kind: ClassVar[str] = "product"

    def cost(self) -> float:
        """Privacy cost of adding or removing one record."""
        return math.prod(float(factor.costs().max()) for factor in self.factors) / self.noise_variance

    @property
    def exact_norm(self) -> int:
        """Largest squared length of a column of the integer matrix, exactly."""
        return math.prod(column_norm(factor.matrix.astype(np.int64)) for factor in self.factors)

    def exact_cost(self) -> Fraction:
        """Privacy cost of an integer strategy, exactly."""
        if self.share is None or self.grain is None:
            raise ValueError("only an integer strategy has an exact cost")
        return Fraction(self.share) / Fraction(2) ** self.grain

    def replacement_cost(self) -> float:
        """Privacy cost of replacing one record, not rounded down; for many joint cells 4 times `cost` (A-005)."""
        if math.prod(factor.matrix.shape[1] for factor in self.factors) > TIED_CELLS:
            return 4 * self.cost()
        square = join([factor.matrix.T @ factor.matrix for factor in self.factors])
        own = np.diagonal(square)
        worst = float((own[:, None] + own[None, :] - 2 * square).max())
        # Differences of large numbers: what rounding can have taken off is put back.
        steps = sum(len(factor.matrix) + 1 for factor in self.factors) + 3
        return (worst + 4 * steps * ROUNDING * float(own.max())) / self.noise_variance

    def scaled(self, factor: float) -> "ProductStrategy":
        """The same measurement with the noise variance divided by `factor`."""
        return replace(self, noise_variance=self.noise_variance / factor)

    def variances(self, group: Group) -> Array:
        """Variance of each query's answer, shape (count,)."""
        parts = self._parts(group)
        grids = [_listed(part, part.square) for part in parts]
        return _arrange(group, parts, grids) * self._scale(_strategies(parts))

    def total(self, group: Group, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        result = group.weight if weighted else 1.0
        parts = self._parts(group)
        for part in parts:
            square = part.square
            for factor in part.factors:
                square = _contract(square, factor, weighted)
            result *= float(square[0, 0])
        return result * self._scale(_strategies(parts))

    def totals(self, part: Group | Tables) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables."""
        return totals_by_table(self, part)

    def largest(self, group: Group) -> float:
        """Largest variance: the product of the largest of each part; nan if they cannot be gone through."""
        parts = self._parts(group)
        if not group.listable:
            return math.nan
        return math.prod(float(_listed(part, part.square).max()) for part in parts) * self._scale(
            _strategies(parts)
        )

    def covariance(self, left: Group, right: Group) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        if left.count * right.count > COVARIANCE_LIMIT:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} has "
                f"{left.count * right.count:,} entries; ask for at most {COVARIANCE_LIMIT:,} at a time"
            )
        for group in (left, right):
            self._parts(group)  # refuses what the measurements do not support
        left, right = self._without_unmeasured_totals(left), self._without_unmeasured_totals(right)
        order = sorted({*left.attributes, *right.attributes})
        touched = _touching(self._with_unmeasured(left, right), order)
        sizes = {
            axis: size for ours in touched for axis, size in zip(ours.attributes, ours.sizes, strict=True)
        }
        width = [sizes[axis] for axis in order]
        if math.prod(width) > TIED_CELLS:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} needs {math.prod(width):,} joint "
                f"cells, more than {TIED_CELLS:,}; ask for tables on fewer attributes, or for variances"
            )
        square = _marginal(touched, [ours.inverse for ours in touched], order)
        rows = [_dense_rows(group, order, width) for group in (left, right)]
        return np.asarray(rows[0] @ square @ rows[1].T) * self._scale(touched)

    def describe(self) -> Iterator[str]:
        """One line per factor."""
        measured = [factor for factor in self.factors if factor.attributes]
        if not measured:
            yield "the number of records"
        for factor in measured:
            rows, cells = factor.matrix.shape
            width = len(factor.attributes)
            yield f"{rows:,} queries on {cells:,} cells of {width} attribute{'s' if width > 1 else ''}"

    def record(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Its factors, with matrices in `arrays`."""
        factors = []
        for factor in self.factors:
            key = f"strategy.{len(arrays)}"
            arrays[key] = factor.matrix if self.grain is None else factor.matrix.astype(np.int64)
            factors.append(
                {"attributes": list(factor.attributes), "sizes": list(factor.sizes), "matrix": key}
            )
        return {
            "kind": self.kind,
            "factors": factors,
            "noise_variance": self.noise_variance,
            "share": None if self.share is None else str(self.share),
            "grain": self.grain,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "ProductStrategy":
        """The strategy that `record` described."""
        if record.get("kind") != cls.kind:
            raise FileFormatError(f"this version knows no strategy of kind {record.get('kind')!r}")
        factors = tuple(
            StrategyFactor(
                tuple(part["attributes"]),
                tuple(part["sizes"]),
                np.asarray(arrays[part["matrix"]], dtype=np.float64),
            )
            for part in record["factors"]
        )
        share = None if record["share"] is None else int(record["share"])
        return cls(factors, float(record["noise_variance"]), share, record["grain"])

    def _scale(self, asked: Iterable[StrategyFactor]) -> float:
        """Noise variance times the variance of a total over each factor that is not among those asked."""
        known = {id(factor) for factor in asked}
        idle = (factor for factor in self.factors if id(factor) not in known)
        return self.noise_variance * math.prod(float(factor.inverse.sum()) for factor in idle)

    def _with_unmeasured(self, *groups: Group) -> tuple[StrategyFactor, ...]:
        """Our factors, and a total over each attribute that the groups ask about and we do not measure.

        To measure nothing along an attribute is to measure its total there (claim A-003).
        """
        ours = list(self.factors)
        for group in groups:
            for axis, size in _sizes(group.factors):
                if any(axis in factor.attributes for factor in ours):
                    continue
                if size > TIED_CELLS:
                    raise NotInSpan(
                        f"table {group.name!r} asks about an attribute of {size:,} cells that the plan does "
                        "not measure; add the table to the workload before planning"
                    )
                ours.append(StrategyFactor((axis,), (size,), np.ones((1, size))))
        return tuple(ours)

    def _parts(self, group: Group) -> "list[_Part]":
        """The group's factors and ours, tied into the smallest independent parts."""
        group = self._without_unmeasured_totals(group)
        measured = self._with_unmeasured(group)
        parts: list[_Part] = []
        left = list(group.factors)
        while left:
            tied = [left.pop(0)]
            ours = _touching(measured, _axes(tied))
            while more := [f for f in left if any(set(f.attributes) & set(s.attributes) for s in ours)]:
                tied += more
                left = [f for f in left if f not in more]
                ours = _touching(measured, _axes(tied))
            tied.sort(key=group.factors.index)
            parts.append(_Part.of(ours, tuple(tied), group.name))
        _refuse_outside(self.factors, parts, group.name)
        return parts

    def _without_unmeasured_totals(self, group: Group) -> Group:
        """The same queries: a total over an attribute that is not measured asks nothing."""
        measured = {axis for factor in self.factors for axis in factor.attributes}
        kept = (f for f in group.factors if f.attributes[0] in measured or not isinstance(f.queries, Total))
        return replace(group, factors=tuple(kept))


def _axes(factors: Iterable[Factor]) -> list[int]:
    return [axis for factor in factors for axis in factor.attributes]


def _sizes(factors: Iterable[Factor]) -> Iterator[tuple[int, int]]:
    """Each attribute with its number of cells."""
    for factor in factors:
        yield from zip(factor.attributes, factor.queries.sizes, strict=True)


def _touching(ours: tuple[StrategyFactor, ...], axes: Iterable[int]) -> tuple[StrategyFactor, ...]:
    wanted = set(axes)
    return tuple(factor for factor in ours if wanted & set(factor.attributes))


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Some factors of a group with the strategy factors they touch.

    `square` is the covariance of the marginal on the group's attributes, in its order. Where there are things
    that no measurement sees, `q whole q'` is a query's squared length over all cells and `q outside q'` that
    of its unseen part.
    """

    strategy: tuple[StrategyFactor, ...]
    factors: tuple[Factor, ...]
    square: Array
    whole: Array | None = None
    outside: Array | None = None

    @classmethod
    def of(cls, strategy: tuple[StrategyFactor, ...], factors: tuple[Factor, ...], name: str) -> "_Part":
        order = _axes(factors)
        tied = len(strategy) > 1
        cells = math.prod(factor.queries.cells for factor in factors)
        if tied and cells > TIED_CELLS:
            raise WorkloadError(
                f"table {name!r} joins attributes that are measured apart in {cells:,} cells, "
                f"more than {TIED_CELLS:,}; ask about fewer cells, or plan this table with the others"
            )
        square = _marginal(strategy, [factor.inverse for factor in strategy], order)
        if all(factor.projector is None for factor in strategy):
            return cls(strategy, factors, square)
        seen = [
            np.eye(ours.matrix.shape[1]) if ours.projector is None else ours.projector for ours in strategy
        ]
        each = math.prod(ours.matrix.shape[1] for ours in strategy) // cells  # cells of ours per cell asked
        whole = each * np.eye(cells)
        return cls(strategy, factors, square, whole, whole - _marginal(strategy, seen, order))


def _marginal(strategy: tuple[StrategyFactor, ...], squares: list[Array], order: list[int]) -> Array:
    """Kronecker product of the squares, summed out to the attributes in `order`."""
    kept: list[int] = []
    sizes: list[int] = []
    reduced = []
    for factor, square in zip(strategy, squares, strict=True):
        keep = [place for place, axis in enumerate(factor.attributes) if axis in order]
        reduced.append(sum_out(square, factor.sizes, keep))
        kept += [factor.attributes[place] for place in keep]
        sizes += [factor.sizes[place] for place in keep]
    return sum_out(join(reduced), sizes, [kept.index(axis) for axis in order])


def _listed(part: _Part, square: Array, *, spanning: bool = False) -> Array:
    """`q square q'` for every query of the part, shape (count of each factor...).

    With `spanning`, a family too large to be listed is represented by rows that span it.
    """
    result = square[None]  # (queries so far, cells left, cells left)
    counts = []
    for factor in part.factors:
        done, cells = len(result), factor.queries.cells
        rest = result.shape[1] // cells
        tensor = result.reshape(done, cells, rest, cells, rest).transpose(0, 2, 4, 1, 3)
        if spanning and not factor.queries.listable:
            rows = factor.queries.root()
            listed = np.sum((rows @ tensor) * rows, axis=-1)
        else:
            listed = factor.queries.quadratic(tensor)  # (done, rest, rest, count)
        result = listed.transpose(0, 3, 1, 2).reshape(-1, rest, rest)
        counts.append(listed.shape[-1])
    return result.reshape(counts)


def _contract(square: Array, factor: Factor, weighted: bool) -> Array:
    """Sum over one factor's queries, from (cells * rest) squared to rest squared."""
    cells = factor.queries.cells
    rest = len(square) // cells
    tensor = square.reshape(cells, rest, cells, rest).transpose(1, 3, 0, 2)
    return factor.queries.trace(tensor, weighted=weighted)


def _arrange(group: Group, parts: list[_Part], grids: list[Array]) -> Array:
    """Outer product of the parts' grids, in the order of the group's factors, flattened."""
    places = [group.factors.index(factor) for part in parts for factor in part.factors]
    outer: Array = reduce(np.multiply.outer, grids, np.ones(()))
    return np.asarray(outer.transpose(np.argsort(places)).reshape(-1))


def _strategies(parts: "list[_Part]") -> list[StrategyFactor]:
    return [factor for part in parts for factor in part.strategy]


def _refuse_outside(ours: tuple[StrategyFactor, ...], parts: list[_Part], name: str) -> None:
    asked = {id(factor) for factor in _strategies(parts)}
    for factor in ours:
        if id(factor) not in asked and factor.projector is not None:
            cells = len(factor.projector)
            if cells - float(factor.projector.sum()) > SPAN_TOLERANCE * cells:
                raise NotInSpan(
                    f"table {name!r} needs a total that the plan's measurements do not contain; "
                    "add the table to the workload before planning"
                )
    for part in parts:
        if part.whole is None or part.outside is None:
            continue
        allowed = SPAN_TOLERANCE * _listed(part, part.whole, spanning=True)
        excess = _listed(part, part.outside, spanning=True) - allowed
        if excess.max() > 0:
            title = TIMES.join(factor.queries.title for factor in part.factors)
            listable = all(factor.queries.listable for factor in part.factors)
            which = f"query {int(np.argmax(excess))}" if listable else "some query"
            raise NotInSpan(
                f"table {name!r}: {which} of {title!r} is not a combination of the plan's measurements; "
                "add the table to the workload before planning"
            )


def _dense_rows(group: Group, order: list[int], sizes: list[int]) -> Array:
    """The group's queries as rows over all cells of the strategy, shape (count, cells)."""
    rows = join(factor.queries.matrix() for factor in group.factors)
    places = [order.index(axis) for axis in group.attributes]
    return spread(rows, [sizes[place] for place in places], places, sizes)
