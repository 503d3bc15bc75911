"""Two releases as one: the least-squares answers from the measurements of both.

Both measure the same schema with independent noise, so privacy matrices add and privacy costs add: their
blocks stand side by side in one strategy, and are answered together (claim A-006). Whether they can be of the
same data is a chi-squared test over what both measured (claim A-008).
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from residua._arrays import Array
from residua._limits import AGREEMENT_CELLS, COMBINED_CELLS
from residua._text import kind_of
from residua.accuracy.figures import Figures, certified, totals_of
from residua.answering.blocks import Measured
from residua.answering.protocol import Estimator
from residua.errors import Infeasible, SchemaError, WorkloadError
from residua.linalg.matrices import along_axes
from residua.plans import Plan
from residua.privacy import privacy_cost, pure_dp
from residua.privacy.budgets import bound_divisor
from residua.release.measurements import Measurements
from residua.release.release import Release
from residua.strategy.joining import Numbers, as_cells, joined
from residua.strategy.strategy import Strategy
from residua.workload import Workload

Told = tuple[Strategy, Measured]
"""What was measured, and the numbers."""
AGREED = 1e-12  # of a block's noise: what rounding leaves of no difference
IMPLAUSIBLE = 1e-9  # chance of a difference that is as large by noise alone


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The squared differences of two releases over the variances of their noise.

    `freedom` is how many of them are independent, or more: of the same data, at most so much is expected.
    """

    total: float
    freedom: int

    def chance(self, excess: float) -> float:
        """The chance of a total at least as large, of the same data and noise of this excess kurtosis.

        Exact for Gaussian noise, which has none; otherwise that of the gamma law with the mean and at least
        the variance of the total. 1 where the total is not above its mean.
        """
        from scipy.special import gammaincc

        if self.total <= self.freedom:
            return 1.0
        spread = 2.0 + excess
        return float(gammaincc(self.freedom / spread, self.total / spread))


def disagreement(parts: Sequence[Told], both: Told) -> Disagreement:
    """How far releases are from what they say together."""
    if both[0].nested:
        return _of_numbers(parts, both)
    whole = _estimator(both)
    total, freedoms = 0.0, []
    for told in parts:
        found = list(_squares(told[0], _estimator(told), whole))
        total += math.fsum(float(squares.sum()) for squares, _ in found)
        # Where nobody else measured, there is nothing to differ from.
        freedoms.append(sum(rank * int(np.sum(squares > AGREED)) for squares, rank in found))
    return Disagreement(total, min(freedoms))


def _of_numbers(parts: Sequence[Told], both: Told) -> Disagreement:
    """The same of releases of the same blocks, number by number: no more is known without least squares."""
    total, freedom = 0.0, 0
    for strategy, own in parts:
        for (number, rows, values), (_, _, mean) in zip(own, both[1], strict=True):
            noise = strategy.layers[number].noise[rows, None]
            total += float(np.sum((values - mean) ** 2 / noise))
            freedom += values.size
    return Disagreement(total, freedom // len(parts))


def _estimator(told: Told) -> Estimator:
    strategy, measured = told
    return strategy.answerer.estimator(strategy.estimates(measured))


def _squares(strategy: Strategy, own: Estimator, whole: Estimator) -> Iterator[tuple[Array, int]]:
    """Sums of squares of what blocks measured less what all say of it, over the noise; and their rank."""
    for number, rows in strategy.runs():
        layer = strategy.layers[number]
        sizes = [strategy.domains[layer.domain].sizes[at] for at in layer.subsets[rows[0]].tolist()]
        shapes = [strategy.shapes[at] for at in layer.shapes[rows[0]].tolist()]
        step = max(1, AGREEMENT_CELLS // math.prod(sizes))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            seen = (each.of_domain(layer.domain) for each in (own, whole))
            ours, theirs = (each.marginals(layer.subsets[some], sizes) for each in seen)
            cells = (ours - theirs).transpose(0, *(1 + np.array(layer.order, dtype=np.int64)))
            found = along_axes(cells.reshape(len(some), -1), [shape.matrix for shape in shapes])
            rank = math.prod(shape.rank for shape in shapes)
            yield np.sum(found * found, axis=1) / layer.noise[some], rank


class DifferentDataWarning(UserWarning):
    """Releases that were combined, and may be of different data: then the combination means nothing."""


def combine(first: Release, second: Release, *more: Release) -> Release:
    """One release from several on the same schema: better answers, and the privacy cost of all.

    What releases measured in the same way is averaged; what they measured in different ways is solved
    together, as far as it fits one dense matrix.

    Releases that ledgers of different datasets paid for are refused. A `DifferentDataWarning` says that the
    numbers differ more than their noise explains, or that no ledger tells of which data they are.
    """
    both = _pair(first, second)
    for each in more:
        both = _pair(both, each)
    return both


def _pair(first: Release, second: Release) -> Release:
    """One release from two."""
    _refuse_strangers(first, second)
    parts, (strategy, numbers) = _joined(first, second)
    measurements = Measurements(numbers)
    _warn_of_strangers(first, second, disagreement(parts, (strategy, measurements.in_units(strategy))))
    work = first.plan.workload + second.plan.workload
    plan = _plan_of(first.plan, second.plan, strategy, work)
    audit = {
        **first.audit,
        "plan_hash": plan.hash,
        "privacy": plan.privacy.to_manifest(),
        "combined": [{**each.audit, "hash": each.hash} for each in (first, second)],
        "simulated": first.simulated or second.simulated,
    }
    return Release(plan, measurements, audit)


def _joined(first: Release, second: Release) -> tuple[list[Told], tuple[Strategy, Numbers]]:
    """What each release measured, in a form that they have in common, and both as one strategy."""
    parts = [(each.plan.strategy, each.measurements.in_units(each.plan.strategy)) for each in (first, second)]
    try:
        return parts, joined(parts)
    except Infeasible as error:
        used = sorted({*first.plan.workload.attributes, *second.plan.workload.attributes})
        cells = math.prod(first.plan.schema.sizes[at] for at in used)
        if cells > COMBINED_CELLS:
            raise Infeasible(
                f"the two plans measure {cells:,} joint cells in ways that do not fit together ({error}); "
                "measure one plan twice, or plan both with method 'querysmasher', which always splits "
                "queries by the same weights"
            ) from error
        parts = [as_cells(*each, first.plan.schema.sizes, used) for each in parts]
        return parts, joined(parts)


def _refuse_strangers(first: Release, second: Release) -> None:
    for each in (first, second):
        if not isinstance(each, Release):
            raise WorkloadError(f"combine needs releases, as rs.measure makes them, not {kind_of(each)}")
    if first.plan.schema != second.plan.schema:
        raise SchemaError("the two releases have different schemas and cannot be combined")
    if first.plan.unit != second.plan.unit:
        raise SchemaError("the two releases protect different units and cannot be combined")
    if first.plan.strategy.law != second.plan.strategy.law:
        raise Infeasible(
            "one release has Gaussian noise and one has Laplace noise: their privacy has no common measure "
            "but zCDP; plan both with the same definition of privacy"
        )
    known = (_datasets(first.audit) | _datasets(second.audit)) - {None}
    if len(known) > 1:
        names = " and ".join(repr(name) for name in sorted(map(str, known)))
        raise Infeasible(
            f"the ledgers that paid for these releases are of different datasets, {names}: their numbers are "
            "not of the same people, and cannot be combined; compare them instead"
        )
    if _ingredients(first.hash, first.audit) & _ingredients(second.hash, second.audit):
        raise Infeasible(
            "this is one release twice, or one that a combination has already: its noise is the same, and "
            "nothing is gained"
        )


def _warn_of_strangers(first: Release, second: Release, found: Disagreement) -> None:
    """DifferentDataWarning where two releases may be of different data, as far as can be known."""
    if None in (*_datasets(first.audit), *_datasets(second.audit)):
        _warn(
            "a release that no ledger paid for is combined: nothing says that it is of the same data as the "
            "other, without which the combination means nothing"
        )
    excess = 0.0
    if first.plan.strategy.law == "laplace":
        epsilon = max(each.plan.budget.laplace_epsilon() for each in (first, second))
        excess = 3.0 + bound_divisor("laplace", epsilon)
    if found.chance(excess) < IMPLAUSIBLE:
        _warn(
            "the two releases differ more than their noise explains (chi-squared over what both measured is "
            f"{found.total:,.4g}, where {found.freedom:,} or less is expected): they are of different data, "
            "and the combination means nothing"
        )


def _warn(words: str) -> None:
    warnings.warn(words, DifferentDataWarning, stacklevel=5)  # in the line that calls combine


def _datasets(audit: Mapping[str, Any]) -> set[str | None]:
    """What a release is of: the dataset of its ledger and the period, if it states one; None without one."""
    if parts := audit.get("combined"):
        return set[str | None]().union(*map(_datasets, parts))
    entry, period = audit.get("ledger"), audit.get("period")
    if not isinstance(entry, Mapping):
        return {None}
    return {str(entry.get("dataset")) + ("" if period is None else f" of {period}")}


def _ingredients(own: str | None, audit: Mapping[str, Any]) -> set[str]:
    """Hashes of a release and of all those that it was combined from, as far as they were noted."""
    parts = (_ingredients(part.get("hash"), part) for part in audit.get("combined", ()))
    found: set[str] = set().union(*parts)
    return found if own is None else {own, *found}


def _plan_of(first: Plan, second: Plan, strategy: Strategy, work: Workload) -> Plan:
    """What the combination answers and proves, as a plan that has been measured already."""
    one, two = first.budget, second.budget  # both of one law, and spent one after the other
    if one.law == "laplace":
        budget = pure_dp(one.laplace_epsilon() + two.laplace_epsilon())
    else:
        budget = privacy_cost(one.gaussian_cost() + two.gaussian_cost())
    figures = Figures.of(strategy, work, totals_of(strategy, work))
    certificate = certified(figures.total_variance, 0.0, "this block structure")
    objective = first.objective
    return Plan(work, budget, first.unit, "combined", strategy, certificate, objective, figures, figures)
