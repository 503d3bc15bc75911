"""Free splits by reweighted least squares, from much filling to little (claim Q-009).

With what blocks measure held as it is best now, the best split is one of least squares; with the split held,
blocks are solved anew. Much filling at first keeps every direction open, so a few rounds at each suffice.
What is left is found by quasi-Newton steps in the same measure of length (claim Q-010).
"""

from collections.abc import Callable, Mapping

import numpy as np

from residua._arrays import Array
from residua.methods.draft import Progress
from residua.methods.splits.free import FreeTables
from residua.methods.splits.sum import BlockSum, Majorant
from residua.solve.slopes import one_step, rough_step, settled

FILLS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)  # of a typical query, in every direction
ROUNDS = 5  # with each filling, at most
MUCH = 0.02  # filling above which splits are only approached
ROUGH, FINE = 5e-4, 5e-5  # relative gains of a round, with much filling or little, that is the last
ENOUGH = 1e-4  # relative, of all that rounds could gain: less filling is not tried
SLOWEST = 0.99  # of a gain, in the next round
LONGER = 1.8  # times a step to the least of the majorant; below 2 it still goes down
ROUGHLY = 1.4  # the same where blocks are only guessed
FIRST_ROUNDS = ((0.3, one_step, LONGER), (0.1, one_step, LONGER))  # filling, how blocks are solved, length
QUICK_ROUNDS = ((0.3, rough_step, ROUGHLY), (0.15, one_step, LONGER))  # where these may be all


def approached(
    total: BlockSum, free: FreeTables, weights: Mapping[int, Array], progress: Progress | None
) -> tuple[Array, float]:
    """Moves after a round with each of the largest fillings, and the sum before the last of them."""
    moves, value = free.start(), np.inf
    for fill, solver, longer in FIRST_ROUNDS if weights else QUICK_ROUNDS:
        if progress is not None:
            progress("choosing splits", 0.0)
        seen = total.majorant(free, weights, moves, fill, solver)
        moves, value = moves + longer * seen.step(-seen.slope), seen.value
    return moves, value


def reweighted(
    total: BlockSum,
    free: FreeTables,
    weights: Mapping[int, Array],
    moves: Array,
    allowed: float,
    progress: Progress | None,
) -> tuple[Array, float]:
    """Moves from these on that make the sum about least for the weights, within so much work; what is left.

    That is relative and by a guess: gains fall by about the same factor from round to round.
    """
    gain, factor = np.inf, SLOWEST
    for at, fill in enumerate(FILLS):
        if progress is not None:
            progress("choosing splits", at / len(FILLS))
        for turn in range(ROUNDS):
            if total.work > allowed:
                return moves, gain / (1 - factor)
            seen = total.majorant(free, weights, moves, fill)
            step = seen.step(-seen.slope)
            last, gain = gain, -0.5 * float(seen.slope @ step) / seen.value
            factor = factor if turn == 0 else min(gain / last, SLOWEST)
            moves = moves + LONGER * step
            if gain < (ROUGH if fill > MUCH else FINE):
                break
        if fill < MUCH and gain / (1 - factor) < ENOUGH:
            break
    return moves, gain / (1 - factor)


LAST_FILLS = (0.01, 0.003, 0.001, 0.0003)
LAST_GAINS = (1e-4, 1e-5, 1e-5, 1e-5)  # of the sum, over the last five steps with each
STEPS = 60  # with each filling, at most
REMEMBERED = 20  # steps whose curvature is known
DECREASE = 1e-4  # of what the slope promises, for a step to be taken
DOUBT = 1e-9  # of the sum: how well blocks are solved
SHORTEST = 0.01  # fraction of a step below which the search ends


Look = Callable[[Array], Majorant | None]
"""What is seen from some moves, None where that is too much work."""
Memory = list[tuple[Array, Array]]
"""Steps, and what each did to the slope."""


def polished(
    total: BlockSum,
    free: FreeTables,
    weights: Mapping[int, Array],
    moves: Array,
    allowed: float,
    progress: Progress | None,
) -> Array:
    """Moves from these on that make the sum least, within so much work."""
    memory: Memory = []
    for at, (fill, gain) in enumerate(zip(LAST_FILLS, LAST_GAINS, strict=True)):
        if progress is not None:
            progress("choosing splits", at / len(LAST_FILLS))

        def look(point: Array, fill: float = fill) -> Majorant | None:
            return None if total.work > allowed else total.majorant(free, weights, point, fill, settled)

        moves = _descent(look, moves, memory, gain)
    return moves


def _descent(look: Look, moves: Array, memory: Memory, gain: float) -> Array:
    """Where quasi-Newton steps end, five of which gain less than that; `memory` has earlier ones."""
    seen = look(moves)
    values: list[float] = []
    while seen is not None and len(values) < STEPS:
        values.append(seen.value)
        if len(values) > 5 and values[-6] - values[-1] < gain * values[-1]:
            break
        step = _quasi_newton(seen, memory)
        length, there = _taken(look, seen, moves, step)
        if there is None or there.value > seen.value * (1 + DOUBT):
            if not memory:
                break
            memory.clear()
            continue
        moved, bent = length * step, there.slope - seen.slope
        if float(moved @ bent) > 1e-10 * float(np.linalg.norm(moved) * np.linalg.norm(bent)):
            memory.append((moved, bent))
            del memory[:-REMEMBERED]
        moves, seen = moves + moved, there
    return moves


def _taken(look: Look, seen: Majorant, moves: Array, step: Array) -> tuple[float, Majorant | None]:
    """How much of a step goes down, and what is there; shorter and shorter ones are tried."""
    length, promised = 1.0, float(step @ seen.slope)
    while (there := look(moves + length * step)) is not None:
        rise = there.value - seen.value
        if rise <= DECREASE * length * promised + DOUBT * seen.value or length < SHORTEST:
            break
        length *= min(0.5, max(0.1, -0.5 * length * promised / (rise - length * promised)))
    return length, there


def _quasi_newton(seen: Majorant, memory: Memory) -> Array:
    """The two-loop recursion (Nocedal 1980), from the majorant's second derivative instead of a multiple."""
    left, taken = -seen.slope, []
    for moved, bent in reversed(memory):
        taken.append(float(moved @ left) / float(moved @ bent))
        left = left - taken[-1] * bent
    step = seen.step(left) * (1.0 if memory else LONGER)
    for (moved, bent), share in zip(memory, reversed(taken), strict=True):
        step = step + (share - float(bent @ step) / float(moved @ bent)) * moved
    if float(step @ seen.slope) < 0:
        return np.asarray(step)
    memory.clear()
    return LONGER * seen.step(-seen.slope)
