"""What every attribute can do: name its cells, and code a column of values into them."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from residua._arrays import AnyArray, Array, Indices, Integers
from residua.errors import DataError, SchemaError
from residua.schema.coding import (
    ABOVE,
    BELOW,
    OUTSIDE,
    Cells,
    cells_in_range,
    cells_of_number_text,
    hint,
    short,
)
from residua.schema.columns import Column, Mixed, Numbers, Undecodable, missing_in, read_column

Policy = Literal["error", "drop", "clip", "other", "missing"]

OTHER, MISSING = "(other)", "(missing)"
LARGEST = 2**31  # cells; a cell number is an int32

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
        cells = self._locate(read, nearest=self.outside == "clip")
        return self._settle(cells, read, (where, "", first_row))

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
        """The cells of an Arrow array of large strings, with marks for the misses; numbers are read."""
        return cells_of_number_text(distinct, lambda values: self._cells_of_numbers(values, nearest=nearest))

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
            also = " and cannot be clipped" * (self.outside == "clip")
            where, what, first_row = source
            source = (where, f"{what}{self!r}", first_row)
            raise _refusal(np.flatnonzero(missed), column, source, also, self._remedies())
        return cells

    def _remedies(self) -> str:
        """What to declare so that values outside are no error."""
        clips = self.numeric and self.outside != "clip"
        return "outside='drop', 'clip' or 'other'" if clips else "outside='drop' or 'other'"


def _refusal(
    rows: Indices, column: Column, source: tuple[str, str, int], also: str, remedy: str
) -> DataError:
    """The error that quotes the first missed values with their rows and counts all of them."""
    where, fits, first_row = source
    count = "1 value is" if len(rows) == 1 else f"{len(rows)} values are"
    first = ", the first ones" if len(rows) > _SHOWN else ""
    shown = ", ".join(f"{column.show(row)} at row {row + first_row}" for row in rows[:_SHOWN].tolist())
    return DataError(
        f"{where}{count} outside {fits}{also}{first}: {shown} (rows count from 0); "
        f"mend the data, or declare {remedy}"
    )


def check_policy(who: str, outside: object, *, numeric: bool) -> None:
    """Nothing, or the SchemaError for a policy that does not exist or that the kind cannot follow."""
    policies = get_args(Policy)
    if outside not in policies:
        near = hint(outside, policies)
        raise SchemaError(
            f"{who}: outside={outside!r} is not a policy{near}; use one of {', '.join(map(repr, policies))}"
        )
    if outside == "clip" and not numeric:
        raise SchemaError(
            f"{who}: outside='clip' needs numbers, labels have no nearest cell; use 'drop' or 'other'"
        )
