"""Statistics of numbers by moments: means, variances, covariances, correlations and regressions.

Each is a smooth function of a few sums in each group, whose joint covariance is known: the delta method gives
its error (claim F-003), means have Fieller's intervals (claim F-001). All cost no further privacy.

| symbol | meaning |
|---|---|
| monomial | powers of columns; its sum over the records of a group is an answer |
| moments | those sums over the number of records that have all of the columns, (groups, monomials) |
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import combinations_with_replacement
from operator import add

import numpy as np

from residua._arrays import Array
from residua._text import listed_names
from residua.errors import WorkloadError
from residua.release.intervals import Intervals
from residua.release.statistics import (
    Answers,
    Statistic,
    axes_of,
    numbers_of,
    plain_figures,
    ratio_of,
    refuse_many,
    refuse_overlap,
)
from residua.schema import Number, Schema
from residua.workload import Workload, identity, linear, moment, table
from residua.workload.moments import cell_numbers

Monomial = Mapping[str, int]
STEP = 1e-4  # of a standard deviation, to find slopes by


class Relates:
    """What a release offers of numbers: their means, how they spread, and how they go together."""

    def mean(
        self: Answers,
        name: str,
        *,
        by: str | Sequence[str] = (),
        values: Sequence[float] | None = None,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Mean of a number, of all records or in each cell of others; bins count at their middles.

        `values` say what each cell counts as where it is no number, or not that one.
        """
        schema, groups = self.plan.schema, listed_names(by)
        refuse_overlap([name], groups)
        if values is None and any(schema[each].unit > 1 for each in (name, *groups)):
            top, bottom = (_summed(schema, groups, {name: power}) for power in (1, 0))
        else:
            bottom = table(schema, groups)
            each, cells = np.eye(bottom.count), (*groups, name)
            top = linear(schema, cells, np.kron(each, numbers_of(schema, name, values)))
            if values is None and schema[name].other is not None:  # whose records have no value
                bottom = linear(schema, cells, np.kron(each, cell_numbers(name, schema[name], power=0)))
        axes, owners = axes_of(schema, groups), np.arange(top.count)
        return ratio_of(self, top, bottom, owners, axes, Intervals(level, simultaneous))

    def variance(
        self: Answers,
        name: str,
        *,
        by: str | Sequence[str] = (),
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Variance of a number, of all records or in each cell of others."""
        return related(self, [name, name], by, _covariance, Intervals(level, simultaneous))

    def covariance_of(
        self: Answers,
        first: str,
        second: str,
        *,
        by: str | Sequence[str] = (),
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Covariance of two numbers over records, of all or in each cell of others."""
        return related(self, [first, second], by, _covariance, Intervals(level, simultaneous))

    def correlation(
        self: Answers,
        first: str,
        second: str,
        *,
        by: str | Sequence[str] = (),
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Correlation of two numbers over records, of all or in each cell of others."""
        return related(self, [first, second], by, _correlation, Intervals(level, simultaneous))

    def regression(
        self: Answers,
        name: str,
        on: str | Sequence[str],
        *,
        by: str | Sequence[str] = (),
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Coefficients of the least-squares line of a number on others, (by..., coefficients).

        The first is the intercept. Errors are those of the noise: the line is that of these records.
        """
        others, groups = listed_names(on), listed_names(by)
        if not others:
            raise WorkloadError("a regression is on one number at least: on=['age']")
        refuse_overlap([name, *others], groups)
        columns: list[Monomial] = [{}, *({each: 1} for each in others)]
        pairs = list(combinations_with_replacement(range(len(columns)), 2))
        needed = [_times(columns[i], columns[j]) for i, j in pairs]
        needed += [_times(each, {name: 1}) for each in columns]
        solved = partial(_coefficients, pairs)
        values, covariance = _figures(self, [name, *others], groups, needed, solved)
        axes = [*axes_of(self.plan.schema, groups), ("coefficient", ["intercept", *others])]
        return plain_figures(self, axes, values, covariance, Intervals(level, simultaneous))


def _coefficients(pairs: Sequence[tuple[int, int]], moments: Array) -> Array:
    """Solutions of the normal equations, (groups, columns), from moments of pairs, then with a number."""
    right = moments[:, len(pairs) :]
    gram = np.empty((*right.shape, right.shape[1]))
    for at, (i, j) in enumerate(pairs):
        gram[:, i, j] = gram[:, j, i] = moments[:, at]
    scale = np.sqrt(np.abs(np.einsum("gii->gi", gram)))
    scale[scale == 0] = 1.0
    inverse = np.linalg.pinv(gram / scale[:, :, None] / scale[:, None, :], hermitian=True)
    return np.asarray((inverse @ (right / scale)[:, :, None])[:, :, 0] / scale)


def related(
    source: Answers,
    names: Sequence[str],
    by: str | Sequence[str],
    function: Callable[[Array], Array],
    intervals: Intervals,
) -> Statistic:
    """A function of the moments 1, x, y, xx, xy, yy of two numbers, or of one taken twice."""
    groups = listed_names(by)
    refuse_overlap([*dict.fromkeys(names)], groups)
    first, second = names
    needed = [{}, {first: 1}, {second: 1}, _times({first: 1}, {second: 1})]
    if function is _correlation:
        needed += [{first: 2}, {second: 2}]
    found = _figures(source, names, groups, needed, lambda moments: function(moments)[:, None])
    return plain_figures(source, axes_of(source.plan.schema, groups), *found, intervals)


def _covariance(moments: Array) -> Array:
    _, x, y, xy = moments.T[:4]
    return np.asarray(xy - x * y)


def _correlation(moments: Array) -> Array:
    _, x, y, _, xx, yy = moments.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(_covariance(moments) / np.sqrt((xx - x**2) * (yy - y**2)))


def _figures(
    source: Answers,
    names: Sequence[str],
    by: Sequence[str],
    needed: Sequence[Monomial],
    function: Callable[[Array], Array],
) -> tuple[Array, Array]:
    """Figures of each group, (groups * figures,), and their covariance, from moments of the needed kinds.

    `needed` starts with the count; `function` is of the moments, (groups, monomials) to (groups, figures).
    """
    schema, every = source.plan.schema, dict.fromkeys(names, 0)
    monomials = [tuple(sorted((every | {**each}).items())) for each in needed]
    distinct = list(dict.fromkeys(monomials))
    places = [*map(distinct.index, monomials)]
    works = [_summed(schema, by, dict(each)) for each in distinct]
    work = reduce(add, works)
    refuse_many(work.count)
    kinds, groups = len(works), works[0].count
    sums = source.values(work).reshape(kinds, groups).T  # (groups, kinds)
    covariance = source.covariance(work, work)
    spread = np.sqrt(np.clip(np.diag(covariance), 0, None)).reshape(kinds, groups).T

    def of_sums(given: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return function((given / given[:, :1])[:, places])

    values = of_sums(sums)  # (groups, figures)
    slopes = np.zeros((*values.shape, kinds, groups))
    each = np.arange(groups)
    for kind in range(kinds):
        change = np.zeros_like(sums)
        change[:, kind] = STEP * spread[:, kind]
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (of_sums(sums + change) - of_sums(sums - change)) / (2 * change[:, kind, None])
        slopes[each, :, kind, each] = slope
    slopes = slopes.reshape(values.size, kinds * groups)
    return values.reshape(-1), np.asarray(slopes @ covariance @ slopes.T)


def _summed(schema: Schema, by: Sequence[str], powers: Monomial) -> Workload:
    """The sum of a product of powers over the records of each group that have all of these columns."""
    families = {}
    for name, power in powers.items():
        attribute = schema[name]
        if power or attribute.other is not None or (isinstance(attribute, Number) and attribute.missing):
            families[name] = moment(power)
    return table(schema, {**dict.fromkeys(by, identity), **families})


def _times(left: Monomial, right: Monomial) -> Monomial:
    return {name: left.get(name, 0) + right.get(name, 0) for name in (*left, *right)}
