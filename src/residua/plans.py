"""Plans: what will be measured with how much noise, and how wrong every number will be."""

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from residua import _files
from residua._arrays import AnyArray, Array, Arrays, Manifest, settle
from residua._limits import LISTED_VARIANCES, READABLE
from residua._manifests import positive, submanifest, text, texts
from residua._notebook import MOST, shown
from residua._text import columns, counted, visible
from residua.accuracy.figures import MOST_LINES, Certificate, Figures, Fitness, certified, totals_of
from residua.accuracy.guesses import FORESEEN, FORESEEN_HEAD, Foresees, Guess
from residua.accuracy.summaries import TableSummary, rows_of, summary_of
from residua.errors import BudgetError, FileFormatError, Infeasible, NotInSpan, ResiduaError, WorkloadError
from residua.kernel.measurement import Measurement, record_limit, refuse_few_records
from residua.privacy import Budget, Privacy, Unit, budget_from_manifest
from residua.privacy.budgets import bound_divisor, variance_ratio
from residua.privacy.unit import Person
from residua.schema import Schema
from residua.strategy.format_1 import strategy_of_format_1
from residua.strategy.manifest import refuse_unfit, strategy_from_manifest
from residua.strategy.rounding import rebudgeted
from residua.strategy.strategy import Strategy, batches_of
from residua.strategy.unspent import free_variances, unspent
from residua.strategy.words import MEASURED, described
from residua.workload import Table, Workload
from residua.workload.queries import spelled
from residua.workload.union import refuse_extremes, refuse_foreign

Content = tuple[dict[str, Any], dict[str, AnyArray]]
"""What a file holds: JSON-able facts, and arrays by name."""

WORTH_A_WORD = 5e-5  # relative; what is less would read 0.00%
EVERYBODY = 10**10  # records; plans that can measure as many need not say so


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Foresees):
    """A mechanism fitted to a workload and a budget; holds no data, and never will.

    Made by `residua.plan`. Everything it says is true before any data is touched.

    >>> import residua as rs
    >>> schema = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"))
    >>> plan = rs.plan(rs.marginals(schema, ways=1), rs.zcdp("0.1"))
    >>> plan.variances(rs.table(schema, ["sex"])).round(1).tolist()
    [14.6, 14.6]
    >>> round(plan.rescale(rs.zcdp("0.4")).rmse / plan.rmse, 3)
    0.5
    """

    workload: Workload
    budget: Budget
    unit: Unit
    method: str
    strategy: Strategy
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
    undone: tuple[str, ...] = ()
    """What was not tried for want of effort."""
    origin: Content | None = field(default=None, init=False)
    """What a file of format 1 holds of this plan, which its hash is of; None for any other plan."""

    @property
    def schema(self) -> Schema:
        """The schema of the data that the plan can measure."""
        return self.workload.schema

    @property
    def _person(self) -> Person:
        return Person.of(self.unit, self.schema)

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
        return self.budget.proves(self.unit)

    def variances(self, work: Workload) -> Array:
        """Variance of each query's answer under this plan, shape (work.count,), in the workload's order."""
        refuse_foreign(work, self.schema, "plan")
        if work.count > LISTED_VARIANCES:
            raise WorkloadError(
                f"{spelled(work.count)} variances are too many for one array; plan.summary(work) gives each "
                "table's figures, plan.iter_variances(work) gives the variances table by table"
            )
        return np.concatenate([self._variances_of(group) for group in work.groups()])

    def iter_variances(self, work: Workload) -> Iterator[tuple[Table, Array]]:
        """Each table with the variances of its queries, one table at a time."""
        refuse_foreign(work, self.schema, "plan")
        return ((group, self._variances_of(group)) for group in work.groups())

    def _variances_of(self, group: Table) -> Array:
        if not group.listable:
            raise WorkloadError(
                f"table {group.name!r} has {spelled(group.count)} queries, too many to list; "
                "plan.summary(work) gives its figures"
            )
        with self.naming():
            return self.strategy.variances(group)

    def covariance(self, left: Workload, right: Workload) -> Array:
        """Covariance of the answers to two workloads, shape (left.count, right.count)."""
        refuse_foreign(left, self.schema, "plan")
        refuse_foreign(right, self.schema, "plan")
        with self.naming():
            return np.block([[self.strategy.covariance(a, b) for b in right.groups()] for a in left.groups()])

    def spare(self) -> Array:
        """Privacy cost that each cell leaves unspent, shape (sizes of the attributes in use).

        Under `replace_one`, what replacing a record of that cell by any other leaves.
        """
        return unspent(self.strategy, self.schema.sizes, self._person)[1] * float(self.unit.factor)

    def free_variances(self, work: Workload) -> Array:
        """Variance at which each query could be measured besides, alone, for nothing; inf where it cannot."""
        refuse_foreign(work, self.schema, "plan")
        return free_variances(self.strategy, work, self._person)

    def summary(self, work: Workload | None = None) -> list[TableSummary]:
        """The predicted error of each table, without listing queries; by default of the plan's own tables."""
        work = self.workload if work is None else work
        refuse_foreign(work, self.schema, "plan")
        return [self._summary_of(group) for group in work.groups()]

    def _summary_of(self, group: Table) -> TableSummary:
        with self.naming():
            return summary_of(self.strategy, group)

    def _rows(self, most: int) -> list[tuple[str, ...]]:
        """Name, queries, numbers and errors of the first tables."""
        return list(rows_of(map(self._summary_of, islice(self.workload.groups(), most))))

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Inside it, an error about what is not measured names the attributes."""
        try:
            yield
        except NotInSpan as error:
            raise error.naming(self.schema.names) from None

    def explain(self, *, guess: Guess | None = None) -> str:
        """The plan in words; with a public `guess` of sizes, also what percentages and means will be like."""
        overall = f", overall rmse {self.rmse:,.4g}" if self.workload.counts else ""
        lines = [f"Plan for {self._size()}, method {self.method!r}{overall}"]
        lines += _section("Privacy", self.privacy.describe().splitlines())
        head = ("table", "queries asked", "numbers", "typical", "largest")
        tables = columns(head, self._rows(MOST_LINES), left=(0, 1), indent="")
        if (more := self.workload.tables - MOST_LINES) > 0:
            tables.append(f"... and {counted(more, 'more table', 'more tables')}")
        lines += _section("Predicted error (standard deviation of each number)", tables)
        if guess is not None:
            rows = [each.row() for each in self.foreseen(guess)[:MOST_LINES]]
            lines += _section(FORESEEN, columns(FORESEEN_HEAD, rows, indent=""))
        if self.targets is not None:
            lines += _section("Targets", self.targets.describe(self.certificate.scope))
        measured = list(described(self.strategy))
        if self.method not in MEASURED and self.most_records < EVERYBODY:
            measured.append(f"at most {self.most_records:,} records: with more, numbers would wrap around")
        lines += [*_section("Measured", measured), "", self.certificate.describe(), *self._beside_uniform()]
        if self.undone:
            lines.append(self.certificate.left_undone(self.undone))
        return "\n".join(map(visible, lines))

    def _beside_uniform(self) -> Iterator[str]:
        if self.uniform_total is not None:
            gain = math.sqrt(self.uniform_total / self.ideal.total_variance) - 1
            worse = f"have an rmse {gain:.2%} larger" if gain >= WORTH_A_WORD else "do as well"
            yield f"Uniform centring (QuerySmasher) would {worse}."

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        level: float = 0.95,
        title: str | None = None,
        plots: str | os.PathLike[str] | None = None,
        guess: Guess | None = None,
    ) -> None:
        """Write one HTML page about the plan: privacy, every table's error, other budgets, certificate.

        `plots` is a folder for pictures; `guess` is as in `explain`. Needs the extra `residua[report]`.
        """
        from residua.report import plan_contents, write_report  # seldom needed, and not quick to load

        write_report(plan_contents(self, level=level, title=title, guess=guess), path, plots)

    def rescale(self, budget: Budget) -> "Plan":
        """The same plan for another budget: every variance changes by one factor, nothing is solved again."""
        if not isinstance(budget, Budget):
            raise BudgetError(f"rescale needs a budget, such as rs.zcdp(0.1), not {budget!r}")
        law = self.strategy.law
        if budget.law != law:
            raise BudgetError(
                f"this plan has {law} noise, which cannot be rescaled to {budget!r}; plan again"
            )
        if self.method in MEASURED:
            raise Infeasible(
                "this plan describes releases that were combined, or some instalments of another plan, whose "
                "noise is drawn already; rescale the plans of those releases before measuring them"
            )
        before, after = self.unit.allowance(self.budget), self.unit.allowance(budget)
        factor = variance_ratio(law, float(before / after))
        strategy = rebudgeted(self.strategy, after, self._person)
        released = Figures.of(strategy, self.workload, totals_of(strategy, self.workload))
        lower = self.certificate.lower_bound * bound_divisor(law, before) / bound_divisor(law, after)
        everywhere = self.certificate.everywhere and self.certificate.everywhere * factor
        if self.objective == "loss":
            lower, everywhere = 0.0, None  # a loss need not scale with variances
        targets, value = None, released.total_variance
        if self.targets is not None:
            targets = self.targets.at(self.workload, strategy, float(budget.gaussian_cost()))
            value = targets.factor
        elif self.objective != "total_variance":  # it changes by the factor by which variances do
            own = self.certificate.lower_bound * (1 + self.certificate.gap)
            value = own * (value / self.released.total_variance)
        certificate = certified(value, lower, self.certificate.scope, self.objective)
        return replace(
            self,
            budget=budget,
            strategy=strategy,
            certificate=replace(certificate, everywhere=everywhere),
            ideal=self.ideal.scaled(factor),
            released=released,
            targets=targets,
            uniform_total=None if self.uniform_total is None else self.uniform_total * factor,
        )

    @cached_property
    def batches(self) -> list[Measurement]:
        """The measurements in the order in which they are made."""
        return batches_of(self.strategy)

    @property
    def most_records(self) -> int:
        """The most records that can be measured: with more, numbers wrap around 64 bits, and nobody is told.

        A function of the plan alone (claim I-006). Of a combination, which is not measured, there is none.
        """
        return record_limit(self.batches)

    @cached_property
    def hash(self) -> str:
        """The hash that identifies this plan, the one its saved file carries."""
        return _files.pack("plan", *self.content(), self.version)[2]

    def save(self, path: _files.Target) -> None:
        """Write the plan to one file, given by its path or open for writing; equal plans give equal bytes."""
        self.workload.refuse_unreadable()
        _files.write(path, "plan", *self.content(), self.version)

    @classmethod
    def load(cls, path: _files.Target) -> "Plan":
        """The plan in a file, refused with a reason if the file is not a whole, unedited plan."""
        container = _files.read(path, "plan")
        try:
            plan = cls.from_content(container.manifest, container.arrays, container.version)
        except ResiduaError as error:
            raise FileFormatError(f"{path}: {error}") from error
        try:
            if plan.method not in MEASURED:
                refuse_few_records(plan.batches)
        except (BudgetError, Infeasible) as error:
            raise type(error)(f"{path}: {error}") from error
        return plan

    @property
    def version(self) -> int:
        """The version of the format that it is saved in: what came from an old file stays as it is."""
        return _files.NEWEST if self.origin is None else 1

    def content(self) -> Content:
        """What a file holds of this plan: JSON-able facts, and arrays by name."""
        if self.origin is not None:
            return dict(self.origin[0]), dict(self.origin[1])
        arrays: dict[str, AnyArray] = {}
        manifest: dict[str, Any] = {
            "schema": self.schema.to_manifest(arrays),
            "workload": self.workload.to_manifest(arrays),
            "budget": self.budget.to_manifest(),
            "unit": self.unit.to_manifest(),
            "method": self.method,
            "objective": self.objective,
            "strategy": self.strategy.to_manifest(arrays),
            "certificate": self.certificate.to_manifest(),
            "ideal": self.ideal.to_manifest(self.workload.tables),
            "released": self.released.to_manifest(self.workload.tables),
        }
        if self.targets is not None:
            manifest["targets"] = self.targets.to_manifest(arrays)
        if self.uniform_total is not None:
            manifest["uniform_total"] = self.uniform_total
        if self.undone:
            manifest["undone"] = list(self.undone)
        return manifest, arrays

    @classmethod
    def from_content(cls, manifest: Manifest, arrays: Arrays, version: int) -> "Plan":
        """The plan that the content of a file of this version describes; what does not fit is refused."""
        schema = Schema.from_manifest(submanifest(manifest, "schema"), arrays)
        work = Workload.from_manifest(submanifest(manifest, "workload"), arrays, schema)
        refuse_extremes(work, most=READABLE)
        if version == 1:
            strategy = strategy_of_format_1(submanifest(manifest, "mechanism"), arrays, schema.sizes)
        else:
            strategy = strategy_from_manifest(submanifest(manifest, "strategy"), arrays)
        refuse_unfit(strategy, schema.sizes)
        budget = budget_from_manifest(submanifest(manifest, "budget"))
        if strategy.law != budget.law:
            raise FileFormatError(f"its noise, {strategy.law}, is not that of {budget!r}")
        objective = text(manifest, "objective")
        fitness = submanifest(manifest, "targets") if "targets" in manifest else None
        plan = cls(
            workload=work,
            budget=budget,
            unit=Unit.from_manifest(submanifest(manifest, "unit")),
            method=text(manifest, "method"),
            objective=objective,
            strategy=strategy,
            certificate=Certificate.from_manifest(submanifest(manifest, "certificate"), objective),
            ideal=Figures.from_manifest(submanifest(manifest, "ideal"), work, None),
            released=Figures.from_manifest(submanifest(manifest, "released"), work, strategy),
            targets=None if fitness is None else Fitness.from_manifest(fitness, arrays, work),
            uniform_total=positive(manifest, "uniform_total") if "uniform_total" in manifest else None,
            undone=texts(manifest, "undone") if "undone" in manifest else (),
        )
        if version == 1:
            settle(plan, origin=(manifest, arrays))
        return plan

    def _size(self) -> str:
        queries, tables = self.workload.count, counted(self.workload.tables, "table", "tables")
        return f"{tables} with {'1 query' if queries == 1 else f'{spelled(queries)} queries'}"

    def _repr_html_(self) -> str:
        head = ("table", "queries asked", "numbers", "typical error", "largest")
        more = self.workload.tables - MOST
        below = (*self.privacy.describe().splitlines(), self.certificate.describe())
        return shown(f"Plan for {self._size()}", head, self._rows(MOST), left=2, more=more, below=below)

    def plot(self) -> Any:
        """A picture of the typical error of each table; needs the extra `residua[report]`."""
        from residua.report.charts import bar_plot  # seldom needed

        drawn = map(self._summary_of, islice(self.workload.groups(), MOST_LINES))
        errors = {each.name: each.rmse for own in drawn for each in own.lines()}
        return bar_plot([*errors], [*errors.values()], "typical standard deviation", repr(self.budget))

    def __repr__(self) -> str:
        return (
            f"Plan({self._size()}, {self.budget!r}, "
            f"method={self.method!r}, rmse={self.rmse:.6g}, gap={max(0.0, self.certificate.gap):.2g} "
            f"to {self.certificate.scope})"
        )


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines)]
