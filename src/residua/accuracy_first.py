"""Plans whose accuracy is bounded query by query: targets for variances, and the least largest variance."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from residua._figures import Figures, totals_of
from residua._plan import Plan
from residua._summary import Certificate, certified
from residua.accuracy import Asked, Targets, asked_of, weighted_caps
from residua.bounds import all_invariant
from residua.errors import BudgetError, Infeasible, WorkloadError
from residua.fitness import Fitness, fitness_of, largest_ratio, ratios_of
from residua.methods.draft import Caps, Draft, Progress
from residua.methods.named import refuse_all_but_marginals
from residua.methods.scales import block_targets
from residua.methods.scales.loss import Loss, block_loss, named_variances
from residua.methods.targets import dense_targets, suits
from residua.privacy import Budget, Unit, privacy_cost
from residua.privacy.conversions import text_above
from residua.strategy import costs
from residua.strategy.rounding import measurable, rebudgeted
from residua.strategy.strategy import Strategy
from residua.workload import Workload

METHODS = ("auto", "dense", "smasher", "querysmasher", "residualplanner")  # that bound each query's error
DIGITS = 7  # of the privacy cost that targets turn out to need
MARGIN = Fraction(1) + Fraction(1, 10**9)  # more than floats lose between two ways to add up a variance
SETTLING = 6  # times that the noise is set again: rounding it to integers is all that is left to settle
INNER = 0.8  # of the gap, for the solver; the rest is for rounding to integers
PROTECTS_NOBODY = 1e15  # a privacy cost that even 64-bit integers could not hold the noise of
DROWNS_ALL = 1e-24  # and one whose noise would leave them no room
ROUNDING = 1e-9  # a cost this much smaller than another is what rounding leaves of zero


@dataclass(frozen=True, slots=True)
class Request:
    """What a plan is made for, besides its workload: whose privacy, how, and how close to the optimum."""

    unit: Unit
    method: str
    gap: float
    refine: bool = False
    progress: Progress | None = None

    @property
    def replacing(self) -> bool:
        """Whether what is protected is that one record is replaced by another."""
        return self.unit.neighbours == "replace_one"

    def cost_of(self, strategy: Strategy) -> float:
        """What a mechanism costs one record; see `record_cost`."""
        return record_cost(strategy, replacing=self.replacing)

    def proved(self, bound: float) -> float:
        """A lower bound for adding or removing a record; 0 for replacing one, of which it says nothing."""
        return 0.0 if self.replacing else bound


def record_cost(strategy: Strategy, *, replacing: bool) -> float:
    """About what a strategy costs one record; Infeasible where replacing one changes nothing measured."""
    own = costs.record_cost(strategy, replacing=replacing)
    if own <= ROUNDING * strategy.cost():
        raise Infeasible(
            "the workload asks only for the number of records, which replacing one record cannot change: "
            "publish it as it is, or protect adding and removing records (neighbours='add_remove')"
        )
    return own


def plan_for_targets(
    work: Workload, budget: Budget | None, targets: Targets, request: Request, *, relax: bool = False
) -> Plan:
    """The plan that meets every target with the least privacy, or by the widest margin at a budget.

    A budget that cannot meet them is refused, unless `relax` allows all targets the same factor.
    """
    asked = asked_of(work, targets)
    draft = _draft(asked.work, asked.caps, request)
    _refuse_extremes(draft, request)
    if budget is None:
        budget, strategy = _cheapest(draft, asked, request)
    else:
        strategy = _within(draft, budget, request)
    allowed = request.unit.record_cost(budget)
    least, factor = request.proved(draft.lower_bound), float(request.unit.factor)
    fitness = fitness_of(asked, strategy, draft.prices, float(allowed) * factor, least * factor)
    if fitness.factor > 1 and not relax:
        raise _too_small(budget, request.unit, fitness)
    certificate = certified(fitness.factor, least / float(allowed), draft.scope, "targets")
    return replace(_plan(work, budget, draft.strategy, strategy, certificate, request), targets=fitness)


def plan_for_largest(work: Workload, budget: Budget, request: Request) -> Plan:
    """The plan with the least largest variance (each times the query's weight) at a budget."""
    caps = weighted_caps(work)
    draft = _draft(work, caps, request)
    strategy = _within(draft, budget, request)
    largest = max(largest_ratio(strategy, part, cap) for part, cap in zip(work.parts, caps, strict=True))
    lower = request.proved(draft.lower_bound) / float(request.unit.record_cost(budget))
    certificate = certified(largest, lower, draft.scope, "max_variance")
    return _plan(work, budget, draft.strategy, strategy, certificate, request)


def plan_for_loss(work: Workload, budget: Budget, loss: Loss, request: Request) -> Plan:
    """The plan with the least loss of one mean variance per name of tables, at a budget."""
    if request.method == "residualplanner":
        refuse_all_but_marginals(work)
    elif request.method not in ("auto", "querysmasher"):
        raise WorkloadError(f"method {request.method!r} does not plan for a loss of your own; use 'auto'")
    allowed = float(request.unit.record_cost(budget))
    draft = block_loss(work, loss, INNER * request.gap, request.progress, cost=allowed)
    strategy = _within(draft, budget, request)
    named = {name: work.select(name).parts for name in work.names}
    means = {
        name: sum(strategy.totals(part)[1] for part in parts) / sum(part.count for part in parts)
        for name, parts in named.items()
    }
    certificate = certified(loss_at(loss, means), request.proved(draft.lower_bound), draft.scope, "loss")
    return _plan(work, budget, draft.strategy, strategy, certificate, request)


def loss_at(loss: Loss, variances: Mapping[str, float]) -> float:
    """The loss of these mean variances by name."""
    import cvxpy

    means = np.array(list(variances.values()))
    return float(loss(named_variances(list(variances), means, cvxpy.Constant(np.ones(len(means))))).value)


def _draft(work: Workload, caps: Caps, request: Request) -> Draft:
    if request.method not in METHODS:
        names = ", ".join(METHODS)
        raise WorkloadError(
            f"method {request.method!r} does not plan for the accuracy of each query; use {names}"
        )
    if request.method == "residualplanner":
        refuse_all_but_marginals(work)
    if request.method == "dense" or (request.method == "auto" and _better_dense(work, caps, request.refine)):
        return dense_targets(work, caps, INNER * request.gap, request.progress, request.refine)
    if request.refine:
        raise WorkloadError(
            "refine is for workloads on few cells, where all mechanisms can be compared; leave it out here"
        )
    return block_targets(work, caps, INNER * request.gap, request.progress)


def _better_dense(work: Workload, caps: Caps, refine: bool) -> bool:
    """Whether all mechanisms can be compared; of marginals with one target a table, blocks are as good."""
    plain = all_invariant(work) and not any(np.ndim(cap) for cap in caps)
    return suits(work, caps) and (refine or not plain)


def _refuse_extremes(draft: Draft, request: Request) -> None:
    own = request.cost_of(draft.strategy)
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


def _cheapest(draft: Draft, asked: Asked, request: Request) -> tuple[Budget, Strategy]:
    """The least budget, to a few digits, at which what is released meets every target (claim G-001)."""
    allowed = Fraction(request.cost_of(draft.strategy))
    strategy = measurable(draft.strategy, draft.spans, allowed, replacing=request.replacing)
    for _ in range(SETTLING):
        worst = Fraction(max(ratios_of(asked, strategy)))
        needed = allowed * worst * MARGIN * request.unit.factor
        budget = privacy_cost(text_above(needed, DIGITS))
        allowed = request.unit.record_cost(budget)
        strategy = rebudgeted(strategy, allowed, replacing=request.replacing)
        if max(ratios_of(asked, strategy)) <= 1:
            return budget, strategy
    raise Infeasible(
        "rounded to integers, the noise cannot be set so that every target holds; plan with targets that "
        "differ less"
    )


def _within(draft: Draft, budget: Budget, request: Request) -> Strategy:
    """The draft in integers, with noise that uses up a budget."""
    request.cost_of(draft.strategy)  # there must be something to scale
    allowed = request.unit.record_cost(budget)
    return measurable(draft.strategy, draft.spans, allowed, replacing=request.replacing)


def _too_small(budget: Budget, unit: Unit, fitness: Fitness) -> Infeasible:
    """The error for a budget that cannot meet the targets, which says by how much."""
    worst = max(fitness.met, key=lambda line: line.ratio)
    return Infeasible(
        f"{budget!r} is a privacy cost of {float(budget.gaussian_cost()):.4g}, and these targets need "
        f"{fitness.needed:.4g}, {fitness.factor:.4g} times that: at this budget the variances of "
        f"{worst.name!r} would reach {fitness.factor:.4g} times their target ({worst.target.describe()}). "
        "Give no budget to spend what it takes, or relax=True to allow all targets the same factor"
    )


def _plan(
    work: Workload,
    budget: Budget,
    real: Strategy,
    strategy: Strategy,
    certificate: Certificate,
    request: Request,
) -> Plan:
    """The plan of an integer mechanism with its figures, and those of the real one that it was made of."""
    allowed = request.unit.record_cost(budget)
    scale = costs.ideal_scale(real, strategy, allowed, replacing=request.replacing)
    ideal = Figures.of(real.scaled(scale), work)
    released = Figures.of(strategy, work, totals_of(strategy, work))
    objective = certificate.objective
    return Plan(work, budget, request.unit, request.method, strategy, certificate, objective, ideal, released)


def refuse_odd_requests(budget: Budget | None, targets: Targets | None, objective: object) -> None:
    """Raise for arguments that contradict each other."""
    if targets is not None and objective != "total_variance":
        raise WorkloadError(
            "targets already say what matters, the least privacy that meets them; leave out "
            f"objective={objective!r}, or leave out targets"
        )
    if (
        (targets is not None or objective != "total_variance")
        and budget is not None
        and budget.law == "laplace"
    ):
        raise BudgetError(
            f"targets and largest variances are planned with Gaussian noise, which cannot give {budget!r}; "
            "give zcdp(rho) or approx_dp(epsilon, delta)"
        )
