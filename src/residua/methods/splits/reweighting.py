"""Free splits by reweighted least squares, from much filling to little (claim Q-009).

With what blocks measure held as it is best now, the best split is one of least squares; with the split held,
blocks are solved anew. Much filling at first keeps every direction open, so a few rounds at each suffice.
"""

from collections.abc import Mapping

from residua._arrays import Array
from residua.methods.draft import Progress
from residua.methods.splits.free import FreeTables
from residua.methods.splits.sum import BlockSum
from residua.solve.newton import conjugate_gradients

FILLS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)  # of a typical query, in every direction
ROUNDS = 3  # with each filling
INNER_STEPS = 6  # of conjugate gradients in a round
LONGER = 1.8  # times a step to the least of the majorant; below 2 it still goes down


def reweighted(
    total: BlockSum,
    free: FreeTables,
    weights: Mapping[int, Array],
    allowed: float,
    progress: Progress | None,
) -> Array:
    """Moves that make the sum about least for these weights, within so much work."""
    moves = free.start()
    rounds = [fill for fill in FILLS for _ in range(ROUNDS)]
    for at, fill in enumerate(rounds):
        if total.work > allowed:
            break
        if progress is not None:
            progress("choosing splits", at / len(rounds))
        _, slope, bend = total.majorant(free, weights, moves, fill)
        moves = moves + LONGER * conjugate_gradients(bend, -slope, lambda left: left, INNER_STEPS)
    return moves
