"""A loss of one's own by rounds of plans for total variance: its prices are the weights of the next (J-009).

Each round is a plan, and a bound on the loss of all mechanisms that the plan's own bound holds for. Where
plans are matrices over the joint cells, mixtures of their privacy matrices are plans too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array
from residua._limits import MIXED_ENTRIES
from residua.bounds import quick_bound
from residua.errors import Infeasible, NotConverged, ResiduaError
from residua.linalg.matrices import independent_rows
from residua.methods.dense import one_block
from residua.methods.draft import Draft, Scope
from residua.methods.scales.loss import mean_variances, reshared, table_names, weighted_by_name
from residua.methods.scales.priced import SOLVER_ERROR, Loss, Priced, cvxpy
from residua.methods.scales.query_pieces import unweighted
from residua.strategy.strategy import Strategy
from residua.workload import Workload

ROUNDS = 30
STALE = 3  # rounds without a gain after which there is none to come
LEAST_GAIN = 1e-4  # relative
LEFT = 0.9  # of the gap, which is a gain too
LEAST_ALONE = 1e-3  # of the same where one name is to have all it can
MOST_ALONE = 10  # names that are tried in that way
LEAST_SHARE = 1e-6  # of the priced variances, for every name: what has no price is measured too

Planner = Callable[[Workload], Draft | None]
"""A plan for total variance at privacy cost 1; None where no more are to be made."""


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """A draft at the privacy cost asked for, its mean variances by name, their loss, and `_matrix`."""

    draft: Draft
    means: Array
    value: float
    matrix: Array | None


def by_rounds(
    work: Workload,
    loss: Loss,
    first: Draft | ResiduaError,
    planner: Planner,
    tolerance: float,
    cost: float,
) -> Draft:
    """The plan of the least loss among `first`, that for the total, those of the rounds and mixtures.

    Where there is no first plan, and none of the others meets the conditions in the loss, raises the reason.
    """
    rounds = _Rounds(unweighted(work), loss, tolerance, cost)
    if isinstance(first, Draft):
        rounds.keep(first)
    draft = planner(work)
    for _ in range(ROUNDS):
        if draft is None or rounds.ended(draft):
            break
        draft = planner(weighted_by_name(rounds.work, rounds.names, rounds.weights))
    if rounds.best is None and isinstance(first, ResiduaError):
        raise first
    if not len(rounds.prices):
        rounds.weigh()
    return rounds.result(rounds.best or rounds.plans[0], planner)


class _Rounds:
    """Plans so far, and a bound for all mechanisms."""

    def __init__(self, work: Workload, loss: Loss, tolerance: float, cost: float) -> None:
        self.work, self.loss, self.tolerance, self.cost = work, loss, tolerance, cost
        self.names, self.bound, self.stale, self.unmet = table_names(work), -math.inf, 0, 0
        self.plans: list[_Plan] = []
        self.prices = self.weights = np.zeros(0)
        self.priced: Priced

    @property
    def best(self) -> _Plan | None:
        """The plan of the least loss, if there is one of finite loss.

        cvxpy takes conditions to be met that are not quite; a plan below the bound shows it.
        """
        known = [plan for plan in self.plans if plan.value < math.inf]
        strict = [plan for plan in known if plan.value >= self.bound - SOLVER_ERROR * abs(self.bound)]
        return min(strict or known, key=lambda plan: plan.value, default=None)

    @property
    def value(self) -> float:
        """The least loss so far."""
        return math.inf if self.best is None else self.best.value

    def ended(self, draft: Draft) -> bool:
        """Whether this plan, and what can be made of it, is the last that is worth having."""
        before, left = self.value, self.value - self.bound
        self._add(draft)
        self.weigh()
        gained = before == math.inf or before - self.value > LEAST_GAIN * abs(before)
        gained = gained or self.value - self.bound < LEFT * left
        self.stale = 0 if gained else self.stale + 1
        proved = self.bound >= self.value - self.tolerance * abs(self.value)
        return proved or self.stale > STALE or self.unmet > min(len(self.names), MOST_ALONE)

    def _add(self, draft: Draft) -> None:
        """Keep a plan for the weights, at the cost asked for, and the bound on the loss that it proves."""
        lower = self._proved(self.weights, draft.lower_bound) if len(self.weights) else -math.inf
        if draft.scope == "all mechanisms":
            self.bound = max(self.bound, lower)
        self.keep(replace(draft, strategy=draft.strategy.scaled(self.cost), lower_bound=lower))
        if self.plans[-1].matrix is None:
            better = reshared(self.work, self.loss, draft, self.tolerance, self.cost)
            if better is not None:
                self.keep(replace(better, lower_bound=max(better.lower_bound, lower)))

    def _proved(self, weights: Array, total: float) -> float:
        """The bound on the loss from one on the total at cost 1 of variances with these weights."""
        try:
            return self.priced.bound(weights, self.value, total / self.cost) if self.best else -math.inf
        except NotConverged:
            return -math.inf

    def keep(self, draft: Draft) -> None:
        """One more plan, at the cost asked for."""
        means = mean_variances(self.work, self.names, draft.strategy)
        priced = Priced.of(self.loss, self.names, means, known=bool(self.plans))
        self.plans.append(_Plan(draft, means, priced.at(means), _matrix(draft.strategy)))
        if self.best in (None, self.plans[-1]):
            self.priced = priced  # the solver likes variances near 1

    def weigh(self) -> None:
        """Set the weights of the next plan, and keep the best mixture of plans that can be mixed."""
        mixing = self.plans[-1].matrix is not None
        try:
            mixed = [plan for plan in self.plans if plan.matrix is not None or not mixing]
            shares, prices = self._shares(mixed)
            if mixing:
                self._mix(shares)
        except Infeasible:  # conditions in the loss that no mixture meets
            self._look_elsewhere()
        except NotConverged:
            self.stale = STALE
        else:
            means = (self.best or self.plans[-1]).means
            self.prices = prices
            self.weights = np.maximum(prices * means, LEAST_SHARE * (prices @ means)) / means

    def _look_elsewhere(self) -> None:
        """Set weights that are for one name above all others, for one after the other."""
        only = np.arange(len(self.names)) == self.unmet % len(self.names)
        self.weights = np.where(only, 1.0, LEAST_ALONE) / self.plans[-1].means
        self.unmet += 1

    def _shares(self, plans: Sequence[_Plan]) -> tuple[Array, Array]:
        """How to mix plans for the least loss, and the prices of variances there.

        A mixture of privacy matrices `sum_j l_j X_j` has variances of at most `1 / sum_j(l_j / t_j)` (J-009).
        """
        cp = cvxpy()
        shares = cp.Variable(len(plans), nonneg=True)
        inverse = np.stack([self.priced.scale / plan.means for plan in plans], axis=1)
        _, prices = self.priced.least(cp.inv_pos(inverse @ shares), [cp.sum(shares) <= 1])
        return np.maximum(shares.value, 0.0), prices

    def _mix(self, shares: Array) -> None:
        """Keep a mixture as one matrix, at the cost asked for; where matrices are many, no others."""
        mixable = [plan for plan in self.plans if plan.matrix is not None]
        used = [(plan, share) for plan, share in zip(mixable, shares, strict=True) if share > LEAST_SHARE]
        if sum(np.asarray(plan.matrix).size for plan in mixable) > MIXED_ENTRIES:
            self.plans = [plan for plan in self.plans if plan.matrix is None] + [plan for plan, _ in used]
        rows = [math.sqrt(share) * np.asarray(plan.matrix) for plan, share in used]
        matrix = independent_rows(np.concatenate(rows))
        matrix *= math.sqrt(self.cost / np.max(np.sum(matrix**2, axis=0)))
        strategy, spans = one_block(self.work, matrix)
        self.keep(Draft(strategy, self.bound, "all mechanisms", spans=spans))

    def result(self, best: _Plan, planner: Planner) -> Draft:
        """The best plan, with the best bound: its own, or for all mechanisms."""
        own = best.draft.lower_bound
        if self.bound == -math.inf and len(self.prices):
            asked = weighted_by_name(self.work, self.names, self.prices)  # what the loss sees alone
            draft = planner(asked) if own == -math.inf else None
            known = draft is not None and draft.scope == "all mechanisms"
            least = draft.lower_bound if draft and known else quick_bound(asked)
            self.bound = self._proved(self.prices, least)
        scope: Scope = best.draft.scope
        if self.bound >= own - self.tolerance * abs(own):
            own, scope = self.bound, "all mechanisms"
        lower, everywhere = min(own, best.value), max(self.bound, 0.0)
        found = replace(best.draft, lower_bound=lower, scope=scope, value=best.value, everywhere=everywhere)
        return replace(found, prices=(self.prices,))


def _matrix(strategy: Strategy) -> Array | None:
    """What a strategy measures of the joint cells with noise of variance 1; None of other blocks."""
    single = strategy.single()
    if single is None or len(single[1]) != 1:
        return None
    return np.asarray(single[1][0].shape.matrix / math.sqrt(single[2]))
