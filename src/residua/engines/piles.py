"""Many records by person, out of core: on piles that fit in memory one by one, a person on one of them."""

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from residua._arrays import AnyArray
from residua.engines import persons
from residua.engines.kernel import Block
from residua.errors import DataError
from residua.privacy.unit import Person
from residua.schema.columns import letters_of

if TYPE_CHECKING:
    import pyarrow as pa

IN_MEMORY = 2**24  # bytes of columns that are written to no file


class Columns:
    """Columns of numbers, some records at a time, in memory or, where they are many, in a nameless file.

    Each time a column is cut into as many parts. The file is gone with the process, whatever becomes of it.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        self._places: list[list[tuple[int, AnyArray, type]]] = []  # byte, ends and type of each column

    def __len__(self) -> int:
        return len(self._places)

    def add(self, columns: Sequence[AnyArray], ends: Sequence[Sequence[int]]) -> None:
        """Write columns at the end, each with the ends of its parts."""
        self._file.seek(0, 2)
        places = []
        for own, cuts in zip(columns, ends, strict=True):
            places.append((self._file.tell(), np.array([0, *cuts]), own.dtype.type))
            self._file.write(np.ascontiguousarray(own).data)
        self._places.append(places)

    def read(self, time: int, part: int) -> list[AnyArray]:
        """One part of each column of those that were written at one time."""
        found: list[AnyArray] = []
        for byte, ends, kind in self._places[time]:
            start, end = ends[part : part + 2].tolist()
            self._file.seek(byte + start * kind().itemsize)
            found.append(np.frombuffer(self._file.read((end - start) * kind().itemsize), kind))
        return found

    def __del__(self) -> None:
        self._file.close()


class Sorting:
    """Records by person: each person's are all in one of several piles, which fit in memory one by one."""

    def __init__(self, person: Person, packing: persons.Packing, records: int, at_once: int) -> None:
        self._person, self._packing, self._at_once = person, packing, at_once
        self._piles = persons.piles_for(records)
        self._kept, self._sorted = Columns(), Columns()
        self._waiting: list[tuple[pa.Array, list[AnyArray]]] = []
        self._rows, self._kind = 0, None

    def add(self, ids: "pa.Array", codes: Block) -> None:
        """Put records where those of the same ids are."""
        ids, codes, free = persons.without_missing(self._person, ids, codes)
        self._keep(self._packing.packed(free))
        if self._kind not in (None, ids.type):
            raise DataError("ids are numbers in one part of the data and text in another; write them alike")
        self._kind = ids.type
        self._waiting.append((ids, [persons.digits_of(persons.mixes_of(ids)), *self._packing.packed(codes)]))
        self._rows += len(ids)
        if self._rows >= self._at_once:
            self._put_away()

    def _keep(self, words: Sequence[persons.Words]) -> None:
        """Count these records."""
        if len(words[0]):
            self._kept.add(words, [[len(own)] for own in words])

    def _put_away(self) -> None:
        """Write what is waiting, by piles."""
        import pyarrow as pa

        ids = pa.chunked_array([own for own, _ in self._waiting]).combine_chunks()
        digits, *words = map(np.concatenate, zip(*(own for _, own in self._waiting), strict=True))
        order, ends = persons.piled(digits, self._piles)
        names, cuts = _as_columns(ids.take(pa.array(order)), ends)
        self._sorted.add([*(each[order] for each in words), *names], [ends] * len(words) + cuts)
        self._waiting, self._rows = [], 0

    def kept(self, threads: int) -> Columns:
        """The packed codes of all records that are counted."""
        if not len(self._sorted):  # there are fewer than was thought, perhaps
            self._piles = min(self._piles, persons.piles_for(self._rows))
        if self._rows:
            self._put_away()
        with ThreadPoolExecutor(threads) as pool:
            for first in range(0, self._piles if len(self._sorted) else 0, 4 * threads):
                piles = range(first, min(first + 4 * threads, self._piles))
                parts = [
                    [self._sorted.read(time, pile) for time in range(len(self._sorted))] for pile in piles
                ]
                for words in pool.map(self._of_pile, parts):
                    self._keep(words)
        return self._kept

    def _of_pile(self, parts: Sequence[Sequence[AnyArray]]) -> list[persons.Words]:
        """The packed codes of the records of a pile that are counted."""
        columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
        words, ids = columns[: self._packing.words], columns[self._packing.words :]
        rows = persons.kept_at_once(self._person, persons.numbered(_as_ids(ids)), words, self._packing)
        return [each[rows] for each in words]


def _as_columns(ids: "pa.Array", ends: list[int]) -> tuple[list[AnyArray], list[list[int]]]:
    """Ids as columns of numbers, those of text as their lengths and letters, and where parts end in each."""
    from pyarrow import types

    if types.is_integer(ids.type):
        return [ids.to_numpy()], [ends]
    starts, letters = letters_of(ids)
    return [np.diff(starts), letters], [ends, starts[ends].tolist()]


def _as_ids(columns: Sequence[AnyArray]) -> "pa.Array":
    """The ids of such columns."""
    import pyarrow as pa

    if len(columns) == 1:
        return pa.array(columns[0])
    lengths, letters = columns
    starts = np.append(0, np.cumsum(lengths))
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)
