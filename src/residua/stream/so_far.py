"""A plan as if time ended now: the rows measured so far, and the tables that they answer.

With a lower-triangular root the rows so far determine the cells so far, and numbers once published are never
revised (claim Y-001). So what was measured so far is a whole release about the periods so far.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from residua._arrays import AnyArray, Integers
from residua.accuracy.figures import Figures, certified, totals_of
from residua.answering.blocks import Memory, Shape
from residua.errors import SchemaError, WorkloadError
from residua.linalg.matrices import Measure
from residua.methods.instalments import time_shapes
from residua.plans import Plan
from residua.release import Measurements
from residua.schema import Attribute, Categorical, Date, Integer, Schema
from residua.strategy.strategy import Domain, Strategy
from residua.workload import (
    Explicit,
    Factor,
    Identity,
    Partition,
    Prefix,
    Ranges,
    Table,
    Total,
    Workload,
)

SO_FAR = "instalments"  # the method of a plan that some instalments of another were measured of


def shortened(attribute: Attribute, cells: int) -> Attribute:
    """The attribute with its first cells only."""
    match attribute:
        case Date():
            after = [*attribute.first_days(), attribute.high + timedelta(days=1)][cells]
            return Date(attribute.low, after - timedelta(days=1), by=attribute.by)
        case Integer():
            return Integer(attribute.low, attribute.low + cells - 1)
        case Categorical():
            return Categorical(*attribute.values[:cells])
    raise SchemaError(
        f"{attribute!r} is no attribute of periods; use rs.Date, rs.Integer or rs.Categorical, in order"
    )


class Shortened:
    """A plan and its tables with only the first cells of one attribute."""

    def __init__(self, plan: Plan, at: int, cells: int) -> None:
        self.whole, self.at, self.cells = plan, at, cells
        attributes = dict(zip(plan.schema.names, plan.schema.attributes, strict=True))
        name = plan.schema.names[at]
        self.schema = Schema(attributes | {name: shortened(attributes[name], cells)})
        self.kept: dict[int, Integers] = {}
        """Of each shape that sees the attribute, the rows that look at no later cell."""

    def plan(self) -> Plan:
        """The plan of what was measured: its errors, of the tables that look back only."""
        whole, strategy, work = self.whole, self._strategy(), self._workload()
        figures = Figures.of(strategy, work, totals_of(strategy, work))
        certificate = certified(figures.total_variance, 0.0, "this block structure")
        return Plan(
            work, whole.budget, whole.unit, SO_FAR, strategy, certificate, whole.objective, figures, figures
        )

    def measurements(self, values: Sequence[AnyArray], strategy: Strategy) -> Measurements:
        """The numbers so far, in the order of a shortened strategy; `values` has all rows, some zero."""
        whole = self.whole.strategy
        known = {
            (layer, row): own
            for (layer, rows), several in zip(whole.runs(), values, strict=True)
            for row, own in zip(rows.tolist(), several, strict=True)
        }
        found = []
        for layer, rows in strategy.runs():
            kept = self._rows(whole.layers[layer].shapes[rows[0]].tolist())
            found.append(np.stack([known[layer, row][kept] for row in rows.tolist()]).astype(np.float64))
        return Measurements(tuple(found))

    def _rows(self, numbers: Sequence[int]) -> Integers:
        """The rows of a block of these shapes that are kept."""
        lengths = [len(self.whole.strategy.shapes[number].matrix) for number in numbers]
        rows = np.arange(math.prod(lengths)).reshape(lengths)
        for axis, number in enumerate(numbers):
            if number in self.kept:
                rows = np.take(rows, self.kept[number], axis=axis)
        return rows.reshape(-1)

    def _strategy(self) -> Strategy:
        whole = self.whole.strategy
        shapes, norms = list(whole.shapes), np.ones(len(whole.shapes))
        for number, axis in time_shapes(whole, self.at):
            own = whole.shapes[number]
            inner = math.prod(own.sizes[axis + 1 :])
            early = np.arange(own.matrix.shape[1]) // inner % own.sizes[axis] < self.cells
            self.kept[number] = np.flatnonzero(~(own.matrix[:, ~early] != 0).any(axis=1))
            sizes = (*own.sizes[:axis], self.cells, *own.sizes[axis + 1 :])
            shapes[number] = Shape.of(sizes, own.matrix[self.kept[number]][:, early])
            norms[number] = shapes[number].norm / own.norm
        layers = tuple(
            replace(layer, shares=None, costs=layer.costs * norms[layer.shapes].prod(axis=1))
            for layer in whole.layers
        )
        measures = list(whole.measures)
        measures[self.at] = Measure(self.cells)
        domains = (Domain(self.schema.sizes, tuple(measures)),)
        return replace(
            whole, domains=domains, shapes=tuple(shapes), layers=layers, grain=None, memory=Memory()
        )

    def _workload(self) -> Workload:
        """The tables, of their queries those that look at no later cell."""
        tables = [table for table in map(self._table, self.whole.workload.groups()) if table is not None]
        if not tables:
            raise WorkloadError(
                "no table of this plan is about the periods so far alone; measure more of them first"
            )
        return Workload(self.schema, tuple(tables))

    def _table(self, table: Table) -> Table | None:
        factors = []
        for factor in table.factors:
            found = self._factor(factor) if self.at in factor.attributes else factor
            if found is None:
                return None
            factors.append(found)
        return replace(table, factors=tuple(factors))

    def _factor(self, factor: Factor) -> Factor | None:
        queries, axis = factor.queries, factor.attributes.index(self.at)
        match queries:
            case Identity() | Prefix() | Ranges() | Total():
                return replace(factor, queries=replace(queries, size=self.cells))
            case Partition():
                found = _whole_classes(queries, self.cells)
                return None if found is None else replace(factor, queries=found)
        tensor = queries.matrix().reshape(-1, *queries.sizes)
        early, late = np.split(tensor, [self.cells], axis=1 + axis)
        rows = np.flatnonzero(~(late != 0).reshape(len(tensor), -1).any(axis=1))
        if not len(rows):
            return None
        sizes = early.shape[1:]
        weights = None if queries.weights is None else queries.weights[rows]
        matrix = early[rows].reshape(len(rows), -1)
        labels = tuple(factor.describe(int(row), self.whole.schema) for row in rows)
        return replace(factor, queries=Explicit(sizes, matrix, weights, labels))


def _whole_classes(queries: Partition, cells: int) -> Partition | None:
    """The classes that lie within the first cells, if there are any."""
    early, late = queries.classes[:cells], queries.classes[cells:]
    kept = np.setdiff1d(early[early >= 0], late)
    if not len(kept):
        return None
    numbers = np.full(queries.count + 1, -1)
    numbers[kept] = np.arange(len(kept))
    labels = None if queries.labels is None else tuple(queries.labels[at] for at in kept.tolist())
    return Partition(numbers[early], queries.level, labels)
