"""What `plan` is called with: each argument by itself, all together, and what Ctrl-C does."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from numpy.typing import ArrayLike

from residua._limits import COUNTABLE
from residua._text import kind_of, short
from residua.accuracy.guesses import AnyTargets, Guess, resolved
from residua.accuracy.targets import Targets
from residua.errors import BudgetError, SchemaError, WorkloadError
from residua.methods.draft import Progress
from residua.methods.effort import Account, Interruption, interruptible
from residua.methods.registry import methods_for
from residua.methods.scales.priced import Loss
from residua.planning.drafts import Request, needed, planned
from residua.plans import Plan
from residua.privacy import Budget, Unit
from residua.privacy.unit import Person
from residua.schema import Schema
from residua.workload import Workload
from residua.workload.queries import spelled
from residua.workload.union import refuse_extremes

DEFAULT_GAP = 1e-4
ONE_RECORD = Unit()
OBJECTIVES = ("total_variance", "max_variance")


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
    asked, schema = work.without_totals(), work.schema  # totals ask nothing of their attribute
    person, account = Person.of(unit, schema), Account.of(effort)
    time = None if over is None else time_attribute(schema, over)
    request = Request(asked, person, method, gap, account, progress, schema.units, time, renew)
    refuse_instalments(request, budget, plain=targets is None and objective == "total_variance")

    def made(request: Request = request) -> Plan:
        return planned(request, budget, targets, objective, strategies, relax=relax, refine=refine)

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


def check_arguments(
    work: object,
    budget: object,
    unit: object,
    method: object,
    gap: object,
    interrupt: object,
    *,
    without_budget: bool,
) -> None:
    """Nothing, or the error for an argument that is not what it should be."""
    if not isinstance(work, Workload):
        raise WorkloadError(
            f"plan needs a workload first, such as rs.marginals(schema, ways=2), not {kind_of(work)}"
        )
    if work.count > COUNTABLE:
        largest = max(work.groups(), key=lambda group: group.count)
        raise WorkloadError(
            f"table {largest.name!r} has {spelled(largest.count)} queries, more than a float can count; "
            "ask fewer queries, or put them in tables of fewer attributes"
        )
    refuse_extremes(work)
    spent = None if budget is None and without_budget else needed(budget)
    if not isinstance(unit, Unit):
        raise BudgetError(
            f"unit is whose privacy is protected, such as rs.Unit(max_records=3), not {short(unit)}"
        )
    known = methods_for("gaussian" if spent is None else spent.law)
    if not isinstance(method, str) or method not in known:
        where = ""
        if spent is not None and isinstance(method, str) and method in methods_for("gaussian"):
            where = f" with {spent.law} noise, which {spent!r} needs"
        raise WorkloadError(f"there is no method {short(method)}{where}; there are {', '.join(known)}")
    if not isinstance(gap, int | float) or not 0 < gap < 1:
        raise WorkloadError(f"gap must be between 0 and 1, such as 1e-4, not {short(gap)}")
    if interrupt not in ("stop", "best"):
        raise WorkloadError(f"interrupt is 'stop' or 'best', what Ctrl-C does, not {short(interrupt)}")


def refuse_contradictions(
    budget: Budget | None, targets: Targets | None, objective: object, for_targets: bool
) -> None:
    """Nothing, or the error for arguments that do not go together."""
    if objective not in OBJECTIVES and not callable(objective):
        raise WorkloadError(
            f"there is no objective {short(objective)}; there are {', '.join(OBJECTIVES)}, and functions of "
            "variances"
        )
    if targets is not None and objective != "total_variance":
        raise WorkloadError(
            "targets already say what matters, the least privacy that meets them; leave out "
            f"objective={objective!r}, or leave out targets"
        )
    each_query = targets is not None or objective != "total_variance"
    if each_query and budget is not None and budget.law == "laplace":
        raise BudgetError(
            f"targets and largest variances are planned with Gaussian noise, which cannot give {budget!r}; "
            "give zcdp(rho) or approx_dp(epsilon, delta)"
        )
    if targets is None and for_targets:
        raise WorkloadError("relax and refine go with targets, and there are none; leave them out")


def time_attribute(schema: Schema, over: str) -> int:
    """The place of an attribute whose cells come in order, by its name or that of a level of it."""
    at, _ = schema.resolve(over)
    attribute = schema.attributes[at]
    classes = schema.classes(over)
    if schema.units[at] > 1 or attribute.other is not None or (classes[1:] < classes[:-1]).any():
        raise SchemaError(
            f"{over!r} is no run of periods: name an attribute whose cells come one after the other, such as "
            "rs.Date(..., by='month'), without a cell for everything else"
        )
    return at


def refuse_instalments(request: Request, budget: Budget | None, *, plain: bool) -> None:
    """Nothing, or the error for what cannot be planned in instalments."""
    if request.over is None:
        if request.renew is not None:
            raise WorkloadError("renew goes with over, the attribute of periods; give over= too")
        return
    if not plain or request.method != "auto":
        raise WorkloadError(
            "instalments are planned for the least total variance, by method 'auto'; leave out targets, "
            "objective and method, or over"
        )
    if budget is not None and budget.law == "laplace":
        raise WorkloadError(
            f"instalments need Gaussian noise, which cannot give {budget!r}; give zcdp(rho) or "
            "approx_dp(epsilon, delta)"
        )
    if request.tied:
        raise WorkloadError(
            "conditions joined across attributes are planned by classes of cells, which are not measured in "
            "instalments; ask for them as rs.linear, or leave out over"
        )
    renew = request.renew
    if renew is not None and renew != "doubling" and (type(renew) is not int or renew < 1):
        raise WorkloadError(f"renew is a number of periods from 1 on, or 'doubling', not {renew!r}")
