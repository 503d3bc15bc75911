"""A unit of privacy in terms of a schema: how many records of a person may be where."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from residua._arrays import Integers
from residua.errors import SchemaError
from residua.privacy import Budget, Unit
from residua.schema import Schema


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
        if unit.id in schema:
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

    def allowance(self, budget: Budget) -> Fraction:
        """What a person may cost in the currency of the budget's noise."""
        return self.unit.allowance(budget) * self.unit.factor_of(budget.law)

    def most_for_one(self, budget: Budget) -> Fraction:
        """The most that a record may cost whatever is measured: all that may be in one cell can be there."""
        return self.allowance(budget) / self.alike ** (1 if budget.law == "laplace" else 2)
