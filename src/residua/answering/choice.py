"""Which answerer suits which blocks, by their structure alone."""

import numpy as np

from residua.answering.blocks import Blocks
from residua.answering.coupled.answerer import Coupled
from residua.answering.diagonal import Diagonal
from residua.answering.independent.answerer import Independent
from residua.answering.kronecker import Kronecker
from residua.answering.nested import Nested, halves_of
from residua.answering.periods import Periods, whole_attribute
from residua.answering.protocol import Answerer
from residua.linalg.matrices import distinct_rows


def answerer_for(blocks: Blocks) -> Answerer:
    """The quickest answerer that suits the blocks; all give the same figures."""
    if len(blocks) == 1:
        return Kronecker(blocks)
    if independent(blocks):
        return Independent(blocks)
    if all(map(blocks.centred, blocks.layers)):
        return Coupled(blocks)
    at = whole_attribute(blocks)
    if at is not None and _all_different(blocks):
        return Periods(blocks, at)
    halves = halves_of(blocks)
    if halves is not None:
        return Nested(blocks, halves)
    return Diagonal.of(blocks) or Coupled(blocks)


def independent(blocks: Blocks) -> bool:
    """Whether all blocks are centred, and no two on the same attributes."""
    return all(map(blocks.centred, blocks.layers)) and _all_different(blocks)


def _all_different(blocks: Blocks) -> bool:
    """Whether no two blocks are on the same attributes."""
    for ways in {layer.subsets.shape[1] for layer in blocks.layers}:
        mine = [layer.subsets for layer in blocks.layers if layer.subsets.shape[1] == ways]
        subsets = np.concatenate(mine).astype(np.int64)
        if len(distinct_rows(subsets)[0]) < len(subsets):
            return False
    return True
