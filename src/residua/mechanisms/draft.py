"""What a method returns: a mechanism at privacy cost 1, and what is proved about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from residua.strategy.mechanism import Mechanism

Scope = Literal["all mechanisms", "this block structure"]

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A mechanism of cost 1 and a lower bound on the total weighted variance at cost 1.

    `scope` says for whom the bound holds: no mechanism at all can be better, or none that measures the
    same blocks independently and adds up what each costs at its own worst record (claim M-001). `total` is
    the mechanism's own total weighted variance at cost 1, where the method knows it without asking every
    table. `spans` has integer rows for the numbered parts of the mechanism that must be rounded within them
    (see `strategy.integers`).
    """

    mechanism: Mechanism
    lower_bound: float
    scope: Scope
    total: float | None = None
    spans: Mapping[int, NDArray[np.int64] | None] = field(default_factory=dict)
