"""Rows of small integers: find equal ones, and look rows up, without a Python object for each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def distinct_rows(codes: Integers) -> tuple[Integers, Integers]:
    """Index of the first of each distinct row, rows ascending, and for each row the place of its like."""
    size = codes.shape[1]
    base = int(codes.max(initial=0)) + 1
    if base**size < 2**62:
        _, first, inverse = np.unique(_keys(codes, base), return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.reshape(-1).astype(np.int64)


def _keys(codes: NDArray[np.integer[Any]], base: int) -> Integers:
    radix = [base**place for place in range(codes.shape[1] - 1, -1, -1)]
    return np.asarray(codes.astype(np.int64) @ np.array(radix, dtype=np.int64).reshape(-1))


class RowIndex:
    """Where each row of several tables of rows is; no row may occur twice, nor a number from `base` on."""

    def __init__(self, tables: Sequence[NDArray[np.int32]], base: int) -> None:
        self._base = max(base, 2)
        self._found: dict[int, tuple[Integers, Integers, Integers]] = {}
        self._long: dict[tuple[int, ...], tuple[int, int]] = {}
        filled = [(number, table) for number, table in enumerate(tables) if len(table)]
        for size in sorted({table.shape[1] for _, table in filled}):
            numbered = [(number, table) for number, table in filled if table.shape[1] == size]
            if self._base**size >= 2**62:
                for number, table in numbered:
                    rows = (tuple(row) for row in table.tolist())
                    self._long.update({row: (number, place) for place, row in enumerate(rows)})
                continue
            keys = np.concatenate([_keys(table, self._base) for _, table in numbered])
            owners = np.concatenate([np.full(len(table), number) for number, table in numbered])
            places = np.concatenate([np.arange(len(table)) for _, table in numbered])
            order = np.argsort(keys, kind="stable")
            self._found[size] = (keys[order], owners[order].astype(np.int64), places[order].astype(np.int64))

    def find(self, rows: NDArray[np.int32]) -> tuple[Integers, Integers]:
        """Table and place of each row, both -1 where there is none; `rows` is (k, size)."""
        count, size = rows.shape
        missing = np.full(count, -1, dtype=np.int64)
        if self._base**size >= 2**62:
            pairs = [self._long.get(tuple(row), (-1, -1)) for row in rows.tolist()]
            return np.array([a for a, _ in pairs], dtype=np.int64), np.array(
                [b for _, b in pairs], dtype=np.int64
            )
        if size not in self._found:
            return missing, missing.copy()
        keys, owners, places = self._found[size]
        wanted = _keys(rows, self._base)
        spots = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        # A number from the base on would carry over into the key of another row.
        hit = (keys[spots] == wanted) & (rows < self._base).all(axis=1)
        return np.where(hit, owners[spots], -1), np.where(hit, places[spots], -1)
