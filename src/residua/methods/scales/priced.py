"""A loss of one's own as a cvxpy expression: what it is refused for, its least value, its prices (J-008)."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from residua._arrays import Array
from residua._text import hint
from residua.errors import Infeasible, NotConverged, WorkloadError

Loss = Callable[[Any], Any]
"""From the mean variance of the queries of each name to a scalar cvxpy expression; see `named_variances`."""

TRIES = 20  # points at which a loss is tried for being increasing
STEP = 0.1  # by which one variance grows there
SOLVER_ERROR = 1e-7  # relative, of the conic solver's values
ROOM = 1e-6  # above the loss that was reached, in units of the loss, where the bound is looked for
NEGLIGIBLE = 1e-9  # of the largest price: what the solver leaves of zero


def cvxpy() -> Any:
    try:
        import_module("clarabel")
        return import_module("cvxpy")
    except ImportError as missing:
        raise Infeasible(
            "a loss of your own needs cvxpy and clarabel; install them with: pip install 'residua[convex]'"
        ) from missing


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A loss as a cvxpy expression of variances in units of `scale`, (names,), and its own unit."""

    scale: Array
    variances: Any
    value: Any
    unit: float

    @classmethod
    def of(cls, loss: Loss, names: Sequence[str], scale: Array, *, known: bool = False) -> "Priced":
        """The user's loss in these units, checked unless it is `known` to be right."""
        variances = cvxpy().Variable(len(names), pos=True)
        value = loss(named_variances(names, scale, variances))
        if not known:
            _check(value, variances)
        variances.value = np.ones(len(names))
        size = abs(float(value.value))  # of the loss at a plan of this cost, in which the solver gets it
        return cls(scale, variances, value, size if math.isfinite(size) and size > 0 else 1.0)

    def at(self, means: Array) -> float:
        """The loss of these mean variances."""
        self.variances.value = means / self.scale
        return float(self.value.value)

    def least(self, means: Any, conditions: Sequence[Any]) -> tuple[float, Array]:
        """The least loss of mean variances, in units of `scale`, and the price of each one of them."""
        caps = means <= self.variances
        problem = cvxpy().Problem(cvxpy().Minimize(self.value / self.unit), [caps, *conditions])
        _solve(problem)
        prices = self.unit * np.asarray(caps.dual_value)
        prices[prices < NEGLIGIBLE * prices.max()] = 0.0
        return self.unit * float(problem.value), prices / self.scale

    def bound(self, prices: Array, mine: float, total: float) -> float:
        """What no plan is below whose priced variances are at least `total`; `mine` is reached (J-008).

        That is `total` and the least of loss minus priced variances, over all variances with a loss of at
        most `mine`: what has a larger loss needs no bound, and without that condition there may be no least
        value, where prices are off by rounding. NotConverged where they are so far off that the conic solver
        finds none.
        """
        cp, loss = cvxpy(), self.value / self.unit
        priced = prices * self.scale / self.unit @ self.variances
        rest = cp.Problem(cp.Minimize(loss - priced), [loss <= mine / self.unit + ROOM])
        try:
            _solve(rest)
        except WorkloadError:  # what the loss does not see has a price
            raise _stopped("no least value") from None
        return min(mine, self.unit * float(rest.value) + total - SOLVER_ERROR * (abs(mine) + total))


def _check(value: Any, variances: Any) -> None:
    """Refuse the user's loss unless it is a scalar that is convex and increasing."""
    cp = cvxpy()
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


def _solve(problem: Any) -> None:
    cp = cvxpy()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")  # the status says so too
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
    ones = cvxpy().Constant(np.ones(len(means)))
    return float(loss(named_variances(names, np.array(means), ones)).value)


def named_variances(names: Sequence[str], scale: Array, values: Any) -> Any:
    """`scale * values`, (names,), as a cvxpy expression in the order of the names: `v[0]`, `v["T1"]`.

    `v.keys()`, `v.values()` and `v.items()` are those of a mapping. A name that no table has is an error that
    says so.
    """
    cp = cvxpy()
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
