"""Post-processed tables as a user holds them: biased, marked so, and with errors found by simulation.

Post-processed tables are taken for the truth, noise of the plan's own law is added, and all is post-processed
again. The differences estimate bias and noise together (parametric bootstrap, claim P-107).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from residua._limits import MOST_ANSWERS, SIMULATED_CELLS
from residua.answering.blocks import Measured
from residua.answering.estimator import Estimator, apply_queries
from residua.answers import (
    arrow_schema,
    diagonalised,
    listed_names,
    record_batches,
    write_parquet,
)
from residua.errors import DataError, Infeasible, NotInSpan, WorkloadError
from residua.plans import Plan, refuse_foreign
from residua.postprocess.facts import Fact, Facts
from residua.postprocess.margins import rounded_tables
from residua.postprocess.nonnegative import nonnegative_tables
from residua.postprocess.pieces import PieceErrors, Stack, TableSet, shaped, subsets_of
from residua.postprocess.splitting import nonnegative_whole, tied_attributes
from residua.strategy.strategy import Strategy
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


def noisy(tables: TableSet, noise: Estimator) -> TableSet:
    """Tables with noise as a release would have it."""
    return TableSet(
        tuple(
            Stack(stack.subsets, stack.cells + noise.marginals(stack.subsets, stack.sizes))
            for stack in tables.stacks
        )
    )


def noise_of(strategy: Strategy, generator: np.random.Generator) -> Measured:
    """Noise of the law that a strategy has, and no data, in units of its matrices."""
    found = []
    for number, rows in strategy.runs():
        layer = strategy.layers[number]
        shapes = (strategy.shapes[at] for at in layer.shapes[rows[0]].tolist())
        size = (len(rows), int(np.prod([len(shape.matrix) for shape in shapes], dtype=np.int64)))
        variances = np.broadcast_to(layer.noise[rows][:, None], size)
        if strategy.law == "gaussian":
            drawn = np.sqrt(variances) * generator.standard_normal(size)
        elif strategy.grain is None:
            drawn = np.sqrt(variances / 2) * generator.laplace(size=size)
        else:
            drawn = _whole_laplace(variances * layer.multiplier**2, generator) / layer.multiplier
        found.append((number, rows, drawn))
    return found


def _whole_laplace(variances: Array, generator: np.random.Generator) -> Array:
    """Integers with probabilities in proportion to exp(-|k|/scale): two geometric ones, subtracted."""
    chance = -np.expm1(-2 * np.arcsinh(1 / np.sqrt(2 * variances)))  # 1 - exp(-1/scale)
    return np.asarray(generator.geometric(chance) - generator.geometric(chance), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Unbiased:
    """What post-processing starts from: a plan and its least-squares estimates. `seed` is for simulations."""

    plan: Plan
    estimator: Estimator
    release_hash: str
    simulated: bool
    seed: int

    def tables(self, work: Workload | None = None) -> TableSet:
        """Unbiased estimates of marginals on a workload's (by default the plan's) largest attribute sets."""
        work = self.plan.workload if work is None else work
        tied = tied_attributes(self.plan.strategy)
        if tied is not None:
            subsets, sizes = subsets_of([tied]), [self.plan.schema.sizes[at] for at in tied]
            return TableSet((Stack(subsets, self.estimator.marginals(subsets, sizes)),))
        return TableSet(
            tuple(Stack(subsets, self.estimator.marginals(subsets, sizes)) for subsets, sizes in shaped(work))
        )

    def noise(self, number: int) -> Estimator:
        """Least squares of noise alone, the same for the same measurements and number."""
        strategy = self.plan.strategy
        measured = noise_of(strategy, np.random.default_rng([self.seed, number]))
        return strategy.answerer.estimator(strategy.estimates(measured))


def seed_of(cells: Iterable[Array]) -> int:
    """A seed that depends on the measurements only, so that simulations can be repeated."""
    digest = sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in cells)).digest()
    return int.from_bytes(digest[:8], "little")


def nonnegative(source: Unbiased, given: Fact | Iterable[Fact], replicates: int) -> Processed:
    """The nearest non-negative tables that agree with each other."""
    return _processed("non-negative", source, given, replicates, whole=False)


def rounded(source: Unbiased, given: Fact | Iterable[Fact], replicates: int) -> Processed:
    """Whole numbers near the non-negative tables."""
    return _processed("whole", source, given, replicates, whole=True)


def _processed(
    kind: str, source: Unbiased, given: Fact | Iterable[Fact], replicates: int, *, whole: bool
) -> Processed:
    plan = source.plan
    checked_replicates(replicates)
    facts = Facts.of(given, plan.schema)
    refuse_without_total(plan, facts)
    errors = PieceErrors(plan.strategy, plan.schema)

    def made(tables: TableSet) -> TableSet:
        found = nearest(tables, plan, errors, facts)
        return rounded_tables(found, facts) if whole else found

    tables = made(source.tables())

    def again(number: int) -> TableSet:
        return made(noisy(tables, source.noise(number)))

    return Processed(
        kind, plan, tables, source.release_hash, source.simulated, facts.words, replicates, again
    )


def nearest(tables: TableSet, plan: Plan, errors: PieceErrors, facts: Facts) -> TableSet:
    """The nearest non-negative tables, in the way that suits the plan's measurements."""
    if tied_attributes(plan.strategy) is not None:
        return nonnegative_whole(tables, plan.strategy, facts)
    return nonnegative_tables(tables, errors, facts)


def checked_replicates(replicates: object) -> int:
    """The number of simulations, refused unless it is one."""
    if not isinstance(replicates, int) or isinstance(replicates, bool) or replicates < 0:
        raise DataError(f"replicates is a number of simulations, such as 20, not {replicates!r}")
    return replicates


def refuse_without_total(plan: Plan, facts: Facts) -> None:
    """Stop if nobody knows how many records there are."""
    if facts.margin(()) is not None:
        return
    try:
        plan.strategy.total(Table("total", ()), weighted=False)
    except NotInSpan as error:
        raise NotInSpan(
            "the plan does not measure the number of records, which non-negative tables add up to; publish "
            "it too, or give it as a public fact: rs.known(rs.marginals(schema, ways=0), 1000)"
        ) from error
