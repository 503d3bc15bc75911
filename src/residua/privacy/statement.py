"""What is promised: whose privacy is protected, and the promise in every definition."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from residua.errors import BudgetError, FileFormatError, asks_for, retold
from residua.privacy.conversions import (
    Figure,
    Number,
    delta_of,
    epsilon_of,
    float_above,
    meaning,
    non_negative,
    probability,
    proves,
    text_above,
)
from residua.privacy.unit import Unit

_ONE_RECORD = Unit()
_SHOWN_DELTAS = ("1e-6", "1e-9")


@dataclass(frozen=True, slots=True, repr=False)
class Privacy:
    """What is proved for one unit of privacy; a figure that the noise law does not prove is None.

    Build it from the figure that the noise law proves, the unit's factor included:

    - `Privacy.from_cost`, continuous or rounded Gaussian noise: everything but a pure epsilon (P-010, P-011);
    - `Privacy.from_rho`, discrete Gaussian noise: zCDP and what that implies (P-020);
    - `Privacy.from_pure_epsilon`, Laplace noise: pure DP and what that implies (P-021, P-022).

    >>> Privacy.from_cost("0.2")
    Privacy(cost=0.2, rho=0.1, mu=0.447214, unit=Unit(max_records=1, neighbours='add_remove'))
    """

    figure: Figure
    amount: Fraction
    unit: Unit = _ONE_RECORD

    @classmethod
    def from_cost(cls, cost: Number, unit: Unit = _ONE_RECORD) -> "Privacy":
        """What Gaussian noise of this privacy cost proves."""
        return cls("cost", non_negative(cost, "cost"), unit)

    @classmethod
    def from_rho(cls, rho: Number, unit: Unit = _ONE_RECORD) -> "Privacy":
        """What noise proves of which no more than rho-zCDP is known."""
        return cls("rho", non_negative(rho, "rho"), unit)

    @classmethod
    def from_pure_epsilon(cls, pure_epsilon: Number, unit: Unit = _ONE_RECORD) -> "Privacy":
        """What noise that gives pure DP proves."""
        return cls("pure_epsilon", non_negative(pure_epsilon, "pure_epsilon"), unit)

    @property
    def cost(self) -> Fraction | None:
        """The privacy cost, mu squared; None where the noise is not Gaussian."""
        return self.amount if self.figure == "cost" else None

    @property
    def rho(self) -> Fraction:
        """The rho of zero-concentrated DP."""
        if self.figure == "cost":
            return self.amount / 2
        return self.amount if self.figure == "rho" else self.amount**2 / 2

    @property
    def mu(self) -> float | None:
        """The mu of Gaussian DP, rounded up; None where the noise is not Gaussian."""
        if self.figure != "cost":
            return None
        root = math.sqrt(self.amount)
        while meaning(root) ** 2 < self.amount:
            root = math.nextafter(root, math.inf)
        return root

    @property
    def pure_epsilon(self) -> Fraction | None:
        """The epsilon of pure DP; None where the noise law has none."""
        return self.amount if self.figure == "pure_epsilon" else None

    @asks_for("delta", BudgetError, "an epsilon is one at some delta; give it, such as privacy.epsilon(1e-6)")
    def epsilon(self, delta: Number) -> float:
        """An epsilon at which (epsilon, delta)-DP is proved, rounded up; the smallest for Gaussian noise.

        Delta is above 0 and below 1; pure differential privacy holds at 0 too.

        >>> Privacy.from_cost("0.05").epsilon("1e-6")
        0.9405155265307765
        """
        if self.figure != "pure_epsilon":
            return epsilon_of(self.amount, delta, self.figure)
        if non_negative(delta, "delta"):
            probability(delta, "delta")
        return float_above(self.amount)

    @asks_for("epsilon", BudgetError, "a delta is one at some epsilon; give it, such as privacy.delta(1)")
    def delta(self, epsilon: Number) -> float:
        """A delta at which (epsilon, delta)-DP is proved, rounded up; the smallest for Gaussian noise.

        >>> Privacy.from_pure_epsilon(1).delta(1)
        0.0
        """
        return delta_of(self.amount, epsilon, self.figure)

    def implies(self, epsilon: Number, delta: Number) -> bool:
        """Whether (epsilon, delta)-DP is proved, with no rounding of either number.

        >>> Privacy.from_cost("0.05").implies(1, "1e-6"), Privacy.from_rho("0.025").implies(1, "1e-6")
        (True, False)
        """
        at, limit = non_negative(epsilon, "epsilon"), probability(delta, "delta")
        return proves(self.figure, self.amount, at, limit)

    def describe(self) -> str:
        """The statement in plain words, one fact a line; every figure is rounded up.

        >>> print(Privacy.from_pure_epsilon("0.5", Unit(max_records=3)).describe())
        Protects against adding or removing one person with at most 3 records.
        Pure DP: epsilon = 0.5, whatever delta.
        Zero-concentrated DP: rho = 0.125.
        """
        lines = [f"Protects against {self.unit.describe()}."]
        if self.figure == "pure_epsilon":
            lines.append(f"Pure DP: epsilon = {text_above(self.amount)}, whatever delta.")
        lines.append(f"Zero-concentrated DP: rho = {text_above(self.rho)}.")
        if self.mu is not None:
            cost = text_above(self.amount)
            lines.append(f"Gaussian DP: mu = {text_above(self.mu)}; privacy cost = {cost}.")
        if self.figure != "pure_epsilon":
            pairs = (f"{text_above(self.epsilon(delta))} at delta = {delta}" for delta in _SHOWN_DELTAS)
            lines.append(f"Approximate DP: epsilon = {' and '.join(pairs)}.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        figures = {"cost": self.cost, "rho": self.rho, "pure_epsilon": self.pure_epsilon}
        parts = [f"{name}={text_above(value)}" for name, value in figures.items() if value is not None]
        if self.mu is not None:
            parts.append(f"mu={text_above(self.mu)}")
        return f"Privacy({', '.join(parts)}, unit={self.unit!r})"

    def to_manifest(self) -> dict[str, object]:
        """The statement as JSON can hold it, the figure as exact text."""
        return {self.figure: str(self.amount), "unit": self.unit.to_manifest()}

    @classmethod
    def from_manifest(cls, record: Mapping[str, Any]) -> "Privacy":
        """The statement that `to_manifest` wrote; an edited or foreign one is a FileFormatError."""
        builders = {"cost": cls.from_cost, "rho": cls.from_rho, "pure_epsilon": cls.from_pure_epsilon}
        kinds = (KeyError, ValueError)  # BudgetError and FileFormatError are ValueErrors
        with retold(kinds, FileFormatError, "this is not the record of a privacy statement: "):
            [figure] = record.keys() - {"unit"}
            return builders[figure](record[figure], Unit.from_manifest(record["unit"]))
