"""One measurement: a Kronecker product of matrices on disjoint attributes, and its least-squares answers.

With `X = kron_s B_s'B_s / sigma^2`, the pseudo-inverse is a Kronecker product too, so a query that is a
product over the same attributes has a variance that is a product (claim A-002). Nothing larger than
the square of one factor, or of the factors that one of the group's joint families ties together, is formed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError, WorkloadError
from residua.linalg.squares import join, spread
from residua.privacy import NoiseLaw
from residua.strategy.integers import column_norm, column_sum
from residua.strategy.mechanism import totals_by_table
from residua.strategy.noise_laws import (
    column_costs,
    largest_difference,
    noise_law,
    parameter_of,
    variance_ratio,
)
from residua.strategy.product_parts import (
    TIED_CELLS,
    StrategyFactor,
    arranged,
    marginal,
    measured_by,
    parts_of,
    touching,
    with_unmeasured,
    without_unmeasured_totals,
)
from residua.workload import Group, Tables

__all__ = ["ProductStrategy", "StrategyFactor"]

Array = NDArray[np.float64]

COVARIANCE_LIMIT = 10_000_000  # entries
ROUNDING = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, eq=False)
class ProductStrategy:
    """`(kron_s B_s) x` plus independent noise of one variance, Gaussian unless `law` says Laplace.

    An integer strategy costs exactly `share` grains of `2^-grain`; a real one serves to be compared with.
    """

    factors: tuple[StrategyFactor, ...]
    noise_variance: float
    share: int | None = None
    grain: int | None = None
    law: NoiseLaw = "gaussian"

    kind: ClassVar[str] = "product"

    def cost(self) -> float:
        """Privacy cost of adding or removing one record."""
        if self.share is not None:
            return float(self.exact_cost())  # the variance of integer noise is not quite its parameter
        norm = math.prod(float(column_costs(self.law, factor.matrix).max()) for factor in self.factors)
        return norm / parameter_of(self.law, self.noise_variance)

    @property
    def exact_norm(self) -> int:
        """Cost of the integer matrix at noise of parameter 1, exactly: of a column, squared length or sum."""
        size = column_sum if self.law == "laplace" else column_norm
        return math.prod(size(factor.matrix.astype(np.int64)) for factor in self.factors)

    def exact_cost(self) -> Fraction:
        """Privacy cost of an integer strategy, exactly."""
        if self.share is None or self.grain is None:
            raise ValueError("only an integer strategy has an exact cost")
        return Fraction(self.share) / Fraction(2) ** self.grain

    def replacement_cost(self) -> float:
        """Privacy cost of replacing one record, never rounded down (claim A-005).

        For many joint cells, 4 times `cost` (2 times for Laplace noise), which is a bound.
        """
        if self.law == "laplace":
            return self.cost() * largest_difference([factor.matrix for factor in self.factors])
        if math.prod(factor.matrix.shape[1] for factor in self.factors) > TIED_CELLS:
            return 4 * self.cost()
        square = join([factor.matrix.T @ factor.matrix for factor in self.factors])
        own = np.diagonal(square)
        worst = float((own[:, None] + own[None, :] - 2 * square).max())
        # Differences of large numbers: what rounding can have taken off is put back.
        steps = sum(len(factor.matrix) + 1 for factor in self.factors) + 3
        return self.cost() * (worst / float(own.max()) + 4 * steps * ROUNDING)

    def scaled(self, factor: float) -> "ProductStrategy":
        """The same measurement at `factor` times the privacy cost."""
        return replace(self, noise_variance=self.noise_variance / variance_ratio(self.law, factor))

    def variances(self, group: Group) -> Array:
        """Variance of each query's answer, shape (count,)."""
        parts = parts_of(self.factors, group)
        return arranged(group, parts) * self._scale(measured_by(parts))

    def total(self, group: Group, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        result = group.weight if weighted else 1.0
        parts = parts_of(self.factors, group)
        result *= math.prod(part.total(weighted=weighted) for part in parts)
        return result * self._scale(measured_by(parts))

    def totals(self, part: Group | Tables) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables."""
        return totals_by_table(self, part)

    def largest(self, group: Group) -> float:
        """Largest variance: the product of the largest of each part; nan if they cannot be gone through."""
        parts = parts_of(self.factors, group)
        if not group.listable:
            return math.nan
        return math.prod(float(part.variances().max()) for part in parts) * self._scale(measured_by(parts))

    def covariance(self, left: Group, right: Group) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        if left.count * right.count > COVARIANCE_LIMIT:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} has "
                f"{left.count * right.count:,} entries; ask for at most {COVARIANCE_LIMIT:,} at a time"
            )
        for group in (left, right):
            parts_of(self.factors, group)  # refuses what the measurements do not support
        left, right = (without_unmeasured_totals(self.factors, group) for group in (left, right))
        order = sorted({*left.attributes, *right.attributes})
        touched = touching(with_unmeasured(self.factors, left, right), order)
        sizes = {
            axis: size for ours in touched for axis, size in zip(ours.attributes, ours.sizes, strict=True)
        }
        width = [sizes[axis] for axis in order]
        if math.prod(width) > TIED_CELLS:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} needs {math.prod(width):,} joint "
                f"cells, more than {TIED_CELLS:,}; ask for tables on fewer attributes, or for variances"
            )
        square = marginal(touched, [ours.inverse for ours in touched], order)
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
        } | ({"law": self.law} if self.law != "gaussian" else {})

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
        law = noise_law(record.get("law", "gaussian"))
        return cls(factors, float(record["noise_variance"]), share, record["grain"], law)

    def _scale(self, asked: Iterable[StrategyFactor]) -> float:
        """Noise variance times the variance of a total over each factor that is not among those asked."""
        known = {id(factor) for factor in asked}
        idle = (factor for factor in self.factors if id(factor) not in known)
        return self.noise_variance * math.prod(float(factor.inverse.sum()) for factor in idle)


def _dense_rows(group: Group, order: list[int], sizes: list[int]) -> Array:
    """The group's queries as rows over all cells of the strategy, shape (count, cells)."""
    rows = join(factor.queries.matrix() for factor in group.factors)
    places = [order.index(axis) for axis in group.attributes]
    return spread(rows, [sizes[place] for place in places], places, sizes)
