"""Counting records in memory, on several processors where there is much to count.

Threads do not help: numpy counts while it holds the interpreter's lock. A helper is a new interpreter that
runs `kernel.py`, gets blocks of codes through a pipe and answers with its counts. No main module is imported
again, nothing is pickled, and the data go to no file. Helpers start only where they save seconds.
"""

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from queue import Full, Queue
from threading import Thread
from types import MappingProxyType
from typing import Any

import numpy as np

from residua._arrays import AnyArray, Integers
from residua.engines import kernel
from residua.engines.derived import extended
from residua.engines.kernel import (
    ROWS,
    WAITING,
    Block,
    Occurrence,
    Occurring,
    Set,
    Shares,
    Tally,
    block_of,
    code_counts,
    narrowest,
)
from residua.engines.marginals import shares_of
from residua.engines.persons import Packing, counted, ids_of
from residua.engines.protocol import Derived, Progress
from residua.errors import DataError, Infeasible
from residua.linalg.matrices import processors
from residua.privacy.unit import Person
from residua.schema import Schema
from residua.schema.columns import is_a, shape_of

STEP = 1.7e-9  # seconds to count one record in one set
WORTHWHILE = 2.0  # seconds of counting for each helper
NO_SHARES: Mapping[int, Shares] = MappingProxyType({})
AHEAD = 4  # blocks that wait for a helper
CELLS_AT_ONCE = 20_000_000  # 160 megabytes of counts
FEW_CELLS = 1_000_000  # where there are few records: memory never touched before costs more than a pass
CELLS_PER_RECORD = 20


@contextmanager
def counting(
    sizes: Sequence[int],
    sets: Sequence[Set],
    records: int,
    processes: int,
    shares: Mapping[int, Shares] = NO_SHARES,
) -> Iterator["Tally | Workers"]:
    """Something to add blocks to: one tally, or several workers where there is much to count.

    Leaving the context, in whatever way, ends the helpers.
    """
    counts = sum(math.prod(shares[at].degree + 1 for at in each if at in shares) for each in sets)
    seconds = records * counts * STEP
    helpers = min(processes - 1, int(seconds / WORTHWHILE))
    if helpers < 1:
        yield Tally(sizes, sets, shares)
        return
    with closing(Workers(sizes, sets, helpers, shares)) as workers:
        yield workers


class Workers:
    """A tally of its own and helpers that take over blocks as long as they keep up."""

    def __init__(
        self, sizes: Sequence[int], sets: Sequence[Set], helpers: int, shares: Mapping[int, Shares]
    ) -> None:
        self._own = Tally(sizes, sets, shares)
        self._used = sorted({at for each in sets for at in each})
        self._helpers = [Helper(sizes, sets, shares) for _ in range(helpers)]

    def add(self, block: Block) -> None:
        """Have the records of a block counted, of at most `kernel.ROWS` of them; the block is not copied."""
        if not len(block[0]) or not self._used:
            self._own.add(block)
            return
        mine = [np.ascontiguousarray(block[at]) for at in self._used]
        if not any(helper.offer(mine) for helper in self._helpers):
            self._own.add(block)

    def finish(self) -> list[Integers]:
        """The counts of every set, over all blocks."""
        for helper in self._helpers:
            helper.stop()
        for helper in self._helpers:
            self._own.flat += helper.counts(len(self._own.flat))
        return self._own.finish()

    def close(self) -> None:
        """End the helpers, whatever they are doing."""
        for helper in self._helpers:
            helper.close()


class Helper:
    """One more interpreter that counts what it is offered."""

    def __init__(self, sizes: Sequence[int], sets: Sequence[Set], shares: Mapping[int, Shares]) -> None:
        # -P: the folder of kernel.py has modules that are named like packages.
        command = [sys.executable, "-P", kernel.__file__]
        # A session of its own: an interruption from the keyboard is this process's to handle.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._blocks: Queue[Block | None] = Queue(AHEAD)
        shared = [(at, own.steps, own.degree, own.missing) for at, own in shares.items()]
        self._task = json.dumps({"sizes": tuple(sizes), "sets": tuple(sets), "shares": shared}) + "\n"
        self._writer = Thread(target=self._write, daemon=True)
        self._writer.start()

    def offer(self, block: Block) -> bool:
        """Whether the helper takes the block."""
        try:
            self._blocks.put_nowait(block)
        except Full:
            return False
        return True

    def stop(self) -> None:
        """Tell the helper that there are no more blocks."""
        self._blocks.put(None)

    def counts(self, cells: int) -> Integers:
        """What the helper has counted, shape (cells,); waits for it."""
        assert self._process.stdout is not None
        answer = self._process.stdout.read()
        if self._process.wait() != 0 or len(answer) != 8 * cells:
            raise Infeasible(
                f"a helper process that counts ended early (exit code {self._process.returncode}), perhaps "
                "for lack of memory; count in one process with engine=rs.engines.Memory(processes=1)"
            )
        return np.frombuffer(answer, dtype=np.int64)

    def close(self) -> None:
        """End the process; nothing happens where it has ended."""
        self._process.kill()
        self._process.wait()
        while self._writer.is_alive():
            self.offer([])
            self._writer.join(0.01)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # of what was still to be written
                    pipe.close()

    def _write(self) -> None:
        """Pass the blocks on; after a broken pipe, take them without passing them on."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(self._task.encode())
            while block := self._blocks.get():
                pipe.write(len(block[0]).to_bytes(8, "little"))
                for codes in block:
                    pipe.write(codes.data)
            pipe.close()
        except BrokenPipeError:
            while self._blocks.get():
                pass


class MemoryEngine:
    """Counts over an array of codes, shape (records, attributes), kept a byte or few each.

    Or over one array of codes for each attribute, of the narrowest type each, which are taken as they are.
    `sizes` are the cells of each attribute; codes in `shares` are shared out among those.
    """

    def __init__(
        self,
        codes: AnyArray | Block,
        sizes: Sequence[int],
        *,
        processes: int | None = None,
        shares: Mapping[int, Shares] = NO_SHARES,
    ) -> None:
        if isinstance(codes, np.ndarray):
            if codes.ndim != 2 or codes.shape[1] != len(sizes):
                each = f"one column for each of the {len(sizes)} attributes"
                raise DataError(f"codes must have {each}, not {shape_of(codes)}")
            counts = code_counts(sizes, shares)
            codes = [np.ascontiguousarray(codes[:, at], narrowest(size)) for at, size in enumerate(counts)]
        self._columns, self._sizes, self._shares = codes, tuple(sizes), dict(shares)
        self._processes = processors() if processes is None else processes
        self.records = self.about = len(codes[0])
        self.cells_at_once = min(CELLS_AT_ONCE, max(FEW_CELLS, CELLS_PER_RECORD * self.records))

    def with_derived(self, derived: Sequence[Derived]) -> "MemoryEngine":
        """The same records with further attributes."""
        sizes = (*self._sizes, *(each.size for each in derived))
        columns = extended(self._columns, derived)
        return MemoryEngine(columns, sizes, processes=self._processes, shares=self._shares)

    def tally(self, sets: Sequence[Set], progress: Progress | None = None) -> list[Integers]:
        """Exact counts of each attribute set: (cells,) for each, row-major."""
        with counting(self._sizes, sets, self.records, self._processes, self._shares) as tally:
            for block in self._blocks(progress):
                tally.add(block)
            return tally.finish()

    def occurring(self, sets: Sequence[Set], progress: Progress | None = None) -> Iterator[Occurrence]:
        """Exact counts of the cells of each set that occur, some at a time."""
        return Occurring(self._sizes, sets, self._shares).stream(self._blocks(progress), WAITING)

    def _blocks(self, progress: Progress | None) -> Iterator[Block]:
        for start in range(0, self.records, ROWS):
            yield [column[start : start + ROWS] for column in self._columns]
            if progress is not None:
                progress("counting", min(start + ROWS, self.records) / self.records)


@dataclass(frozen=True, slots=True)
class Memory:
    """Counting in this machine's memory, whatever the data; at most so many `processes` count.

    >>> import residua as rs
    >>> schema = rs.Schema(sex=rs.Categorical("F", "M"))
    >>> Memory().open(schema, {"sex": ["F", "M", "M"]}).tally([(0,)])[0].tolist()
    [1, 2]
    """

    processes: int | None = None

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes < 1:
            raise Infeasible(f"processes={self.processes!r} cannot count anything; give at least 1")

    def open(self, schema: Schema, data: object) -> MemoryEngine:
        """An engine over a table, a mapping of columns or an array of codes."""
        codes = isinstance(data, np.ndarray) and data.ndim == 2 and data.shape[1] == len(schema)
        if codes or is_a(data, "pyarrow", "Table") or is_a(data, "polars", "DataFrame"):
            columns = _coded(schema, data)
        else:
            columns = block_of(list(schema.encode(data).T), schema.codes)
        return self._over(columns, schema)

    def open_kept(self, schema: Schema, data: object, person: Person) -> MemoryEngine:
        """An engine over those records of a table or a mapping of columns that are counted."""
        codes, ids = list(schema.encode_columns(data).T), ids_of(data, str(person.unit.id))
        if len(ids) != len(codes[0]):
            raise DataError(
                f"columns {schema.names[0]!r} and {person.unit.id!r} have different numbers of values; give "
                "every column one value for each record"
            )
        columns = counted(person, ids, codes, block_of(codes, schema.codes), Packing.of(schema.codes))
        return self._over(columns, schema)

    def _over(self, columns: Block, schema: Schema) -> MemoryEngine:
        return MemoryEngine(columns, schema.sizes, processes=self.processes, shares=shares_of(schema))


def _coded(schema: Schema, table: Any) -> Block:
    """The codes of a table whose columns have one type each, coded some records at a time.

    Nothing but the narrow codes is kept, and what is in between fits a cache.
    """
    counts = schema.codes
    columns = [np.empty(len(table), narrowest(size)) for size in counts]
    end = 0
    for start in range(0, max(len(table), 1), ROWS):
        try:
            end_of_part = start + ROWS
            part = table[start:end_of_part] if isinstance(table, np.ndarray) else table.slice(start, ROWS)
            codes = schema.encode(part, first_row=start)
        except DataError:
            schema.encode(table)  # tells of all the values that it refuses
            raise
        for column, part in zip(columns, block_of(list(codes.T), counts), strict=True):
            column[end : end + len(part)] = part
        end += len(codes)
    return [column[:end] for column in columns]
