"""Privacy budgets: how much may be spent, in the definition its owner chose, in exact fractions.

Each is spent on noise of one law; what its parameter, variance and intervals have to do with one another is
at the end.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from statistics import NormalDist
from typing import Any, ClassVar, cast, get_args

import numpy as np

from residua._arrays import Array
from residua._manifests import text
from residua.errors import BudgetError, FileFormatError, WorkloadError, asks_for, retold
from residua.privacy.conversions import NoiseLaw, Number, amount_for, exact_text, positive, probability
from residua.privacy.statement import Privacy
from residua.privacy.unit import Unit

_NARROWEST = 115.0  # half of one over a scale: the variance is then 1e-100, and not to be divided by below
# Below the first the sum over integers converges fast, above it the sum over frequencies (N-021).
_FEW_INTEGERS = 0.25
_SMOOTH = 4.0  # from which on the frequencies add less than floats hold
_TERMS = range(1, 9)


@dataclass(frozen=True, slots=True, repr=False)
class Budget(ABC):
    """An amount of privacy under one definition.

    Built by `privacy_cost`, `zcdp`, `gdp`, `approx_dp` or `pure_dp`, and printed as that call. Two budgets
    are equal where definition and amounts are.
    """

    definition: ClassVar[str]
    words: ClassVar[str]
    """The budget in plain words, with its amounts to be filled in."""

    law: ClassVar[NoiseLaw] = "gaussian"
    """The law of the noise that is planned for it."""

    def describe(self) -> str:
        """The budget in plain words."""
        return self.words.format(**{name: exact_text(value) for name, value in self._amounts().items()})

    @abstractmethod
    def gaussian_cost(self) -> Fraction:
        """Largest privacy cost that a Gaussian mechanism may have: exact, or rounded down (P-040)."""

    def covers(self, privacy: Privacy) -> bool:
        """Whether what is proved fits in this budget; False where it is not proved (P-041)."""
        return privacy.cost is not None and privacy.cost <= self.gaussian_cost()

    def laplace_epsilon(self) -> Fraction:
        """Largest pure epsilon that a Laplace mechanism may have; only a pure budget has one."""
        raise BudgetError(f"Laplace noise is planned for pure DP, not for {self!r}; give pure_dp(epsilon)")

    def proves(self, unit: Unit) -> Privacy:
        """What noise that spends all of it proves, for whom `unit` says."""
        if self.law == "laplace":
            return Privacy.from_pure_epsilon(self.laplace_epsilon(), unit)
        return Privacy.from_cost(self.gaussian_cost(), unit)

    def to_manifest(self) -> dict[str, str]:
        """The budget as JSON can hold it, amounts as exact text."""
        return {"definition": self.definition} | {name: str(value) for name, value in self._amounts().items()}

    def _amounts(self) -> dict[str, Fraction]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        return f"{self.definition}({', '.join(repr(str(value)) for value in self._amounts().values())})"


@dataclass(frozen=True, slots=True, repr=False)
class _PrivacyCost(Budget):
    definition = "privacy_cost"
    words = "privacy cost {beta} (Gaussian DP with mu squared at most that)"
    beta: Fraction

    def gaussian_cost(self) -> Fraction:
        return self.beta


@dataclass(frozen=True, slots=True, repr=False)
class _Zcdp(Budget):
    definition = "zcdp"
    words = "zero-concentrated DP with rho = {rho}"
    rho: Fraction

    def gaussian_cost(self) -> Fraction:
        return 2 * self.rho

    def covers(self, privacy: Privacy) -> bool:
        return privacy.rho <= self.rho


@dataclass(frozen=True, slots=True, repr=False)
class _Gdp(Budget):
    definition = "gdp"
    words = "Gaussian DP with mu = {mu}"
    mu: Fraction

    def gaussian_cost(self) -> Fraction:
        return self.mu**2


@dataclass(frozen=True, slots=True, repr=False)
class _ApproxDp(Budget):
    definition = "approx_dp"
    words = "approximate DP with epsilon = {epsilon} and delta = {delta}"
    epsilon: Fraction
    delta: Fraction

    def gaussian_cost(self) -> Fraction:
        return amount_for(self.epsilon, self.delta)

    def covers(self, privacy: Privacy) -> bool:
        return privacy.implies(self.epsilon, self.delta)


@dataclass(frozen=True, slots=True, repr=False)
class _PureDp(Budget):
    definition = "pure_dp"
    words = "pure DP with epsilon = {epsilon}"
    law = "laplace"
    epsilon: Fraction

    def gaussian_cost(self) -> Fraction:
        raise BudgetError(
            f"Gaussian noise cannot give pure DP, so no privacy cost fits {self!r}; "
            "plan with a method that uses Laplace noise, or give zcdp(rho) or approx_dp(epsilon, delta)"
        )

    def laplace_epsilon(self) -> Fraction:
        return self.epsilon

    def covers(self, privacy: Privacy) -> bool:
        return privacy.pure_epsilon is not None and privacy.pure_epsilon <= self.epsilon


def privacy_cost(beta: Number) -> Budget:
    """Budget of a privacy cost: the largest diagonal entry of a Gaussian mechanism's privacy matrix.

    >>> privacy_cost(1).gaussian_cost()
    Fraction(1, 1)
    """
    return _PrivacyCost(positive(beta, "beta"))


def zcdp(rho: Number) -> Budget:
    """Budget of rho-zero-concentrated DP.

    >>> zcdp(0.1)
    zcdp('1/10')
    """
    return _Zcdp(positive(rho, "rho"))


def gdp(mu: Number) -> Budget:
    """Budget of mu-Gaussian DP.

    >>> gdp("1/2").gaussian_cost()
    Fraction(1, 4)
    """
    return _Gdp(positive(mu, "mu"))


@asks_for("delta", BudgetError, "approximate DP has a delta too; give both, such as rs.approx_dp(1, 1e-6)")
def approx_dp(epsilon: Number, delta: Number) -> Budget:
    """Budget of (epsilon, delta)-DP.

    >>> print(approx_dp(1, 1e-6).describe())
    approximate DP with epsilon = 1 and delta = 0.000001
    """
    return _ApproxDp(positive(epsilon, "epsilon"), probability(delta, "delta"))


def pure_dp(epsilon: Number) -> Budget:
    """Budget of pure epsilon-DP.

    >>> pure_dp(0.5).laplace_epsilon()
    Fraction(1, 2)
    """
    return _PureDp(positive(epsilon, "epsilon"))


BUILDERS: Mapping[str, Callable[..., Budget]] = {
    build.__name__: build for build in (privacy_cost, zcdp, gdp, approx_dp, pure_dp)
}


def budget_from_manifest(record: Mapping[str, Any]) -> Budget:
    """The budget that `Budget.to_manifest` wrote; an edited or foreign one is a FileFormatError."""
    kinds = (TypeError, BudgetError, FileFormatError)  # other amounts, or such as cannot be
    with retold(kinds, FileFormatError, "this is not the record of a budget: "):
        build = BUILDERS.get(text(record, "definition"))
        if build is None:
            raise FileFormatError(f"there are {', '.join(BUILDERS)}")
        return build(**{name: text(record, name) for name in record if name != "definition"})


def noise_law(name: object) -> NoiseLaw:
    """The law that a file names."""
    if name not in get_args(NoiseLaw):
        raise FileFormatError(f"this version knows no noise of the law {name!r}")
    return cast(NoiseLaw, name)


def variance_ratio(law: NoiseLaw, factor: float) -> float:
    """What variances are divided by where the privacy cost is multiplied by `factor`."""
    return factor * factor if law == "laplace" else factor


def parameter_of(law: NoiseLaw, variance: float) -> float:
    """The parameter of real noise of this variance: the variance itself, or the scale."""
    return math.sqrt(variance / 2) if law == "laplace" else variance


def unit_variance(law: NoiseLaw) -> float:
    """Variance of real noise of parameter 1."""
    return 2.0 if law == "laplace" else 1.0


def integer_variances(law: NoiseLaw, parameters: Array) -> Array:
    """Variance of integer noise of each parameter, to float accuracy.

    Gaussian noise is rounded, which adds about a twelfth (N-021). Integers with probabilities in proportion
    to exp(-|k|/scale) have `1 / (2 sinh^2(1/2scale))`, less than real Laplace noise (N-030, H-002).

    >>> integer_variances("gaussian", np.array([100.0])), integer_variances("laplace", np.array([100.0]))
    (array([100.08333333]), array([19999.83333417]))
    """
    if law == "laplace":
        half = np.minimum(0.5 / parameters, _NARROWEST)  # where almost every number is zero
        return np.asarray(1.0 / (2.0 * np.sinh(half) ** 2))
    found = parameters + 1 / 12
    narrow = parameters < _SMOOTH
    found[narrow] = [_rounded_gaussian_variance(parameter) for parameter in parameters[narrow].tolist()]
    return found


def _rounded_gaussian_variance(square: float) -> float:
    if square < _FEW_INTEGERS:
        return math.fsum((2 * k - 1) * math.erfc((k - 0.5) / math.sqrt(2 * square)) for k in _TERMS)
    waves = (
        (-1) ** m * (4 * square + 1 / (math.pi * m) ** 2) * math.exp(-2 * math.pi**2 * m * m * square)
        for m in _TERMS
    )
    return math.fsum([square, 1 / 12, *waves])


def bound_divisor(law: NoiseLaw, allowed: Fraction) -> float:
    """What a lower bound at Gaussian cost 1 is divided by to hold at this cost (claim H-003).

    With Laplace noise of epsilon in all, no cell of the privacy matrix exceeds `2 sinh^2(epsilon / 2)`.
    """
    return float(allowed) if law == "gaussian" else 2.0 * math.sinh(min(float(allowed) / 2, 350.0)) ** 2


def checked_level(level: float) -> float:
    """The level of an interval, refused where it is none."""
    if not isinstance(level, int | float) or not 0 < level < 1:
        raise WorkloadError(f"a confidence level is between 0 and 1, such as 0.95, not {level!r}")
    return level


def interval_margin(law: NoiseLaw, level: float) -> float:
    """Half the width of an interval, in standard deviations.

    Sums of Laplace noise lie between one Laplace number and a Gaussian one; the wider of the two is taken
    (claim H-004).

    >>> round(interval_margin("gaussian", 0.95), 3), round(interval_margin("laplace", 0.95), 3)
    (1.96, 2.118)
    """
    margin = NormalDist().inv_cdf(0.5 + checked_level(level) / 2)
    return margin if law == "gaussian" else max(margin, -math.log1p(-level) / math.sqrt(2))
