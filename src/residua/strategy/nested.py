"""Measured marginals that contain each other: products of one strategy per attribute on many subsets.

With `G = B'B` for the strategy B of an attribute and `p = G^+ 1 / s`, `s = 1' G^+ 1`, the gram splits into
`11'/s + C'GC`, `C = I - p1'`: so every term measures all residuals of its attributes at once, each with noise
of its own, and all terms together are equivalent to independent blocks, one per residual, whose precisions
add up (claim H-020). Whatever is asked of the strategy is asked of those blocks.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError, Infeasible
from residua.linalg.centring import Measure
from residua.linalg.rows import inverse_gram
from residua.privacy import NoiseLaw
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.blocks import Layer, Shape
from residua.strategy.noise_laws import noise_law, variance_ratio
from residua.strategy.terms import Termwise
from residua.workload import Group, Tables

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Subset = tuple[int, ...]

EVEN = 1e-12  # relative difference of weights that is rounding
RANK_RATIO = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One measured marginal: its attributes, ascending, and the noise variance of each number.

    `share` is the exact cost of a term of an integer strategy, in grains.
    """

    attributes: Subset
    noise_variance: float
    share: int | None = None


@dataclass(frozen=True, eq=False)
class NestedStrategy(Termwise):
    """Terms, each `multiplier * kron(B_i)` on a marginal with independent noise.

    `matrices` are the distinct B; `chosen` has the number of its B for each attribute of the schema, of
    `sizes` cells, or -1 where no term looks at it.
    """

    sizes: tuple[int, ...]
    matrices: tuple[Array, ...]
    chosen: tuple[int, ...]
    terms: tuple[Term, ...]
    law: NoiseLaw
    multiplier: int = 1
    grain: int | None = None

    kind: ClassVar[str] = "nested"

    def matrices_of(self, term: Term) -> list[Array]:
        """The matrix that a term measures along each of its attributes."""
        return [self.matrices[self.chosen[at]] for at in term.attributes]

    def scaled(self, factor: float) -> "NestedStrategy":
        """The same measurements at `factor` times the privacy cost."""
        ratio = variance_ratio(self.law, factor)
        terms = (replace(term, noise_variance=term.noise_variance / ratio) for term in self.terms)
        return replace(self, terms=tuple(terms))

    @cached_property
    def halves(self) -> tuple["Half", ...]:
        """How each distinct matrix splits into the total and what is centred."""
        return tuple(Half.of(matrix) for matrix in self.matrices)

    def precisions(self, term: Term) -> Iterator[tuple[Subset, float]]:
        """The residuals that a term measures, each with one over its noise variance in units of the block."""
        own = self.multiplier**2 / term.noise_variance
        spreads = {at: self.halves[self.chosen[at]].spread for at in term.attributes}
        for size in range(len(term.attributes) + 1):
            for kept in combinations(term.attributes, size):
                yield kept, own / math.prod(spreads[at] for at in term.attributes if at not in kept)

    @cached_property
    def precision(self) -> dict[Subset, float]:
        """One over the noise variance of every residual's block."""
        sums: dict[Subset, float] = {}
        for term in self.terms:
            for kept, amount in self.precisions(term):
                sums[kept] = sums.get(kept, 0.0) + amount
        return sums

    @cached_property
    def blocks(self) -> BlockStrategy:
        """Independent blocks with the same variances and covariances of every answer."""
        measures = tuple(
            Measure(size) if number < 0 else self.halves[number].measure
            for size, number in zip(self.sizes, self.chosen, strict=True)
        )
        ways: dict[int, list[Subset]] = {}
        for kept in self.precision:
            ways.setdefault(len(kept), []).append(kept)
        layers = []
        for size, subsets in sorted(ways.items()):
            noise = np.array([1.0 / self.precision[kept] for kept in subsets])
            rows = np.array(subsets, dtype=np.int32).reshape(len(subsets), size)
            shapes = np.array(self.chosen, dtype=np.int64)[rows].reshape(len(subsets), size)
            layout = tuple((place,) for place in range(size))
            layers.append(Layer(rows, layout, shapes, np.zeros(len(subsets)), noise))
        return BlockStrategy(self.sizes, measures, tuple(half.shape for half in self.halves), tuple(layers))

    def variances(self, group: Group) -> Array:
        """Variance of each query's answer, shape (count,)."""
        return self.blocks.variances(group)

    def total(self, group: Group, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        return self.blocks.total(group, weighted=weighted)

    def totals(self, part: Group | Tables) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables."""
        return self.blocks.totals(part)

    def largest(self, group: Group) -> float:
        """Largest variance of the group's queries; nan if there are too many to go through."""
        return self.blocks.largest(group)

    def covariance(self, left: Group, right: Group) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        return self.blocks.covariance(left, right)

    def describe(self) -> Iterator[str]:
        """Lines for people: how many marginals of which size, and their share of the privacy."""
        whole = self.cost()
        ways: dict[int, list[float]] = {}
        for term, cost in zip(self.terms, self.costs(), strict=True):
            ways.setdefault(len(term.attributes), []).append(cost)
        for size, costs in sorted(ways.items()):
            what = f"{len(costs):,} marginal{'s' * (len(costs) > 1)} on {size} attribute{'s' * (size > 1)}"
            what = "the number of records" if size == 0 else what
            yield f"{what}: {math.fsum(costs) / whole:.1%} of the privacy cost"

    def record(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Its terms, with matrices in `arrays`."""
        for number, matrix in enumerate(self.matrices):
            arrays[f"nested.matrix.{number}"] = matrix if self.grain is None else matrix.astype(np.int64)
        terms = [
            {
                "attributes": list(term.attributes),
                "noise_variance": term.noise_variance,
                "share": None if term.share is None else str(term.share),
            }
            for term in self.terms
        ]
        return {
            "kind": self.kind,
            "law": self.law,
            "sizes": list(self.sizes),
            "matrices": len(self.matrices),
            "chosen": list(self.chosen),
            "terms": terms,
            "multiplier": self.multiplier,
            "grain": self.grain,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "NestedStrategy":
        """The strategy that `record` described."""
        if record.get("kind") != cls.kind:
            raise FileFormatError(f"this version knows no strategy of kind {record.get('kind')!r}")
        terms = tuple(
            Term(
                tuple(part["attributes"]),
                float(part["noise_variance"]),
                None if part["share"] is None else int(part["share"]),
            )
            for part in record["terms"]
        )
        matrices = tuple(
            np.asarray(arrays[f"nested.matrix.{number}"], dtype=np.float64)
            for number in range(record["matrices"])
        )
        law = noise_law(record["law"])
        sizes, chosen = tuple(record["sizes"]), tuple(record["chosen"])
        return cls(sizes, matrices, chosen, terms, law, record["multiplier"], record["grain"])


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """A matrix B that determines the total: `B'B = 11'/spread + C'(B'B)C`, C the centring of `measure`."""

    spread: float
    measure: Measure
    shape: Shape

    @classmethod
    def of(cls, matrix: Array) -> "Half":
        """The split of a matrix whose rows have a combination of ones (claim H-020)."""
        inverse, projector = inverse_gram(matrix)
        size = matrix.shape[1]
        weights = inverse.sum(axis=1)
        spread = float(weights.sum())
        if projector is not None and size - float(projector.sum()) > RANK_RATIO * size:
            raise Infeasible(
                "queries of one attribute that do not determine the total are not measured beside other "
                "marginals; plan with method 'hdmm' or 'hdmm-kron'"
            )
        weights = weights / spread
        even = bool(np.abs(weights * size - 1.0).max() <= EVEN * size)
        measure = Measure(size) if even else Measure.of(weights)
        rank = size if projector is None else round(float(np.trace(projector)))
        centred = matrix - np.outer(matrix @ measure.vector(), np.ones(size))
        return cls(spread, measure, Shape((size,), centred, rank - 1))


def distinct(matrices: Sequence[Array | None]) -> tuple[tuple[Array, ...], tuple[int, ...]]:
    """The distinct matrices and for each attribute the number of its own, -1 for none."""
    numbers: dict[tuple[bytes, int], int] = {}
    kept: list[Array] = []
    chosen = []
    for matrix in matrices:
        if matrix is None:
            chosen.append(-1)
            continue
        key = (matrix.tobytes(), matrix.shape[1])
        if key not in numbers:
            numbers[key] = len(kept)
            kept.append(matrix)
        chosen.append(numbers[key])
    return tuple(kept), tuple(chosen)
