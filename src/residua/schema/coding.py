"""Words for error messages, columns out of data of any kind, and values to cells."""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._arrays import AnyArray, Flags, Indices, Integers
from residua._text import short as short  # for those who word errors about schemas
from residua.errors import DataError

_FEW = 12
_MANY = 2000


def hint(wrong: object, right: Iterable[str]) -> str:
    """A suffix ` (did you mean 'Age'?)`, or nothing when no candidate is near.

    >>> hint("age", ["Age", "sex"]), hint("weight", ["Age", "sex"])
    (" (did you mean 'Age'?)", '')
    """
    folded: dict[str, str] = {}
    for candidate in right:
        folded.setdefault(candidate.casefold(), candidate)
    asked = str(wrong).casefold()
    near = [asked] if asked in folded else []
    # difflib compares with every candidate: seconds, not milliseconds, for a national hierarchy.
    if not near and len(folded) <= _MANY:
        near = difflib.get_close_matches(asked, folded, n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


def listing(items: Sequence[object]) -> str:
    """The items when they are few, otherwise the first ones and how many there are.

    >>> listing(["F", "M"]), listing(range(100))
    ("'F', 'M'", '0, 1, 2, ... (100 in all)')
    """
    if len(items) <= _FEW:
        return ", ".join(short(item) for item in items)
    return ", ".join(short(item) for item in items[:3]) + f", ... ({len(items)} in all)"


def shape_of(array: Any) -> str:
    """How many columns an array has, without how many records: `an array with 3 columns`."""
    if array.ndim != 2:
        return f"an array of {array.ndim} dimension{'' if array.ndim == 1 else 's'}"
    return f"an array with {array.shape[1]} column{'' if array.shape[1] == 1 else 's'}"


def is_unicode(text: str) -> bool:
    """Whether the text can be written to a file: Python also has text with lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


_ACCEPTED = (
    "a pandas or polars DataFrame, an Arrow table, a mapping of names to arrays, a numpy structured array, "
    "or an integer array of codes (records x attributes)"
)


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


Cells = NDArray[np.int32]

OUTSIDE = -1  # no cell, and no cell is nearest: nulls, text that is no number, unknown labels
BELOW = -2  # a number under the lowest cell
ABOVE = -3  # a number over the highest cell

_TWO_63 = 2.0**63
_WHOLE = r"^[+-]?[0-9]{1,18}(\.0*)?$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_INTEGER = re.compile(r"(?P<sign>[+-]?)0*(?P<digits>[0-9]{1,308})(\.0*)?")
_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,17}")


def cells_in_range(values: AnyArray, low: int, high: int, *, nearest: bool) -> Cells:
    """Cells of the whole numbers low..high; with `nearest`, fractions round first (halves to even)."""
    whole, marks = _whole_numbers(values, nearest=nearest)
    # In range the difference is below 2**31; out of range it may wrap, and is overwritten.
    cells = (whole - np.int64(low)).astype(np.int32)
    cells[whole < low] = BELOW
    cells[whole > high] = ABOVE
    return cells if marks is None else np.where(marks < 0, marks, cells)


def cells_in_set(values: AnyArray, keys: Sequence[int], cells: Sequence[int]) -> Cells:
    """Cells of whole numbers that must be among the keys; keys[i] has cell cells[i]."""
    if not keys:
        return np.full(len(values), OUTSIDE, dtype=np.int32)
    whole, marks = _whole_numbers(values, nearest=False)
    order = np.argsort(np.array(keys, dtype=np.int64))
    ordered = np.array(keys, dtype=np.int64)[order]
    position = np.minimum(np.searchsorted(ordered, whole), len(keys) - 1)
    hit = ordered[position] == whole
    if marks is not None:
        hit &= marks == 0
    return np.where(hit, np.array(cells, dtype=np.int32)[order][position], np.int32(OUTSIDE))


def cells_in_bins(values: AnyArray, edges: Sequence[float], *, above: bool) -> Cells:
    """Cells of the half-open bins between the edges; the last bin is open above if `above`."""
    if values.dtype.kind == "f":
        reached = np.searchsorted(np.array(edges), values, side="right")
    else:
        reached = _edges_reached(values, edges)
    cells = reached.astype(np.int32) - np.int32(1)
    cells[cells < 0] = BELOW
    if not above:
        cells[cells == len(edges) - 1] = ABOVE
    if values.dtype.kind == "f":
        cells[np.isnan(values)] = OUTSIDE
    return cells


def _edges_reached(values: AnyArray, edges: Sequence[float]) -> Indices:
    """How many edges each integer reaches, compared as integers: floats cannot tell 2**53 from 2**53 + 1."""
    if values.dtype.kind == "b":
        values = values.view(np.uint8)
    span = np.iinfo(values.dtype)
    thresholds = [math.ceil(edge) for edge in edges]
    always = sum(threshold <= span.min for threshold in thresholds)
    inner = [threshold for threshold in thresholds if span.min < threshold <= span.max]
    return always + np.searchsorted(np.array(inner, dtype=values.dtype), values, side="right")


def cells_of_words(distinct: Any, keys: Sequence[str], cells: Sequence[int]) -> Cells:
    """Cells of text that must equal one of the keys exactly; keys[i] has cell cells[i]."""
    import pyarrow as pa
    import pyarrow.compute as pc

    position = pc.index_in(distinct, value_set=pa.array(keys, type=pa.large_string()))
    padded = np.append(np.array(cells, dtype=np.int32), np.int32(OUTSIDE))
    return np.asarray(padded[position.fill_null(-1).to_numpy(zero_copy_only=False)])


def cells_of_number_text(
    distinct: Any, locate: Callable[[AnyArray], Cells], others: Callable[[Any], Cells] | None = None
) -> Cells:
    """Cells of numbers written as text: `locate` codes the integers, exactly, and then the other numbers.

    With `others`, that codes the other numbers, of which it gets the texts.

    Spaces around the digits, a sign and a fraction of zeros are read; '1_000', '0x10', 'nan' and 'inf' are no
    numbers.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = np.full(len(distinct), OUTSIDE, dtype=np.int32)
    text = pc.utf8_trim_whitespace(distinct)
    is_whole = _matches(text, _WHOLE)
    if is_whole.any():
        digits = pc.replace_substring_regex(text.filter(pa.array(is_whole)), r"^\+|\.0*$", "")
        cells[is_whole] = locate(digits.cast(pa.int64()).to_numpy())
    rest = np.flatnonzero(~is_whole)
    if len(rest):
        rest = rest[_matches(text.take(pa.array(rest)), _NUMBER)]
        left = text.take(pa.array(rest))
        cells[rest] = _cells_of_other_numbers(left, locate) if others is None else others(left)
    return cells


def _cells_of_other_numbers(text: Any, locate: Callable[[AnyArray], Cells]) -> Cells:
    """Cells of other numbers: read as float64, and as integers where that cannot tell neighbours apart."""
    import pyarrow as pa

    floats = text.cast(pa.float64()).to_numpy().copy()
    short: dict[int, int] = {}
    for row in np.flatnonzero(np.abs(floats) >= 2.0**53).tolist():
        spelt = _INTEGER.fullmatch(text[row].as_py())
        if spelt is None:  # no integer, or one too long for float64
            continue
        value = int(spelt["digits"]) * (-1 if spelt["sign"] == "-" else 1)
        if -(2**63) <= value < 2**63:
            short[row] = value
        elif float(floats[row]) > value:  # Python compares these exactly, numpy does not
            # Rounded down, a number stays on its side of every float64, and of every edge.
            floats[row] = np.nextafter(floats[row], -np.inf)
    cells = locate(floats)
    if short:
        cells[list(short)] = locate(np.array(list(short.values()), dtype=np.int64))
    return cells


def _matches(text: Any, pattern: str) -> Flags:
    import pyarrow.compute as pc

    found = pc.match_substring_regex(text, pattern).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def whole_number_keys(labels: Iterable[str]) -> tuple[list[int], list[int]]:
    """The labels that are whole numbers in their plain spelling, and their cells: '7' is one, '07' is not."""
    found = [(int(label), cell) for cell, label in enumerate(labels) if _CANONICAL.fullmatch(label)]
    return [key for key, _ in found], [cell for _, cell in found]


def _whole_numbers(values: AnyArray, *, nearest: bool) -> tuple[Integers, Cells | None]:
    """The values as int64, and a mark (0 where all is well) for those that are not whole or do not fit."""
    if values.dtype.kind == "b":
        values = values.view(np.uint8)
    if values.dtype.kind != "f":
        beyond = values > np.iinfo(np.int64).max if values.dtype == np.uint64 else None
        marks = None if beyond is None else np.where(beyond, ABOVE, 0).astype(np.int32)
        return values.astype(np.int64, copy=False), marks
    rounded = np.rint(values)
    marks = np.zeros(len(values), dtype=np.int32)
    if not nearest:
        marks[rounded != values] = OUTSIDE
    marks[rounded < -_TWO_63] = BELOW
    marks[rounded >= _TWO_63] = ABOVE
    marks[np.isnan(values)] = OUTSIDE
    return np.where(marks < 0, 0.0, rounded).astype(np.int64), marks
