"""Synthetic rows: microdata drawn from a graphical model of what a release measured."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from residua._arrays import Array, Integers, Subset
from residua._limits import SYNTHETIC_ROWS
from residua.answers import write_parquet
from residua.errors import DataError, Infeasible
from residua.postprocess.facts import Fact, Facts
from residua.postprocess.graphical import Graphical
from residua.postprocess.pieces import TableSet
from residua.postprocess.processed import Nearest, Processed, Unbiased
from residua.schema import Integer, Schema
from residua.workload import Workload

if TYPE_CHECKING:
    import pyarrow

ORACLES = ("exact", "approximate")


@dataclass(frozen=True, eq=False, repr=False)
class Synthetic:
    """Synthetic records that resemble what a release measured; nobody's record is among them on purpose.

    `codes` is (rows, columns), the cell of each attribute. `counts` answers queries from the rows, `model`
    from the model they were drawn from; both are biased, and have errors by simulation.
    """

    schema: Schema
    columns: tuple[str, ...]
    codes: Integers
    counts: Processed
    model: Processed

    @property
    def biased(self) -> bool:
        """True: a model smooths what was measured, and rows are drawn from it."""
        return True

    @property
    def release_hash(self) -> str:
        """The hash of the release that the rows were made from."""
        return self.counts.release_hash

    @property
    def note(self) -> str:
        """What these rows are, in words that belong beside them."""
        return (
            f"{len(self.codes):,} synthetic records, drawn from a model. {self.counts.note} What the release "
            "did not measure, such as relations between columns of no common table, is the model's invention."
        )

    def records(self) -> "pyarrow.Table":
        """The rows as an Arrow table: whole numbers for integer attributes, labels for others."""
        import pyarrow as pa

        metadata = {**self.counts.metadata, "residua.note": self.note}
        if self.counts.replicates:
            metadata["residua.rmse"] = repr(self.counts.rmse)
        columns = [self._column(name, self.codes[:, at]) for at, name in enumerate(self.columns)]
        return pa.table(columns, names=list(self.columns)).replace_schema_metadata(metadata)

    def _column(self, name: str, codes: Integers) -> "pyarrow.Array":
        import pyarrow as pa

        attribute = self.schema[name]
        if isinstance(attribute, Integer) and attribute.size == attribute.inner_size:
            return pa.array(codes + attribute.low)
        labels = pa.array(list(attribute.labels()), pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), labels)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the rows to a Parquet file, with the release's hash and the error in its metadata."""
        table = self.records()
        write_parquet(path, table.schema, iter(table.to_batches()))

    def __repr__(self) -> str:
        mark = "SIMULATED " if self.counts.simulated else ""
        return (
            f"{mark}Synthetic({len(self.codes):,} rows, {len(self.columns)} columns, biased, "
            f"from release {self.release_hash[:12]})"
        )


def synthetic(
    source: Unbiased,
    rows: int | None,
    given: Fact | Iterable[Fact],
    tables: Workload | None,
    oracle: str,
    iterations: int,
    replicates: int,
    seed: int,
) -> Synthetic:
    """Rows from a graphical model of some of the release's tables (by default all of them)."""
    _refuse_options(rows, oracle, iterations)
    plan = source.basis.plan
    schema = plan.schema
    if plan.strategy.domains[0].view.parts:
        raise Infeasible(
            "this release was measured by classes of cells, and rows have cells: nothing says which of a "
            "class; plan with tables of every cell that a row shall have"
        )
    nearest = Nearest(source, given, replicates)
    estimates = source.tables(tables)
    _refuse_impossible(nearest.facts, estimates, oracle, schema)
    graphical = Graphical(schema, estimates, nearest.errors, nearest.facts, oracle, iterations)

    def made(found: TableSet, number: int) -> _Made:
        """The model of unbiased tables, and the rows of the draw of this number."""
        known = nearest.facts.margin(())
        total = max(1.0, float(found.marginal(()) if known is None else known))
        model = graphical.fit(found, nearest(found), total)
        count = max(1, round(total)) if rows is None else rows
        codes = graphical.rows_of(model, count, seed + number)
        counted = _counted(codes, graphical.attributes, found, total / count)
        return _Made(graphical.tables_of(model, found), counted, codes)

    first = made(estimates, 0)

    @cache  # rows and model have their errors from the same simulations
    def again(number: int) -> _Made:
        return made(source.noisy(first.model, number), 1 + number)

    counts = nearest.processed("synthetic", first.counted, lambda number: again(number).counted)
    model = nearest.processed("modelled", first.model, lambda number: again(number).model)
    return Synthetic(schema, tuple(graphical.names), first.codes, counts, model)


class _Made(NamedTuple):
    """Tables of a model, the rows that were drawn from it, and the tables that those add up to."""

    model: TableSet
    counted: TableSet
    codes: Integers


def _refuse_options(rows: object, oracle: object, iterations: object) -> None:
    if rows is not None and (
        not isinstance(rows, int) or isinstance(rows, bool) or not 0 < rows <= SYNTHETIC_ROWS
    ):
        raise DataError(f"rows is a whole number from 1 to {SYNTHETIC_ROWS:,}, or None, not {rows!r}")
    if oracle not in ORACLES:
        raise DataError(f"oracle is one of {', '.join(map(repr, ORACLES))}, not {oracle!r}")
    if not isinstance(iterations, int) or isinstance(iterations, bool) or iterations < 1:
        raise DataError(f"iterations is a whole number from 1, such as 1000, not {iterations!r}")


def _refuse_impossible(facts: Facts, estimates: TableSet, oracle: str, schema: Schema) -> None:
    """Cells that are impossible stay empty, or nothing is made: no row may stand where no record can."""
    if facts.allowed and oracle != "exact":
        raise DataError(
            f"oracle {oracle!r} cannot keep impossible cells empty; use oracle='exact', with fewer tables if "
            "the model is too large, or leave the fact out"
        )
    for subset in facts.allowed:
        if subset not in estimates:
            names = " x ".join(schema.names[at] for at in subset)
            raise DataError(f"impossible cells of {names} need a table on {names} among those modelled")


def _counted(codes: Integers, attributes: tuple[int, ...], like: TableSet, weight: float) -> TableSet:
    """Counts of rows, each standing for `weight` records, on the same attribute sets."""
    place = {at: column for column, at in enumerate(attributes)}

    def counts(row: Subset, sizes: tuple[int, ...]) -> Array:
        columns = [codes[:, place[at]] for at in row]
        flat = np.ravel_multi_index(columns, sizes) if row else np.zeros(len(codes), np.int64)
        return np.asarray(weight * np.bincount(flat, minlength=math.prod(sizes)).reshape(sizes))

    return like.with_tables({row: counts(row, stack.sizes) for stack in like.stacks for row in stack.rows()})
