"""Two strategies of blocks as one whose blocks overlap: what two releases of them say together."""

from dataclasses import replace

from residua.errors import Infeasible
from residua.strategy.layered import Layered
from residua.strategy.overlap.strategy import OverlapStrategy


def side_by_side(ours: Layered, theirs: Layered) -> OverlapStrategy | None:
    """The blocks of both, or None where they share too much to be solved together.

    Any measures will do (claim O-001); those under which the blocks share less are taken.
    """
    moved = (replace(layer, shapes=layer.shapes + len(ours.shapes)) for layer in theirs.layers)
    layers = tuple(replace(layer, shares=None) for layer in (*ours.layers, *moved))
    found = []
    for measures in dict.fromkeys((ours.measures, theirs.measures)):
        both = OverlapStrategy(ours.sizes, measures, ours.shapes + theirs.shapes, layers)
        try:
            found.append((both.system.dimension, both))
        except Infeasible:
            continue  # under these measures they share more than can be solved
    return min(found, key=lambda each: each[0])[1] if found else None


def never_measured(strategy: OverlapStrategy) -> OverlapStrategy:
    """A strategy that says what is known, not what could be measured again."""
    layers = tuple(replace(layer, shares=None) for layer in strategy.layers)
    return replace(strategy, layers=layers, grain=None)
