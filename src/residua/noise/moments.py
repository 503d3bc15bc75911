"""True variances and tails of the integer noise laws."""

import math
from fractions import Fraction

# Below this the sum over integers converges fast, above it the sum over frequencies (N-021, N-042).
_FEW_INTEGERS = Fraction(1, 4)
_TERMS = range(1, 9)

_LOG_2_ABOVE = Fraction(693_147_180_560, 10**12)


def rounded_gaussian_variance(sigma_squared: Fraction) -> float:
    """Variance of round(N(0, sigma_squared)) to float accuracy (N-021); about sigma_squared + 1/12.

    >>> rounded_gaussian_variance(Fraction(100))
    100.08333333333333
    """
    square = float(sigma_squared)
    if sigma_squared < _FEW_INTEGERS:
        return math.fsum((2 * k - 1) * math.erfc((k - 0.5) / math.sqrt(2 * square)) for k in _TERMS)
    waves = [(-1) ** m * (4 * square + 1 / (math.pi * m) ** 2) * _wave(m, square) for m in _TERMS]
    return math.fsum([square, 1 / 12, *waves])


def discrete_gaussian_variance(sigma_squared: Fraction) -> float:
    """Variance of the discrete Gaussian law to float accuracy (N-042); at most sigma_squared.

    >>> discrete_gaussian_variance(Fraction(100))
    100.0
    """
    square = float(sigma_squared)
    if sigma_squared < _FEW_INTEGERS:
        weights = [2 * math.exp(-k * k / (2 * square)) for k in _TERMS]
        return math.fsum(k * k * w for k, w in zip(_TERMS, weights, strict=True)) / (1 + math.fsum(weights))
    waves = [2 * _wave(m, square) for m in _TERMS]
    curvature = math.fsum(m * m * w for m, w in zip(_TERMS, waves, strict=True)) / (1 + math.fsum(waves))
    return square - (2 * math.pi * square) ** 2 * curvature


def discrete_laplace_variance(scale: Fraction) -> float:
    """Variance 2q / (1 - q)^2 of the discrete Laplace law, q = exp(-1/scale) (N-030); about 2 scale^2."""
    rate = 1 / float(scale)
    return 2 * math.exp(-rate) / math.expm1(-rate) ** 2


def rounded_gaussian_bound(sigma_squared: Fraction, bits: int) -> int:
    """A t with P(|Z| > t) <= 2^-bits for Z = round(N(0, sigma_squared)) (N-022)."""
    return _ceil_sqrt(8 * sigma_squared * _nats(bits, sides=1)) // 2


def discrete_gaussian_bound(sigma_squared: Fraction, bits: int) -> int:
    """A t with P(|Z| > t) <= 2^-bits for the discrete Gaussian law (N-042)."""
    return _ceil_sqrt(2 * sigma_squared * _nats(bits, sides=2)) - 1


def discrete_laplace_bound(scale: Fraction, bits: int) -> int:
    """A t with P(|Z| > t) <= 2^-bits for the discrete Laplace law (N-031)."""
    return math.ceil(scale * _nats(bits, sides=2)) - 1


def _nats(bits: int, sides: int) -> Fraction:
    """At least log(sides * 2^bits), for one side or two."""
    if bits < 0:
        raise ValueError(f"the bits of a tail's probability must be at least 0, not {bits}")
    return (bits + sides - 1) * _LOG_2_ABOVE


def _wave(m: int, square: float) -> float:
    """Size exp(-2 pi^2 m^2 sigma^2) of N(0, sigma^2)'s characteristic function at frequency m."""
    return math.exp(-2 * math.pi**2 * m * m * square)


def _ceil_sqrt(number: Fraction) -> int:
    """The smallest integer whose square is at least a non-negative number."""
    whole = math.ceil(number)
    root = math.isqrt(whole)
    return root + (root * root < whole)
