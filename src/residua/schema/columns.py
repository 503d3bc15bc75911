"""Columns out of data of any kind, each in one of two forms that are coded without a loop over records.

Numbers stay numbers. Text becomes its distinct values and one index per record, so that reading a number out
of text, or finding a label, happens once per distinct value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._arrays import AnyArray, Flags, Indices, Integers
from residua._text import hint, listing, short
from residua.errors import DataError

_ACCEPTED = (
    "a pandas or polars DataFrame, an Arrow table, a mapping of names to arrays, a numpy structured array, "
    "or an integer array of codes (records x attributes)"
)
# How the null markers of pandas and numpy call themselves; pandas itself is not imported.
_NULL_TYPES = frozenset({"NoneType", "NAType", "NaTType", "MaskedConstant"})


@dataclass(frozen=True, slots=True)
class Numbers:
    """Values of a column of booleans, integers or float64; `nulls` marks the records that have none."""

    values: AnyArray  # (records,)
    nulls: Flags | None = None  # (records,)

    def show(self, row: int) -> str:
        """The value of one record, for a message; so do the classes below."""
        if self.nulls is not None and self.nulls[row]:
            return "a missing value"
        return short(self.values[row].item())


@dataclass(frozen=True, slots=True)
class Text:
    """Values of a column of text: record r holds `distinct[index[r]]`, or nothing where the index is -1."""

    distinct: Any  # pyarrow array of large_string
    index: NDArray[np.integer[Any]]  # (records,)

    def show(self, row: int) -> str:
        position = int(self.index[row])
        value = None if position < 0 else self.distinct[position].as_py()
        return "a missing value" if value is None else short(value)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Bytes that are not UTF-8, and text that cannot be written in it: outside every schema."""

    values: tuple[object, ...]  # (records,)

    def show(self, row: int) -> str:
        return f"{short(self.values[row])}, which is not UTF-8,"


@dataclass(frozen=True, slots=True)
class Mixed:
    """Values of several kinds: each part has the rows, in order, that one column of one kind holds.

    What a value means must not depend on what other records have: one record could change the cells of all
    (claim E-005).
    """

    parts: tuple[tuple[Indices, Numbers | Text | Undecodable], ...]

    def show(self, row: int) -> str:
        [shown] = [part.show(int(np.searchsorted(rows, row))) for rows, part in self.parts if row in rows]
        return shown


Column = Numbers | Text | Undecodable | Mixed

SPELT_MISSING = frozenset(
    ("", "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "#N/A", "-", "--", ".", "?", "(missing)")
)
"""What people write where they have no value."""


def missing_in(column: Column) -> Flags:
    """Which records have no value: nulls, NaN, and text that says so, (records,)."""
    if isinstance(column, Mixed):
        found = np.zeros(sum(len(rows) for rows, _ in column.parts), dtype=np.bool_)
        for rows, part in column.parts:
            found[rows] = missing_in(part)
        return found
    if isinstance(column, Undecodable):
        return np.zeros(len(column.values), dtype=np.bool_)
    if isinstance(column, Numbers):
        none = column.values != column.values  # as NaN is
        return np.asarray(none if column.nulls is None else none | column.nulls)
    spelt = [text is None or text in SPELT_MISSING for text in column.distinct.to_pylist()]
    return np.asarray(np.array([*spelt, True])[column.index])  # index -1 is the null


def shape_of(array: Any) -> str:
    """How many columns an array has, without how many records: `an array with 3 columns`."""
    if array.ndim != 2:
        return f"an array of {array.ndim} dimension{'' if array.ndim == 1 else 's'}"
    return f"an array with {array.shape[1]} column{'' if array.shape[1] == 1 else 's'}"


def is_unicode(text: str) -> bool:
    """Whether the text can be written to a file: Python also has text with lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def columns_of(data: object, names: Sequence[str]) -> list[object]:
    """The named columns of the data, in the order of the names; other columns are passed over."""
    held, pick = _open(data)
    places_of(held, names)
    return [pick(name) for name in names]


def places_of(held: Sequence[object], names: Sequence[str]) -> list[int]:
    """Where each of the names stands among those that the data hold; each must be there once."""
    places = []
    for name in names:
        times = held.count(name)
        if times == 0:
            known = [column for column in held if isinstance(column, str)]
            raise DataError(f"the data have no column {name!r}{hint(name, known)}; they have {listing(held)}")
        if times > 1:
            raise DataError(
                f"the data have {times} columns called {name!r}; keep one of them or rename the others"
            )
        places.append(held.index(name))
    return places


def _open(data: object) -> tuple[list[object], Callable[[str], object]]:
    """The names of the columns that the data hold, and a function that takes one out."""
    if isinstance(data, Mapping):
        return list(data), data.__getitem__
    if isinstance(data, np.ndarray):
        if data.dtype.names is None or data.ndim != 1:
            raise DataError(f"{shape_of(data)}, of type {data.dtype}, is no table; give {_ACCEPTED}")
        return list(data.dtype.names), data.__getitem__
    frame: Any = data
    if is_a(data, "pandas", "DataFrame"):
        return list(frame.columns), frame.__getitem__
    if is_a(data, "polars", "DataFrame"):
        return list(frame.columns), frame.get_column
    if is_a(data, "polars", "LazyFrame"):
        raise DataError("a polars LazyFrame holds no data yet; call .collect() first")
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    if not hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__arrow_c_array__"):
        raise DataError(f"cannot read data of type {kind}; give {_ACCEPTED}")
    import pyarrow as pa

    try:
        table = pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as problem:
        what = f"Arrow data of type {kind} are not a table ({problem})"
        raise DataError(f"{what}; give {_ACCEPTED}") from problem
    return list(table.column_names), table.column


def is_a(data: object, package: str, name: str) -> bool:
    """Whether the data's class, or one it inherits from, is that class of that package."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(data).__mro__
    )


def read_column(values: object, where: str) -> Column:
    """The values of a column (array, list, Series, Arrow array); `where` opens the words of a DataError."""
    import pyarrow as pa

    if isinstance(values, np.ndarray):
        return _read_numpy(values, where)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _read_arrow(values, where)
    if hasattr(values, "__arrow_c_stream__") and not _of_pandas(values):
        return _read_arrow(pa.chunked_array(values), where)
    if hasattr(values, "__arrow_c_array__"):
        return _read_arrow(pa.array(values), where)
    if _of_pandas(values):
        return _read_objects(values, where)
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise DataError(f"{where}{short(values)} is not a column; give an array or a list of values")
    return _read_objects(list(values), where)


def _of_pandas(values: object) -> bool:
    return type(values).__module__.partition(".")[0] == "pandas"


def _read_numpy(values: AnyArray, where: str) -> Column:
    if values.ndim != 1:
        raise DataError(f"{where}a column has one dimension, this is {shape_of(values)}")
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        if values.dtype.kind not in "biuf":
            objects = values.data.astype(object)
            objects[mask] = None
            return _read_objects(objects, where)
        filled = values.filled()
        return Numbers(filled.astype(np.float64) if filled.dtype.kind == "f" else filled, mask)
    match values.dtype.kind:
        case "b" | "i" | "u":
            return Numbers(values)
        case "f":
            return Numbers(values.astype(np.float64, copy=False))
        case "U" | "S" | "O" | "M":
            return _read_objects(values, where)
        case "T":
            return _read_objects(values.astype(object), where)
    raise DataError(
        f"{where}values of type {values.dtype} cannot be coded; convert them to text or whole numbers"
    )


def _read_objects(values: Any, where: str) -> Column:
    import pyarrow as pa

    try:
        array = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _read_mixed(values, where)
    if getattr(values, "dtype", np.dtype(object)) == np.dtype(object) and _depends(array.type, values):
        return _read_mixed(values, where)
    return _read_arrow(array, where)


def _depends(kind: Any, values: Iterable[object]) -> bool:
    """Whether Arrow changed what some values mean on account of others, in columns that declare no type."""
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return True  # all get as many digits as one of them needs
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return numbers and any(issubclass(each, bool | np.bool_) for each in set(map(type, values)))


def _read_mixed(values: Iterable[object], where: str) -> Mixed:
    import pyarrow as pa

    held: dict[type, list[tuple[int, Any]]] = {bool: [], int: [], float: [], str: [], bytes: []}
    for row, value in enumerate(values):
        plain = _plain(value, row, where)
        if isinstance(plain, str) and not is_unicode(plain):
            held[bytes].append((row, bytes(value) if isinstance(value, bytes) else plain))
        else:
            held[str if plain is None else type(plain)].append((row, plain))
    found: dict[str, int] = {}
    index = [-1 if text is None else found.setdefault(text, len(found)) for _, text in held[str]]
    parts: list[tuple[list[tuple[int, Any]], Numbers | Text | Undecodable]] = [
        (held[kind], Numbers(np.array([value for _, value in held[kind]], dtype=kind)))
        for kind in (bool, int, float)
    ]
    words = pa.array(list(found), type=pa.large_string())
    parts.append((held[str], Text(words, np.array(index, dtype=np.int64))))
    parts.append((held[bytes], Undecodable(tuple(value for _, value in held[bytes]))))
    return Mixed(tuple((np.array([row for row, _ in own], dtype=np.intp), part) for own, part in parts))


def _plain(value: object, row: int, where: str) -> bool | int | float | str | None:
    """One value as it is coded, whatever others there are; None for a null, text where digits would go."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value).__name__ in _NULL_TYPES:
        return None
    if isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value) if value == value else None
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, int | Decimal):
        return str(value)
    raise DataError(
        f"{where}{short(value)} at row {row} is neither text nor a number; "
        "convert the column to text or whole numbers"
    )


def _read_arrow(array: Any, where: str) -> Column:
    import pyarrow as pa

    kinds = pa.types
    kind = array.type
    if kinds.is_dictionary(kind) and not is_text(kind.value_type):
        return _read_arrow(array.cast(kind.value_type), where)
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
        return _from_numbers(array)
    if kinds.is_dictionary(kind) or is_text(kind):
        return _from_text(array) or _read_mixed(_bytes(array), where)
    if kinds.is_decimal(kind):
        return _read_arrow(array.cast(pa.string()), where)
    if kinds.is_null(kind):
        return Text(pa.array([], type=pa.large_string()), np.full(len(array), -1))
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        return _read_arrow(_days(array).cast(pa.string()), where)
    raise DataError(f"{where}values of type {kind} cannot be coded; convert them to text or whole numbers")


def _days(array: Any) -> Any:
    """Dates, or the days of times as their own clocks show them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = pc.local_timestamp(array)
    return array.cast(pa.date32(), safe=False)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of text or bytes: strings and binary, large ones, views, of fixed size."""
    name = str(kind).removeprefix("large_").removeprefix("fixed_size_").removesuffix("_view")
    return name.partition("[")[0] in ("string", "binary")


def _bytes(array: Any) -> Any:
    """The values of an array of text or bytes, as they are."""
    import pyarrow as pa

    plain = array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array
    return plain.cast(pa.large_binary()).to_pylist()


def _from_numbers(array: Any) -> Numbers:
    import pyarrow as pa

    array = one_chunk(array)
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if nulls is not None:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    values = array.to_numpy(zero_copy_only=False)
    return Numbers(values.astype(np.float64, copy=False) if values.dtype.kind == "f" else values, nulls)


def _from_text(array: Any) -> Text | None:
    """The values of an array of text or bytes, dictionary-encoded or not; None where some are not UTF-8."""
    import pyarrow as pa

    try:
        if not pa.types.is_dictionary(array.type):
            # string views and binary cannot all be dictionary-encoded or searched, large strings can
            plain = str(array.type) in ("string", "large_string")
            array = (array if plain else array.cast(pa.large_string())).dictionary_encode()
        if isinstance(array, pa.ChunkedArray):
            array = one_chunk(array.unify_dictionaries())
        distinct = array.dictionary.cast(pa.large_string())
        distinct.validate(full=True)  # text in Arrow need not be what it says
    except pa.ArrowInvalid:
        return None
    index = array.indices
    if index.null_count:
        index = index.cast(pa.int64()).fill_null(-1)
    return Text(distinct, index.to_numpy(zero_copy_only=False))


def one_chunk(array: Any) -> Any:
    """One contiguous Arrow array out of a chunked one."""
    import pyarrow as pa

    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def letters_of(texts: Any) -> tuple[Integers, AnyArray]:
    """Where each large text of Arrow starts, and the last ends, in the letters of all: (texts + 1,)."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return starts - starts[0], np.frombuffer(data, np.uint8)[starts[0] : starts[-1]]
