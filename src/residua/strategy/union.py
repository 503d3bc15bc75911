"""A union of products: Kronecker products measured side by side, answered together by least squares."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError, NotInSpan, WorkloadError
from residua.linalg.squares import join, spread
from residua.privacy import NoiseLaw
from residua.strategy.frames import DENSE_CELLS, Frame, frame_of
from residua.strategy.mechanism import totals_by_table
from residua.strategy.noise_laws import noise_law, variance_ratio
from residua.strategy.terms import Termwise
from residua.workload import Factor, Group, Tables

Array = NDArray[np.float64]

SPAN_TOLERANCE = 1e-9  # of a query's squared length: what rounding may leave outside what is measured
COVARIANCE_LIMIT = 10_000_000  # entries


@dataclass(frozen=True, slots=True)
class UnionAxis:
    """Attributes whose cells one matrix looks at together, and their sizes."""

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Number of joint cells."""
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One product: a matrix for each axis, None where it asks for the total, and the noise variance."""

    matrices: tuple[Array | None, ...]
    noise_variance: float
    share: int | None = None


@dataclass(frozen=True, eq=False)
class UnionStrategy(Termwise):
    """Products over the same axes, each `multiplier * kron(B)` with independent noise of its own variance."""

    axes: tuple[UnionAxis, ...]
    terms: tuple[Product, ...]
    law: NoiseLaw
    multiplier: int = 1
    grain: int | None = None

    kind: ClassVar[str] = "union"

    def matrices_of(self, term: Product) -> list[Array]:
        """The matrix that a term measures along each axis of which it asks for more than the total."""
        return [matrix for matrix in term.matrices if matrix is not None]

    def scaled(self, factor: float) -> "UnionStrategy":
        """The same measurements at `factor` times the privacy cost."""
        ratio = variance_ratio(self.law, factor)
        terms = (replace(term, noise_variance=term.noise_variance / ratio) for term in self.terms)
        return replace(self, terms=tuple(terms))

    def matrix(self, term: Product, axis: int) -> Array:
        """The matrix of a term along an axis; a row of ones where it asks for the total."""
        found = term.matrices[axis]
        return np.ones((1, self.axes[axis].cells)) if found is None else found

    @cached_property
    def frame(self) -> Frame:
        """Coordinates in which the privacy matrix is diagonal."""
        grams = []
        for term in self.terms:
            rows = [self.matrix(term, axis) for axis in range(len(self.axes))]
            grams.append([each.T @ each for each in rows])
        return frame_of(grams, [self.multiplier**2 / term.noise_variance for term in self.terms])

    def variances(self, group: Group) -> Array:
        """Variance of each query's answer, shape (count,)."""
        self._refuse_outside(group)
        parts = list(self._parts(group))
        tensor = self.frame.inverse
        for axes, factors, basis in reversed(parts):  # the last axis of the tensor that is left, each time
            squares = (self._rows(factors, axes, listed=True) @ basis) ** 2
            tensor = np.tensordot(squares, tensor, axes=(1, len(parts) - 1))
        counts = [factor.queries.count for _, factors, _ in parts for factor in factors]
        order = [group.factors.index(factor) for _, factors, _ in parts for factor in factors]
        return np.asarray(tensor.reshape(counts).transpose(np.argsort(order)).reshape(-1))

    def total(self, group: Group, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        self._refuse_outside(group)
        lengths = self._lengths(group, weighted=weighted)
        return _contracted(self.frame.inverse, lengths) * (group.weight if weighted else 1.0)

    def totals(self, part: Group | Tables) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables."""
        return totals_by_table(self, part)

    def largest(self, group: Group) -> float:
        """Largest variance of the group's queries; nan if there are too many to go through."""
        return float(self.variances(group).max()) if group.listable else math.nan

    def covariance(self, left: Group, right: Group) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        cells = math.prod(axis.cells for axis in self.axes)
        if left.count * right.count > COVARIANCE_LIMIT or cells > DENSE_CELLS:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} is too large: of a union of "
                f"products at most {COVARIANCE_LIMIT:,} entries on {DENSE_CELLS:,} joint cells are computed"
            )
        for group in (left, right):
            self._refuse_outside(group)
        basis = join(self.frame.bases)
        seen = [self._rows(group.factors, self.axes, listed=True) @ basis for group in (left, right)]
        return np.asarray((seen[0] * self.frame.inverse.reshape(-1)) @ seen[1].T)

    def describe(self) -> Iterator[str]:
        """One line per product: what it measures, and its share of the privacy."""
        whole = self.cost()
        for term, cost in zip(self.terms, self.costs(), strict=True):
            rows = math.prod(len(matrix) for matrix in self.matrices_of(term))
            ways = sum(
                len(axis.attributes)
                for axis, matrix in zip(self.axes, term.matrices, strict=True)
                if matrix is not None
            )
            what = f"{rows:,} queries on {ways} attribute{'s' * (ways != 1)}"
            yield f"{what}: {cost / whole:.1%} of the privacy cost"

    def record(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Its terms, with matrices in `arrays`."""
        terms = []
        for number, term in enumerate(self.terms):
            keys: list[str | None] = []
            for place, matrix in enumerate(term.matrices):
                keys.append(None if matrix is None else f"union.{number}.{place}")
                if matrix is not None:
                    whole = matrix if self.grain is None else matrix.astype(np.int64)
                    arrays[f"union.{number}.{place}"] = whole
            share = None if term.share is None else str(term.share)
            terms.append({"matrices": keys, "noise_variance": term.noise_variance, "share": share})
        axes = [{"attributes": list(axis.attributes), "sizes": list(axis.sizes)} for axis in self.axes]
        return {
            "kind": self.kind,
            "law": self.law,
            "axes": axes,
            "terms": terms,
            "multiplier": self.multiplier,
            "grain": self.grain,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "UnionStrategy":
        """The strategy that `record` described."""
        if record.get("kind") != cls.kind:
            raise FileFormatError(f"this version knows no strategy of kind {record.get('kind')!r}")
        axes = tuple(UnionAxis(tuple(part["attributes"]), tuple(part["sizes"])) for part in record["axes"])
        terms = tuple(
            Product(
                tuple(None if key is None else arrays[key].astype(np.float64) for key in part["matrices"]),
                float(part["noise_variance"]),
                None if part["share"] is None else int(part["share"]),
            )
            for part in record["terms"]
        )
        return cls(axes, terms, noise_law(record["law"]), record["multiplier"], record["grain"])

    def _parts(self, group: Group) -> Iterator[tuple[tuple[UnionAxis, ...], list[Factor], Array]]:
        """For each axis of the frame the axes it stands for, the group's factors there, and its basis."""
        known = {at for axis in self.axes for at in axis.attributes}
        for factor in group.factors:
            if not set(factor.attributes) <= known:
                raise NotInSpan(
                    f"table {group.name!r} asks about an attribute that the plan does not measure; add the "
                    "table to the workload before planning",
                    tuple(at for at in factor.attributes if at not in known),
                )
        split = [self.axes] if self.frame.whole else [(axis,) for axis in self.axes]
        for axes, basis in zip(split, self.frame.bases, strict=True):
            here = {at for axis in axes for at in axis.attributes}
            factors = [factor for factor in group.factors if set(factor.attributes) & here]
            if any(not set(factor.attributes) <= here for factor in factors):
                raise WorkloadError(
                    f"table {group.name!r} joins attributes that are measured apart; plan this table with "
                    "the others"
                )
            yield axes, factors, basis

    @staticmethod
    def _rows(factors: Sequence[Factor], axes: Sequence[UnionAxis], *, listed: bool) -> Array:
        """Queries of some factors over all cells of some axes: all of them, or rows with their gram."""
        order = [attribute for axis in axes for attribute in axis.attributes]
        sizes = [size for axis in axes for size in axis.sizes]
        rows = join(factor.queries.matrix() if listed else factor.queries.root() for factor in factors)
        places = [order.index(attribute) for factor in factors for attribute in factor.attributes]
        return spread(rows, [sizes[place] for place in places], places, sizes)

    def _lengths(self, group: Group, *, weighted: bool) -> list[Array]:
        """Sum of squares of every coordinate over the group's queries, for each axis of the frame."""
        lengths = []
        for axes, factors, basis in self._parts(group):
            single = len(axes) == 1 and len(axes[0].attributes) == 1 and len(factors) == 1
            if single:
                gram = factors[0].queries.gram(weighted=weighted)
                lengths.append(np.einsum("ia,ij,ja->a", basis, gram, basis, optimize=True))
            else:
                listed = not weighted and any(factor.queries.weights is not None for factor in factors)
                rows = self._rows(factors, axes, listed=listed)
                lengths.append(np.sum((rows @ basis) ** 2, axis=0))
        return lengths

    def _refuse_outside(self, group: Group) -> None:
        """NotInSpan if a query of the group is not a combination of what is measured."""
        for at, (axes, factors, basis) in enumerate(self._parts(group)):
            rows = self._rows(factors, axes, listed=False)
            left = rows - (rows @ basis) @ self.frame.ranges[at].T
            if np.sum(left**2) > SPAN_TOLERANCE * np.sum(rows**2):
                raise _not_in_span(group)
        lengths = self._lengths(group, weighted=True)
        unseen = _contracted((self.frame.inverse == 0).astype(np.float64), lengths)
        if unseen > SPAN_TOLERANCE * math.prod(float(each.sum()) for each in lengths):
            raise _not_in_span(group)


def _contracted(tensor: Array, vectors: list[Array]) -> float:
    for vector in reversed(vectors):
        tensor = tensor @ vector
    return float(tensor)


def _not_in_span(group: Group) -> NotInSpan:
    return NotInSpan(
        f"table {group.name!r} asks for more than the plan's products measure; add the table to the workload "
        "before planning"
    )
