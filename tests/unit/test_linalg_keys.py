"""Rows of small integers: equal ones, and look-up, against dictionaries."""

import numpy as np
import pytest

from residua.linalg.matrices import RowIndex, distinct_rows, occurring


def random_rows(seed: int, most: int, size: int, count: int = 60) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, most, (count, size))


@pytest.mark.parametrize(("most", "size"), [(2, 1), (3, 2), (5, 3), (4, 0), (2**40, 2), (1, 3), (10**9, 7)])
def test_distinct_rows_are_each_there_once_in_ascending_order(most, size):
    for seed in range(5):
        rows = np.concatenate([random_rows(seed, most, size), random_rows(seed, most, size)[::3]])
        rows = np.unique(rows, axis=0) if seed == 1 and size else rows  # already distinct and ascending
        first, inverse = distinct_rows(rows.astype(np.int64))
        found = [tuple(row) for row in rows[first].tolist()]
        assert found == sorted({tuple(row) for row in rows.tolist()})
        np.testing.assert_array_equal(rows[first][inverse], rows)
        for place, row in zip(first.tolist(), found, strict=True):
            assert rows.tolist().index(list(row)) == place


@pytest.mark.parametrize(
    "rows", [random_rows(1, 9, 3), random_rows(2, 1, 2), np.empty((0, 2), dtype=np.int64)]
)
def test_numbers_that_occur_are_each_there_once_in_ascending_order(rows):
    assert occurring(rows) == np.unique(rows).tolist()


def test_there_are_no_distinct_rows_among_none():
    first, inverse = distinct_rows(np.empty((0, 3), dtype=np.int64))
    assert len(first) == len(inverse) == 0


@pytest.mark.parametrize("base", [7, 70, 700_000_000])
def test_a_row_is_found_where_it_is_and_nowhere_else(base):
    generator = np.random.default_rng(base)
    known: dict[tuple[int, ...], tuple[int, int]] = {}
    tables = []
    for number, size in enumerate([1, 2, 2, 3, 0, 4]):
        rows = {tuple(generator.choice(7, size, replace=False).tolist()) for _ in range(9 if size else 1)}
        fresh = [row for row in sorted(rows, key=hash) if row not in known]
        known.update({row: (number, place) for place, row in enumerate(fresh)})
        tables.append(np.array(fresh, dtype=np.int32).reshape(len(fresh), size))
    index = RowIndex(tables, base)
    for size in range(6):
        rows = generator.integers(0, 7, (200, size)).astype(np.int32)
        owners, places = index.find(rows)
        expected = [known.get(tuple(row), (-1, -1)) for row in rows.tolist()]
        assert list(zip(owners.tolist(), places.tolist(), strict=True)) == expected


def test_a_table_without_rows_holds_nothing():
    index = RowIndex([np.empty((0, 2), dtype=np.int32)], 5)
    owners, places = index.find(np.array([[0, 1]], dtype=np.int32))
    assert owners.tolist() == places.tolist() == [-1]


def test_an_index_of_one_attribute_tells_its_rows_apart():
    index = RowIndex([np.empty((1, 0), dtype=np.int32), np.array([[0]], dtype=np.int32)], 1)
    assert [part.tolist() for part in index.find(np.array([[0]], dtype=np.int32))] == [[1], [0]]
    assert [part.tolist() for part in index.find(np.empty((1, 0), dtype=np.int32))] == [[0], [0]]


@pytest.mark.parametrize("base", [3, 2**40])
def test_a_row_with_a_number_beyond_all_known_ones_is_not_taken_for_another(base):
    index = RowIndex([np.array([[1, 2], [0, 1]], dtype=np.int32)], base)
    owners, _ = index.find(np.array([[0, 5], [0, 4], [1, 2], [0, 1]], dtype=np.int32))
    assert owners.tolist() == [-1, -1, 0, 0]
