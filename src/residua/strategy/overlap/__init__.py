"""Blocks that overlap: measurements of marginals that are not centred, answered by least squares over all.

`strategy` has the mechanism; the other modules say how its figures and estimates are found.
"""

from residua.strategy.overlap.strategy import OverlapStrategy

__all__ = ["OverlapStrategy"]
