"""Figures of a table that are computed as they are asked for, some of its places at a time."""

from collections.abc import Callable, Sequence
from typing import Protocol

from residua._arrays import Array


class Slices(Protocol):
    """Numbers of the rows of a table, of which some are asked for at a time; arrays are such."""

    def __getitem__(self, rows: slice, /) -> Array: ...


def in_slices(compute: Callable[[slice], Sequence[Array]], width: int, figures: int) -> list[Slices]:
    """So many figures, from a function of some places, of which each has `width` rows.

    >>> import numpy as np
    >>> (one,) = in_slices(lambda some: [np.arange(some.start * 3, some.stop * 3)], 3, 1)
    >>> one[2:7].tolist()
    [2, 3, 4, 5, 6]
    """
    held = _Held(compute, width)
    return [_Figure(held, number) for number in range(figures)]


class _Held:
    """The figures of the rows that were asked for last: each of the figures is asked for the same."""

    def __init__(self, compute: Callable[[slice], Sequence[Array]], width: int) -> None:
        self._compute, self._width = compute, width
        self._rows, self._found = slice(0, 0), list[Array]()

    def of(self, rows: slice) -> Sequence[Array]:
        if rows != self._rows or not self._found:
            some = slice(rows.start // self._width, -(-rows.stop // self._width))
            first = some.start * self._width
            found = self._compute(some)
            self._rows = rows
            self._found = [each[rows.start - first : rows.stop - first] for each in found]
        return self._found


class _Figure:
    def __init__(self, held: _Held, number: int) -> None:
        self._held, self._number = held, number

    def __getitem__(self, rows: slice, /) -> Array:
        return self._held.of(rows)[self._number]
