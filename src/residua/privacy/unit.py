"""The unit of privacy: whose presence, or whose answers, a release hides."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np

from residua._manifests import text, whole
from residua.errors import BudgetError, FileFormatError
from residua.privacy.laws import NoiseLaw

Neighbours = Literal["add_remove", "replace_one"]

# What one record may cost: beyond these no noise that 64-bit integers hold is near, and floats give out.
_LEAST, _MOST = Fraction(1, 10**60), Fraction(10**30)


class Spendable(Protocol):
    """A budget, as far as a unit needs to know it."""

    @property
    def law(self) -> NoiseLaw: ...

    def gaussian_cost(self) -> Fraction: ...

    def laplace_epsilon(self) -> Fraction: ...


@dataclass(frozen=True, slots=True)
class Unit:
    """One person with at most `max_records` records, and how neighbouring datasets differ in that person.

    `add_remove`: the person's records are all there or all absent. `replace_one`: each of the person's
    records may become any other record; how many records the dataset has is public and does not change.

    A plan computes the cost of one record under the neighbour relation: max_i X_ii for `add_remove`,
    max_ij (e_i - e_j)' X (e_i - e_j) for `replace_one`. `factor` turns that into a person's cost (P-030).

    >>> Unit(max_records=3).factor
    Fraction(9, 1)
    """

    max_records: int = 1
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        counted = isinstance(self.max_records, int | np.integer) and not isinstance(self.max_records, bool)
        if not counted or self.max_records < 1:
            raise BudgetError(
                f"max_records must be a whole number of at least 1, not {self.max_records!r}; "
                "give the most records one person can have"
            )
        if self.neighbours not in ("add_remove", "replace_one"):
            raise BudgetError(f"neighbours must be 'add_remove' or 'replace_one', not {self.neighbours!r}")
        object.__setattr__(self, "max_records", int(self.max_records))

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

    @property
    def factor_from_add_remove(self) -> Fraction:
        """Bound on a person's Gaussian cost over max_i X_ii, where a plan knows no more than that (P-031)."""
        return self.factor * (4 if self.replacing else 1)

    @property
    def pure_factor_from_add_remove(self) -> Fraction:
        """Bound on a person's pure epsilon over that of adding or removing one record (P-031)."""
        return self.pure_factor * (2 if self.replacing else 1)

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

    def describe(self) -> str:
        """What neighbouring datasets differ by, in plain words.

        >>> Unit(max_records=3).describe()
        'adding or removing one person with at most 3 records'
        """
        whom = "one record"
        if self.max_records > 1:
            whom = f"one person with at most {self.max_records} records"
        if self.neighbours == "add_remove":
            return f"adding or removing {whom}"
        return f"changing the values of {whom}, the number of records being public"

    def to_manifest(self) -> dict[str, object]:
        """The unit as JSON can hold it."""
        return {"max_records": self.max_records, "neighbours": self.neighbours}

    @classmethod
    def from_manifest(cls, record: Mapping[str, Any]) -> "Unit":
        """The unit that `record` wrote; an edited or foreign record is a FileFormatError."""
        try:
            neighbours: Any = text(record, "neighbours")
            if len(record) > 2:
                raise BudgetError("it says more than this version knows")
            return cls(whole(record, "max_records"), neighbours)
        except (BudgetError, FileFormatError) as error:
            raise FileFormatError(f"this is not the record of a unit of privacy: {error}") from error
