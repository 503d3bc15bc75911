"""A workload as HDMM sees it: tables as products over axes, with one gram matrix per axis and family.

An axis is an attribute, or several that some family asks about together. Along an axis that a table does not
ask about it asks for the total.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from residua._arrays import Array, Integers, Subset
from residua.answering.blocks import Memory
from residua.answering.independent.parts import tied
from residua.answering.nested import precisions
from residua.methods.hdmm.demand import Kernel, asked_by
from residua.methods.hdmm.p_identity import descended, evaluated, p_identity
from residua.strategy.strategy import Strategy
from residua.workload import Factor, Queries, Workload
from residua.workload.union import gram_over, refuse_many_cells, refuse_wide

TOTAL = 0


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Attributes that are measured together, their sizes, and the gram of each family asked of them.

    The first gram is that of the total.
    """

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    grams: list[Array] = field(default_factory=list)

    @property
    def cells(self) -> int:
        """Number of joint cells."""
        return math.prod(self.sizes)

    def traces(self, inverse: Array) -> Array:
        """`tr(G M)` of every family, M the inverse of a strategy, (families,)."""
        return np.array([float(np.sum(gram * inverse)) for gram in self.grams])


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Tables as products: `families` is (tables, axes), numbers of grams; `weights` is (tables,)."""

    axes: tuple[Axis, ...]
    families: Integers
    weights: Array

    @classmethod
    def of(cls, work: Workload) -> "Products":
        """The workload in this form; refused where attributes asked together have too many cells."""
        axes = _axes(work)
        place = {attribute: at for at, axis in enumerate(axes) for attribute in axis.attributes}
        known: dict[object, int] = {}
        rows, weights = [], []
        for group in work.groups():
            row = [TOTAL] * len(axes)
            mine: dict[int, list[Factor]] = {}
            for factor in group.factors:
                mine.setdefault(place[factor.attributes[0]], []).append(factor)
            for at, factors in mine.items():
                axis = axes[at]
                row[at] = known.setdefault((at, tuple(factors)), len(axis.grams))
                if row[at] == len(axis.grams):
                    for factor in factors:
                        refuse_wide(factor.queries)
                    axis.grams.append(gram_over(factors, axis.attributes, axis.sizes))
            rows.append(row)
            weights.append(group.weight)
        shape = (len(rows), len(axes))
        return cls(tuple(axes), np.array(rows, dtype=np.int64).reshape(shape), np.array(weights))

    def take(self, tables: Sequence[int] | Integers) -> "Products":
        """Some of the tables, on the axes that they ask about."""
        families, weights = self.families[np.asarray(tables)], self.weights[np.asarray(tables)]
        used = [at for at in range(len(self.axes)) if (families[:, at] != TOTAL).any()]
        return Products(tuple(self.axes[at] for at in used), families[:, used], weights)


def _axes(work: Workload) -> list[Axis]:
    """Attributes in use, joined where one family asks about several."""
    own = work.attributes
    joint = {factor.attributes for group in work.groups() for factor in group.factors}
    axes = []
    for numbers in tied([*((at,) for at in own), *joint]):
        chosen = [own[at] for at in numbers if at < len(own)]
        sizes = tuple(work.schema.sizes[at] for at in chosen)
        if len(chosen) > 1:
            names = " x ".join(work.schema.names[at] for at in chosen)
            refuse_many_cells(math.prod(sizes), f"{names}, which are asked about together")
        axes.append(Axis(tuple(chosen), sizes, [np.ones((math.prod(sizes),) * 2)]))
    return axes


@dataclass(frozen=True, eq=False)
class Around:
    """The total variance as a function of `M = (B'B)^-1` of an attribute; `z = M1`, `s = 1'z`, `p = z/s`:

    `sum_f a_f (tr G_f M - s p'G_f p) + sum_A (sum_f b_Af p'G_f p + c_A) / (alpha_A + beta_A / s)`,
    f over the families asked of it, A over the residuals without it. `beta` and `a` are those of weights 1.
    """

    grams: Array  # (families, cells, cells)
    a: Array  # (families,)
    b: Array  # (residuals, families)
    c: Array  # (residuals,)
    alpha: Array  # (residuals,)
    beta: Array  # (residuals,)

    @classmethod
    def of(cls, work: Workload, at: int, kernels: Mapping[int, Kernel], strategy: Strategy) -> "Around":
        """What surrounds one attribute in a strategy whose kernels are these."""
        families: dict[Queries, int] = {}
        asked: dict[tuple[Subset, int], float] = {}  # -1 where nothing is asked of the attribute
        known = Memory()
        for group in work.groups():
            mine = [factor for factor in group.factors if factor.attributes == (at,)]
            number = families.setdefault(mine[0].queries, len(families)) if mine else -1
            rest = replace(group, factors=tuple(f for f in group.factors if f.attributes != (at,)))
            for residual, amount in asked_by(rest, kernels, known):
                asked[residual, number] = asked.get((residual, number), 0.0) + amount
        residuals = list(dict.fromkeys(residual for residual, _ in asked))
        table = np.zeros((len(residuals), len(families) + 1))
        for (residual, number), amount in asked.items():
            table[residuals.index(residual), number] = amount
        b, c = table[:, :-1], table[:, -1]
        terms = [(set(subset), 1.0 / noise) for subset, _, noise in strategy.blocks().each()]
        spreads = {each: kernel.spread for each, kernel in kernels.items()}
        # From terms that have the attribute, at its spread 1, and from those that do not.
        with_it = precisions(((sorted(own - {at}), each) for own, each in terms if at in own), spreads)
        without = precisions(((sorted(own), each) for own, each in terms if at not in own), spreads)
        beta = np.array([with_it.get(residual, 0.0) for residual in residuals])
        alpha = np.array([without.get(residual, 0.0) for residual in residuals])
        # Where no term has the attribute, its families ask for totals there, and add nothing.
        measured = (b > 0) & (beta[:, None] > 0)
        a = np.sum(np.divide(b, beta[:, None], out=np.zeros_like(b), where=measured), axis=0)
        return cls(np.array([each.gram() for each in families]), a, b, c, alpha, beta)

    def value(self, weights: Array) -> tuple[float, Array]:
        """The total variance under the p-Identity strategy with these weights, and its gradient."""
        z = _sums_of_inverse(weights)
        s = float(z.sum())
        moved = self.grams @ z  # (families, cells)
        squares = moved @ z
        precision = self.alpha + self.beta / s
        above = self.b @ squares / s**2 + self.c
        whole = np.tensordot(self.a, self.grams, axes=1)
        total = -float(self.a @ squares) / s + float(np.sum(above / precision))
        slope = -2 * (self.a @ moved) / s + float(self.a @ squares) / s**2
        share = (1 / precision) @ self.b  # (families,)
        slope = slope + 2 * (share @ moved) / s**2 - 2 * float(share @ squares) / s**3
        slope = slope + float(np.sum(above * self.beta / precision**2)) / s**2
        effective = whole + (slope[:, None] + slope[None, :]) / 2
        found, gradient = evaluated(effective, weights)
        own = found - float(slope @ z)  # tr(whole M)
        return total + own, gradient


def better_kernel(around: Around, kernel: Kernel, number: int) -> Kernel:
    """The kernel after a search from its own weights; `number` is for the new one."""
    if kernel.weights is None or not len(kernel.weights):
        return kernel
    weights = descended(around.value, kernel.weights)
    if around.value(weights)[0] >= around.value(kernel.weights)[0]:
        return kernel
    return Kernel.of(p_identity(weights), number, weights)


def _sums_of_inverse(weights: Array) -> Array:
    """`(A'A)^-1 1` of a p-Identity strategy."""
    sums = 1.0 + weights.sum(axis=0)
    inner = np.linalg.solve(np.eye(len(weights)) + weights @ weights.T, weights @ sums)
    return np.asarray(sums * (sums - weights.T @ inner))
