"""How wrong numbers may be (targets) and will be (figures, certificates, targets met)."""

from residua.accuracy.guesses import relative
from residua.accuracy.targets import Target, Targets, half_width, stddev, variance

__all__ = ["Target", "Targets", "half_width", "relative", "stddev", "variance"]
