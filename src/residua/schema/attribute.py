"""What every attribute can do: name its cells, and code a column of values into them."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from residua._arrays import AnyArray, Array, Flags, Indices, Integers
from residua._text import hint, short
from residua.errors import DataError, SchemaError
from residua.schema.columns import Column, Mixed, Numbers, Undecodable, missing_in, read_column

Cells = NDArray[np.int32]
Policy = Literal["error", "drop", "clip", "other", "missing"]

OTHER, MISSING = "(other)", "(missing)"
LARGEST = 2**31  # cells; a cell number is an int32

OUTSIDE = -1  # no cell, and no cell is nearest: nulls, text that is no number, unknown labels
BELOW = -2  # a number under the lowest cell
ABOVE = -3  # a number over the highest cell

_TWO_63 = 2.0**63
_WHOLE = r"^[+-]?[0-9]{1,18}(\.0*)?$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_INTEGER = re.compile(r"(?P<sign>[+-]?)0*(?P<digits>[0-9]{1,308})(\.0*)?")
_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,17}")

_SHOWN = 3
_CELLS: dict[str, str] = {"other": OTHER, "missing": MISSING}  # policies that keep one more cell


class Attribute(ABC):
    """One column of the schema: a finite, public list of cells, and a policy for values that have none.

    Equal by value and hashable. The policy `outside` is one of

    - `error`: a DataError that names the column, the values and the rows;
    - `drop`: the record is left out;
    - `clip`: the nearest cell (numbers only; a null has no nearest cell and is an error);
    - `other`: one more cell, the last, labelled `(other)`, which `size` includes;
    - `missing`: one more cell, the last, labelled `(missing)`, for values that are missing: nulls, NaN, and
      empty text or what people write instead (NA, n/a, null, -, ?); any other value is an error.

    A null is outside under every policy.
    """

    __slots__ = ()

    outside: Policy
    numeric: ClassVar[bool]  # whether the cells are ordered numbers (the cell `(other)` excepted)

    @property
    def size(self) -> int:
        """Number of cells, `(other)` or `(missing)` included."""
        return self.inner_size + (self.outside in _CELLS)

    @property
    @abstractmethod
    def inner_size(self) -> int:
        """Number of cells that values inside the schema take, `(other)` not included."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of its levels, the coarsest first; most kinds have none. `at` sees it by one of them."""
        return ()

    def at(self, level: str) -> "Attribute":
        """The coarser attribute whose cells are the nodes of a level, as `level_of` numbers them."""
        raise SchemaError(f"{self!r} has no level {short(level)}; a Hierarchy and a Date have levels")

    def level_labels(self, level: str) -> tuple[str, ...]:
        """The texts that name the nodes of a level; all different."""
        return self.at(level).labels()

    def level_of(self, level: str) -> Integers:
        """The node of each cell at a level, shape (size,)."""
        raise SchemaError(f"{self!r} has no level {short(level)}; a Hierarchy and a Date have levels")

    @property
    def codes(self) -> int:
        """Number of codes that values are told apart by; a cell each, unless records are shares of cells."""
        return self.size

    @property
    def unit(self) -> int:
        """What the whole numbers add up to by which a record counts in cells: 1, unless it has shares."""
        return 1

    @property
    def counted(self) -> "Attribute | None":
        """The attribute by whose cells records can be counted; None where there is none."""
        return self

    @property
    def counted_by(self) -> Integers:
        """The cell of `counted` that each cell is part of, shape (size,)."""
        return np.arange(self.size)

    def moment(self, power: int) -> Array:
        """What each cell adds to the sum of a power of the values, (size,); of none, to their number."""
        raise SchemaError(
            f"adds up numbers, which {self!r} has not; use Number, Integer or Binned(values=...)"
        )

    @property
    def other(self) -> int | None:
        """The cell of what is outside the schema or missing, or None where the policy keeps none."""
        return self.inner_size if self.outside in _CELLS else None

    @property
    def other_label(self) -> str:
        """What that cell is called."""
        return _CELLS.get(self.outside, OTHER)

    def label(self, cell: int) -> str:
        """The text that names one cell."""
        if not 0 <= cell < self.size:
            raise SchemaError(f"{self!r} has cells 0 to {self.size - 1}, there is no cell {cell}")
        return self.other_label if cell == self.other else self._inner_label(int(cell))

    def labels(self) -> tuple[str, ...]:
        """The texts that name the cells, in order; all different."""
        inner = tuple(self._inner_label(cell) for cell in range(self.inner_size))
        return inner if self.other is None else (*inner, self.other_label)

    def encode(self, values: object, *, column: str | None = None, first_row: int = 0) -> Cells:
        """The cell of each value, int32 of shape (records,); -1 for a record to drop.

        `values` is an array, list, Series or Arrow array of numbers, booleans or text. In a DataError
        `column` names it, and `first_row` is the number of its first record.
        """
        self.check_size()
        where = "" if column is None else f"column {column!r}: "
        read = read_column(values, where)
        return self._settle(self._locate(read, nearest=self.outside == "clip"), read, (where, "", first_row))

    def encode_codes(self, codes: AnyArray, *, column: str | None = None, first_row: int = 0) -> Cells:
        """The cells for values that are cell numbers already, checked; -1 for a record to drop."""
        self.check_size()
        where = "" if column is None else f"column {column!r}: "
        nulls = np.ma.getmaskarray(codes) if isinstance(codes, np.ma.MaskedArray) else None
        given = Numbers(np.ma.getdata(codes), nulls)
        cells = cells_in_range(given.values, 0, self.codes - 1, nearest=False)
        if nulls is not None:
            cells[nulls] = OUTSIDE
        return self._settle(cells, given, (where, f"the codes 0 to {self.codes - 1} of ", first_row))

    def cell(self, value: object) -> int:
        """The cell of one value, for who writes queries: one outside is a SchemaError under every policy."""
        return int(self.cells([value])[0])

    def cells(self, values: list[Any]) -> Cells:
        """The cell of each of some values of one type, as `cell` finds it."""
        self.check_size()
        found = self._locate(read_column(values, ""), nearest=False)
        for place in np.flatnonzero(found < 0).tolist():
            value = values[place]
            if self.other is None or not isinstance(value, str) or value != self.other_label:
                near = hint(value, self._inner_labels_to_suggest())
                raise SchemaError(f"{short(value)} has no cell in {self!r}{near}")
            found[place] = self.other
        return found

    def check_size(self, who: str = "") -> None:
        """Nothing, or the SchemaError for more cells than a cell number can count."""
        if self.size > LARGEST:
            raise SchemaError(
                f"{who or repr(self)}: {self.size} cells are too many, at most 2**31 can be told apart; "
                "use wider bins"
            )

    @abstractmethod
    def to_manifest(self, arrays: dict[str, AnyArray] | None = None) -> dict[str, Any]:
        """The attribute as a dict for JSON, which `attribute_from_manifest` reads.

        What is very long may go into `arrays`, by names that the dict holds.
        """

    @abstractmethod
    def _inner_label(self, cell: int) -> str:
        """The label of a cell that is not `(other)`."""

    @abstractmethod
    def _cells_of_numbers(self, values: AnyArray, *, nearest: bool) -> Cells:
        """The cells of an array of booleans, integers or float64, with marks for the misses."""

    def _cells_of_text(self, distinct: Any, *, nearest: bool) -> Cells:
        """The cells of an Arrow array of large strings, with marks for the misses; numbers are read.

        Spaces around the digits, a sign and a fraction of zeros are read; '1_000', '0x10', 'nan' and 'inf'
        are no numbers.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        cells = np.full(len(distinct), OUTSIDE, dtype=np.int32)
        text = pc.utf8_trim_whitespace(distinct)
        is_whole = _matches(text, _WHOLE)
        if is_whole.any():
            digits = pc.replace_substring_regex(text.filter(pa.array(is_whole)), r"^\+|\.0*$", "")
            cells[is_whole] = self._cells_of_numbers(digits.cast(pa.int64()).to_numpy(), nearest=nearest)
        rest = np.flatnonzero(~is_whole)
        if len(rest):
            rest = rest[_matches(text.take(pa.array(rest)), _NUMBER)]
            cells[rest] = self._cells_of_other_numbers(text.take(pa.array(rest)), nearest=nearest)
        return cells

    def _cells_of_other_numbers(self, text: Any, *, nearest: bool) -> Cells:
        """Cells of other numbers: as float64, and as integers where that cannot tell neighbours apart."""
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
        cells = self._cells_of_numbers(floats, nearest=nearest)
        if short:
            integers = np.array(list(short.values()), dtype=np.int64)
            cells[list(short)] = self._cells_of_numbers(integers, nearest=nearest)
        return cells

    def _inner_labels_to_suggest(self) -> tuple[str, ...]:
        return ()

    def _locate(self, column: Column, *, nearest: bool) -> Cells:
        if isinstance(column, Mixed):
            cells = np.empty(sum(len(rows) for rows, _ in column.parts), dtype=np.int32)
            for rows, part in column.parts:
                cells[rows] = self._locate(part, nearest=nearest)
            return cells
        if isinstance(column, Numbers):
            cells = self._cells_of_numbers(column.values, nearest=nearest)
            if column.nulls is not None:
                cells[column.nulls] = OUTSIDE
            return cells
        if isinstance(column, Undecodable):
            return np.full(len(column.values), OUTSIDE, dtype=np.int32)
        distinct = self._cells_of_text(column.distinct, nearest=nearest)
        return np.asarray(np.append(distinct, np.int32(OUTSIDE))[column.index])  # index -1 is the null

    def _settle(self, cells: Cells, column: Column, source: tuple[str, str, int]) -> Cells:
        """The cells with the policy applied to every miss; nothing below -1 is left.

        `source` is for the message to the curator: where values come from, what of this they should fit (all,
        if that is empty), first row.
        """
        missed = cells < 0
        if missed.any() and self.outside in ("drop", "other"):
            return np.where(missed, np.int32(-1 if self.outside == "drop" else self.size - 1), cells)
        if missed.any() and self.outside == "missing":
            cells = np.where(missed & missing_in(column), np.int32(self.size - 1), cells)
            missed = cells < 0
        if missed.any() and self.outside == "clip":
            cells[cells == BELOW] = 0
            cells[cells == ABOVE] = self.codes - 1
            missed = cells < 0
        if missed.any():
            raise self._refusal(np.flatnonzero(missed), column, source)
        return cells

    def _refusal(self, rows: Indices, column: Column, source: tuple[str, str, int]) -> DataError:
        """The error that quotes the first missed values with their rows and counts all of them."""
        where, what, first_row = source
        count = "1 value is" if len(rows) == 1 else f"{len(rows)} values are"
        also = " and cannot be clipped" * (self.outside == "clip")
        first = ", the first ones" if len(rows) > _SHOWN else ""
        shown = ", ".join(f"{column.show(row)} at row {row + first_row}" for row in rows[:_SHOWN].tolist())
        return DataError(
            f"{where}{count} outside {what}{self!r}{also}{first}: {shown} (rows count from 0); "
            f"mend the data, or declare {self._remedies()}"
        )

    def _remedies(self) -> str:
        """What to declare so that values outside are no error."""
        clips = self.numeric and self.outside != "clip"
        return "outside='drop', 'clip' or 'other'" if clips else "outside='drop' or 'other'"


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


def _matches(text: Any, pattern: str) -> Flags:
    import pyarrow.compute as pc

    return np.asarray(pc.match_substring_regex(text, pattern).fill_null(False).to_numpy(zero_copy_only=False))


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
