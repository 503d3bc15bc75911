"""What a Gaussian mechanism's privacy cost implies for (epsilon, delta), and back.

With mu^2 the privacy cost, every Gaussian mechanism that attains it has exactly (P-010)

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

which rises with mu and falls with epsilon. Each function says which way it rounds.
"""

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from residua.errors import BudgetError
from residua.privacy.exact import Number, exact_text, non_negative, positive, probability
from residua.privacy.rounding import at_most, ball_of, first_float, meaning, probability_above

if TYPE_CHECKING:
    from flint import arb

# e^epsilon is not formed beyond this: flint's exponents are not built for it.
_LARGEST_EXPONENT = 2**60


def delta_of(mu_squared: Number, epsilon: Number) -> float:
    """Delta of a Gaussian mechanism of this privacy cost at epsilon >= 0, rounded up.

    Never below the truth, above it by a few units in the last place (P-012).

    >>> delta_of(1, 1)
    0.12693673750664397
    """
    cost, at = non_negative(mu_squared, "mu_squared"), non_negative(epsilon, "epsilon")
    return probability_above(lambda: _delta_ball(cost, at)) if cost else 0.0


def epsilon_of(mu_squared: Number, delta: Number) -> float:
    """Smallest epsilon at which delta(epsilon) is at most delta, rounded up to a float.

    Zero where delta(0) is small enough already (P-013).

    >>> epsilon_of("1/20", "1e-6")
    0.9405155265307765
    """
    cost, limit = non_negative(mu_squared, "mu_squared"), probability(delta, "delta")
    return first_float(lambda epsilon: delta_at_most(cost, meaning(epsilon), limit))


def cost_for(epsilon: Number, delta: Number) -> Fraction:
    """Largest privacy cost mu^2 at which a Gaussian mechanism is (epsilon, delta)-DP, rounded down.

    The result is a dyadic rational of at most 53 significant bits, at most one part in 2^51 below the truth
    unless that is under 1e-307 (P-014).

    >>> round(float(cost_for(1, "1e-6")), 6)
    0.056029
    """
    at, limit = positive(epsilon, "epsilon"), probability(delta, "delta")
    first_refused = first_float(lambda cost: not delta_at_most(Fraction(cost), at, limit))
    cost = Fraction(math.nextafter(first_refused, 0.0))
    if not cost:
        raise BudgetError(f"epsilon {exact_text(at)} asks for more noise than numbers can hold; raise it")
    return cost


def delta_at_most(cost: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether delta(epsilon) is proved to be at most delta; a case that no precision decides is False."""
    return not cost or at_most(lambda: _delta_ball(cost, epsilon), delta)


def _delta_ball(cost: Fraction, epsilon: Fraction) -> "arb":
    """Ball around delta(epsilon) for cost > 0; around an upper bound for an astronomical epsilon."""
    mu, eps = ball_of(cost).sqrt(), ball_of(epsilon)
    root2 = ball_of(Fraction(2)).sqrt()
    # Phi(-x) = erfc(x / sqrt 2) / 2
    likely = ((eps / mu - mu / 2) / root2).erfc() / 2
    if epsilon > _LARGEST_EXPONENT:
        return likely
    return likely - eps.exp() * ((eps / mu + mu / 2) / root2).erfc() / 2
