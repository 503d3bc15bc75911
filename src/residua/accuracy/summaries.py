"""What a strategy promises of each table, in the unit of each of its statistics."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from residua.strategy.strategy import Strategy
from residua.workload import Table
from residua.workload.queries import spelled
from residua.workload.tables import COUNT


@dataclass(frozen=True, slots=True)
class TableSummary:
    """The predicted error of one table's queries: root mean square and largest standard deviation.

    `max_stddev` is nan where there are too many queries to go through one by one. Where a table has numbers
    in several units, counts and sums, `parts` are the same for each `statistic` alone, in its own unit.
    """

    name: str
    families: str
    queries: int
    rmse: float
    max_stddev: float
    statistic: str = COUNT
    parts: tuple["TableSummary", ...] = ()

    def lines(self) -> "tuple[TableSummary, ...]":
        """Itself, or what it says of each statistic, under a name that tells which."""
        return tuple(replace(each, name=f"{self.name}: {each.statistic}") for each in self.parts) or (self,)

    def figures(self) -> list[str]:
        """Both with four digits, or a dash for what is not known."""
        pair = (self.rmse, self.max_stddev)
        return ["-" if math.isnan(each) else f"{float(f'{each:.4g}'):,.10g}" for each in pair]


def summary_of(strategy: Strategy, group: Table) -> TableSummary:
    """The predicted error of a table, of each of its statistics where it has several."""
    parts = tuple(_one(strategy, own, words) for words, own in group.statistics().items())
    if len(parts) == 1:
        return parts[0]
    return replace(_one(strategy, group, " and ".join(each.statistic for each in parts)), parts=parts)


def _one(strategy: Strategy, group: Table, statistic: str) -> TableSummary:
    mean, largest = strategy.total(group, weighted=False) / group.count, strategy.largest(group)
    return TableSummary(group.name, group.title, group.count, math.sqrt(mean), math.sqrt(largest), statistic)


def together(tables: Iterable[TableSummary]) -> tuple[float, float]:
    """Root mean square and largest standard deviation of all counts in some tables; nan where none is one."""
    lines = [each for own in tables for each in own.lines() if each.statistic == COUNT]
    if not lines:
        return math.nan, math.nan
    numbers = sum(each.queries for each in lines)
    mean = math.fsum(each.queries / numbers * each.rmse**2 for each in lines)
    return math.sqrt(mean), float(np.max([each.max_stddev for each in lines]))


def rows_of(tables: Iterable[TableSummary]) -> Iterator[tuple[str, ...]]:
    """Name, queries, numbers and errors of tables, a line for each statistic."""
    for own in (line for each in tables for line in each.lines()):
        yield own.name, own.families or "total", spelled(own.queries), *own.figures()
