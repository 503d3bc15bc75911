"""Plans: what will be measured with how much noise, and how wrong every number will be."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua import _files
from residua._summary import MOST_ROWS, Certificate, TableSummary, explain_plan
from residua.errors import BudgetError, FileFormatError, NotInSpan, SchemaError, WorkloadError
from residua.fitness import Fitness
from residua.mechanisms.draft import Scope
from residua.privacy import Budget, Privacy, Unit, budget_from_record
from residua.schema import Schema
from residua.strategy.alike import least_accurate_tables
from residua.strategy.batches import Batch, batches_of
from residua.strategy.integral import rebudgeted
from residua.strategy.mechanism import Mechanism
from residua.strategy.noise_laws import bound_divisor, variance_ratio
from residua.strategy.records import mechanism_from_record
from residua.strategy.room import free_variances, room_left
from residua.workload import Group, Tables, Workload
from residua.workload.queries import spelled

Array = NDArray[np.float64]

Totals = tuple[float, float]
"""Weighted and unweighted sum of the variances of all queries."""

MOST_SEARCHED = 500  # tables whose largest variance is looked for when a plan is saved
LISTABLE = 10_000_000  # queries whose variances are listed in one array


class Figures:
    """The error of a workload's answers: `rmse`, `total_variance`, `max_variance`, `weighted_rmse`."""

    def __init__(self, count: int, totals: Totals, largest: Callable[[], float]) -> None:
        weighted, plain = totals
        self.totals = totals
        """Weighted and unweighted sum of the variances."""
        self.total_variance = weighted
        """Sum of weight times variance over all queries."""
        self.rmse = float(np.sqrt(plain / count))
        """Square root of the mean variance, every query counting once."""
        self.weighted_rmse = float(np.sqrt(weighted / count))
        """Square root of the weighted total over the number of queries."""
        self._count, self._largest = count, largest

    @classmethod
    def of(cls, mechanism: Mechanism, work: Workload, totals: Totals) -> "Figures":
        """Figures of a mechanism; the largest variance is found when it is asked for."""

        def largest() -> float:
            groups = (group for part in work.parts for group in least_accurate_tables(mechanism, part))
            return max(map(mechanism.largest, groups), key=_nan_last)

        return cls(work.count, totals, largest)

    @cached_property
    def max_variance(self) -> float:
        """Largest variance of any query, weights aside; nan where there are too many to go through."""
        return float(self._largest())

    def scaled(self, factor: float) -> "Figures":
        """The same figures with every variance multiplied by `factor`."""
        weighted, plain = self.totals
        return Figures(self._count, (weighted * factor, plain * factor), lambda: self.max_variance * factor)

    def __repr__(self) -> str:
        return f"Figures(rmse={self.rmse:.6g}, total_variance={self.total_variance:.6g})"


def _nan_last(value: float) -> float:
    """Makes `max` return nan if there is one: then the largest is not known."""
    return math.inf if math.isnan(value) else value


def totals_of(mechanism: Mechanism, work: Workload) -> Totals:
    """Weighted and unweighted sum of the variances of all queries, refused where they overflow."""
    weighted = plain = 0.0
    for part in work.parts:
        more = mechanism.totals(part)
        weighted, plain = weighted + more[0], plain + more[1]
        if not math.isfinite(weighted + plain):
            what = (
                f"tables such as {next(part.names())!r}"
                if isinstance(part, Tables)
                else f"table {part.name!r}"
            )
            raise WorkloadError(
                f"{what}: the sum of the variances of {spelled(part.count)} queries is beyond what a float "
                "holds; ask fewer queries, or spend more privacy"
            )
    return weighted, plain


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """A mechanism fitted to a workload and a budget; holds no data, and never will.

    Made by `residua.plan`. Everything it says is true before any data is touched.
    """

    workload: Workload
    budget: Budget
    unit: Unit
    method: str
    mechanism: Mechanism
    certificate: Certificate
    objective: str
    ideal: Figures
    """Error of the real-valued optimum: what figures in papers compare with."""
    released: Figures
    """Error of what is released, integers and all."""
    targets: Fitness | None = None
    """How accuracy targets are met; None for a plan without targets."""
    uniform_total: float | None = None
    """Total variance of the same tables under uniform centring (QuerySmasher), where that was planned too."""

    @property
    def schema(self) -> Schema:
        """The schema of the data that the plan can measure."""
        return self.workload.schema

    @property
    def rmse(self) -> float:
        """Square root of the mean variance over all queries."""
        return self.released.rmse

    @property
    def total_variance(self) -> float:
        """Sum of weight times variance over all queries."""
        return self.released.total_variance

    @property
    def max_variance(self) -> float:
        """Largest variance of any query; nan where there are too many to go through."""
        return self.released.max_variance

    @property
    def privacy(self) -> Privacy:
        """What measuring this plan once proves about privacy."""
        if self.budget.law == "laplace":
            return Privacy.from_pure_epsilon(self.budget.laplace_epsilon(), self.unit)
        return Privacy.from_cost(self.budget.gaussian_cost(), self.unit)

    def variances(self, work: Workload) -> Array:
        """Variance of each query's answer under this plan, shape (work.count,), in the workload's order."""
        self._refuse_foreign(work)
        if work.count > LISTABLE:
            raise WorkloadError(
                f"{spelled(work.count)} variances are too many for one array; plan.summary(work) gives each "
                "table's figures, plan.iter_variances(work) gives the variances table by table"
            )
        return np.concatenate([self._variances_of(group) for group in work.groups()])

    def iter_variances(self, work: Workload) -> Iterator[tuple[Group, Array]]:
        """Each table with the variances of its queries, one table at a time."""
        self._refuse_foreign(work)
        return ((group, self._variances_of(group)) for group in work.groups())

    def _variances_of(self, group: Group) -> Array:
        if not group.listable:
            raise WorkloadError(
                f"table {group.name!r} has {spelled(group.count)} queries, too many to list; "
                "plan.summary(work) gives its figures"
            )
        with self.naming():
            return self.mechanism.variances(group)

    def covariance(self, left: Workload, right: Workload) -> Array:
        """Covariance of the answers to two workloads, shape (left.count, right.count)."""
        self._refuse_foreign(left)
        self._refuse_foreign(right)
        with self.naming():
            rows = [
                np.concatenate([self.mechanism.covariance(a, b) for b in right.groups()], axis=1)
                for a in left.groups()
            ]
        return np.concatenate(rows)

    def spare(self) -> Array:
        """Privacy cost that each cell leaves unspent, shape (sizes of the attributes in use)."""
        return room_left(self.mechanism)[1] * float(self.unit.factor_from_add_remove)

    def free_variances(self, work: Workload) -> Array:
        """Variance at which each query could be measured besides, alone, for nothing; inf where it cannot."""
        self._refuse_foreign(work)
        return free_variances(self.mechanism, work)

    def summary(self, work: Workload | None = None) -> list[TableSummary]:
        """The predicted error of each table, without listing queries; by default of the plan's own tables."""
        work = self.workload if work is None else work
        self._refuse_foreign(work)
        return [self._summary_of(group) for group in work.groups()]

    def _summary_of(self, group: Group) -> TableSummary:
        with self.naming():
            mean = self.mechanism.total(group, weighted=False) / group.count
            largest = self.mechanism.largest(group)
        return TableSummary(group.name, group.title, group.count, math.sqrt(mean), math.sqrt(largest))

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Inside it, an error about what is not measured names the attributes."""
        try:
            yield
        except NotInSpan as error:
            raise error.naming(self.schema.names) from None

    def explain(self) -> str:
        """The plan in words: what is published, at which privacy, how wrong, how far from the best."""
        title = f"Plan for {self._size()}, method {self.method!r}, overall rmse {self.rmse:,.4g}"
        shown = [self._summary_of(group) for group in islice(self.workload.groups(), MOST_ROWS)]
        more = self.workload.tables - len(shown)
        measured = list(self.mechanism.describe())
        targets = [] if self.targets is None else list(self.targets.describe(self.certificate.scope))
        gain = None
        if self.uniform_total is not None:
            gain = math.sqrt(self.uniform_total / self.ideal.total_variance) - 1
        return explain_plan(title, self.privacy, shown, more, self.certificate, measured, targets, gain)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        level: float = 0.95,
        title: str | None = None,
        plots: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write one HTML page about the plan: privacy, every table's error, other budgets, certificate.

        `plots` is a folder for the pictures as SVG files too. Needs the extra `residua[report]`.
        """
        from residua.report import plan_contents, write_report  # seldom needed, and not quick to load

        write_report(plan_contents(self, level=level, title=title), path, plots)

    def rescale(self, budget: Budget) -> "Plan":
        """The same plan for another budget: every variance changes by one factor, nothing is solved again."""
        if not isinstance(budget, Budget):
            raise BudgetError(f"rescale needs a budget, such as rs.zcdp(0.1), not {budget!r}")
        law = self.mechanism.law
        if budget.law != law:
            raise BudgetError(
                f"this plan has {law} noise, which cannot be rescaled to {budget!r}; plan again"
            )
        before, after = self.unit.allowance(self.budget), self.unit.allowance(budget)
        factor = variance_ratio(law, float(before / after))
        replacing = self.unit.neighbours == "replace_one"
        mechanism = rebudgeted(self.mechanism, after, replacing=replacing)
        released = Figures.of(mechanism, self.workload, totals_of(mechanism, self.workload))
        lower = self.certificate.lower_bound * bound_divisor(law, before) / bound_divisor(law, after)
        if self.objective == "loss":
            lower = 0.0  # a loss need not scale with variances
        targets = None
        if self.targets is not None:
            targets = self.targets.at(self.workload, mechanism, float(budget.gaussian_cost()))
        value = self._objective_value(released, targets)
        return replace(
            self,
            budget=budget,
            mechanism=mechanism,
            certificate=certified(value, lower, self.certificate.scope, self.objective),
            ideal=self.ideal.scaled(factor),
            released=released,
            targets=targets,
            uniform_total=None if self.uniform_total is None else self.uniform_total * factor,
        )

    def _objective_value(self, released: Figures, targets: Fitness | None) -> float:
        """The objective under new noise: variances change by one factor, and with them every objective."""
        if targets is not None:
            return targets.factor
        if self.objective == "total_variance":
            return released.total_variance
        before = self.certificate.lower_bound * (1 + self.certificate.gap)
        return before * (released.total_variance / self.released.total_variance)

    @cached_property
    def batches(self) -> list[Batch]:
        """The measurements in the order in which they are made."""
        return batches_of(self.mechanism)

    @cached_property
    def hash(self) -> str:
        """The hash that identifies this plan, the one its saved file carries."""
        manifest, arrays = self.content()
        return _files.pack("plan", manifest, arrays)[2]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to one file; equal plans give equal bytes."""
        _files.write(path, "plan", *self.content())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Plan":
        """The plan in a file, refused with a reason if the file is not a whole, unedited plan."""
        container = _files.read(path, "plan")
        try:
            return cls.from_content(container.manifest, container.arrays)
        except FileFormatError as error:
            raise FileFormatError(f"{path}: {error}") from error
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            raise FileFormatError(f"{path} lacks a part that a plan needs ({error!r})") from error

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file holds of this plan: JSON-able facts, and arrays by name."""
        arrays: dict[str, NDArray[Any]] = {}
        manifest: dict[str, Any] = {
            "schema": self.schema.record(),
            "workload": self.workload.record(arrays),
            "budget": self.budget.record(),
            "unit": self.unit.record(),
            "method": self.method,
            "objective": self.objective,
            "mechanism": self.mechanism.record(arrays),
            "certificate": {
                "lower_bound": self.certificate.lower_bound,
                "gap": self.certificate.gap if math.isfinite(self.certificate.gap) else None,
                "scope": self.certificate.scope,
            },
            "ideal": self._figures_record(self.ideal),
            "released": self._figures_record(self.released),
        }
        if self.targets is not None:
            manifest["targets"] = self.targets.record(arrays)
        if self.uniform_total is not None:
            manifest["uniform_total"] = self.uniform_total
        return manifest, arrays

    def _figures_record(self, figures: Figures) -> dict[str, Any]:
        """Figures for the file; the largest variance only where finding it is quick."""
        known = self.workload.tables <= MOST_SEARCHED
        largest = figures.max_variance if known else math.nan
        return {"totals": list(figures.totals), "largest": None if math.isnan(largest) else largest}

    @classmethod
    def from_content(cls, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Plan":
        """The plan that `content` described."""
        schema = Schema.from_record(manifest["schema"])
        work = Workload.from_record(manifest["workload"], arrays, schema)
        mechanism = mechanism_from_record(manifest["mechanism"], arrays)
        return cls(
            workload=work,
            budget=budget_from_record(manifest["budget"]),
            unit=Unit.from_record(manifest["unit"]),
            method=manifest["method"],
            objective=manifest["objective"],
            mechanism=mechanism,
            certificate=_certificate(objective=manifest["objective"], **manifest["certificate"]),
            ideal=_figures(manifest["ideal"], work, None),
            released=_figures(manifest["released"], work, mechanism),
            targets=Fitness.from_record(manifest["targets"], arrays) if "targets" in manifest else None,
            uniform_total=float(manifest["uniform_total"]) if "uniform_total" in manifest else None,
        )

    def _refuse_foreign(self, work: object) -> None:
        if not isinstance(work, Workload):
            raise WorkloadError(
                "a plan is asked about a workload, such as plan.workload or rs.table(schema, ...), "
                f"not {work!r}"
            )
        if work.schema != self.schema:
            raise SchemaError("the workload and the plan have different schemas; build both from one schema")

    def _size(self) -> str:
        tables, queries = self.workload.tables, self.workload.count
        words = "1 table" if tables == 1 else f"{tables:,} tables"
        return f"{words} with {'1 query' if queries == 1 else f'{spelled(queries)} queries'}"

    def __repr__(self) -> str:
        return (
            f"Plan({self._size()}, {self.budget!r}, "
            f"method={self.method!r}, rmse={self.rmse:.6g}, gap={self.certificate.gap:.1e} "
            f"to {self.certificate.scope})"
        )


def _certificate(lower_bound: float, gap: float | None, scope: Scope, objective: str) -> Certificate:
    """The certificate in a file, where no gap stands for one that is not finite."""
    return Certificate(lower_bound, math.inf if gap is None else gap, scope, objective)


def _figures(record: Mapping[str, Any], work: Workload, mechanism: Mechanism | None) -> Figures:
    """Figures from a file; a largest variance that it lacks is looked for where there is a mechanism."""
    weighted, plain = record["totals"]
    if record["largest"] is None and mechanism is not None:
        return Figures.of(mechanism, work, (weighted, plain))
    largest = math.nan if record["largest"] is None else float(record["largest"])
    return Figures(work.count, (weighted, plain), lambda: largest)


def certified(value: float, lower: float, scope: Scope, objective: str = "total_variance") -> Certificate:
    """The certificate of a plan whose objective has this value and this lower bound."""
    return Certificate(lower, value / lower - 1 if lower > 0 else math.inf, scope, objective)
