"""From a request to a plan, one way for every request.

A method drafts a real strategy and a bound; the draft is rounded to integers and scaled to the budget, which
targets may leave open; the plan states its errors and its certificate.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from numpy.typing import ArrayLike

from residua._limits import COUNTED_CELLS
from residua._text import short
from residua.accuracy.figures import Figures, Fitness, Totals, certified, fitness_of, totals_of
from residua.accuracy.targets import TargetParts, Targets, asked_of, largest_ratio, ratios_of, weighted_caps
from residua.bounds import quick_bound
from residua.errors import BudgetError, Infeasible, WorkloadError
from residua.kernel.cost import refuse_dropped
from residua.linalg.matrices import threads_for
from residua.methods.baselines import plain_cells
from residua.methods.coarsening import coarse_workload, coarsened_draft
from residua.methods.dense import dense
from residua.methods.draft import Draft, Progress
from residua.methods.effort import Account, interruption
from residua.methods.instalments import Renewal, instalments, triangular
from residua.methods.registry import auto, loss_draft, methods_for, residualplanner_plus, targets_draft
from residua.methods.replaced import replaced_drafts
from residua.methods.scales.loss import floor_of_loss
from residua.methods.scales.priced import Loss, loss_at
from residua.methods.scales.targets import floor_of_mean
from residua.methods.whole import whole_draft, wholes
from residua.planning.people import Floor, person_certificate
from residua.plans import Plan
from residua.privacy import Budget, Unit, privacy_cost
from residua.privacy.budgets import bound_divisor, variance_ratio
from residua.privacy.conversions import text_above
from residua.privacy.unit import Person
from residua.strategy.parts import counted_at_once
from residua.strategy.persons import shared_for
from residua.strategy.rounding import ideal_scale, measurable, rebudgeted, record_cost
from residua.strategy.strategy import Strategy, refuse_uncounted
from residua.workload import Combined, Table, Workload

DIGITS = 7  # of the privacy cost that targets turn out to need
MARGIN = Fraction(1) + Fraction(1, 10**9)  # more than floats lose between two ways to add up a variance
SETTLING = 6  # times that the noise is set again: rounding it to integers is all that is left to settle
INNER = 0.8  # of the gap, for the solver; the rest is for rounding to integers
PROTECTS_NOBODY = 1e15  # a privacy cost that even 64-bit integers could not hold the noise of
DROWNS_ALL = 1e-24  # and one whose noise would leave them no room
ROUNDING = 1e-9  # a cost this much smaller than another is what rounding leaves of zero


@dataclass(frozen=True, slots=True)
class Request:
    """What a plan is made for: the tables, whose privacy, how, and how close to the optimum.

    `units` are those of the attributes, whose records may be shares of cells. `over` is the attribute whose
    cells are measured in instalments, if one is, and `renew` after how many of them the plan starts anew.
    """

    work: Workload
    person: Person
    method: str
    gap: float
    account: Account
    progress: Progress | None
    units: tuple[int, ...]
    over: int | None = None
    renew: Renewal = None

    @property
    def unit(self) -> Unit:
        """Whose privacy is protected."""
        return self.person.unit

    @property
    def whole(self) -> bool:
        """Whether every joint cell is some record, whole; those of numbers may not be (claim U-001)."""
        return self.work.schema.units == self.units and self.work.whole

    @property
    def common(self) -> bool:
        """Whether what a person can change is one whole record, or several in one cell."""
        return self.person.simple and self.whole

    @property
    def tied(self) -> bool:
        """Whether there are conditions joined across attributes, which are planned by classes of cells."""
        return any(isinstance(queries, Combined) for queries in self.work.families)


def total_draft(request: Request, budget: Budget, method: str) -> Draft:
    """The draft of a method."""

    def drafting(work: Workload) -> Draft:
        gap, progress = request.gap, request.progress
        if request.over is not None:
            return instalments(work, request.over, gap, progress, request.account, request.renew)
        if method == "auto" and budget.law == "gaussian":
            return auto(work, gap, progress, request.account, apart=request.person.simple)
        if method == "dense" and not request.person.simple:
            return dense(work, gap, progress, apart=False)
        return methods_for(budget.law)[method](work, gap, progress)

    work = request.work
    return coarsened_draft(drafting, work, budget.law) if request.tied else drafting(work)


def total_drafts(request: Request, budget: Budget) -> Iterator[Draft]:
    """The draft of the method, for Laplace noise that of plain cells, and for some persons others besides.

    Where records cannot all be in one cell: with the best shares for a person, and with an attribute kept
    whole that records are spread over, cell by cell or as is best for what is asked of it (K-014, M-020).
    """
    person, work = request.person, request.work
    draft = total_draft(request, budget, request.method)
    yield draft
    if request.method == "auto" and budget.law == "laplace":
        yield from _plain_cells(request, budget, draft)
    if request.unit.replacing and budget.law == "gaussian" and request.over is None and not request.tied:
        yield from replaced_drafts(request.account, work, request.unit, request.method, draft, request.gap)
    if not person.caps:
        return
    if not draft.strategy.nested:
        yield replace(draft, strategy=shared_for(draft.strategy, person), value=None)
    plain = replace(request, over=None)  # of the other attributes, once one is kept whole
    for cap in person.caps if request.method == "auto" and not request.tied else ():
        if request.over not in (None, cap.attribute):
            continue
        for rows in wholes(work, cap.attribute, request.gap):
            found = whole_draft(
                work, cap.attribute, rows, lambda own: total_draft(replace(plain, work=own), budget, "auto")
            )
            if found is not None:
                found = found if request.over is None else triangular(found, request.over)
                yield replace(found, lower_bound=draft.lower_bound, scope=draft.scope)


def _plain_cells(request: Request, budget: Budget, draft: Draft) -> Iterator[Draft]:
    """That of all joint cells where they can be counted, with the bound of another draft.

    Methods weigh real noise; integer noise on plain counts is narrower, at large epsilons by far (H-002).
    """
    work = request.work
    if math.prod(work.schema.sizes[at] for at in work.attributes) > COUNTED_CELLS:
        return
    with suppress(Infeasible):  # some attribute has too many cells
        if request.tied:
            yield total_draft(request, budget, "identity")
        else:
            yield plain_cells(work, budget.law, (draft.lower_bound, draft.scope))


def needed(budget: object) -> Budget:
    """The budget, or the error where there is none."""
    if not isinstance(budget, Budget):
        raise BudgetError(
            "plan needs a budget second, such as rs.zcdp(0.1) or rs.approx_dp(1, 1e-6), or targets=, such as "
            f"targets=rs.stddev(5), not {short(budget)}"
        )
    return budget


def planned(
    request: Request,
    budget: Budget | None,
    targets: Targets | None,
    objective: str | Loss,
    strategies: Mapping[str, ArrayLike] | None,
    *,
    relax: bool,
    refine: bool,
) -> Plan:
    """The plan of a request, before its tables are named as they were asked for."""
    with threads_for(0):  # solvers of large blocks take more for themselves
        if targets is None and objective == "total_variance":
            return _for_total(request, needed(budget), strategies)
        coarse = coarse_workload(request.work) if request.tied else None
        if coarse is not None:  # whose attributes are others: records are bounded as if in one cell
            units = coarse.view.units(request.units)
            request = replace(request, work=coarse.work, person=Person(request.unit), units=units)
        if targets is not None:
            found = _for_targets(request, budget, targets, relax=relax, refine=refine)
        elif isinstance(objective, str):
            found = _for_largest(request, needed(budget))
        else:
            found = _for_loss(request, needed(budget), objective)
    return found if coarse is None else replace(found, strategy=coarse.strategy(found.strategy))


def _for_total(request: Request, budget: Budget, strategies: Mapping[str, ArrayLike] | None) -> Plan:
    """The plan with the least total weighted variance."""
    if strategies is None:
        return _best_of(request, budget, total_drafts(request, budget))
    if request.method != "residualplanner+":
        raise WorkloadError(
            f"strategies are for method 'residualplanner+'; method {request.method!r} finds its own"
        )
    draft = residualplanner_plus(request.work, request.gap, request.progress, strategies)
    return _at_budget(request, budget, draft)


def _best_of(request: Request, budget: Budget, drafts: Iterator[Draft]) -> Plan:
    """The plan of the first draft, or a better one of another that can be measured."""
    found = _at_budget(request, budget, next(drafts))
    with interruption().settled(found):
        for draft in () if interruption().came else drafts:
            try:
                other = _at_budget(request, budget, draft)
            except Infeasible:  # a table of too many cells, or noise that 64 bits do not hold
                continue
            found = min(found, other, key=lambda plan: plan.total_variance)
    return found


def _for_targets(
    request: Request, budget: Budget | None, targets: Targets, *, relax: bool, refine: bool
) -> Plan:
    """The plan that meets every target with the least privacy, or by the widest margin at a budget.

    A budget that cannot meet them is refused, unless `relax` allows all targets the same factor.
    """
    asked = asked_of(request.work, targets)
    draft = targets_draft(request.method, *asked.with_free(), INNER * request.gap, request.progress, refine)
    own = _record_cost(request, draft)
    _refuse_extremes(own)
    if budget is None:
        budget, strategy = _cheapest(request, draft, own, asked)
    else:
        strategy = _rounded(request, draft, request.unit.allowance(budget))
    cost = float(request.unit.allowance(budget) * request.unit.factor)
    fitness = fitness_of(asked, strategy, draft.prices, cost, draft.lower_bound * request.person.alike**2)
    if fitness.factor > 1 and not relax:
        raise _too_small(budget, fitness)
    floor = partial(floor_of_mean, *asked.with_free(), draft.prices)
    found = _finished(request, budget, draft, strategy, "targets", fitness.factor, floor)
    if not request.common:
        fitness = replace(fitness, least=found.certificate.lower_bound * cost)
    return replace(found, targets=fitness)


def _for_largest(request: Request, budget: Budget) -> Plan:
    """The plan with the least largest variance (each times the query's weight)."""
    work, caps = request.work, weighted_caps(request.work)
    draft = targets_draft(request.method, work, caps, INNER * request.gap, request.progress, False)
    strategy = _rounded(request, draft, request.unit.allowance(budget))
    largest = max(largest_ratio(strategy, part, cap) for part, cap in zip(work.parts, caps, strict=True))
    floor = partial(floor_of_mean, work, caps, draft.prices)
    return _finished(request, budget, draft, strategy, "max_variance", largest, floor)


def _for_loss(request: Request, budget: Budget, loss: Loss) -> Plan:
    """The plan with the least loss of one mean variance per name of tables."""
    work, allowed = request.work, request.unit.allowance(budget)
    inner, account = INNER * request.gap, request.account
    draft = loss_draft(request.method, work, loss, inner, request.progress, float(allowed), account)
    strategy = _rounded(request, draft, allowed)
    named = {name: work.select(name) for name in work.names}
    value = loss_at(loss, list(named), [totals_of(strategy, own)[1] / own.count for own in named.values()])
    floor = partial(floor_of_loss, work, loss, draft.prices[0], value)
    return _finished(request, budget, draft, strategy, "loss", value, floor)


def _record_cost(request: Request, draft: Draft) -> float:
    """About what a strategy costs one record; Infeasible where replacing one changes nothing measured."""
    own = record_cost(draft.strategy, request.person)
    if own <= ROUNDING * draft.strategy.cost():
        raise Infeasible(
            "the workload asks only for the number of records, which replacing one record cannot change: "
            "publish it as it is, or protect adding and removing records (neighbours='add_remove')"
        )
    return own


def _rounded(request: Request, draft: Draft, allowed: Fraction) -> Strategy:
    """The draft in integers, with noise that uses up what one record may cost."""
    _record_cost(request, draft)  # there must be something to scale
    refuse_uncounted(draft.strategy, request.work.schema.names, partial(counted_at_once, draft.strategy))
    return measurable(draft.strategy, draft.spans, allowed, request.person, units=request.units)


def _at_budget(request: Request, budget: Budget, draft: Draft) -> Plan:
    allowed = request.unit.allowance(budget)
    try:
        strategy = _rounded(request, draft, allowed)
    except Infeasible:
        scale = float(allowed) / _record_cost(request, draft)
        totals_of(draft.strategy.scaled(scale), request.work)  # sums that overflow are the better reason
        raise
    return _finished(request, budget, draft, strategy, "total_variance")


def _finished(
    request: Request,
    budget: Budget,
    draft: Draft,
    strategy: Strategy,
    objective: str,
    value: float | None = None,
    floor: Floor | None = None,
) -> Plan:
    """The plan of an integer strategy: its errors, those of the draft that it was made of, its certificate.

    `value` is what it makes of the objective, if that is not the total variance, and `floor` bounds that.
    """
    work, unit, allowed = request.work, request.unit, request.unit.allowance(budget)
    scale = ideal_scale(draft.strategy, strategy, allowed, request.person)
    real = draft.strategy.scaled(scale)
    ideal = Figures.of(real, work, _ideal_totals(draft, real, scale, work) if value is None else None)
    released = Figures.of(strategy, work, totals_of(strategy, work))
    value = released.total_variance if value is None else value
    most = request.person.most_for_one(budget)
    lower = draft.lower_bound / (1.0 if objective == "loss" else bound_divisor(budget.law, most))
    uniform = None if draft.uniform_total is None else draft.uniform_total / float(allowed)
    effort = request.account.for_bound
    certificate = certified(value, lower, draft.scope, objective)
    if not request.common:
        holds = request.whole and not unit.replacing and objective != "loss"
        floor = floor or (lambda least: least(work))
        solved = draft.for_person if request.whole else 0.0
        certificate = person_certificate(
            certificate, value, floor, request.person, budget, effort, solved, holds=holds
        )
        if work.schema.units != request.units:  # classes of cells that records have shares of
            certificate = certified(value, 0.0, draft.scope, objective)
        uniform = None
    elif lower > 0 and draft.scope == "this block structure":
        known = draft.everywhere
        if not known and objective == "total_variance":
            known = quick_bound(work, *effort)
        everywhere = known / (1.0 if objective == "loss" else bound_divisor(budget.law, most))
        certificate = replace(certificate, everywhere=everywhere if everywhere > 0 else None)
    plan = Plan(work, budget, unit, request.method, strategy, certificate, objective, ideal, released)
    if unit.replacing:
        refuse_dropped(plan.batches, unit, work.schema, budget)
    return replace(plan, uniform_total=uniform, undone=tuple(request.account.undone))


def _ideal_totals(draft: Draft, real: Strategy, scale: float, work: Workload) -> Totals:
    """Weighted and unweighted sum of all ideal variances, from the method itself where it knows them."""
    weights = {part.weight for part in work.parts}
    own = (part for part in work.parts if isinstance(part, Table))
    uneven = any(factor.queries.weights is not None for part in own for factor in part.factors)
    if draft.value is None or len(weights) > 1 or uneven:
        return totals_of(real, work)
    weighted = draft.value / variance_ratio(real.law, scale)
    return weighted, weighted / weights.pop()


def _refuse_extremes(own: float) -> None:
    if own > PROTECTS_NOBODY:
        raise Infeasible(
            f"the targets need a privacy cost of {own:.1e}, which protects nobody; allow variances "
            f"{own:.1e} times as large for a cost of 1"
        )
    if own < DROWNS_ALL:
        raise Infeasible(
            f"the targets allow so much noise (a privacy cost of {own:.1e}) that 64-bit integers do not hold "
            f"it; ask for variances {DROWNS_ALL / own:.1e} times smaller"
        )


def _cheapest(request: Request, draft: Draft, own: float, asked: TargetParts) -> tuple[Budget, Strategy]:
    """The least budget, to a few digits, at which what is released meets every target (claim G-001)."""
    allowed = Fraction(own)
    strategy = _rounded(request, draft, allowed)
    for _ in range(SETTLING):
        needed = allowed * Fraction(max(ratios_of(asked, strategy))) * MARGIN * request.unit.factor
        budget = privacy_cost(text_above(needed, DIGITS))
        allowed = request.unit.record_cost(budget)
        strategy = rebudgeted(strategy, allowed, request.person)
        if max(ratios_of(asked, strategy)) <= 1:
            return budget, strategy
    raise Infeasible(
        "rounded to integers, the noise cannot be set so that every target holds; plan with targets that "
        "differ less"
    )


def _too_small(budget: Budget, fitness: Fitness) -> Infeasible:
    """The error for a budget that cannot meet the targets, which says by how much."""
    worst = max(fitness.met, key=lambda line: line.ratio)
    return Infeasible(
        f"{budget!r} is a privacy cost of {float(budget.gaussian_cost()):.4g}, and these targets need "
        f"{fitness.needed:.4g}, {fitness.factor:.4g} times that: at this budget the variances of "
        f"{worst.name!r} would reach {fitness.factor:.4g} times their target ({worst.target.describe()}). "
        "Give no budget to spend what it takes, or relax=True to allow all targets the same factor"
    )
