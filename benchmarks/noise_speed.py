"""Values of exact noise per processor second, and the share of draws that floats could not decide.

Random bits come from the system source; the exact decision of doubtful draws is included. A first draw, which
builds the tables, is made beforehand. The ratio is to opendp's integer Gaussian, measured in the same run.

Fails under 4 million rounded Gaussian values, or 100,000 of the other law, per processor second.
"""

import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from unittest.mock import patch

import opendp.prelude as dp
from _timing import Limits, timed

from residua.noise import DiscreteLaplace, Law, RoundedGaussian, SystemSource, draw, laws

COUNT = 2_000_000
OPENDP_COUNT = 20_000
REPEATS = 3
SCALES = (Fraction(1, 1000), Fraction(1), Fraction(100), Fraction(10**6), Fraction(10**9))
LINE = "{:<18}{:>10}{:>16}{:>16}{:>12}"


def speed(call: Callable[[], object], count: int) -> float:
    """Values per processor second, the best of a few runs."""
    return max(count / timed(call).cpu for _ in range(REPEATS))


def share_undecided(law: Law) -> float:
    """How many decisions a value needs, on average, that floats could not make."""
    climb = laws.climb_exactly
    with patch.object(laws, "climb_exactly", side_effect=climb) as climbed:
        law.draw(SystemSource(), COUNT)
    return float(climbed.call_count) / COUNT


def opendp_speed(scale: float) -> float:
    """Values per processor second of opendp's Gaussian on integers."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64"), size=OPENDP_COUNT), dp.l2_distance(T="i64")
    release = dp.m.make_gaussian(*space, scale=scale)
    zeros = [0] * OPENDP_COUNT
    return speed(partial(release, zeros), OPENDP_COUNT)


def measure(limits: Limits, baseline: float, law: Law, scale: Fraction, least: float) -> None:
    """Print the line of one law, and check its speed."""
    law.draw(SystemSource(), 1)
    rate = speed(partial(law.draw, SystemSource(), COUNT), COUNT)
    name = type(law).__name__
    row = f"{float(scale):g}", f"{rate:,.0f}", f"{rate / baseline:.0f}", f"{share_undecided(law):.1e}"
    print(LINE.format(name, *row), flush=True)
    limits.check(rate >= least, f"{name} at scale {float(scale):g}: {rate:,.0f} values/second < {least:,.0f}")


def main() -> int:
    """Print one line a law and scale; 1 if one is too slow."""
    limits = Limits()
    baseline = opendp_speed(100.0)
    print(f"opendp, integer Gaussian, scale 100: {baseline:,.0f} values per processor second\n")
    print(LINE.format("law", "scale", "values/second", "times opendp's", "undecided"))
    for scale in SCALES:
        measure(limits, baseline, RoundedGaussian(scale**2), scale, least=4e6)
    for scale in SCALES:
        measure(limits, baseline, DiscreteLaplace(scale), scale, least=1e5)

    blocks = [RoundedGaussian(Fraction(n, 64)) for n in range(1, 100_001)]
    rate = speed(partial(draw, SystemSource(), blocks, [10] * len(blocks)), 10 * len(blocks))
    print(f"\n100,000 rounded Gaussians of 10 values, each with its own variance: {rate:,.0f} values/second")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
