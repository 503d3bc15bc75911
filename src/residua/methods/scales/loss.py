"""A loss of one's own: any convex, increasing function of one variance per table name (claim J-008).

With the shapes of blocks fixed, the mean variance of the queries of each name is linear in the blocks' noise,
so a convex loss of them is a convex problem of one number per orbit of blocks. cvxpy and clarabel (the extra
`convex`) solve it; the loss is written with cvxpy.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from residua._arrays import Array
from residua._limits import LOSS_BLOCKS, LOSS_NAMES
from residua.decompose import decompose
from residua.errors import Infeasible, NotConverged, WorkloadError
from residua.linalg.matrices import threads_for
from residua.methods.blocks import Optimal, solve_blocks
from residua.methods.draft import Draft, Progress, Scope
from residua.methods.scales.cutting_planes import with_noise
from residua.methods.scales.query_pieces import Orbits, unweighted
from residua.methods.scales.variance_rows import TableOrbits, table_orbits
from residua.schema.coding import hint
from residua.workload import Table, TableRun, Workload

Loss = Callable[[Any], Any]
"""From the mean variance of the queries of each name to a scalar cvxpy expression; see `named_variances`."""

TRIES = 20  # points at which a loss is tried for being increasing
STEP = 0.1  # by which one variance grows there
SOLVER_ERROR = 1e-7  # relative, of the conic solver's values
ROOM = 1e-6  # above the loss that was reached, in units of the loss, where the bound is looked for
NEGLIGIBLE = 1e-9  # of the largest price: what the solver leaves of zero


def block_loss(
    work: Workload, loss: Loss, tolerance: float, progress: Progress | None = None, *, cost: float = 1.0
) -> Draft:
    """The mechanism of blocks, at this privacy cost, with the least loss.

    `loss` gets the mean variances of the queries of each name of tables, a cvxpy vector whose entries are
    also found by name, and returns a convex and increasing cvxpy expression of them.
    """
    _cvxpy()
    work = unweighted(work)
    names = _names(work)
    with threads_for(0):
        draft = solve_blocks(decompose(work), work.schema.sizes, Optimal(), tolerance, progress)
        problem = _LossProblem.of(work, names, draft)
        return problem.solved(loss, cost, tolerance)


def _cvxpy() -> Any:
    try:
        import_module("clarabel")
        return import_module("cvxpy")
    except ImportError as missing:
        raise Infeasible(
            "a loss of your own needs cvxpy and clarabel; install them with: pip install 'residua[convex]'"
        ) from missing


def _names(work: Workload) -> list[str]:
    if work.tables > LOSS_NAMES and any(part.name is None for part in work.parts):
        raise WorkloadError(
            f"a loss of one variance per name needs few names, and the workload has {work.tables:,} tables "
            "without names of their own; give a run one, as in rs.marginals(schema, ways=2, name='pairs')"
        )
    return list(work.names)


@dataclass(frozen=True, slots=True, eq=False)
class _LossProblem:
    """Mean variances by name as a matrix over orbits of blocks: `rows @ noise`, (names, orbits)."""

    work: Workload
    names: list[str]
    draft: Draft
    orbits: Orbits
    tables: TableOrbits
    rows: Array

    @classmethod
    def of(cls, work: Workload, names: list[str], draft: Draft) -> "_LossProblem":
        marks = [part.name for part in work.parts]
        orbits = Orbits.of_blocks(work, marks, draft.strategy.layers)
        if len(orbits.many) > LOSS_BLOCKS:
            raise Infeasible(
                f"the tables need {len(orbits.many):,} different kinds of blocks, and a loss of your own can "
                f"be planned for {LOSS_BLOCKS:,}; use objective='max_variance', or fewer tables"
            )
        tables = table_orbits(work, draft.strategy, orbits, marks, listing=False)
        return cls(work, names, draft, orbits, tables, _rows_by_name(work, names, tables, orbits))

    def solved(self, loss: Loss, cost: float, tolerance: float) -> Draft:
        """The best noise for the loss, and the bound that its prices prove."""
        cp = _cvxpy()
        many = self.orbits.many
        asked = self.rows.T @ np.ones(len(self.names))
        start = np.sqrt(many / asked)
        start *= float((many / start).sum()) / cost  # noise of a plan of this cost
        scale = self.rows @ start
        noise, variances = cp.Variable(len(many), pos=True), cp.Variable(len(self.names), pos=True)
        value = _checked(loss(named_variances(self.names, scale, variances)), variances)
        caps = (self.rows * start) / scale[:, None] @ noise <= variances
        spent = (many / start / cost) @ cp.inv_pos(noise) <= 1
        unit = _unit(value, variances)
        problem = cp.Problem(cp.Minimize(value / unit), [caps, spent])
        _solve(problem)
        found = start * noise.value
        found *= float((many / found).sum()) / cost
        reached = self.rows @ found
        variances.value = reached / scale
        mine = float(value.value)
        promised = unit * float(problem.value)
        if mine > promised + 1e-4 * abs(promised):
            raise WorkloadError(
                f"the loss of the variances that are reached is {mine:.6g}, but {promised:.6g} with larger "
                "ones: it falls where a variance grows; let it grow with every variance"
            )
        prices = unit * np.asarray(caps.dual_value)
        prices[prices < NEGLIGIBLE * prices.max()] = 0.0
        total = self._least_total(prices / scale, tolerance) / cost
        lower = _least_rest(value, variances, prices, mine, unit) + total
        lower -= SOLVER_ERROR * (abs(mine) + total)
        scope: Scope = "all mechanisms" if self.work.invariant else "this block structure"
        mechanism = with_noise(self.draft.strategy, self.orbits, found)
        return Draft(mechanism, min(lower, mine), scope, mine, self.draft.spans)

    def _least_total(self, weights: Array, tolerance: float) -> float:
        """A bound on `weights` times the mean variances by name, at cost 1."""
        if self.tables.simple:  # products keep their shapes whatever the weights are
            wide = max(layer.subsets.shape[1] for layer in self.draft.strategy.layers)
            root = float(np.sqrt(self.orbits.many * (self.rows.T @ weights)).sum())
            return float(root**2 * (1 + tolerance / 4) ** -wide)
        counts = [float(self.work.select(name).count) for name in self.names]
        each = dict(zip(self.names, weights / counts, strict=True))
        parts: list[Table | TableRun] = []
        for part in self.work.parts:
            for one in [part] if part.name is not None else part:
                if each[one.name or ""] > 0:
                    parts.append(replace(one, weight=float(each[one.name or ""])))
        again = Workload(self.work.schema, tuple(parts))
        return solve_blocks(decompose(again), again.schema.sizes, Optimal(), tolerance).lower_bound


def _rows_by_name(work: Workload, names: list[str], tables: TableOrbits, orbits: Orbits) -> Array:
    """What the mean variance of each name takes from the noise of each orbit of blocks."""
    places = {name: place for place, name in enumerate(names)}
    owners, blocks, values = tables.means
    shares = np.zeros((len(names), len(tables.many)))
    for part, of in zip(work.parts, tables.of, strict=True):
        if part.name is not None:
            counts = _table_counts(part)
            np.add.at(shares[places[part.name]], of, counts)
        else:
            for orbit, group in zip(of.tolist(), part, strict=True):
                shares[places[group.name], orbit] += float(group.count)
    shares /= shares.sum(axis=1, keepdims=True)
    means = np.zeros((len(tables.many), len(orbits.many)))
    np.add.at(means, (owners, blocks), values)
    return np.asarray(shares @ means)


def _table_counts(part: Table | TableRun) -> Array:
    """Number of queries of each table of a part."""
    if isinstance(part, Table) or part.joint is not None:
        return np.array([float(each.count) for each in part])
    counts = np.zeros(len(part.schema))
    for at in part.attributes:
        counts[at] = float(part.queries_of(at).count)
    return np.asarray(counts[part.subsets].prod(axis=1))


def _checked(value: Any, variances: Any) -> Any:
    """The user's loss, refused unless it is a scalar that is convex and increasing."""
    cp = _cvxpy()
    if not isinstance(value, cp.Expression) or not value.is_scalar():
        raise WorkloadError(
            f"the loss must return one cvxpy expression of the variances it is given, not {value!r}"
        )
    if not value.is_convex():
        raise WorkloadError(
            f"the loss {value} is not convex by the rules of cvxpy (https://www.cvxpy.org/tutorial/dcp), so "
            "its least value cannot be certified; write it with convex functions, such as cvxpy.maximum, "
            "cvxpy.square or sums with positive weights"
        )
    if not value.variables():
        raise WorkloadError("the loss is the same for all variances, so every plan would do")
    _refuse_falling_anywhere(value, variances)
    return value


def _refuse_falling_anywhere(value: Any, variances: Any) -> None:
    """Raise WorkloadError if more variance of one name lowers the loss at one of some points."""
    points = np.random.default_rng(0).lognormal(sigma=1.0, size=(TRIES, variances.size))
    for point in points:
        variances.value = point
        before = float(value.value)
        for place in range(variances.size):
            variances.value = point + STEP * point[place] * (np.arange(variances.size) == place)
            if float(value.value) < before - 1e-9 * abs(before):
                raise WorkloadError(
                    "the loss falls where a variance grows, so it would ask for noise on purpose; let it "
                    "grow with every variance"
                )


def _unit(value: Any, variances: Any) -> float:
    """The size of the loss at a plan of this cost, in which the solver gets it; 1 where it has none."""
    variances.value = np.ones(variances.size)
    size = abs(float(value.value))
    return size if math.isfinite(size) and size > 0 else 1.0


def _least_rest(value: Any, variances: Any, prices: Array, mine: float, unit: float) -> float:
    """The least of loss minus priced variances, over all variances with a loss of at most `mine`.

    What has a larger loss needs no bound. Without that condition there may be no least value, where prices
    are off by rounding.
    """
    cp = _cvxpy()
    rest = cp.Problem(cp.Minimize((value - prices @ variances) / unit), [value / unit <= mine / unit + ROOM])
    _solve(rest)
    return unit * float(rest.value)


def _solve(problem: Any) -> None:
    cp = _cvxpy()
    try:
        problem.solve(solver=cp.CLARABEL)
    except cp.SolverError:
        raise _stopped("an error") from None
    if problem.status in (cp.UNBOUNDED, cp.UNBOUNDED_INACCURATE):
        raise WorkloadError("the loss has no least value; let it be bounded below")
    if problem.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
        raise Infeasible(
            "no plan of this privacy cost meets the conditions in the loss; spend more, or ease them"
        )
    if problem.status != cp.OPTIMAL:
        raise _stopped(f"status {problem.status!r}")


def _stopped(how: str) -> NotConverged:
    return NotConverged(
        f"clarabel stopped with {how}; scale the loss, ease conditions that can hardly be met, or leave out "
        "tables that hardly count",
        lower=0.0,
        upper=math.inf,
    )


def loss_at(loss: Loss, names: Sequence[str], means: Sequence[float]) -> float:
    """The loss of these mean variances by name."""
    import cvxpy

    ones = cvxpy.Constant(np.ones(len(means)))
    return float(loss(named_variances(names, np.array(means), ones)).value)


def named_variances(names: Sequence[str], scale: Array, values: Any) -> Any:
    """`scale * values`, (names,), as a cvxpy expression in the order of the names: `v[0]`, `v["T1"]`.

    `v.keys()`, `v.values()` and `v.items()` are those of a mapping. A name that no table has is an error that
    says so.
    """
    cp = import_module("cvxpy")
    places = {name: place for place, name in enumerate(names)}

    class Variances(cp.multiply):  # type: ignore[misc,name-defined]  # cvxpy is an extra without types
        """Variances by place and by name."""

        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, str):
                if key not in places:
                    near = hint(key, places)
                    raise WorkloadError(
                        f"the loss asks for table {key!r}, which the workload does not have{near}"
                    )
                key = places[key]
            return super().__getitem__(key)

        def __iter__(self) -> Iterator[Any]:
            return (self[place] for place in range(len(places)))

        def keys(self) -> tuple[str, ...]:
            return tuple(places)

        def values(self) -> tuple[Any, ...]:
            return tuple(self)

        def items(self) -> tuple[tuple[str, Any], ...]:
            return tuple(zip(places, self, strict=True))

    return Variances(scale, values)
