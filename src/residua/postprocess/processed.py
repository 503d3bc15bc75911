"""Post-processed tables as a user holds them: biased, marked so, and with errors found by simulation."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from residua._limits import MOST_ANSWERS, SIMULATED_CELLS
from residua._plan import Plan, refuse_foreign
from residua.answering.estimator import apply_queries
from residua.answers import arrow_schema, diagonalised, listed_names, record_batches, write_parquet
from residua.errors import Infeasible, WorkloadError
from residua.postprocess.stacks import TableSet
from residua.workload import Table, Workload, table
from residua.workload.queries import spelled

if TYPE_CHECKING:
    import pandas
    import pyarrow

Array = NDArray[np.float64]

FIGURES = ("value", "error")


@dataclass(frozen=True, slots=True, eq=False)
class ProcessedTable:
    """One post-processed table: arrays with an axis per attribute, in the order asked.

    `error` is the root mean square error of each cell, bias and noise together, found by simulation.
    """

    names: tuple[str, ...]
    axes: tuple[tuple[str, ...], ...]
    values: Array
    error: Array

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def to_pandas(self) -> "pandas.DataFrame":
        """A data frame with a row per cell, indexed by the labels of the attributes."""
        return diagonalised(self.names, self.axes, {"values": self.values, "error": self.error})


@dataclass(frozen=True, eq=False, repr=False)
class Processed:
    """Post-processed tables of a release: non-negative or rounded. They are biased; the release is not.

    Made by `release.nonnegative()` and `release.rounded()`. `release_hash` says of which release.

    >>> import residua as rs
    >>> schema = rs.Schema(age=rs.Integer(0, 4), sex=rs.Categorical("F", "M"))
    >>> plan = rs.plan(rs.marginals(schema, up_to=2), rs.zcdp("0.1"))
    >>> people = {"age": [3, 3, 4], "sex": ["F", "M", "F"]}
    >>> whole = rs.measure(plan, people, ledger=None, noise=rs.simulated(seed=1)).rounded()
    >>> bool((whole.values() >= 0).all()), float(whole.table("age").values.sum() - whole.table().values)
    (True, 0.0)
    """

    kind: str
    plan: Plan
    tables: TableSet
    release_hash: str
    simulated: bool
    facts: str
    replicates: int
    again: Callable[[int], TableSet]
    """The tables of a simulated release, by number."""

    @property
    def biased(self) -> bool:
        """True: cutting off and rounding move answers in one direction on average."""
        return True

    @property
    def note(self) -> str:
        """What these numbers are, in words that belong beside them."""
        words = (
            f"{self.kind} tables post-processed from release {self.release_hash[:12]}. They are biased: for "
            "unbiased answers with standard errors use the release itself. "
        )
        words += (
            f"Errors, bias and noise together, are root mean squares over {self.replicates} simulations."
            if self.replicates
            else "Their errors were not estimated."
        )
        if self.facts:
            words += f" Public facts taken as exactly true, without protection: {self.facts}."
        return words[0].upper() + words[1:]

    def values(self, work: Workload | None = None) -> Array:
        """Answers to all queries of a workload (by default the plan's), shape (count,)."""
        work = self._workload(work)
        return np.concatenate([self._values(group) for group in work.groups()])

    def errors(self, work: Workload | None = None) -> Array:
        """Root mean square error of each answer by simulation, shape (count,); nan without replicates."""
        work = self._workload(work)
        return np.concatenate([self._errors(group) for group in work.groups()])

    @cached_property
    def rmse(self) -> float:
        """Root of the mean square error over all queries of the plan, by simulation."""
        return float(np.sqrt(np.mean(self.errors() ** 2)))

    def table(self, *names: str | Sequence[str]) -> ProcessedTable:
        """The marginal on these attributes with errors by simulation, axes in the order asked.

        Attributes are named one by one, or in a list.
        """
        schema, asked = self.plan.schema, listed_names(names)
        (group,) = table(schema, asked).groups()
        shape = [schema[name].size for name in asked]
        axes = tuple(schema[name].labels() for name in asked)
        values = self._values(group).reshape(shape)
        return ProcessedTable(tuple(asked), axes, values, self._errors(group).reshape(shape))

    def answers(self, work: Workload | None = None) -> "pyarrow.Table":
        """Answers as an Arrow table: table, one column per attribute, query, value, error.

        There are no intervals: the error of a biased number is not normal. The metadata has the release's
        hash and says that the numbers are biased.
        """
        import pyarrow as pa

        work = self._workload(work)
        return pa.Table.from_batches(list(self._batches(work)), schema=self._columns())

    def write_answers(self, path: str | os.PathLike[str], work: Workload | None = None) -> None:
        """Write every answer to a Parquet file, table by table."""
        work = self._workload(work)
        write_parquet(path, self._columns(), self._batches(work))

    def _columns(self) -> "pyarrow.Schema":
        return arrow_schema(self.plan.schema, self.simulated, FIGURES, self.metadata)

    @property
    def metadata(self) -> dict[str, str]:
        """What a file of these answers says about them."""
        return {
            "residua.biased": "true",
            "residua.kind": self.kind,
            "residua.release": self.release_hash,
            "residua.note": self.note,
        }

    def _batches(self, work: Workload) -> Iterator["pyarrow.RecordBatch"]:
        def figures_of(group: Table) -> tuple[Array, Array]:
            return self._values(group), self._errors(group)

        return record_batches(self.plan.schema, work.groups(), figures_of, self._columns())

    @cached_property
    def _simulations(self) -> tuple[TableSet, ...]:
        cells = sum(stack.cells.size for stack in self.tables.stacks)
        if cells * self.replicates > SIMULATED_CELLS:
            raise Infeasible(
                f"{self.replicates} simulations of {cells:,} cells do not fit in memory; ask for fewer "
                f"replicates (at most {SIMULATED_CELLS // cells})"
            )
        return tuple(self.again(number) for number in range(self.replicates))

    def _errors(self, group: Table) -> Array:
        values = self._values(group)
        if not self.replicates:
            return np.full_like(values, np.nan)
        squares = np.zeros_like(values)
        for tables in self._simulations:
            squares += (answers_from(tables, group) - values) ** 2
        return np.asarray(np.sqrt(squares / self.replicates))

    def _values(self, group: Table) -> Array:
        """Answers of one table, refused where post-processing or the measurements do not support them."""
        subset = tuple(sorted(group.attributes))
        if subset not in self.tables:
            names = ", ".join(repr(self.plan.schema.names[at]) for at in subset)
            raise WorkloadError(
                f"table {group.name!r}: {names} are in no table of the plan together; post-processed tables "
                "answer only what lies within one of them (the release itself may answer more)"
            )
        if not group.listable:
            raise WorkloadError(f"table {group.name!r} has {spelled(group.count)} queries, too many to list")
        with self.plan.naming():
            self.plan.strategy.total(group, weighted=False)  # refuses what the measurements do not support
        return answers_from(self.tables, group)

    def _workload(self, work: Workload | None) -> Workload:
        work = self.plan.workload if work is None else work
        refuse_foreign(work, self.plan.schema, "release")
        if work.count > MOST_ANSWERS:
            raise WorkloadError(f"{spelled(work.count)} answers are too many; ask for some of the tables")
        return work

    def __repr__(self) -> str:
        mark = "SIMULATED " if self.simulated else ""
        tables = sum(len(stack.subsets) for stack in self.tables.stacks)
        many = "1 marginal" if tables == 1 else f"{tables:,} marginals"
        return f"{mark}Processed({self.kind}, biased, {many} of release {self.release_hash[:12]})"


def answers_from(tables: TableSet, group: Table) -> Array:
    """Answers of one table, shape (count,), from a marginal that covers its attributes."""
    order = np.argsort(group.attributes)
    cells = tables.marginal(tuple(sorted(group.attributes))).transpose(np.argsort(order))
    return apply_queries(cells, group.factors).reshape(-1)
