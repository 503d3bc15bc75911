"""What zCDP alone and pure DP alone imply for (epsilon, delta). Each function says which way it rounds.

rho-zCDP gives, for every order 1 + t with t > 0 (P-020),

    log delta(epsilon) <= t ((1 + t) rho - epsilon) - t log(1 + 1/t) - log(1 + t)

Any t gives a true bound, so the best t is searched in floats and the bound evaluated in balls.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from residua.errors import BudgetError
from residua.privacy.exact import Number, exact_text, non_negative, positive, probability
from residua.privacy.rounding import at_most, ball_of, first_float, meaning, probability_above

if TYPE_CHECKING:
    from flint import arb


def zcdp_delta_of(rho: Number, epsilon: Number) -> float:
    """Delta at epsilon >= 0 of every mechanism that is rho-zCDP, rounded up (P-020).

    >>> zcdp_delta_of("1/2", 1) > 0.126936737506644  # a Gaussian of the same rho has less
    True
    """
    amount, at = non_negative(rho, "rho"), non_negative(epsilon, "epsilon")
    return probability_above(_zcdp_ball(amount, at)) if amount else 0.0


def zcdp_epsilon_of(rho: Number, delta: Number) -> float:
    """Epsilon at delta of every mechanism that is rho-zCDP, rounded up (P-020).

    >>> round(zcdp_epsilon_of("0.1", "1e-6"), 4)
    2.1419
    """
    amount, limit = non_negative(rho, "rho"), probability(delta, "delta")
    return first_float(lambda epsilon: zcdp_delta_at_most(amount, meaning(epsilon), limit))


def rho_for(epsilon: Number, delta: Number) -> Fraction:
    """Largest rho at which rho-zCDP alone gives (epsilon, delta)-DP, rounded down (P-020).

    >>> round(float(rho_for(1, "1e-6")), 5)
    0.02436
    """
    at, limit = positive(epsilon, "epsilon"), probability(delta, "delta")
    first_refused = first_float(lambda rho: not zcdp_delta_at_most(Fraction(rho), at, limit))
    rho = Fraction(math.nextafter(first_refused, 0.0))
    if not rho:
        raise BudgetError(f"epsilon {exact_text(at)} asks for more noise than numbers can hold; raise it")
    return rho


def zcdp_delta_at_most(rho: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether rho-zCDP is proved to give (epsilon, delta)-DP; False where no precision decides."""
    return not rho or at_most(_zcdp_ball(rho, epsilon), delta)


def pure_delta_of(pure_epsilon: Number, epsilon: Number) -> float:
    """Delta at epsilon >= 0 of every mechanism that is pure_epsilon-DP, rounded up (P-021).

    >>> pure_delta_of(1, 1), pure_delta_of(1, 0) > 0.46
    (0.0, True)
    """
    amount, at = non_negative(pure_epsilon, "pure_epsilon"), non_negative(epsilon, "epsilon")
    return probability_above(lambda: _pure_ball(amount, at)) if at < amount else 0.0


def pure_delta_at_most(pure_epsilon: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether pure_epsilon-DP is proved to give (epsilon, delta)-DP; False where no precision decides."""
    return epsilon >= pure_epsilon or at_most(lambda: _pure_ball(pure_epsilon, epsilon), delta)


def _zcdp_ball(rho: Fraction, epsilon: Fraction) -> Callable[[], "arb"]:
    """Ball function of the bound of P-020 at a nearly best t, for rho > 0."""
    order = Fraction(_best_order(float(rho), float(epsilon)))

    def ball() -> "arb":
        t = ball_of(order)
        return (t * ((1 + t) * ball_of(rho) - ball_of(epsilon)) - t * (1 / t).log1p() - t.log1p()).exp()

    return ball


def _best_order(rho: float, epsilon: float) -> float:
    """The t that minimises the bound of P-020, which is convex in t, by bisecting its derivative in log t."""
    low, high = -700.0, 700.0
    for _ in range(64):
        middle = (low + high) / 2
        t = math.exp(middle)
        if (1 + 2 * t) * rho - epsilon < math.log1p(1 / t):
            low = middle
        else:
            high = middle
    return math.exp(high)


def _pure_ball(pure_epsilon: Fraction, epsilon: Fraction) -> "arb":
    """Ball around (e^pure - e^epsilon) / (1 + e^pure), written so that nothing overflows."""
    top = ball_of(pure_epsilon)
    return -(ball_of(epsilon) - top).expm1() / (1 + (-top).exp())
