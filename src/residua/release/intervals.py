"""Intervals: of one figure each or of all at once, of ratios, and of counts, which are whole."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from residua._arrays import Array, Flags
from residua.privacy.budgets import checked_level, interval_margin

DRAWS = 20_000  # of the largest of all errors, for simultaneous intervals


@dataclass(frozen=True, slots=True)
class Intervals:
    """How wide intervals are: of one figure each, or of all of a table together."""

    level: float = 0.95
    simultaneous: bool = False

    def __post_init__(self) -> None:
        checked_level(self.level)

    def margin(self, law: Any, covariance: Array) -> float:
        """Half the width, in standard deviations, for figures with this covariance."""
        alone = float(interval_margin(law, self.level))
        if not self.simultaneous or len(covariance) < 2:
            return alone
        count = len(covariance)
        sidak = float(interval_margin(law, self.level ** (1 / count)))
        return max(alone, min(sidak, _largest_of_all(covariance, self.level))) if law == "gaussian" else sidak


def _largest_of_all(covariance: Array, level: float) -> float:
    """A quantile of the largest absolute error of all figures, in standard deviations, drawn many times.

    The draws are the same every time, and the order statistic taken is late enough that it is too small with
    a probability below one in a thousand.
    """
    scale = np.sqrt(np.diag(covariance))
    kept = scale > 0
    if not kept.any():
        return 0.0
    correlation = covariance[np.ix_(kept, kept)] / np.outer(scale[kept], scale[kept])
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    draws = np.random.default_rng(0).standard_normal((DRAWS, len(root)))
    largest = np.sort(np.abs(draws @ root.T).max(axis=1))
    late = level * DRAWS + NormalDist().inv_cdf(0.999) * np.sqrt(DRAWS * level * (1 - level))
    return float(largest[min(int(np.ceil(late)), DRAWS - 1)])


def fieller(t: Array, b: Array, vt: Array, vb: Array, c: Array, z: float) -> tuple[Array, Array, Flags]:
    """Ends of Fieller's sets for t/b, and which of them are bounded (claim F-001).

    The set holds every r with `(t - r b)^2 <= z^2 (vt - 2 r c + r^2 vb)`: an interval where `b^2 > z^2 vb`,
    and otherwise without an end on one side at least, which is given as no end on either.
    """
    A, B, C = b**2 - z**2 * vb, t * b - z**2 * c, t**2 - z**2 * vt
    bounded = (A > 0) & (b > 0)
    root = np.sqrt(np.clip(B**2 - A * C, 0.0, None))
    safe = np.where(bounded, A, 1.0)
    lower = np.where(bounded, (B - root) / safe, -np.inf)
    upper = np.where(bounded, (B + root) / safe, np.inf)
    return lower, upper, bounded


def whole_ends(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Ends of intervals of counts, which are whole and not below zero: no count within is lost."""
    return np.maximum(np.ceil(lower), 0.0), np.maximum(np.floor(upper), 0.0)
