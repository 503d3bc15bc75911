"""What a method returns: a mechanism at privacy cost 1, and what is proved about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from residua.strategy.strategy import Strategy

Array = NDArray[np.float64]

Caps = Sequence[float | Array]
"""For each part of a workload the variance allowed: of every query, or one per query of a group."""

Scope = Literal["all mechanisms", "this block structure", "all Laplace noise"]

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A mechanism of cost 1 and a lower bound on the total weighted variance at cost 1.

    `scope` says for whom the bound holds: no mechanism at all can be better, or none that measures the
    same blocks independently and adds up what each costs at its own worst record (claim M-001). `total` is
    the mechanism's own total weighted variance at cost 1, where the method knows it without asking every
    table; `uniform_total` is that of uniform centring (QuerySmasher), where it was found on the way. `spans`
    has integer rows for the numbered parts of the mechanism that must be rounded within them (see
    `strategy.integers`).
    """

    strategy: Strategy
    lower_bound: float
    scope: Scope
    total: float | None = None
    spans: Mapping[int, NDArray[np.int64] | None] = field(default_factory=dict)
    uniform_total: float | None = None


@dataclass(frozen=True, slots=True)
class TargetDraft:
    """A mechanism that meets every target, and a lower bound on the privacy cost of doing so.

    `mechanism.cost()` is the privacy cost that it needs; no mechanism in `scope` meets all targets at less
    than `lower_cost`. `prices` has, for each part of the workload, one number per table of the part (a group
    has one): its share of the price, all of them adding up to 1. To first order, allowing a table's queries
    `1 + e` times the variance saves `e * share` of the cost (claim G-003). `spans` is as in `Draft`.
    """

    strategy: Strategy
    lower_cost: float
    scope: Scope
    prices: tuple[Array, ...]
    spans: Mapping[int, NDArray[np.int64] | None] = field(default_factory=dict)
