"""Post-processed tables as a user holds them: biased, marked so, and with errors found by simulation.

Post-processed tables are taken for the truth, noise of the plan's own law is added, and all is post-processed
again. The differences estimate bias and noise together (parametric bootstrap, claim P-107).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from residua._arrays import Array
from residua._files import Target
from residua._limits import MOST_ANSWERS, SIMULATED_CELLS
from residua.answering.blocks import Measured
from residua.answering.protocol import Estimates, Estimator, TableParts
from residua.answers import Answers, Cells, held
from residua.errors import DataError, Infeasible, NotInSpan, WorkloadError
from residua.plans import Plan
from residua.postprocess.basis import Basis
from residua.postprocess.facts import Fact, Facts, facts_of, told
from residua.postprocess.margins import rounded_tables
from residua.postprocess.nonnegative import nonnegative_tables
from residua.postprocess.pieces import PieceErrors, Stack, TableSet, as_subsets, shaped
from residua.postprocess.placed_facts import PlacedFacts, place_of
from residua.postprocess.placed_tables import PlacedTables
from residua.postprocess.splitting import nonnegative_whole, tied_attributes
from residua.postprocess.top_down import TopDown
from residua.strategy.strategy import Strategy
from residua.workload import Table, Workload
from residua.workload.queries import spelled
from residua.workload.union import asked_cells, refuse_foreign

if TYPE_CHECKING:
    import pyarrow

FIGURES = ("value", "error")
Tables = TableSet | PlacedTables


@dataclass(frozen=True, slots=True, eq=False)
class ProcessedTable(Cells):
    """One post-processed table: arrays with an axis per attribute, in the order asked.

    `error` is the root mean square error of each cell, bias and noise together, found by simulation.
    """

    error: Array


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
    basis: Basis
    tables: Tables
    release_hash: str
    simulated: bool
    facts: str
    replicates: int
    again: Callable[[int], Tables]
    """The tables of a simulated release, by number."""

    @property
    def plan(self) -> Plan:
        """The plan of the release."""
        return self.basis.plan

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
        groups = self._workload(work).groups()
        return np.concatenate([answers_from(self.tables, self._asked(group)) for group in groups])

    def errors(self, work: Workload | None = None) -> Array:
        """Root mean square error of each answer by simulation, shape (count,); nan without replicates."""
        return np.concatenate([self._figures_of(group)[1] for group in self._workload(work).groups()])

    @cached_property
    def rmse(self) -> float:
        """Root of the mean square error over all queries of the plan, by simulation."""
        return float(np.sqrt(np.mean(self.errors() ** 2)))

    def table(self, *names: str | Sequence[str]) -> ProcessedTable:
        """The marginal on these attributes with errors by simulation, axes in the order asked.

        Attributes are named one by one, or in a list.
        """
        return ProcessedTable(*asked_cells(self.plan.schema, names, self._figures_of))

    def answers(self, work: Workload | None = None) -> "pyarrow.Table":
        """Answers as an Arrow table: table, one column per attribute, query, value, error.

        There are no intervals: the error of a biased number is not normal. The metadata has the release's
        hash and says that the numbers are biased.
        """
        return self._answers(work).arrow()

    def write_answers(self, path: Target, work: Workload | None = None) -> None:
        """Write every answer to a Parquet file, table by table."""
        self._answers(work).write(path)

    def answer_batches(self, work: Workload | None = None) -> Iterator["pyarrow.RecordBatch"]:
        """The rows of `answers`, some at a time."""
        return self._answers(work).batches()

    def _answers(self, work: Workload | None) -> Answers:
        tables = ((group, held(self._figures_of(group))) for group in self._workload(work).groups())
        return Answers(self.plan.schema, tables, FIGURES, self.metadata)

    @property
    def metadata(self) -> dict[str, str]:
        """What a file of these answers says about them."""
        return {
            "residua.simulated": str(self.simulated).lower(),
            "residua.biased": "true",
            "residua.kind": self.kind,
            "residua.release": self.release_hash,
            "residua.note": self.note,
        }

    @cached_property
    def _simulations(self) -> tuple[Tables, ...]:
        cells = self.tables.cells
        if cells * self.replicates > SIMULATED_CELLS:
            raise Infeasible(
                f"{self.replicates} simulations of {cells:,} cells do not fit in memory; ask for fewer "
                f"replicates (at most {SIMULATED_CELLS // cells})"
            )
        return tuple(self.again(number) for number in range(self.replicates))

    def _figures_of(self, group: Table) -> tuple[Array, Array]:
        """Answers of one table and their errors."""
        asked = self._asked(group)
        values = answers_from(self.tables, asked)
        if not self.replicates:
            return values, np.full_like(values, np.nan)
        squares = sum((answers_from(tables, asked) - values) ** 2 for tables in self._simulations)
        return values, np.asarray(np.sqrt(squares / self.replicates))

    def _asked(self, group: Table) -> TableParts:
        """A table over the cells of the basis, refused where post-processing does not support it."""
        if not group.listable:
            raise WorkloadError(f"table {group.name!r} has {spelled(group.count)} queries, too many to list")
        asked = self.basis.asked(group)
        for _, part, _ in asked.parts:
            subset = tuple(sorted(part.attributes))
            if subset not in self.tables:
                names = ", ".join(repr(self.plan.schema.names[at]) for at in subset)
                raise WorkloadError(
                    f"table {group.name!r}: {names} are in no table of the plan together; post-processed "
                    "tables answer only what lies within one of them (the release itself may answer more)"
                )
        with self.plan.naming():
            self.plan.strategy.total(group, weighted=False)  # refuses what the measurements do not support
        return asked

    def _workload(self, work: Workload | None) -> Workload:
        work = self.basis.workload if work is None else work
        refuse_foreign(work, self.plan.schema, "release")
        if work.count > MOST_ANSWERS:
            raise WorkloadError(f"{spelled(work.count)} answers are too many; ask for some of the tables")
        return work

    def __repr__(self) -> str:
        mark = "SIMULATED " if self.simulated else ""
        tables = self.tables.count
        many = "1 marginal" if tables == 1 else f"{tables:,} marginals"
        return f"{mark}Processed({self.kind}, biased, {many} of release {self.release_hash[:12]})"


def answers_from(tables: Tables, asked: TableParts) -> Array:
    """Answers of one table, shape (count,), from a marginal that covers its attributes."""
    return asked.added_up(lambda _, group: tables.answers(group))


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


class Unbiased:
    """What post-processing starts from: a plan and its least-squares estimates."""

    def __init__(self, plan: Plan, estimates: Estimates, release_hash: str, simulated: bool) -> None:
        self.basis = Basis(plan)
        self._estimator = plan.strategy.answerer.estimator(estimates).of_domain(0)
        self.release_hash, self.simulated = release_hash, simulated
        parts = estimates.parts or (estimates,)
        own = b"".join(np.ascontiguousarray(cells).tobytes() for part in parts for cells in part.arrays)
        self._seed = int.from_bytes(sha256(own).digest()[:8], "little")  # so simulations can be repeated

    def tables(self, work: Workload | None = None) -> TableSet:
        """Unbiased estimates of marginals on a workload's (by default the plan's) largest attribute sets."""
        tied = tied_attributes(self.basis.strategy)
        if tied is None:
            asked = shaped(self.basis.seen(self.basis.workload if work is None else work))
        else:
            asked = [(as_subsets([tied]), tuple(self.basis.strategy.sizes[at] for at in tied))]
        return TableSet(tuple(Stack(each, self._estimator.marginals(each, sizes)) for each, sizes in asked))

    def noise(self, number: int) -> Estimator:
        """Least squares of noise alone, the same for the same measurements and number."""
        strategy = self.basis.strategy
        measured = noise_of(strategy, np.random.default_rng([self._seed, number]))
        return strategy.answerer.estimator(strategy.estimates(measured))

    def noisy(self, tables: TableSet, number: int) -> TableSet:
        """Tables with noise as a release would have it."""
        noise = self.noise(number)
        drawn = (noise.marginals(each.subsets, each.sizes) for each in tables.stacks)
        return tables.with_cells(own.cells + more for own, more in zip(tables.stacks, drawn, strict=True))

    def top_down(self, facts: Sequence[Fact], place: int, replicates: int, *, whole: bool) -> Processed:
        """Tables of places that add up along the tree, from the nation down."""
        plan, strategy = self.basis.plan, self.basis.strategy
        walk = TopDown(strategy, self.basis.workload, place, PlacedFacts.of(facts, plan.schema, place), whole)
        tables = walk.tables(walk.estimated(self._estimator))

        def again(number: int) -> PlacedTables:
            noise = walk.estimated(self.noise(number))
            return walk.tables(lambda depth, subset: tables.at(depth, subset) + noise(depth, subset))

        kind = "whole" if whole else "non-negative"
        return self.processed(kind, tables, told(facts, 5), replicates, again)

    def processed(
        self, kind: str, tables: Tables, facts: str, replicates: int, again: Callable[[int], Tables]
    ) -> Processed:
        """The tables as a user holds them."""
        return Processed(
            kind, self.basis, tables, self.release_hash, self.simulated, facts, replicates, again
        )


class Nearest:
    """Makes the nearest non-negative tables, in the way that suits the plan's measurements, and its facts."""

    def __init__(self, source: Unbiased, given: Fact | Iterable[Fact], replicates: object) -> None:
        self.source, self.replicates = source, _checked(replicates)
        self.strategy, plan = source.basis.strategy, source.basis.plan
        self.facts = Facts.of(given, plan.schema).seen(plan.strategy.domains[0].view, plan.schema)
        self._refuse_without_total(plan)
        self.errors = PieceErrors(self.strategy, source.basis.schema)

    def __call__(self, tables: TableSet) -> TableSet:
        if tied_attributes(self.strategy) is not None:
            return nonnegative_whole(tables, self.strategy, self.facts)
        return nonnegative_tables(tables, self.errors, self.facts)

    def processed(self, kind: str, tables: TableSet, again: Callable[[int], TableSet]) -> Processed:
        """The tables as a user holds them."""
        return self.source.processed(kind, tables, self.facts.words, self.replicates, again)

    def _refuse_without_total(self, plan: Plan) -> None:
        """Stop if nobody knows how many records there are."""
        if self.facts.margin(()) is not None:
            return
        try:
            plan.strategy.total(Table("total", ()), weighted=False)
        except NotInSpan as error:
            raise NotInSpan(
                "the plan does not measure the number of records, which non-negative tables add up to; "
                "publish it too, or give it as a public fact: rs.known(rs.marginals(schema, ways=0), 1000)"
            ) from error


def processed(source: Unbiased, given: Fact | Iterable[Fact], replicates: int, *, whole: bool) -> Processed:
    """The nearest non-negative tables that agree with each other, or whole numbers near them."""
    plan = source.basis.plan
    facts = facts_of(given, plan.schema)
    place = place_of(plan, facts)
    if place is not None:
        return source.top_down(facts, place, _checked(replicates), whole=whole)
    nearest = Nearest(source, facts, replicates)
    units = plan.strategy.domains[0].view.units(plan.schema.units)
    shared = {at for at, unit in enumerate(units) if unit > 1}

    def made(found: TableSet) -> TableSet:
        return rounded_tables(nearest(found), nearest.facts, shared) if whole else nearest(found)

    tables = made(source.tables())
    kind = "whole" if whole else "non-negative"
    return nearest.processed(kind, tables, lambda number: made(source.noisy(tables, number)))


def _checked(replicates: object) -> int:
    if not isinstance(replicates, int) or isinstance(replicates, bool) or replicates < 0:
        raise DataError(f"replicates is a number of simulations, such as 20, not {replicates!r}")
    return replicates
