"""What a report says, as plain data: every figure as the plan or the release gives it, nothing rounded.

It asks plans and releases, neither of which is imported here, what `SourcePlan` and `SourceRelease` list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from residua._arrays import Array, Flags
from residua.accuracy.figures import Certificate, Figures, Fitness, MetTarget
from residua.accuracy.guesses import Foreseen, Guess
from residua.accuracy.reliability import Reliability
from residua.accuracy.summaries import TableSummary
from residua.privacy import Budget, Privacy
from residua.report.grid import Grid
from residua.strategy.strategy import Strategy
from residua.workload import Workload

if TYPE_CHECKING:
    import pyarrow

Facts = tuple[tuple[str, str], ...]
"""Names of things and what is known about them, in words."""


class SourcePlan(Protocol):
    """A plan, as far as a report needs to know it."""

    @property
    def workload(self) -> Workload: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def method(self) -> str: ...
    @property
    def strategy(self) -> Strategy: ...
    @property
    def certificate(self) -> Certificate: ...
    @property
    def ideal(self) -> Figures: ...
    @property
    def released(self) -> Figures: ...
    @property
    def privacy(self) -> Privacy: ...
    @property
    def hash(self) -> str: ...
    @property
    def targets(self) -> Fitness | None: ...
    def summary(self, work: Workload | None = None) -> list[TableSummary]: ...
    def variances(self, work: Workload) -> "Array": ...
    def foreseen(self, guess: Guess) -> list[Foreseen]: ...
    def rescale(self, budget: Budget) -> Self: ...


class SourceRelease(Protocol):
    """A release, as far as a report needs to know it."""

    @property
    def plan(self) -> SourcePlan: ...
    @property
    def audit(self) -> Mapping[str, Any]: ...
    @property
    def simulated(self) -> bool: ...
    @property
    def hash(self) -> str: ...
    def answers(self, work: Workload | None = None, *, level: float = 0.95) -> "pyarrow.Table": ...


NO_RULE = Reliability()


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Published or predicted numbers of one table, the first ones where there are many.

    `values`, `lower` and `upper` are None before any data is touched.
    """

    queries: tuple[str, ...]
    stddev: Array
    values: Array | None = None
    lower: Array | None = None
    upper: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """One table: its predicted error, and its numbers as far as there is room.

    `grid` is its layout where all numbers are here; `beside`, `below` and `corner` are the sums that it has
    places for.
    """

    name: str
    asked: str
    count: int
    lines: tuple[TableSummary, ...]
    """The predicted error of each of its statistics."""
    numbers: Numbers | None
    units: Mapping[str, Flags] = field(default_factory=dict)
    """Which of its numbers are of which statistic, each in a unit of its own, where there are several."""
    grid: Grid | None = None
    beside: Numbers | None = None
    below: Numbers | None = None
    corner: Numbers | None = None

    @property
    def even(self) -> bool:
        """Whether all numbers shown have the same standard deviation, as far as anybody would print it."""
        return self.numbers is not None and float(np.ptp(self.numbers.stddev)) <= 1e-6 * self.lines[0].rmse


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """The same plan at another budget; `tables` are the typical errors of the first tables.

    `cost` is the rho that is spent, or the epsilon where the noise gives pure DP.
    """

    words: str
    amount: str
    cost: float
    epsilon: float
    rmse: float
    max_stddev: float
    tables: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the privacy: what it was spent on, in how many blocks, and its share of the whole."""

    words: str
    blocks: int
    fraction: float


@dataclass(frozen=True, slots=True)
class Goal:
    """What the plan makes small: its value as released, its ideal value, and what no plan can be below.

    `ideal` is nan where it was not kept, and `achieved` where there is no bound to compare it with.
    """

    words: str
    achieved: float
    ideal: float
    certificate: Certificate


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """Everything a report says about a plan, or about a release."""

    title: str
    released: bool
    simulated: bool
    level: float
    margin: float
    """Half-width of an interval in standard deviations."""
    tables: int
    numbers: int
    rmse: float
    """Of all numbers, or of counts where there are sums in other units; as is `max_stddev`."""
    max_stddev: float
    noun: str
    """Of which numbers that is."""
    privacy: Privacy
    spent: str
    """The budget in the words of its definition."""
    goal: Goal
    targets: tuple[MetTarget, ...]
    sheets: tuple[Sheet, ...]
    points: tuple[BudgetPoint, ...]
    shares: tuple[Share, ...]
    attributes: tuple[tuple[str, str, int, str], ...]
    """Name, values, number of cells, and what becomes of other values."""
    method: str
    measured: tuple[str, ...]
    history: Facts
    hashes: Mapping[str, str]
    """Of the plan, and of the release."""
    program: str
    """What wrote the report, and its version."""
    foreseen: tuple[Foreseen, ...] = ()
    """Errors of percentages, means and medians at guessed sizes, where a guess was given."""
    reliability: Reliability = NO_RULE
    """Which numbers are flagged as too uncertain."""
