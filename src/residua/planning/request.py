"""From work to plan, one way for every request.

A method drafts a real strategy and a bound; the draft is rounded to integers and scaled to the budget, which
targets may leave open; the plan states its errors and its certificate.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

from numpy.typing import ArrayLike

from residua._limits import COUNTED_CELLS
from residua.accuracy.figures import Figures, Fitness, Totals, certified, fitness_of, totals_of
from residua.accuracy.guesses import AnyTargets, Guess, resolved
from residua.accuracy.targets import Asked, Targets, asked_of, largest_ratio, ratios_of, weighted_caps
from residua.bounds import quick_bound
from residua.errors import Infeasible, WorkloadError
from residua.linalg.matrices import threads_for
from residua.methods.coarsening import coarse_workload
from residua.methods.draft import Draft, Progress
from residua.methods.effort import Account
from residua.methods.interruption import Interruption, interruptible, interruption
from residua.methods.registry import loss_draft, residualplanner_plus, targets_draft
from residua.methods.scales.priced import Loss, loss_at
from residua.persons import Person
from residua.planning.arguments import check_arguments, needed, refuse_contradictions
from residua.planning.drafts import Request, total_draft, total_drafts
from residua.planning.instalments import refuse_instalments, time_attribute
from residua.plans import Plan
from residua.privacy import Budget, Unit, privacy_cost
from residua.privacy.conversions import text_above
from residua.privacy.statement import bound_divisor, variance_ratio
from residua.strategy.costs import ideal_scale, record_cost
from residua.strategy.rounding import measurable, rebudgeted
from residua.strategy.strategy import Strategy, refuse_uncounted
from residua.workload import Table, Workload

DEFAULT_GAP = 1e-4
ONE_RECORD = Unit()
DIGITS = 7  # of the privacy cost that targets turn out to need
MARGIN = Fraction(1) + Fraction(1, 10**9)  # more than floats lose between two ways to add up a variance
SETTLING = 6  # times that the noise is set again: rounding it to integers is all that is left to settle
INNER = 0.8  # of the gap, for the solver; the rest is for rounding to integers
PROTECTS_NOBODY = 1e15  # a privacy cost that even 64-bit integers could not hold the noise of
DROWNS_ALL = 1e-24  # and one whose noise would leave them no room
ROUNDING = 1e-9  # a cost this much smaller than another is what rounding leaves of zero


def plan(
    work: Workload,
    budget: Budget | None = None,
    *,
    targets: AnyTargets | None = None,
    guess: Guess | None = None,
    unit: Unit = ONE_RECORD,
    method: str = "auto",
    objective: str | Loss = "total_variance",
    gap: float = DEFAULT_GAP,
    relax: bool = False,
    refine: bool = False,
    strategies: Mapping[str, ArrayLike] | None = None,
    effort: str = "normal",
    over: str | None = None,
    renew: int | str | None = None,
    progress: Progress | None = None,
    interrupt: str = "stop",
) -> Plan:
    """The best plan found for these tables at this privacy, with its errors and its certificate.

    No data is needed, and none is touched.

    work: Workload
        The tables to publish, such as `rs.marginals(schema, up_to=2)`; weights multiply variances.
    budget: Budget, optional
        How much privacy may be spent, such as `rs.zcdp("0.1")`. May be left out where `targets` are given:
        the plan then takes the least that meets them.
    targets: number, Target or mapping of names of tables to them, optional
        Accuracy first: what the variance of every query may be at most, as a number, as `rs.stddev(5)` or as
        `rs.half_width(10)`; or by name of table, and tables that are not named have none. With a budget they
        are met by the widest margin, and a budget that is too small is refused.
    guess: Release, mapping of names of tables to numbers, or number of records, optional
        What the numbers are publicly expected to be, for relative targets: `rs.relative(0.05)`.
    unit: Unit
        Whose privacy is protected; one record unless told, as in `rs.Unit(max_records=3)`.
    method: str
        How the strategy is found. "auto" takes the best of several; docs/reference/methods.md lists them all.
    objective: str or function
        What is made small: "total_variance", the sum of weight times variance; "max_variance", the largest
        weight times variance; or a function that makes one convex and increasing cvxpy expression of the mean
        variance of each name, `lambda v: cvxpy.maximum(v["T1"], 2 * v["T2"])`, or of the vector of them all,
        in the order of the names, `lambda v: cvxpy.max(v)`.
    gap: float
        The relative distance from the optimum at which solving stops.
    relax: bool
        With targets and a budget that is too small for them: allow every target the same factor.
    refine: bool
        With targets: of several cheapest plans the one that costs the other records least.
    strategies: mapping of attributes to matrices, optional
        What method "residualplanner+" measures of some attributes.
    effort: str
        How much work method "auto" may take for the least total variance: "quick", "normal" (about ten
        seconds on one core) or "thorough", by an account that is the same on every machine. What was left
        undone is in `plan.undone`.
    over: str, optional
        An attribute of ordered periods, or a level of one, such as "day.month": the plan can be measured in
        instalments, each period when it comes (`rs.Stream`), and waits for nothing later.
    renew: int or "doubling", optional
        With `over`: the plan starts anew after so many cells of the attribute, or after 1, 2, 4, .., so that
        it need not be known how many will come.
    progress: function, optional
        Called with what is being done and the fraction of it that is done, from the thread that plans.
    interrupt: str
        What Ctrl-C does: "stop" ends planning at once; "best" ends it with the best plan so far, or with that
        of quick effort where there is none yet.

    >>> import residua as rs
    >>> schema = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"))
    >>> work = rs.table(schema, {"age": rs.prefix, "sex": rs.identity}, name="T1")
    >>> found = rs.plan(work, rs.privacy_cost(1))
    >>> round(found.rmse, 3), found.certificate.scope
    (1.556, 'all mechanisms')
    >>> round(float(rs.plan(work, targets=rs.stddev(2)).privacy.cost), 2)
    0.62
    """
    check_arguments(work, budget, unit, method, gap, interrupt, without_budget=targets is not None)
    targets = None if targets is None else resolved(work, targets, guess)
    refuse_contradictions(budget, targets, objective, relax or refine)
    if budget is not None:
        unit.allowance(budget)  # a budget that no noise can meet is refused before any work
    asked = work.without_totals()  # they ask nothing of their attribute
    request = Request(
        asked,
        Person.of(unit, work.schema),
        method,
        gap,
        Account.of(effort),
        progress,
        work.schema.units,
        None if over is None else time_attribute(work.schema, over),
        renew,
    )
    refuse_instalments(request, budget, plain=targets is None and objective == "total_variance")

    def made(request: Request = request) -> Plan:
        return _planned(request, budget, targets, objective, strategies, relax=relax, refine=refine)

    own = Interruption(keeps=interrupt == "best")
    try:
        found = interruptible(made, own)
    except KeyboardInterrupt:
        if not own.keeps or effort == "quick":
            raise
        own.came = True
        quick = replace(request, account=Account.of("quick"))
        found = interruptible(partial(made, quick), Interruption(keeps=False))
    undone = (*found.undone, "what was not tried before planning was ended") if own.came else found.undone
    return replace(found, workload=work, undone=undone)


def _planned(
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
        found = _best_of(request, budget, total_drafts(request, budget))
    elif request.method != "residualplanner+":
        raise WorkloadError(
            f"strategies are for method 'residualplanner+'; method {request.method!r} finds its own"
        )
    else:
        draft = residualplanner_plus(request.work, request.gap, request.progress, strategies)
        found = _at_budget(request, budget, draft)
    return _or_plain_cells(request, found) if request.method == "auto" and budget.law == "laplace" else found


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


def _or_plain_cells(request: Request, found: Plan) -> Plan:
    """The plan, or that of all joint cells where they can be counted and its answers are better.

    Methods weigh real noise; integer noise on plain counts is narrower, at large epsilons by far (H-002).
    """
    work = request.work
    if math.prod(work.schema.sizes[at] for at in work.attributes) > COUNTED_CELLS:
        return found
    try:
        plain = _at_budget(request, found.budget, total_draft(request, found.budget, "identity"))
    except Infeasible:  # some attribute has too many cells
        return found
    return min(found, plain, key=lambda each: each.total_variance)


def _for_targets(
    request: Request, budget: Budget | None, targets: Targets, *, relax: bool, refine: bool
) -> Plan:
    """The plan that meets every target with the least privacy, or by the widest margin at a budget.

    A budget that cannot meet them is refused, unless `relax` allows all targets the same factor.
    """
    asked = asked_of(request.work, targets)
    inner = INNER * request.gap
    draft = targets_draft(request.method, *asked.with_free(), inner, request.progress, refine)
    own = _record_cost(request, draft)
    _refuse_extremes(own)
    if budget is None:
        budget, strategy = _cheapest(request, draft, own, asked)
    else:
        strategy = _rounded(request, draft, request.unit.allowance(budget))
    cost = float(request.unit.allowance(budget) * request.unit.factor)
    least = 0.0 if request.unit.replacing else draft.lower_bound * request.person.alike**2
    fitness = fitness_of(asked, strategy, draft.prices, cost, least)
    if fitness.factor > 1 and not relax:
        raise _too_small(budget, fitness)
    found = _finished(request, budget, draft, strategy, "targets", fitness.factor)
    return replace(found, targets=fitness)


def _for_largest(request: Request, budget: Budget) -> Plan:
    """The plan with the least largest variance (each times the query's weight)."""
    work, caps = request.work, weighted_caps(request.work)
    draft = targets_draft(request.method, work, caps, INNER * request.gap, request.progress, False)
    strategy = _rounded(request, draft, request.unit.allowance(budget))
    largest = max(largest_ratio(strategy, part, cap) for part, cap in zip(work.parts, caps, strict=True))
    return _finished(request, budget, draft, strategy, "max_variance", largest)


def _for_loss(request: Request, budget: Budget, loss: Loss) -> Plan:
    """The plan with the least loss of one mean variance per name of tables."""
    work, allowed = request.work, request.unit.allowance(budget)
    inner, account = INNER * request.gap, request.account
    draft = loss_draft(request.method, work, loss, inner, request.progress, float(allowed), account)
    strategy = _rounded(request, draft, allowed)
    named = {name: work.select(name) for name in work.names}
    means = [totals_of(strategy, own)[1] / own.count for own in named.values()]
    return _finished(request, budget, draft, strategy, "loss", loss_at(loss, list(named), means))


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
    refuse_uncounted(draft.strategy, request.work.schema.names)
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
) -> Plan:
    """The plan of an integer strategy: its errors, those of the draft that it was made of, its certificate.

    `value` is what it makes of the objective, if that is not the total variance.
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
    if request.unit.replacing:  # of which a bound for adding or removing a record says nothing
        lower, uniform = 0.0, None
    elif request.person.caps:
        lower, uniform = 0.0 if objective == "loss" else lower, None
    certificate = certified(value, lower, draft.scope, objective)
    if lower > 0 and draft.scope == "this block structure":
        known = quick_bound(work) if objective == "total_variance" else draft.everywhere
        everywhere = known / (1.0 if objective == "loss" else bound_divisor(budget.law, most))
        certificate = replace(certificate, everywhere=everywhere if everywhere > 0 else None)
    plan = Plan(work, budget, unit, request.method, strategy, certificate, objective, ideal, released)
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


def _cheapest(request: Request, draft: Draft, own: float, asked: Asked) -> tuple[Budget, Strategy]:
    """The least budget, to a few digits, at which what is released meets every target (claim G-001)."""
    allowed = Fraction(own)
    strategy = _rounded(request, draft, allowed)
    for _ in range(SETTLING):
        worst = Fraction(max(ratios_of(asked, strategy)))
        needed = allowed * worst * MARGIN * request.unit.factor
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
