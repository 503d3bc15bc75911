"""Exact integer noise over the operating system's entropy: a side room that only measuring opens.

Draws are exact: their law is the one that is claimed, with no error but that of the entropy source
(docs/math/noise.md). `source` gives random words, `quantiles` real numbers with a proved error, `laws` the
integers.
"""

from residua.noise.laws import DiscreteLaplace, Law, RoundedGaussian, draw
from residua.noise.source import Source, SystemSource, simulated

__all__ = ["DiscreteLaplace", "Law", "RoundedGaussian", "Source", "SystemSource", "draw", "simulated"]
