"""Whose privacy is protected: a record, or a person with several, of whom only so many are counted.

A `Unit` says it in words that need no data; a `Person` is the unit in terms of a schema: how many records of
one may be where.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np

from residua._arrays import Integers
from residua._manifests import submanifest, text, whole
from residua._text import short
from residua.errors import BudgetError, FileFormatError, SchemaError, retold
from residua.privacy.conversions import NoiseLaw
from residua.schema import Schema

Neighbours = Literal["add_remove", "replace_one"]
MissingId = Literal["error", "drop", "own"]

# What one record may cost: beyond these no noise that 64-bit integers hold is near, and floats give out.
_LEAST, _MOST = Fraction(1, 10**60), Fraction(10**30)


class Spendable(Protocol):
    """A budget, as far as a unit needs to know it."""

    @property
    def law(self) -> NoiseLaw: ...

    def gaussian_cost(self) -> Fraction: ...

    def laplace_epsilon(self) -> Fraction: ...


@dataclass(frozen=True, slots=True, repr=False)
class Unit:
    """Whose privacy is protected, and how neighbouring datasets differ in that.

    Without `id`, one person with at most `max_records` records, which is a promise that nobody checks.
    With `id`, all records that share a value of that column: a person, a household, a device. Whoever counts
    keeps at most `max_records` of them, and of these at most `max_per[name]` in one cell of an attribute, or
    of a level of it; `one_per=name` says at most 1. What is kept of one depends on its own records only, so
    that nothing is promised about the data (claim P-033).

    `add_remove`: the records are all there or all absent. `replace_one`: without `id`, each of the person's
    records may become any other record, their number being public; with it, all records of one `id` may
    become any others, the number of ids being public.

    max_records: int
        The most records of one person that count.
    neighbours: str
        "add_remove" or "replace_one".
    id: str, optional
        The column that says whose record each is; it is no attribute, and nothing of it is published.
    one_per, max_per: str; mapping of str to int; optional
        Attributes, or levels of them such as "day.quarter", and how many records in one of their cells count.
    missing_id: str
        What becomes of records without an id: "error", "drop", or "own": each is a person of its own.

    >>> Unit(max_records=3).factor
    Fraction(9, 1)
    >>> Unit(id="person_id", max_records=4, one_per="quarter")
    Unit(max_records=4, neighbours='add_remove', id='person_id', max_per={'quarter': 1})
    """

    max_records: int = 1
    neighbours: Neighbours = "add_remove"
    id: str | None = None
    one_per: str | Sequence[str] | None = field(default=None, compare=False)
    max_per: Mapping[str, int] = field(default_factory=dict, hash=False)
    missing_id: MissingId = "error"

    def __post_init__(self) -> None:
        names = (self.one_per,) if isinstance(self.one_per, str) else tuple(self.one_per or ())
        per = {**dict.fromkeys(names, 1), **self.max_per}
        for name, most in (("max_records", self.max_records), *per.items()):
            if not isinstance(most, int | np.integer) or isinstance(most, bool) or most < 1:
                what = name if name == "max_records" else f"max_per[{name!r}]"
                raise BudgetError(
                    f"{what} must be a whole number of at least 1, not {most!r}; "
                    "give the most records one person can have"
                )
        if self.neighbours not in ("add_remove", "replace_one"):
            raise BudgetError(f"neighbours must be 'add_remove' or 'replace_one', not {self.neighbours!r}")
        if self.missing_id not in ("error", "drop", "own"):
            raise BudgetError(f"missing_id must be 'error', 'drop' or 'own', not {short(self.missing_id)}")
        if self.id is not None and (not isinstance(self.id, str) or not self.id):
            raise BudgetError(f"id is the name of a column, such as 'person_id', not {short(self.id)}")
        self._check_patterns(per)
        limits = {name: int(per[name]) for name in sorted(per)}
        settled = {"max_records": int(self.max_records), "max_per": limits, "one_per": None}  # max_per has it
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    def _check_patterns(self, per: Mapping[str, int]) -> None:
        if self.id is None and (per or self.missing_id != "error"):
            raise BudgetError(
                "one_per, max_per and missing_id need id, the column that says whose record each is, "
                "such as id='person_id'"
            )
        for name, most in per.items():
            if most >= self.max_records:
                raise BudgetError(
                    f"at most {most} in one cell of {name!r} says nothing where max_records is "
                    f"{self.max_records}; give a larger max_records, or leave {name!r} out"
                )

    @property
    def replacing(self) -> bool:
        """Whether what is protected is that one record is replaced by another."""
        return self.neighbours == "replace_one"

    @property
    def factor(self) -> Fraction:
        """A person's Gaussian cost over one record's: the square of `max_records` (P-030)."""
        return Fraction(self.max_records**2)

    @property
    def pure_factor(self) -> Fraction:
        """A person's pure epsilon over one record's: `max_records` (P-030)."""
        return Fraction(self.max_records)

    def factor_of(self, law: NoiseLaw) -> Fraction:
        """A person's cost over one record's with noise of this law, where records may all be in one cell."""
        return self.pure_factor if law == "laplace" else self.factor

    def record_cost(self, budget: Spendable) -> Fraction:
        """Gaussian cost that one record may have, under this neighbour relation, if a person has the budget.

        >>> from residua.privacy import zcdp
        >>> Unit(max_records=2).record_cost(zcdp("0.5"))
        Fraction(1, 4)
        """
        return budget.gaussian_cost() / self.factor

    def record_epsilon(self, budget: Spendable) -> Fraction:
        """Pure epsilon one record may have, under this neighbour relation, if a person has the budget."""
        return budget.laplace_epsilon() / self.pure_factor

    def allowance(self, budget: Spendable) -> Fraction:
        """What one record may cost in the currency of the budget's noise: Gaussian cost, or pure epsilon.

        >>> from residua.privacy import pure_dp
        >>> Unit(max_records=2).allowance(pure_dp("0.5"))
        Fraction(1, 4)
        """
        allowed = self.record_epsilon(budget) if budget.law == "laplace" else self.record_cost(budget)
        if allowed < _LEAST:
            raise BudgetError(
                "this budget leaves one record a privacy cost of less than 1e-60, and 64-bit integers do not "
                "hold the noise for that; give a larger budget"
            )
        if allowed > _MOST:
            raise BudgetError(
                "this budget allows one record a privacy cost of more than 1e30, which protects nobody; "
                "give a smaller one, such as zcdp(0.1)"
            )
        return allowed

    @property
    def whom(self) -> tuple[object, ...]:
        """What two units share that protect the same; with `id`, not how many records are counted.

        What is kept of a person is then the mechanism's choice, whatever records the person has (P-033).
        """
        return (self.neighbours, self.id, self.missing_id) if self.id else (self.neighbours, self.max_records)

    @property
    def noun(self) -> str:
        """What one unit is called.

        >>> Unit(id="household_id", max_records=2).noun
        'household'
        """
        if self.id is None:
            return "person" if self.max_records > 1 else "record"
        return self.id.removesuffix("_id").replace("_", " ")

    def describe(self) -> str:
        """What neighbouring datasets differ by, in plain words.

        >>> Unit(max_records=3).describe()
        'adding or removing one person with at most 3 records'
        >>> Unit(id="device", max_records=4, one_per="day").describe()[:70]
        "adding or removing one device: all records with one value of 'device',"
        """
        whom = f"one {self.noun}"
        if self.id is not None:
            per = " and ".join(f"at most {most} for each {name}" for name, most in self.max_per.items())
            whom += f": all records with one value of {self.id!r}, of which at most {self.max_records} "
            whom += f"{'is' if self.max_records == 1 else 'are'} counted{f' ({per})' if per else ''}"
        elif self.max_records > 1:
            whom += f" with at most {self.max_records} records"
        if not self.replacing:
            return f"adding or removing {whom}"
        if self.id is not None:
            return f"replacing {whom}; the number of different {self.id!r} is public"
        return f"changing the values of {whom}, the number of records being public"

    def __repr__(self) -> str:
        parts = [f"max_records={self.max_records!r}", f"neighbours={self.neighbours!r}"]
        parts += [f"id={self.id!r}"] * (self.id is not None)
        parts += [f"max_per={self.max_per!r}"] * bool(self.max_per)
        parts += [f"missing_id={self.missing_id!r}"] * (self.missing_id != "error")
        return f"Unit({', '.join(parts)})"

    def to_manifest(self) -> dict[str, object]:
        """The unit as JSON can hold it; without an id, as before there were any."""
        found: dict[str, object] = {"max_records": self.max_records, "neighbours": self.neighbours}
        if self.id is not None:
            found |= {"id": self.id, "max_per": dict(self.max_per), "missing_id": self.missing_id}
        return found

    @classmethod
    def from_manifest(cls, record: Mapping[str, Any]) -> "Unit":
        """The unit that `to_manifest` wrote; an edited or foreign one is a FileFormatError."""
        kinds = (BudgetError, FileFormatError)
        with retold(kinds, FileFormatError, "this is not the record of a unit of privacy: "):
            known: dict[str, Any] = {"neighbours": text(record, "neighbours")}
            if "id" in record:
                per = submanifest(record, "max_per")
                known |= {name: text(record, name) for name in ("id", "missing_id")}
                known["max_per"] = {name: whole(per, name) for name in per}
            found = cls(whole(record, "max_records"), **known)
            if record.keys() != found.to_manifest().keys():
                raise BudgetError("it says more than this version knows")
            return found


@dataclass(frozen=True, slots=True, eq=False)
class Cap:
    """At most `most` records of a person are in one class of an attribute; `classes` is (cells,)."""

    attribute: int
    classes: Integers
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class Person:
    """A unit of privacy in terms of a schema."""

    unit: Unit
    caps: tuple[Cap, ...] = ()

    @classmethod
    def of(cls, unit: Unit, schema: Schema) -> "Person":
        """The unit, with the attributes that it names looked up."""
        caps = []
        for name, most in unit.max_per.items():
            at, _ = schema.resolve(name)
            if schema.units[at] > 1:
                raise SchemaError(
                    f"at most {most} for each {name!r}: a number counts in several cells at once; name an "
                    "attribute whose values are cells"
                )
            caps.append(Cap(at, schema.classes(name), most))
        if unit.id in schema.names:
            raise SchemaError(
                f"{unit.id!r} says whose records are whose and cannot be published: take it out of the schema"
            )
        return cls(unit, tuple(caps))

    @property
    def simple(self) -> bool:
        """Whether what it costs is a multiple of what adding or removing a record costs."""
        return not self.unit.replacing and not self.caps

    @property
    def records(self) -> int:
        """Records of one person that may be counted in all."""
        return min([self.unit.max_records, *(cap.most * len(np.unique(cap.classes)) for cap in self.caps)])

    @property
    def alike(self) -> int:
        """Records of one person that may be in one cell."""
        return min([self.unit.max_records, *(cap.most for cap in self.caps)])

    def allowance(self, budget: Spendable) -> Fraction:
        """What a person may cost in the currency of the budget's noise."""
        return self.unit.allowance(budget) * self.unit.factor_of(budget.law)

    def most_for_one(self, budget: Spendable) -> Fraction:
        """The most that a record may cost whatever is measured: all that may be in one cell can be there."""
        return self.allowance(budget) / self.alike ** (1 if budget.law == "laplace" else 2)
