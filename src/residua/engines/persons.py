"""Which records of a person are counted: at most so many, and so many in one class of an attribute.

The rule looks at this person's coded records only, so that nobody's records change what is kept of another
(claim E-010). They are ordered by a mix of their own codes and of all codes of the person: the same in every
engine, and different from person to person, so that no cell is preferred. Records with equal codes are
interchangeable. The mix need not be cryptographic: what it decides is protected as the records are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from residua._arrays import AnyArray, Integers
from residua.engines.kernel import Block, narrowest
from residua.engines.protocol import Engine
from residua.errors import DataError
from residua.privacy.unit import Person
from residua.schema import Schema
from residua.schema.columns import columns_of, is_text, letters_of, one_chunk

if TYPE_CHECKING:
    import pyarrow as pa

Words = NDArray[np.uint64]

ODD = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio, as is usual
MIXED = np.uint64(0xD6E8FEB86659FD93)
HALF = np.uint64(32)
DIGIT, TOP = np.uint64(16), np.uint64(48)
WORD, ALL = 64, np.uint64(2**64 - 1)  # bits of a word, and the word that has them all
AT_ONCE = 2**16  # records that are looked at together, about: caches hold them
MOST_PILES = DIGITS = 2**16


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the codes of attributes are in words of 64 bits: word, first bit and bits of each.

    >>> packing = Packing.of([10, 3])
    >>> [word.tolist() for word in packing.packed([np.array([9, 4]), np.array([2, 1])])]
    [[41, 20]]
    """

    fields: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, sizes: Sequence[int], most: int = WORD) -> "Packing":
        """The packing of codes below `sizes`, one attribute after the other, in `most` bits of each word."""
        fields, word, used = [], 0, 0
        for bits in ((size - 1).bit_length() for size in sizes):
            if used + bits > most:
                word, used = word + 1, 0
            fields.append((word, used, bits))
            used += bits
        return cls(tuple(fields))

    @property
    def words(self) -> int:
        """How many words there are."""
        return self.fields[-1][0] + 1 if self.fields else 0

    def packed(self, codes: Block) -> list[Words]:
        """The words of some records, (records,) each."""
        words: list[Words] = [np.zeros(len(codes[0]), np.uint64) for _ in range(self.words)]
        for own, (word, shift, _) in zip(codes, self.fields, strict=True):
            words[word] |= own.astype(np.uint64) << np.uint64(shift)
        return words

    def codes(self, words: Sequence[Words], attribute: int) -> AnyArray:
        """The codes of one attribute, in the narrowest type."""
        word, shift, bits = self.fields[attribute]
        own = (words[word] >> np.uint64(shift)).astype(narrowest(2**bits))
        return np.asarray(own & own.dtype.type(2**bits - 1))

    def unpacked(self, words: Sequence[Words]) -> list[AnyArray]:
        """The codes of every attribute, as they were packed."""
        return [self.codes(words, at) for at in range(len(self.fields))]


def kept(person: Person, ids: "pa.Array", words: Sequence[Words], packing: Packing) -> Integers:
    """Positions of the records that are counted (claim E-010), some persons at a time: caches hold those."""
    persons = numbered(ids)
    order, ends = piled(digits_of(_scrambled(persons)), piles_for(len(ids)))
    parts = (order[start:end] for start, end in pairwise([0, *ends]))
    return np.concatenate(
        [rows[kept_at_once(person, persons[rows], [each[rows] for each in words], packing)] for rows in parts]
    )


def piles_for(records: int) -> int:
    """Into how many piles about so many records are put."""
    return min(MOST_PILES, 1 + records // AT_ONCE)


def digits_of(mixes: Words) -> AnyArray:
    """The highest 16 bits; numpy counts such digits instead of comparing them, in a fifth of the time."""
    return (mixes >> TOP).astype(np.uint16)


def piled(digits: AnyArray, piles: int) -> tuple[Integers, list[int]]:
    """An order of records by the highest digits of their mixes, and where in it each of the piles ends."""
    ends = np.cumsum(np.bincount(digits, minlength=DIGITS))
    last = (np.arange(1, piles + 1) * DIGITS + piles - 1) // piles - 1
    return np.argsort(digits, kind="stable"), ends[last].tolist()


def kept_at_once(person: Person, persons: Words, words: Sequence[Words], packing: Packing) -> Integers:
    """Positions of the records that are counted, of all records of some persons."""
    order = _together(persons)
    counts = _runs(persons[order])
    crowded = counts > person.alike
    many = np.repeat(crowded, counts)
    rows, counts = order[many], counts[crowded]
    own = [each[rows] for each in words]
    marks, whose = _marks(own, counts), np.repeat(np.arange(len(counts)), counts)
    chosen = np.arange(len(rows))
    for cap in person.caps:
        joint = whose * (int(cap.classes.max()) + 1) + cap.classes[packing.codes(own, cap.attribute)]
        chosen = chosen[_lowest(joint[chosen], marks[chosen], cap.most)]
    if all(cap.most * len(np.unique(cap.classes)) > person.unit.max_records for cap in person.caps):
        chosen = chosen[_lowest(whose[chosen], marks[chosen], person.unit.max_records)]
    return np.concatenate([order[~many], rows[chosen]])


def _together(persons: Words) -> Integers:
    """An order in which equal numbers follow each other: by two digits of a mix, if these tell them apart."""
    mixes = _scrambled(persons)
    order = np.argsort(mixes.astype(np.uint16), kind="stable")
    order = order[np.argsort((mixes >> DIGIT).astype(np.uint16)[order], kind="stable")]
    ordered, digits = mixes[order], mixes.astype(np.uint32)[order]
    confused = np.any((digits[1:] == digits[:-1]) & (ordered[1:] != ordered[:-1]))
    return np.argsort(mixes) if confused else order


def _runs(ordered: AnyArray) -> Integers:
    """The lengths of runs of equal values."""
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], np.full(min(1, len(ordered)), True)))
    return np.diff(ends, prepend=-1)


def _lowest(groups: Integers, marks: Words, most: int) -> Integers:
    """Positions of the records with the `most` lowest marks of their group; only large groups are sorted."""
    places = groups & ((1 << len(groups).bit_length() + 1) - 1)  # some share one, which does no harm
    many = np.bincount(places)[places] > most
    rows = np.flatnonzero(many)
    order = rows[_order(groups[rows], marks[rows])]
    ordered = groups[order]
    first = np.append(np.full(min(most, len(order)), True), ordered[most:] != ordered[:-most])
    return np.concatenate([np.flatnonzero(~many), order[first]])


def _order(groups: Integers, marks: Words) -> Integers:
    """The order of records by their groups, and by their marks within these."""
    bits = np.uint64(WORD - int(groups.max(initial=0)).bit_length())
    keys = (groups.astype(np.uint64) << bits) | (marks >> (np.uint64(WORD) - bits))
    order = np.argsort(keys)
    ordered, exact = keys[order], marks[order]
    confused = np.any((ordered[1:] == ordered[:-1]) & (exact[1:] != exact[:-1]))  # by the bits that are left
    return np.lexsort((marks, groups)) if confused else order


def refused(person: Person) -> DataError:
    """The error for records without an id."""
    return DataError(
        f"column {person.unit.id!r}: there are records without an id; declare what becomes of them, "
        "missing_id='drop' or missing_id='own'"
    )


def counted(person: Person, ids: Any, codes: Block, block: Block, packing: Packing) -> Block:
    """Those records of some persons that are counted; `block` has `codes` without those to drop."""
    found, block, free = without_missing(person, ids_inside(person, ids, codes), block)
    rows = kept(person, found, packing.packed(block), packing)
    return [np.concatenate([own[rows], more]) for own, more in zip(block, free, strict=True)]


def without_missing(person: Person, ids: "pa.Array", codes: Block) -> tuple["pa.Array", Block, Block]:
    """The records that have an id, and codes of those that are persons of their own without one."""
    if not ids.null_count:
        return ids, codes, [each[:0] for each in codes]
    if person.unit.missing_id == "error":
        raise refused(person)
    known = ids.is_valid().to_numpy(zero_copy_only=False)
    own = [each[~known if person.unit.missing_id == "own" else slice(0)] for each in codes]
    return ids.drop_null(), [each[known] for each in codes], own


def ids_inside(person: Person, ids: Any, codes: Block) -> "pa.Array":
    """The ids of the records that are kept by the schema: no code of theirs is negative."""
    found = plain_ids(ids, str(person.unit.id))
    outside = [own < 0 for own in codes if own.dtype.kind == "i"]
    return found.filter(~np.logical_or.reduce(outside)) if any(map(np.any, outside)) else found


def _marks(words: Sequence[Words], counts: Integers) -> Words:
    """A number for each record that looks random, from its codes and those of all records of its person.

    Records of a person follow each other; `counts` says how many there are of each.
    """
    found: Words = np.zeros(len(words[0]), dtype=np.uint64)
    for own in words:
        found = _scrambled(found + own)
    sums = np.add.reduceat(found, np.cumsum(counts) - counts) if len(counts) else found
    return _scrambled(found ^ np.repeat(_scrambled(sums), counts))


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

    ids = one_chunk(values)
    ids = ids.dictionary_decode() if types.is_dictionary(ids.type) else ids
    if types.is_integer(ids.type) and not types.is_uint64(ids.type):
        return ids.cast(pa.int64())
    if types.is_floating(ids.type):
        ids = pc.if_else(pc.is_nan(ids), None, ids)
    try:
        ids = ids if is_text(ids.type) else ids.cast(pa.string())
    except pa.ArrowException as error:
        raise DataError(
            f"column {name!r}: values of type {ids.type} are no ids; use whole numbers or text"
        ) from error
    ids = ids.cast(pa.large_binary())
    empty = pc.equal(pc.binary_length(ids), 0)
    return pc.if_else(empty, None, ids) if pc.any(empty).as_py() else ids


def numbered(ids: "pa.Array") -> Words:
    """A number for each record's person; equal where and only where the ids are."""
    from pyarrow import types

    known = ids if types.is_integer(ids.type) else ids.dictionary_encode().indices
    return np.asarray(known.to_numpy()).astype(np.uint64)


def mixes_of(ids: "pa.Array") -> Words:
    """A number for each id, of those that `plain_ids` gives, that looks random; the same for equal ids."""
    from pyarrow import types

    if types.is_integer(ids.type) or not len(ids):
        return _scrambled(np.asarray(ids.to_numpy(zero_copy_only=False)).astype(np.uint64))
    ends, letters = letters_of(ids)
    padded = np.append(letters, np.zeros(8, np.uint8))
    texts: Words = np.ndarray((len(letters) + 1,), "<u8", padded, strides=(1,))  # 8 letters from each on
    starts, left = ends[:-1], np.diff(ends)
    found, rows = left.astype(np.uint64), np.arange(len(ids))
    while len(rows):
        own = texts[starts] & (ALL >> np.uint64(8) * (8 - np.minimum(left, 8)).astype(np.uint64))
        found[rows] = _scrambled(found[rows] + own)
        more = left > 8
        rows, starts, left = rows[more], starts[more] + 8, left[more] - 8
    return found
