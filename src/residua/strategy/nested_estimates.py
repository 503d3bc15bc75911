"""Estimates of every residual from the measured numbers of a nested strategy (claim H-021)."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from residua.strategy.batches import Batch, nested_order
from residua.strategy.nested import NestedStrategy, Subset, Term

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def nested_estimates(
    strategy: NestedStrategy, batches: Sequence[Batch], values: Sequence[Integers]
) -> Iterator[tuple[NDArray[np.int32], Array]]:
    """Runs of residuals, (k, attributes) ascending, with their centred cells, (k, sizes...).

    Each term estimates its marginal from its own numbers; the best estimate of a residual is the mean of what
    they say of it, weighted by precision.
    """
    sums: dict[Subset, Array] = {}
    for terms, batch, numbers in zip(nested_order(strategy), batches, values, strict=True):
        for place, term in enumerate(terms):
            cells = batch.estimate(numbers[place : place + 1]).reshape(batch.sizes)
            weights = dict(strategy.precisions(term))
            for kept, residual in _residuals(strategy, term, cells):
                amount = weights[kept] / strategy.precision[kept] * residual
                sums[kept] = sums[kept] + amount if kept in sums else amount
    kinds: dict[tuple[int, ...], list[Subset]] = {}
    for kept, found in sums.items():
        kinds.setdefault(found.shape, []).append(kept)
    for sizes, subsets in kinds.items():
        table = np.array(subsets, dtype=np.int32).reshape(len(subsets), len(sizes))
        yield table, np.stack([sums[kept] for kept in subsets])


def _residuals(strategy: NestedStrategy, term: Term, cells: Array) -> Iterator[tuple[Subset, Array]]:
    """A marginal centred along some attributes and summed over the others, for every choice of those."""
    parts: list[tuple[Subset, Array]] = [((), cells)]
    for at in term.attributes:
        weights = strategy.halves[strategy.chosen[at]].measure.vector()
        found = []
        for kept, tensor in parts:
            axis = len(kept)
            sums = tensor.sum(axis=axis, keepdims=True)
            shape = [-1 if place == axis else 1 for place in range(tensor.ndim)]
            found.append(((*kept, at), tensor - weights.reshape(shape) * sums))
            found.append((kept, np.squeeze(sums, axis=axis)))
        parts = found
    yield from parts
