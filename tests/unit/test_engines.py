"""The memory engine: exact counts of marginals, against counting record by record."""

from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest

from residua.engines import Engine, MemoryEngine
from residua.errors import DataError

SIZES = (3, 2, 4, 3)


@pytest.fixture(scope="module")
def codes():
    chance = np.random.default_rng(0)
    return np.stack([chance.integers(0, size, 200) for size in SIZES], axis=1).astype(np.int32)


def counted(codes, attributes):
    """Counts of every cell, the last attribute fastest, one record at a time."""
    tally = Counter(tuple(record[at] for at in attributes) for record in codes.tolist())
    return [tally[cell] for cell in product(*(range(SIZES[at]) for at in attributes))]


def counts(engine: Engine, *rows):
    return engine.counts(np.array(rows, dtype=np.int32).reshape(len(rows), -1))


@pytest.mark.parametrize("attributes", [order for size in range(5) for order in permutations(range(4), size)])
def test_counts_are_those_of_counting_one_by_one_in_any_order_of_attributes(codes, attributes):
    found = counts(MemoryEngine(codes, SIZES), attributes)
    assert found.dtype == np.int64
    assert found.tolist() == [counted(codes, attributes)]


def test_marginals_of_one_shape_are_counted_together(codes):
    found = counts(MemoryEngine(codes, SIZES), (0, 1), (3, 1))
    assert found.tolist() == [counted(codes, (0, 1)), counted(codes, (3, 1))]


def test_no_attributes_count_the_records(codes):
    engine = MemoryEngine(codes, SIZES)
    assert engine.records == 200
    assert counts(engine, ()).tolist() == [[200]]


def test_no_records_count_to_nothing(codes):
    engine = MemoryEngine(codes[:0], SIZES)
    assert engine.records == 0
    assert counts(engine, ()).tolist() == [[0]]
    assert counts(engine, (2, 0)).tolist() == [[0] * 12]


def test_no_marginals_are_no_counts(codes):
    assert MemoryEngine(codes, SIZES).counts(np.empty((0, 0), dtype=np.int32)).shape == (0, 1)


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint16])
def test_the_layout_and_width_of_the_codes_do_not_matter(codes, layout, kind):
    engine = MemoryEngine(np.asarray(codes, dtype=kind, order=layout), SIZES)
    assert counts(engine, (2, 3)).tolist() == [counted(codes, (2, 3))]


def test_every_marginal_adds_up_to_the_number_of_records(codes):
    engine = MemoryEngine(codes, SIZES)
    for attributes in permutations(range(4), 3):
        assert counts(engine, attributes).sum() == 200


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 5), (2, 4, 1)])
def test_codes_of_another_shape_are_refused(shape):
    with pytest.raises(DataError, match="one column for each of the 4 attributes"):
        MemoryEngine(np.zeros(shape, dtype=np.int32), SIZES)
