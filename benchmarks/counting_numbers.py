"""Counting by weights: 200 tables of two attributes and one of 3 numbers, 10 million records.

The other side is counts: the same tables with an attribute of two cells instead of each number. Both are
counted in memory, by one process, in CPU seconds. Fails if sums take more than 4 times as long as counts.
"""

import argparse
import sys
import time
from itertools import combinations

import numpy as np
from _timing import Limits
from numpy.typing import NDArray

import residua as rs
from residua.engines import Memory, count_marginals

ATTRIBUTES, TABLES, STEPS, SLOWEST = 13, 200, 1000, 4.0


def tables() -> list[NDArray[np.int32]]:
    """Pairs of attributes with each of the numbers, as many as wanted."""
    pairs = list(combinations(range(ATTRIBUTES), 2))
    every = [(*pair, ATTRIBUTES + number) for number in range(3) for pair in pairs]
    return [np.array(every[:TABLES], dtype=np.int32)]


def seconds(schema: rs.Schema, codes: NDArray[np.int32]) -> float:
    """CPU time of counting all tables."""
    engine = Memory(processes=1).open(schema, codes)
    start = time.process_time()
    for _ in count_marginals(engine, schema.sizes, tables(), units=schema.units):
        pass
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=10_000_000)
    records = parser.parse_args().records
    limits = Limits()
    chance = np.random.default_rng(0)
    plain = {f"a{at}": rs.Integer(0, 9) for at in range(ATTRIBUTES)}
    numbers = rs.Schema({**plain, **{f"x{at}": rs.Number(0, STEPS, step=1) for at in range(3)}})
    counts = rs.Schema({**plain, **{f"x{at}": rs.Integer(0, 1) for at in range(3)}})
    codes = np.asfortranarray(
        np.stack([chance.integers(0, size, records, dtype=np.int32) for size in numbers.codes], axis=1)
    )
    sums = seconds(numbers, codes)
    codes[:, ATTRIBUTES:] %= 2
    ours = seconds(counts, codes)
    ratio = sums / ours
    print(f"{TABLES} tables, {records:,} records: sums {sums:.1f} s, counts {ours:.1f} s, ratio {ratio:.2f}")
    limits.check(ratio <= SLOWEST, f"sums take {ratio:.2f} times as long as counts")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
