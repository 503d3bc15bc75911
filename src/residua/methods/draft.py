"""What a method is and what it returns: a real strategy, and what is proved about it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, Protocol

from residua._arrays import Array, Integers
from residua.errors import Infeasible
from residua.methods.effort import interruption
from residua.strategy.strategy import Strategy
from residua.workload import Workload

Caps = Sequence[float | Array]
"""For each part of a workload the variance allowed: of every query, or one per query of a group."""

Scope = Literal["all mechanisms", "this block structure", "all Laplace noise"]

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A real strategy, and a lower bound on what it was made for.

    For the total weighted variance: a strategy of cost 1, and a bound at cost 1. For targets: a strategy that
    meets them all at the least cost, and a bound on that cost. For a loss: a strategy of the cost asked for,
    and a bound on the loss. `value` is the strategy's own, where the method knows it without asking every
    table.

    `scope` says for whom the bound holds: no mechanism at all can be better, or none that measures the
    same blocks independently and adds up what each costs at its own worst record (claim M-001). `spans`
    has integer rows for the numbered shapes that must be rounded within them (see `strategy.rounding`).
    `everywhere` is a bound for all mechanisms where the scope is narrower; for total variance it is left to
    planning. `uniform_total` is the value of uniform centring (QuerySmasher), where it was found on the way.
    `prices` has, for each part of a workload with targets, one number per table (a group has one): its share
    of the price, all adding up to 1. To first order, allowing a table's queries `1 + e` times the variance
    saves `e * share` of the cost (claim G-003). `undone` says what was not tried for want of effort.
    `for_person` is a bound for all mechanisms at a person's cost of 1, where the draft was made for that.
    """

    strategy: Strategy
    lower_bound: float
    scope: Scope
    value: float | None = None
    spans: Mapping[int, Integers | None] = field(default_factory=dict)
    uniform_total: float | None = None
    prices: tuple[Array, ...] = ()
    undone: tuple[str, ...] = ()
    everywhere: float = 0.0
    for_person: float = 0.0

    def total(self, work: Workload) -> float:
        """Total weighted variance of its strategy."""
        return math.fsum(self.strategy.totals(part)[0] for part in work.parts)


class Method(Protocol):
    """What a planning method is: from a workload to a draft at privacy cost 1."""

    def __call__(self, work: Workload, gap: float, progress: Progress | None, /) -> Draft:
        """The draft; `gap` is the relative distance from the optimum at which solving may stop."""


Way = Callable[[], Draft | None]
"""Makes a draft, or none where it does not apply; Infeasible where that takes too much."""


def best_of(work: Workload, ways: Iterable[Way], otherwise: Iterable[Way] = (), proved: float = 0.0) -> Draft:
    """The draft of the least total weighted variance; `otherwise` has ways for where no other one fits.

    A draft within `proved` of what is possible for any mechanism is the last that is made, as is the last one
    before Ctrl-C where the best so far is asked for.
    """
    found: list[tuple[float, Draft]] = []
    refused: list[Infeasible] = []
    with interruption().settled(found):
        for way in chain(ways, (way for way in otherwise if not found)):
            try:
                draft = way()
                total = math.inf if draft is None else draft.total(work)
            except Infeasible as error:  # one way does not fit; another may
                refused.append(error)
                continue
            if draft is not None:
                found.append((total, draft))
                optimal = draft.scope != "this block structure" and total <= draft.lower_bound * (1 + proved)
                if optimal or interruption().came:
                    break
    if not found:
        raise refused[0]
    return min(found, key=lambda each: each[0])[1]
