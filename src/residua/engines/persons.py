"""Which records of a person are counted: at most so many, and so many in one class of an attribute.

The rule looks at this person's coded records only, so that nobody's records change what is kept of another
(claim E-010). They are ordered by a mix of their own codes and of all codes of the person: the same in every
engine, and different from person to person, so that no cell is preferred. Records with equal codes are
interchangeable. The mix need not be cryptographic: what it decides is protected as the records are.
"""

import io
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from residua._arrays import Flags, Integers
from residua.engines.kernel import Block
from residua.engines.marginals import Engine
from residua.errors import DataError
from residua.persons import Cap, Person
from residua.schema import Schema
from residua.schema.coding import columns_of

if TYPE_CHECKING:
    import pyarrow as pa

Words = NDArray[np.uint64]

ODD = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio, as is usual
MIXED = np.uint64(0xD6E8FEB86659FD93)
HALF = np.uint64(32)


def kept(person: Person, persons: Integers, codes: Block) -> Flags:
    """Which records are counted, (records,); `persons` numbers the person of each (claim E-010)."""
    found = np.ones(len(persons), dtype=np.bool_)
    rows = np.flatnonzero(_crowded(person, persons, codes)[persons])
    whose, own = persons[rows], [each[rows] for each in codes]
    order = np.lexsort((_mixed(whose, own), whose))
    for cap in person.caps:
        order = order[_first(_joint(whose, cap, own)[order], cap.most)]
    order = order[_first(whose[order], person.unit.max_records)]
    found[rows] = False
    found[rows[order]] = True
    return found


def _crowded(person: Person, persons: Integers, codes: Block) -> Flags:
    """Which persons have more records than are kept, (persons,)."""
    found = np.bincount(persons) > person.unit.max_records
    for cap in person.caps:
        joint = np.sort(_joint(persons, cap, codes))
        again = joint[cap.most :] == joint[: -cap.most]
        found[joint[cap.most :][again] // (int(cap.classes.max()) + 1)] = True
    return found


def refused(person: Person) -> DataError:
    """The error for records without an id."""
    return DataError(
        f"column {person.unit.id!r}: there are records without an id; declare what becomes of them, "
        "missing_id='drop' or missing_id='own'"
    )


def counted(person: Person, ids: Any, codes: Block, block: Block) -> Block:
    """Those records of some persons that are counted; `block` has `codes` without those to drop."""
    found = plain_ids(ids, str(person.unit.id)).filter(inside(codes, len(ids)))
    found, block, free = without_missing(person, found, block)
    mask = kept(person, numbered(found), block)
    return [np.concatenate([own[mask], more]) for own, more in zip(block, free, strict=True)]


def without_missing(person: Person, ids: "pa.Array", codes: Block) -> tuple["pa.Array", Block, Block]:
    """The records that have an id, and codes of those that are persons of their own without one."""
    if not ids.null_count:
        return ids, codes, [each[:0] for each in codes]
    if person.unit.missing_id == "error":
        raise refused(person)
    known = ids.is_valid().to_numpy(zero_copy_only=False)
    own = [each[~known if person.unit.missing_id == "own" else slice(0)] for each in codes]
    return ids.drop_null(), [each[known] for each in codes], own


def inside(codes: Block, records: int) -> Flags:
    """Which records are kept by the schema, (records,): no code of theirs is negative."""
    outside = [own < 0 for own in codes if own.dtype.kind == "i"]
    return np.asarray(~np.logical_or.reduce([np.zeros(records, dtype=np.bool_), *outside]))


def _joint(persons: Integers, cap: Cap, codes: Block) -> Integers:
    """A number for each pair of person and class."""
    return persons * (int(cap.classes.max()) + 1) + cap.classes[codes[cap.attribute]]


def _first(groups: Integers, most: int) -> Flags:
    """Whether each record is among the first so many of its group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    ranks = np.arange(len(groups)) - np.repeat(starts, np.diff(starts, append=len(groups)))
    found = np.empty(len(groups), dtype=np.bool_)
    found[order] = ranks < most
    return found


def _mixed(persons: Integers, codes: Block) -> Words:
    """A number for each record that looks random, from its codes and those of all records of its person."""
    found: Words = np.zeros(len(persons), dtype=np.uint64)
    for own in codes:
        found = _scrambled(found + own.astype(np.uint64))
    order = np.argsort(persons, kind="stable")
    starts = np.flatnonzero(np.diff(persons[order], prepend=-1))
    sums = np.add.reduceat(found[order], starts) if len(starts) else found
    salts = np.empty_like(found)
    salts[order] = np.repeat(sums, np.diff(starts, append=len(found)))
    return _scrambled(found ^ _scrambled(salts))


def _scrambled(words: Words) -> Words:
    """Each word as another, one to one."""
    words = (words ^ (words >> HALF)) * MIXED
    words = (words ^ (words >> HALF)) * MIXED
    return np.asarray((words ^ (words >> HALF)) + ODD)


@runtime_checkable
class Keeps(Protocol):
    """A way of counting that can keep to so many records of a person."""

    def open_kept(self, schema: Schema, data: object, person: Person) -> Engine:
        """An engine over those records of the data that are counted."""


def ids_of(data: object, name: str) -> "pa.Array":
    """The ids in a column of a table in memory, as `plain_ids` has them."""
    import pyarrow as pa

    (values,) = columns_of(data, [name])
    return plain_ids(values if isinstance(values, pa.ChunkedArray) else pa.array(values), name)


def plain_ids(values: Any, name: str) -> "pa.Array":
    """Ids of any type as 64-bit integers or as bytes; null where there is none, or an empty text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    ids = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    ids = ids.dictionary_decode() if types.is_dictionary(ids.type) else ids
    if types.is_integer(ids.type) and not types.is_uint64(ids.type):
        return ids.cast(pa.int64())
    if types.is_floating(ids.type):
        ids = pc.if_else(pc.is_nan(ids), None, ids)
    try:
        ids = ids if _is_text(ids.type) else ids.cast(pa.string())
    except pa.ArrowException as error:
        raise DataError(
            f"column {name!r}: values of type {ids.type} are no ids; use whole numbers or text"
        ) from error
    ids = ids.cast(pa.large_binary())
    return pc.if_else(pc.equal(pc.binary_length(ids), 0), None, ids)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in (*tests, types.is_fixed_size_binary))


def numbered(ids: "pa.Array") -> Integers:
    """A number from 0 for each record's person; equal where and only where the ids are."""
    return np.asarray(ids.dictionary_encode().indices.to_numpy(), dtype=np.int64)


class Pile:
    """Batches of records in memory or, where they are many, in a file that has no name.

    The file is gone with the process, whatever becomes of it.
    """

    def __init__(self, *, spilled: bool) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile() if spilled else io.BytesIO()  # noqa: SIM115
        self._writer: Any = None
        self._schema: Any = None

    def add(self, columns: Sequence[Any]) -> None:
        """Put some records on the pile; columns are of the same types every time."""
        import pyarrow as pa

        arrays = [pa.array(column) if isinstance(column, np.ndarray) else column for column in columns]
        batch = pa.RecordBatch.from_arrays(arrays, names=[f"c{at}" for at in range(len(arrays))])
        if self._schema is None:
            self._schema = batch.schema
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        elif batch.schema != self._schema:
            raise DataError("ids are numbers in one part of the data and text in another; write them alike")
        self._writer.write_batch(batch)

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """All that was put on the pile, again for every call."""
        import pyarrow as pa

        if self._schema is None:
            return
        self._writer.close()
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            yield from reader

    def __del__(self) -> None:
        self._file.close()


class Sorting:
    """Records by person: each person's are all in one of several piles, which fit in memory one by one."""

    def __init__(self, person: Person, piles: int) -> None:
        self.person = person
        self._free = Pile(spilled=piles > 1)
        self._piles = [Pile(spilled=piles > 1) for _ in range(piles)]

    def add(self, ids: "pa.Array", codes: Block, hashes: NDArray[Any] | None) -> None:
        """Put records where those of the same ids are; `hashes` are the same for equal ids."""
        import pyarrow as pa

        if hashes is None and len(self._piles) > 1:
            hashes = np.array([zlib.crc32(repr(each).encode()) for each in ids.to_pylist()])
        places = np.zeros(len(ids), np.uint16) if hashes is None else hashes % np.uint64(len(self._piles))
        if ids.null_count:
            places = places[ids.is_valid().to_numpy(zero_copy_only=False)]
        ids, codes, free = without_missing(self.person, ids, codes)
        if len(free[0]):
            self._free.add(free)
        order = np.argsort(places.astype(np.uint16), kind="stable")
        ends = np.cumsum(np.bincount(places.astype(np.int64), minlength=len(self._piles)))
        ids, codes = ids.take(pa.array(order)), [each[order] for each in codes]
        for pile, start, end in zip(self._piles, [0, *ends.tolist()], ends.tolist(), strict=False):
            if end > start:
                pile.add([ids.slice(start, end - start), *(each[start:end] for each in codes)])

    def kept(self) -> Pile:
        """The codes of all records that are counted."""
        import pyarrow as pa

        found = self._free
        while self._piles:
            parts = list(self._piles.pop().batches())
            if parts:
                table = pa.Table.from_batches(parts).combine_chunks()
                ids, *codes = (column.chunk(0) for column in table.columns)
                block = [each.to_numpy() for each in codes]
                mask = kept(self.person, numbered(ids), block)
                found.add([each[mask] for each in block])
        return found
