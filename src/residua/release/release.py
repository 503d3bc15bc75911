"""What a user holds after measuring: noisy measurements, the plan, and everything they can answer."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from residua import _files
from residua._arrays import Array, Manifest, settle
from residua._limits import MOST_ANSWERS, ROWS_AT_ONCE
from residua._manifests import submanifest
from residua._notebook import shown
from residua.accuracy.reliability import Reliability, Rule
from residua.answering.protocol import Estimates, Estimator
from residua.answers import Answers, FiguresOf, by_place, held
from residua.errors import DataError, FileFormatError, ResiduaError, WorkloadError
from residua.plans import Content, Plan
from residua.privacy.budgets import interval_margin
from residua.release.asking import FIGURES, Asks
from residua.release.changes import Compares
from residua.release.crosstab import Tabulates
from residua.release.intervals import Intervals, whole_ends
from residua.release.measurements import Measurements, audit_record, checked_audit, fitted_measurements
from residua.release.partitioned import write_parts
from residua.release.parts import MeasuredParts
from residua.release.printing import SIMULATED, WARNING
from residua.release.regression import Relates
from residua.release.statistics import Derives, TableAnswer
from residua.workload import Table, TableRun, Workload, table
from residua.workload.queries import spelled
from residua.workload.tables import answered_together, runs_of
from residua.workload.union import asked_cells, refuse_foreign

if TYPE_CHECKING:
    import pyarrow

    from residua.postprocess import Fact, Processed
    from residua.postprocess.processed import Unbiased
    from residua.postprocess.synthetic import Synthetic


@dataclass(frozen=True, eq=False, repr=False)
class Release(Asks, Relates, Compares, Derives, Tabulates):
    """Noisy measurements of one dataset under a plan; all its answers are post-processing of them.

    Made by `residua.measure`. `audit` says how it came to be, without a trace of the data.

    >>> import residua as rs
    >>> schema = rs.Schema(sex=rs.Categorical("F", "M"))
    >>> plan = rs.plan(rs.table(schema, ["sex"]), rs.zcdp("0.1"))
    >>> release = rs.measure(plan, {"sex": ["F", "M", "F"]}, ledger=None, noise=rs.simulated(seed=1))
    >>> found = release.table("sex")
    >>> found.axes, found.values.shape, found.stddev.round(2).tolist()
    ((('F', 'M'),), (2,), [2.24, 2.24])
    """

    plan: Plan
    measurements: Measurements | MeasuredParts
    audit: Manifest
    origin: Content | None = field(default=None, init=False)
    """What a file of format 1 holds of this release, which its hash is of; None for any other."""
    told: str = field(default="", init=False)
    """The public facts that answers are given, in words."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "audit", MappingProxyType(dict(self.audit)))

    @property
    def simulated(self) -> bool:
        """Whether the noise was simulated: then nobody was protected, and nobody was published."""
        return bool(self.audit["simulated"])

    @cached_property
    def estimates(self) -> Estimates:
        """Least-squares estimates of what each block measured."""
        strategy, numbers = self.plan.strategy, self.measurements
        if strategy.answerer.by_parts and isinstance(numbers, Measurements):
            return strategy.estimates(numbers.in_parts(strategy))
        return strategy.estimates(numbers.in_units(strategy))

    @cached_property
    def _estimator(self) -> Estimator:
        if isinstance(self.measurements, MeasuredParts) and not self.told:
            return self.measurements.estimator
        return self.plan.strategy.answerer.estimator(self.estimates)

    def values(self, work: Workload | None = None) -> Array:
        """Unbiased answers to all queries of a workload (by default the plan's), shape (count,)."""
        work = self._workload(work)
        if work.count > MOST_ANSWERS:
            raise WorkloadError(
                f"{spelled(work.count)} answers are too many for one array; use write_answers(path)"
            )
        result, end = np.empty(work.count), 0
        for run in self._runs(work):
            for answers in self._values_of_part(run):
                result[end : end + len(answers)] = answers
                end += len(answers)
        return result

    def _runs(self, work: Workload) -> Iterator[Table | TableRun]:
        """The tables, those of a run some at a time, so that no more is held at once than gains anything."""
        for part in work.parts:
            if answered_together(part):
                with self.plan.naming():
                    self.plan.strategy.totals(part)  # refuses what the measurements do not support
            yield from runs_of(part, ROWS_AT_ONCE)

    def _values_of_part(self, part: Table | TableRun) -> Iterable[Array]:
        """Answers of each table; tables that differ in names only are answered together."""
        if not answered_together(part):
            return [self._values_of(group) for group in part]
        found = {
            table: answers
            for chosen, several in self._estimator.run(part)
            for table, answers in zip(chosen.tolist(), several, strict=True)
        }
        return [found[table] for table in range(len(part))]

    def _values_of(self, group: Table) -> Array:
        if not group.listable:
            raise WorkloadError(
                f"table {group.name!r} has {spelled(group.count)} queries, too many to list; ask for those "
                "of interest with rs.linear"
            )
        with self.plan.naming():
            self.plan.strategy.total(group, weighted=False)  # refuses what the measurements do not support
        return self._estimator.answers(group)

    def answers(self, work: Workload | None = None, *, level: float = 0.95) -> "pyarrow.Table":
        """Answers as an Arrow table: table, one column per attribute, query, value, stddev, lower, upper.

        An attribute's column has its label where the query asks about one cell of it, otherwise null.
        """
        return self._answers(work, level).arrow()

    def answer_batches(
        self, work: Workload | None = None, *, level: float = 0.95
    ) -> Iterator["pyarrow.RecordBatch"]:
        """The rows of `answers`, some at a time, so that they need not fit in memory."""
        return self._answers(work, level).batches()

    def _answers(self, work: Workload | None, level: float) -> Answers:
        tables = self._tables(self._workload(work), Intervals(level).level)
        return Answers(self.plan.schema, tables, FIGURES, self.marks)

    @property
    def marks(self) -> dict[str, str]:
        """What every table of answers carries along: whether they are simulated, and facts they are given."""
        facts = {"residua.facts": self.told} if self.told else {}
        return {"residua.simulated": str(self.simulated).lower()} | facts

    def _tables(self, work: Workload, level: float) -> Iterator[tuple[Table, FiguresOf]]:
        """Each table with its figures; tables that differ in names only are answered some at a time."""
        if isinstance(self.measurements, MeasuredParts):
            yield from ((group, self._in_slices(group, level)) for group in work.groups())
            return
        for run in self._runs(work):
            groups = run if isinstance(run, TableRun) else (run,)
            variances = self.plan.strategy.answerer.variances_by_table(run)
            for group, values, own in zip(groups, self._values_of_part(run), variances, strict=True):
                yield group, held(self._with_interval(values, own, level))

    def _in_slices(self, group: Table, level: float) -> FiguresOf:
        """The figures of a table, computed some places at a time as they are asked for, where that can be."""
        with self.plan.naming():
            self.plan.strategy.total(group, weighted=False)  # refuses what the measurements do not support
            found = self._estimator.sliced(group)
        if found is None:
            return held(self._figures_of(group, level))
        places, some = found
        return by_place(lambda which: self._with_interval(*some(which), level), group.count // places)

    def _figures_of(self, group: Table, level: float) -> tuple[Array, ...]:
        """Values, standard deviations, and both ends of the intervals of one table, shape (count,) each."""
        return self._with_interval(self._values_of(group), self.plan.strategy.variances(group), level)

    def _with_interval(self, values: Array, variances: Array, level: float) -> tuple[Array, ...]:
        stddev = np.sqrt(variances)
        margin = interval_margin(self.plan.strategy.law, level) * stddev
        return values, stddev, values - margin, values + margin

    def write_answers(
        self, path: _files.Target, work: Workload | None = None, *, level: float = 0.95, by: str | None = None
    ) -> None:
        """Write every answer to a Parquet file, some at a time, so that they need not fit in memory.

        Instead of a path, a binary file may be given that is open for writing. With `by`, such as
        'place.state', the path is that of a new folder with a part for each state, which are made one by one.
        """
        if by is None:
            self._answers(work, level).write(path)
        elif isinstance(path, str | os.PathLike):
            write_parts(path, self._workload(work), by, partial(self.write_answers, level=level))
        else:
            raise WorkloadError("answers in parts are written to a folder; give its path")

    def table(
        self,
        *names: str | Sequence[str],
        level: float = 0.95,
        whole: bool = False,
        simultaneous: bool = False,
    ) -> TableAnswer:
        """The marginal on these attributes with standard errors and intervals, axes in the order asked.

        Attributes are named one by one, `release.table("age", "sex")`, or in a list. With `whole`, intervals
        end at whole numbers not below zero; with `simultaneous`, all of them hold at once.
        """
        found = asked_cells(self.plan.schema, names, partial(self._figures_of, level=level))
        asked, axes, values, stddev, lower, upper = found
        if simultaneous:
            work = table(self.plan.schema, list(asked))
            margin = Intervals(level, True).margin(self.plan.strategy.law, self.covariance(work, work))
            lower, upper = values - margin * stddev, values + margin * stddev
        if whole:
            lower, upper = whole_ends(lower, upper)
        return TableAnswer(asked, axes, values, stddev, lower, upper, level)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        level: float = 0.95,
        title: str | None = None,
        plots: str | os.PathLike[str] | None = None,
        reliability: Rule = None,
        unreliable: str = "mark",
    ) -> None:
        """Write one HTML page about the release: privacy, tables with error bars, budget, certificate.

        `plots` is a folder for the pictures as SVG files too; `reliability` and `unreliable` flag uncertain
        numbers as in `crosstab`. Needs the extra `residua[report]`.
        """
        from residua.report import release_contents, write_report  # seldom needed, and not quick to load

        if self.told:
            raise DataError("reports are of the release itself, without facts")
        rule = Reliability(reliability, unreliable)
        write_report(release_contents(self, level=level, title=title, reliability=rule), path, plots)

    def facts(self) -> list[tuple[str, str]]:
        """What readers of its tables should know: privacy, when it was measured, where it comes from."""
        warning = [(WARNING, SIMULATED)] if self.simulated else []
        privacy = [("Privacy", line.strip()) for line in self.plan.privacy.describe().splitlines()]
        made = [("Measured", str(self.audit["time"])), ("Release", self.hash)]
        taken = f"taken as exactly true, without protection: {self.told}"
        given = [("Public facts", taken)] if self.told else []
        return [*warning, *privacy, *made, *given, ("Made by", f"Residua {self.audit['residua']}")]

    def covariance(self, left: Workload, right: Workload) -> Array:
        """Covariance of the answers to two workloads, shape (left.count, right.count)."""
        return self.plan.covariance(left, right)

    def with_facts(self, facts: "Fact | Iterable[Fact]") -> "Release":
        """The release given what is publicly known: unbiased answers that agree with it, with less error.

        Facts are made by `residua.known` and `residua.impossible`: totals of places, or of anything else that
        the plan measures, and places where nobody can be. They are taken as exactly true, are shown as they
        are, and are not protected by the privacy of the release. Files hold the release without them.
        """
        from residua.postprocess.placed_facts import informed

        plan, words = informed(self.plan, facts)
        found = replace(self, plan=plan)
        settle(found, told=words, origin=self.origin, hash=self.hash)
        assert found._estimator  # refuses facts that contradict each other
        return found

    def nonnegative(self, facts: "Fact | Iterable[Fact]" = (), *, replicates: int = 20) -> "Processed":
        """The nearest tables without negative numbers, which agree on every margin; biased.

        `facts` are made by `residua.known` and `residua.impossible`. Errors are found by that many simulated
        releases, when they are first asked for.
        """
        from residua.postprocess.processed import processed

        return processed(self._unbiased(), facts, replicates, whole=False)

    def rounded(self, facts: "Fact | Iterable[Fact]" = (), *, replicates: int = 20) -> "Processed":
        """Whole non-negative numbers which add up, near those of `nonnegative`; biased."""
        from residua.postprocess.processed import processed

        return processed(self._unbiased(), facts, replicates, whole=True)

    def synthetic(
        self,
        rows: int | None = None,
        *,
        facts: "Fact | Iterable[Fact]" = (),
        tables: Workload | None = None,
        oracle: str = "exact",
        iterations: int = 1000,
        replicates: int = 5,
        seed: int = 0,
    ) -> "Synthetic":
        """Synthetic records from a graphical model of the release, or of some of its tables; biased.

        As many rows as there are records, unless `rows` says otherwise. Needs the extra `synth`. A model that
        is too large is refused; `oracle="approximate"` fits a mixture of products instead.
        """
        from residua.postprocess.synthetic import synthetic

        chosen = None if tables is None else self._workload(tables)
        return synthetic(self._unbiased(), rows, facts, chosen, oracle, iterations, replicates, seed)

    def _unbiased(self) -> "Unbiased":
        from residua.postprocess.processed import Unbiased

        return Unbiased(self.plan, self.estimates, self.hash, self.simulated)

    @cached_property
    def hash(self) -> str:
        """The hash that identifies this release, the one its saved file carries."""
        parts = self.measurements.parts
        return _files.pack("release", *self._content(), self.plan.version, parts.hashes if parts else ())[2]

    def save(self, path: _files.Target) -> None:
        """Write the release to one file, given by its path or open for writing; part by part."""
        if self.told:
            raise DataError("facts are not kept in files; save the release itself, and give it them again")
        self.plan.workload.refuse_unreadable()
        _files.write(path, "release", *self._content(), self.plan.version, self.measurements.parts or ())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Release":
        """The release in a file, refused with a reason if the file is not a whole, unedited release.

        Parts of a large release of places are read, and checked, when they are needed: the file has to stay.
        """
        container = _files.read(path, "release")
        manifest, arrays = container.manifest, container.arrays
        try:
            others = ("measurements.", "estimates.")
            own = {name: array for name, array in arrays.items() if not name.startswith(others)}
            plan = Plan.from_content(submanifest(manifest, "plan"), own, container.version)
            record = submanifest(manifest, "measurements")
            found: Measurements | MeasuredParts
            if container.parts is not None:
                found = MeasuredParts.from_manifest(record, arrays, plan.strategy, container.parts)
            elif "runs" in record:
                found = fitted_measurements(plan.strategy, record, arrays)
            else:
                found = Measurements.from_manifest(record, arrays, plan.strategy)
            release = cls(plan, found, checked_audit(submanifest(manifest, "audit")))
            if container.version == 1:
                settle(release, origin=(manifest, arrays))
            return release
        except ResiduaError as error:
            raise FileFormatError(f"{path}: {error}") from error

    def _content(self) -> Content:
        if self.origin is not None:
            return dict(self.origin[0]), dict(self.origin[1])
        plan, arrays = self.plan.content()
        measurements = self.measurements.to_manifest(arrays)
        return {"plan": plan, "measurements": measurements, "audit": dict(self.audit)}, arrays

    def _workload(self, work: Workload | None) -> Workload:
        work = self.plan.workload if work is None else work
        refuse_foreign(work, self.plan.schema, "release")
        return work

    def _repr_html_(self) -> str:
        return shown(f"Release of {self.plan.workload!r}", ("release", ""), self.facts(), left=2)

    def __repr__(self) -> str:
        mark = "SIMULATED " if self.simulated else ""
        return f"{mark}Release({self.plan!r}, measured {self.audit['time']})"


def rehearsal(plan: Plan, note: str = "") -> Release:
    """A release of zeros: what it takes to save it and to answer from it, any release of the plan takes."""
    zeros = [np.zeros((len(batch.subsets), batch.rows), dtype=np.int64) for batch in plan.batches]
    audit = audit_record(plan, datetime.now(UTC), None, note, simulated=True)
    return Release(plan, Measurements(tuple(zeros)), audit)
