"""One measurement: a Kronecker product of matrices on disjoint attributes, and its least-squares answers.

With `X = kron_s B_s'B_s / sigma^2`, the pseudo-inverse is a Kronecker product too, so a query that is a
product over the same attributes has a variance that is a product (claim A-002). Nothing larger than
the square of one factor, or of the factors that one of the group's joint families ties together, is formed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError, NotInSpan, WorkloadError
from residua.linalg.rows import inverse_gram
from residua.linalg.squares import join, spread, sum_out
from residua.workload import Factor, Group

Array = NDArray[np.float64]

COVARIANCE_LIMIT = 10_000_000  # entries
TIED_CELLS = 5_000  # joint cells of factors that have to be multiplied out
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
        inverse, projector = inverse_gram(self.matrix)
        object.__setattr__(self, "inverse", inverse)
        object.__setattr__(self, "projector", projector)

    def costs(self) -> Array:
        """Squared length of each column, shape (cells,)."""
        return np.asarray(np.einsum("ri,ri->i", self.matrix, self.matrix))


@dataclass(frozen=True, slots=True, eq=False)
class ProductStrategy:
    """`(kron_s B_s) x` plus independent Gaussian noise of one variance."""

    factors: tuple[StrategyFactor, ...]
    noise_variance: float

    kind: ClassVar[str] = "product"

    def cost(self) -> float:
        """Privacy cost of adding or removing one record."""
        return math.prod(float(factor.costs().max()) for factor in self.factors) / self.noise_variance

    def replacement_cost(self) -> float:
        """Privacy cost of replacing one record: exact for few joint cells, otherwise 4 times `cost`."""
        if math.prod(factor.matrix.shape[1] for factor in self.factors) > TIED_CELLS:
            return 4 * self.cost()
        square = join([factor.matrix.T @ factor.matrix for factor in self.factors])
        own = np.diagonal(square)
        return float((own[:, None] + own[None, :] - 2 * square).max()) / self.noise_variance

    def scaled(self, factor: float) -> "ProductStrategy":
        """The same measurement with the noise variance divided by `factor`."""
        return replace(self, noise_variance=self.noise_variance / factor)

    def variances(self, group: Group) -> Array:
        """Variance of each query's answer, shape (count,)."""
        parts = self._parts(group)
        grids = [_listed(part, part.square) for part in parts]
        return _arrange(group, parts, grids) * self._scale(parts)

    def total(self, group: Group, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        result = group.weight if weighted else 1.0
        parts = self._parts(group)
        for part in parts:
            square = part.square
            for factor in part.factors:
                square = _contract(square, factor, weighted)
            result *= float(square[0, 0])
        return result * self._scale(parts)

    def largest(self, group: Group) -> float:
        """Largest variance: the product of the largest of each part."""
        parts = self._parts(group)
        return math.prod(float(_listed(part, part.square).max()) for part in parts) * self._scale(parts)

    def covariance(self, left: Group, right: Group) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        if left.count * right.count > COVARIANCE_LIMIT:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} has "
                f"{left.count * right.count:,} entries; ask for at most {COVARIANCE_LIMIT:,} at a time"
            )
        for group in (left, right):
            self._parts(group)  # refuses what the measurements do not support
        order = [axis for factor in self.factors for axis in factor.attributes]
        sizes = [size for factor in self.factors for size in factor.sizes]
        if math.prod(sizes) > TIED_CELLS:
            raise WorkloadError(
                f"covariances of a joint strategy on {math.prod(sizes):,} cells are not available; "
                "ask for variances, or plan fewer attributes together"
            )
        inverse = join([factor.inverse for factor in self.factors])
        rows = [_dense_rows(group, order, sizes) for group in (left, right)]
        return np.asarray(rows[0] @ inverse @ rows[1].T) * self.noise_variance

    def describe(self) -> Iterator[str]:
        """One line per factor."""
        for factor in self.factors:
            rows, cells = factor.matrix.shape
            yield f"{rows:,} queries on {cells:,} cells of {len(factor.attributes)} attribute(s)"

    def record(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Its factors, with matrices in `arrays`."""
        factors = []
        for factor in self.factors:
            key = f"strategy.{len(arrays)}"
            arrays[key] = factor.matrix
            factors.append(
                {"attributes": list(factor.attributes), "sizes": list(factor.sizes), "matrix": key}
            )
        return {"kind": self.kind, "factors": factors, "noise_variance": self.noise_variance}

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
        return cls(factors, float(record["noise_variance"]))

    def _scale(self, parts: "list[_Part]") -> float:
        """Noise variance times the variance of a total over each factor that the group does not ask."""
        asked = {id(factor) for part in parts for factor in part.strategy}
        idle = (factor for factor in self.factors if id(factor) not in asked)
        return self.noise_variance * math.prod(float(factor.inverse.sum()) for factor in idle)

    def _parts(self, group: Group) -> "list[_Part]":
        """The group's factors and ours, tied into the smallest independent parts."""
        measured = {axis for factor in self.factors for axis in factor.attributes}
        missing = sorted(set(group.attributes) - measured)
        if missing:
            raise NotInSpan(f"table {group.name!r} needs attributes {missing} that the plan does not measure")
        parts: list[_Part] = []
        left = list(group.factors)
        while left:
            tied = [left.pop(0)]
            ours = _touching(self.factors, tied)
            while more := [f for f in left if any(set(f.attributes) & set(s.attributes) for s in ours)]:
                tied += more
                left = [f for f in left if f not in more]
                ours = _touching(self.factors, tied)
            tied.sort(key=group.factors.index)
            parts.append(_Part.of(tuple(ours), tuple(tied), group.name))
        _refuse_outside(self.factors, parts, group.name)
        return parts


def _touching(ours: tuple[StrategyFactor, ...], asked: list[Factor]) -> list[StrategyFactor]:
    wanted = {axis for factor in asked for axis in factor.attributes}
    return [factor for factor in ours if wanted & set(factor.attributes)]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Some factors of a group with the strategy factors they touch.

    `square` is the covariance of the marginal on the group's attributes, in its order; `outside` is the
    part of each query that no measurement sees, as a square of the same shape, or None.
    """

    strategy: tuple[StrategyFactor, ...]
    factors: tuple[Factor, ...]
    square: Array
    outside: Array | None

    @classmethod
    def of(cls, strategy: tuple[StrategyFactor, ...], factors: tuple[Factor, ...], name: str) -> "_Part":
        order = [axis for factor in factors for axis in factor.attributes]
        tied = len(strategy) > 1
        cells = math.prod(factor.queries.cells for factor in factors)
        if tied and cells > TIED_CELLS:
            raise WorkloadError(
                f"table {name!r} joins attributes that are measured apart in {cells:,} cells, "
                f"more than {TIED_CELLS:,}"
            )
        square = _marginal(strategy, [factor.inverse for factor in strategy], order)
        outside = None
        if any(factor.projector is not None for factor in strategy):
            whole = [np.eye(factor.matrix.shape[1]) for factor in strategy]
            seen = [
                eye if factor.projector is None else factor.projector
                for factor, eye in zip(strategy, whole, strict=True)
            ]
            outside = _marginal(strategy, whole, order) - _marginal(strategy, seen, order)
        return cls(strategy, factors, square, outside)


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


def _listed(part: _Part, square: Array) -> Array:
    """`q square q'` for every query of the part, shape (count of each factor...)."""
    result = square[None]  # (queries so far, cells left, cells left)
    for factor in part.factors:
        done, cells = len(result), factor.queries.cells
        rest = result.shape[1] // cells
        tensor = result.reshape(done, cells, rest, cells, rest).transpose(0, 2, 4, 1, 3)
        listed = factor.queries.quadratic(tensor)  # (done, rest, rest, count)
        result = listed.transpose(0, 3, 1, 2).reshape(-1, rest, rest)
    return result.reshape([factor.queries.count for factor in part.factors])


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


def _refuse_outside(ours: tuple[StrategyFactor, ...], parts: list[_Part], name: str) -> None:
    asked = {id(factor) for part in parts for factor in part.strategy}
    for factor in ours:
        if id(factor) not in asked and factor.projector is not None:
            cells = len(factor.projector)
            if cells - float(factor.projector.sum()) > SPAN_TOLERANCE * cells:
                raise NotInSpan(f"table {name!r} needs a total that the plan's measurements do not contain")
    for part in parts:
        if part.outside is None:
            continue
        lengths = _listed(part, np.eye(len(part.square)))
        beyond = _listed(part, part.outside)
        worst = int(np.argmax(beyond - SPAN_TOLERANCE * lengths))
        if beyond.flat[worst] > SPAN_TOLERANCE * max(float(lengths.flat[worst]), 1e-300):
            raise NotInSpan(
                f"table {name!r}: query {worst} of {part.factors[0].queries.title!r} is not a combination of "
                "the plan's measurements; add the table to the workload before planning"
            )


def _dense_rows(group: Group, order: list[int], sizes: list[int]) -> Array:
    """The group's queries as rows over all cells of the strategy, shape (count, cells)."""
    rows = join(factor.queries.matrix() for factor in group.factors)
    places = [order.index(axis) for axis in group.attributes]
    return spread(rows, [sizes[place] for place in places], places, sizes)
