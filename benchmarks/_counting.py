"""What the benchmarks of counting share: invented data, what counting costs, and a line that says so."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import residua as rs
from residua.engines import Engine

Result = TypeVar("Result")

SIZE = 10  # cells of every attribute


@dataclass(frozen=True, slots=True)
class Counted:
    """Some views counted: a checksum of all counts, wall seconds, and megabytes before and at most."""

    checksum: int
    seconds: float
    before: float
    peak: float

    def line(self, what: str, records: int, views: int) -> str:
        """What was measured, for a person."""
        speed = records * views / self.seconds / 1e6
        return (
            f"  {what:<34}{self.seconds:>8.2f} s{speed:>10,.0f} million rows x views per second"
            f"{self.peak:>8.0f} MB peak, {self.peak - self.before:.0f} MB of them for counting"
        )


def views_of(attributes: int, *ways: int) -> list[NDArray[np.int32]]:
    """All views on so many of the attributes, as requests of one shape each."""
    return [np.array(list(combinations(range(attributes), way)), dtype=np.int32) for way in ways]


def count(
    engine: Callable[[], Engine], sizes: Sequence[int], requests: Sequence[NDArray[np.int32]]
) -> Counted:
    """Open an engine and count all views of the requests."""
    before = resident()
    start = time.perf_counter()
    opened = engine()
    total = 0
    for request, rows, some in rs.engines.count_marginals(opened, sizes, requests):
        # A number that differs where counts do: each weighed with its request, view and cell.
        views = some @ np.arange(1, some.shape[1] + 1)
        total += (request + 1) * int(views @ (np.array(rows) + 1))
    return Counted(total, time.perf_counter() - start, before, peak())


def codes_of(records: int, attributes: int) -> NDArray[np.uint8]:
    """Invented codes, (records, attributes)."""
    chance = np.random.default_rng(1)
    return chance.integers(0, SIZE, (attributes, records), dtype=np.uint8).T


def write_parquet(path: Path, records: int, attributes: int, kind: str = "UTINYINT") -> None:
    """A Parquet file of invented records, made without holding them."""
    import duckdb

    columns = ", ".join(
        f"(hash(range * {attributes} + {at}) % {SIZE})::{kind} AS a{at}" for at in range(attributes)
    )
    connection = duckdb.connect(config={"memory_limit": "1GB", "preserve_insertion_order": False})
    connection.execute(f"COPY (SELECT {columns} FROM range({records})) TO '{path}' (FORMAT parquet)")


def resident() -> float:
    """Megabytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def peak() -> float:
    """Most megabytes that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def apart(call: Callable[..., Result], *arguments: Any) -> Result:
    """The call's result, from a process of its own: peaks of memory do not mix."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)
