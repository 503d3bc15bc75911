"""The flat kinds of attribute: whole numbers, labels, bins."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from residua._arrays import AnyArray, Array, settle
from residua._text import hint, listing, short
from residua.errors import SchemaError
from residua.schema.attribute import (
    MISSING,
    OTHER,
    OUTSIDE,
    Attribute,
    Cells,
    Policy,
    cells_in_bins,
    cells_in_range,
    cells_in_set,
    cells_of_words,
    whole_number_keys,
)
from residua.schema.columns import is_unicode

_INT64 = np.iinfo(np.int64)

# How text spells a boolean, as Table Schema does by default.
_FALSE = ("False", "false", "FALSE", "0")
_TRUE = ("True", "true", "TRUE", "1")


def check_policy(who: str, outside: object, *, numeric: bool) -> None:
    """Nothing, or the SchemaError for a policy that does not exist or that the kind cannot follow."""
    policies = get_args(Policy)
    if outside not in policies:
        near = f"{hint(outside, policies)}; use one of {', '.join(map(repr, policies))}"
        raise SchemaError(f"{who}: outside={outside!r} is not a policy{near}")
    if outside == "clip" and not numeric:
        raise SchemaError(
            f"{who}: outside='clip' needs numbers, labels have no nearest cell; use 'drop' or 'other'"
        )


@dataclass(frozen=True, slots=True, repr=False)
class Integer(Attribute):
    """The whole numbers from `low` to `high`, both included; each is a cell.

    Values may be integers of any width, floats (2.0 is 2; 2.5 is outside, or with `clip` goes to the nearest
    whole number, halves to the even one), booleans (0 and 1) or text ('37', ' 37 ', '37.0').

    >>> age = Integer(0, 99, outside="clip")
    >>> age.size, age.label(37), age.cell(37)
    (100, '37', 37)
    >>> age.encode([37, 120, -1]).tolist()
    [37, 99, 0]
    """

    numeric: ClassVar[bool] = True

    low: int
    high: int
    outside: Policy = field(default="error", kw_only=True)

    def __post_init__(self) -> None:
        who = f"Integer({short(self.low)}, {short(self.high)})"
        settle(self, low=_bound(who, self.low), high=_bound(who, self.high))
        if self.low > self.high:
            raise SchemaError(f"{who}: the lower bound is above the upper bound; no number is in the range")
        check_policy(who, self.outside, numeric=True)

    def __repr__(self) -> str:
        return f"Integer({self.low}, {self.high}{policy_text(self)})"

    @property
    def inner_size(self) -> int:
        return self.high - self.low + 1

    def moment(self, power: int) -> Array:
        values = (np.arange(self.inner_size, dtype=np.float64) + self.low) ** power
        return values if self.other is None else np.append(values, 0.0)

    def to_manifest(self, arrays: dict[str, AnyArray] | None = None) -> dict[str, Any]:
        return {"kind": "integer", "low": self.low, "high": self.high, "outside": self.outside}

    def _inner_label(self, cell: int) -> str:
        return str(self.low + cell)

    def _cells_of_numbers(self, values: AnyArray, *, nearest: bool) -> Cells:
        return cells_in_range(values, self.low, self.high, nearest=nearest)


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Categorical(Attribute):
    """Labels in the order given: all text, all whole numbers, or all booleans; each is a cell.

    Text labels match text exactly, and a label in plain digits also matches that number in a column of
    numbers. Whole-number labels match integers, whole floats and digits. Boolean labels match booleans, 0 and
    1, and the text 'true', 'True', 'TRUE', '1' (false likewise); boolean columns match text labels so spelt.

    >>> sex = Categorical("F", "M", outside="drop")
    >>> sex.encode(["M", "F", "?", None]).tolist()
    [1, 0, -1, -1]
    >>> Categorical(False, True).encode(["true", "0"]).tolist()
    [1, 0]
    """

    numeric: ClassVar[bool] = False

    values: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]
    type: Literal["text", "integer", "boolean"]  # compared too: Python holds (0, 1) and (False, True) equal
    outside: Policy

    def __init__(self, *labels: str | int | bool, outside: Policy = "error") -> None:
        who = f"Categorical({listing(labels)})"
        values = tuple(_label(who, label) for label in labels)
        settle(self, values=values, type=_label_type(who, values), outside=outside)
        check_policy(who, outside, numeric=False)
        check_labels(who, self.labels())

    def __repr__(self) -> str:
        return f"Categorical({listing(self.values)}{policy_text(self)})"

    @property
    def inner_size(self) -> int:
        return len(self.values)

    def to_manifest(self, arrays: dict[str, AnyArray] | None = None) -> dict[str, Any]:
        return {"kind": "categorical", "labels": list(self.values), "outside": self.outside}

    def _inner_label(self, cell: int) -> str:
        return str(self.values[cell])

    def _inner_labels_to_suggest(self) -> tuple[str, ...]:
        return tuple(map(str, self.values))

    def _cells_of_numbers(self, values: AnyArray, *, nearest: bool) -> Cells:
        if self.type != "text":
            return cells_in_set(values, [int(value) for value in self.values], range(self.inner_size))
        return cells_of_numbers_as_words(values, self.labels()[: self.inner_size])

    def _cells_of_text(self, distinct: Any, *, nearest: bool) -> Cells:
        if self.type == "integer":
            return Attribute._cells_of_text(self, distinct, nearest=nearest)
        if self.type == "text":
            return cells_of_words(distinct, [str(value) for value in self.values], range(self.inner_size))
        spellings = (_TRUE if value else _FALSE for value in self.values)
        spelt = {text: cell for cell, texts in enumerate(spellings) for text in texts}
        return cells_of_words(distinct, list(spelt), list(spelt.values()))


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Binned(Attribute):
    """Half-open bins [e0, e1), [e1, e2), ... of numbers; with `above` one more, from the last edge upwards.

    Values may be integers of any width, floats, booleans (0 and 1) or text that is a number. `values` says
    what each bin counts as where sums are asked for.

    >>> income = Binned(0, 10_000, 25_000, above=True)
    >>> income.labels()
    ('[0, 10000)', '[10000, 25000)', '25000 and above')
    >>> income.encode([0, 9_999.99, 10_000, 1e9]).tolist()
    [0, 0, 1, 2]
    """

    numeric: ClassVar[bool] = True

    edges: tuple[float, ...]
    above: bool
    outside: Policy
    values: tuple[float, ...] | None

    def __init__(
        self,
        *edges: float,
        above: bool = False,
        outside: Policy = "error",
        values: Sequence[float] | None = None,
    ) -> None:
        who = f"Binned({listing(edges)}{', above=True' if above else ''})"
        settle(self, edges=tuple(_edge(who, edge) for edge in edges), above=bool(above), outside=outside)
        check_policy(who, outside, numeric=True)
        if self.inner_size < 1:
            raise SchemaError(f"{who}: too few edges for a bin; give at least two, or one with above=True")
        for left, right in zip(self.edges, self.edges[1:], strict=False):
            if not left < right:
                raise SchemaError(f"{who}: edge {plain(right)} follows {plain(left)}; edges must increase")
        declared = None if values is None else tuple(_edge(who, value, "value") for value in values)
        if declared is not None and len(declared) != self.inner_size:
            raise SchemaError(f"{who}: {len(declared)} values for {self.inner_size} bins; give one for each")
        settle(self, values=declared)

    def __repr__(self) -> str:
        above = ", above=True" if self.above else ""
        values = "" if self.values is None else f", values=[{listing([*map(plain, self.values)])}]"
        return f"Binned({listing([plain(edge) for edge in self.edges])}{above}{values}{policy_text(self)})"

    @property
    def inner_size(self) -> int:
        return len(self.edges) - (not self.above)

    def to_manifest(self, arrays: dict[str, AnyArray] | None = None) -> dict[str, Any]:
        edges = [plain(edge) for edge in self.edges]
        manifest = {"kind": "binned", "edges": edges, "above": self.above, "outside": self.outside}
        return manifest if self.values is None else {**manifest, "values": [*map(plain, self.values)]}

    def moment(self, power: int) -> Array:
        if self.values is None:
            raise SchemaError(f"needs the value of each bin; give {self!r} its values=[...], or use Number")
        return np.array([value**power for value in self.values] + [0.0] * (self.other is not None))

    def _inner_label(self, cell: int) -> str:
        if cell == len(self.edges) - 1:
            return f"{plain(self.edges[cell])} and above"
        return f"[{plain(self.edges[cell])}, {plain(self.edges[cell + 1])})"

    def _cells_of_numbers(self, values: AnyArray, *, nearest: bool) -> Cells:
        return cells_in_bins(values, self.edges, above=self.above)


def plain(edge: float) -> int | float:
    """An edge as people write it: 10000 rather than 10000.0, where the integer is short and exact."""
    return int(edge) if edge.is_integer() and abs(edge) < 2**53 else edge


def cells_of_numbers_as_words(values: AnyArray, labels: Sequence[str]) -> Cells:
    """The cells of numbers or booleans where labels are text: 7 and 7.0 are '7', True is 'True' or 'true'."""
    if values.dtype.kind != "b":
        keys, cells = whole_number_keys(labels)
        return cells_in_set(values, keys, cells)
    where = {label: cell for cell, label in enumerate(labels)}
    no, yes = (next((where[text] for text in spelt if text in where), OUTSIDE) for spelt in (_FALSE, _TRUE))
    return np.where(values, np.int32(yes), np.int32(no))


def check_labels(who: str, labels: Sequence[str]) -> None:
    """Nothing, or the SchemaError for texts that cannot name cells: repeated, taken, or not Unicode."""
    seen: set[str] = set()
    for label in labels:
        if label in seen:
            taken = f"; outside={label.strip('()')!r} takes it" if label in (OTHER, MISSING) else ""
            raise SchemaError(
                f"{who}: the label {short(label)} is there twice{taken}; labels must differ as text"
            )
        if not is_unicode(label):
            raise SchemaError(f"{who}: the label {short(label)} is not valid Unicode text")
        seen.add(label)


def policy_text(attribute: Attribute) -> str:
    """The policy as it was given to the attribute, if it was."""
    return "" if attribute.outside == "error" else f", outside={attribute.outside!r}"


def _bound(who: str, value: object) -> int:
    what = f"{who}: the bound {short(value)}"
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise SchemaError(f"{what} is not a whole number; use Binned for other numbers")
    bound = operator.index(value)
    if not _INT64.min <= bound <= _INT64.max:
        raise SchemaError(f"{what} does not fit 64 bits; use Binned or Categorical")
    return bound


def _single(who: str, value: object, what: str) -> object:
    """A plain value of Python, refused if it is several."""
    if isinstance(value, list | tuple | set | np.ndarray):
        raise SchemaError(f"{who}: {what}; put a * before the list")
    return value.item() if isinstance(value, np.generic) else value


def _label(who: str, given: object) -> str | int | bool:
    label = _single(who, given, "labels are given one by one, as in Categorical('F', 'M')")
    what = f"{who}: the label {short(label)}"
    if not isinstance(label, str | int):
        raise SchemaError(f"{what} is neither text, whole number nor boolean; use text")
    if isinstance(label, int) and not _INT64.min <= label <= _INT64.max:
        raise SchemaError(f"{what} does not fit 64 bits; write the labels as text")
    return label if isinstance(label, int) else str(label)


def _label_type(who: str, values: Sequence[object]) -> Literal["text", "integer", "boolean"]:
    if not values:
        raise SchemaError(f"{who}: no labels; give at least one")
    names: dict[type, Literal["text", "integer", "boolean"]] = {bool: "boolean", int: "integer", str: "text"}
    found = {next(names[kind] for kind in names if isinstance(value, kind)) for value in values}
    if len(found) > 1:
        raise SchemaError(f"{who}: the labels mix {' and '.join(sorted(found))}; write them all as text")
    return found.pop()


def _edge(who: str, given: object, kind: str = "edge") -> float:
    value = _single(who, given, "edges are given one by one, as in Binned(0, 10, 20)")
    what = f"{who}: the {kind} {short(value)}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{what} is not a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise SchemaError(f"{what} is not finite; above=True makes the last bin open")
    if isinstance(value, int) and (abs(value) > 2**1023 or float(value) != value):
        raise SchemaError(f"{what} has too many digits to be held exactly as float64")
    return float(value) + 0.0  # -0.0 becomes 0.0, so that equal schemas have equal labels
