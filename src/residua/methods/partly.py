"""Some attributes together in one matrix, the others centred: between blocks and the optimum over all cells.

Queries are split along the attributes that are left out, by the weights that centre them in blocks, and not
along the others: what is left without any of those is a workload on the joint cells of the others, whose best
mechanism is found (`methods.dense`). All that has to do with an attribute left out stays in its blocks. That
is never worse than the blocks alone: those of the others are one way to measure that workload (claim C-007).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from residua._arrays import Flags
from residua.answering.blocks import Layer
from residua.linalg.matrices import Measure, project
from residua.methods.dense import dense, dense_work
from residua.methods.draft import Draft, Progress
from residua.methods.effort import Account
from residua.strategy.strategy import Strategy
from residua.workload import Factor, Table, Workload

COARSE_GAP = 2e-3  # that heavy matrices are solved to: what is left is half of it, and half of that in errors
HEAVY = 1e11  # operations


def partly(
    work: Workload, draft: Draft, tolerance: float, progress: Progress | None, account: Account
) -> Draft | None:
    """The draft of blocks, with those of some attributes made one; None where that is not affordable."""
    strategy = draft.strategy
    if draft.value is None or strategy.coarsened or strategy.nested:
        return None
    if not all(map(strategy.blocks().centred, strategy.layers)):
        return None
    means: dict[Factor, float] = {}
    for out in _left_out(strategy, work.attributes):
        asked = _averaged(work, out, strategy.measures, means)
        taken = math.inf if asked is None else dense_work(asked, apart=False)  # blocks are answered together
        if asked is not None and taken <= account.left:
            account.spent += taken
            gap = max(tolerance, COARSE_GAP) if taken > HEAVY else tolerance
            return _joined(draft, out, asked, dense(asked, gap, progress, apart=False))
    return None


def _left_out(strategy: Strategy, attributes: Sequence[int]) -> Iterator[frozenset[int]]:
    """Attributes to leave out, more and more: first those whose blocks cost least."""
    costs = {at: sum(float(own.costs[_on(own, {at})].sum()) for own in strategy.layers) for at in attributes}
    order = sorted(attributes, key=lambda at: costs[at])
    yield from (frozenset(order[:many]) for many in range(1, len(order)))


def _on(layer: Layer, attributes: set[int] | frozenset[int]) -> Flags:
    """Which blocks of a layer are on one of these attributes."""
    return np.asarray(np.isin(layer.subsets, list(attributes)).any(axis=1))


def _averaged(
    work: Workload, out: frozenset[int], measures: Sequence[Measure], means: dict[Factor, float]
) -> Workload | None:
    """What tables ask of the other attributes in the mean over those left out; None of joint families.

    `means` has the squares of what families ask in the mean, as far as that is known, and gets the others.
    """
    tables: list[Table] = []
    for group in work.groups():
        weight, kept = group.weight, []
        for factor in group.factors:
            queries, inside = factor.queries, out.intersection(factor.attributes)
            if not inside:
                kept.append(factor)
                continue
            if len(inside) < len(factor.attributes):
                return None
            if factor not in means:
                own = [measures[at] for at in factor.attributes]
                means[factor] = float(np.sum(project(queries.root(), queries.sizes, own, ()) ** 2))
            weight *= means[factor]
        if weight > 0:
            tables.append(replace(group, factors=tuple(kept), weight=weight))
    return Workload(work.schema, tuple(tables)) if tables else None


def _joined(draft: Draft, out: frozenset[int], asked: Workload, whole: Draft) -> Draft:
    """The blocks on attributes left out beside the best mechanism for the others, with the best shares."""
    strategy, before = draft.strategy, math.sqrt(draft.value or 0.0)
    kept = [(layer, _on(layer, out)) for layer in strategy.layers]
    blocks = math.fsum(before * float(layer.costs[rows].sum()) for layer, rows in kept)
    joint = math.sqrt(whole.total(asked))
    total, first = joint + blocks, len(strategy.shapes)
    layers = [_scaled(layer.take(rows), before / total) for layer, rows in kept if rows.any()]
    for layer in whole.strategy.layers:
        layers.append(_scaled(replace(layer, shapes=layer.shapes + first), joint / total))
    least = max(0.0, math.sqrt(draft.lower_bound) - before + blocks) + math.sqrt(whole.lower_bound)
    return replace(
        draft,
        strategy=replace(
            strategy,
            shapes=(*strategy.shapes, *whole.strategy.shapes),
            layers=tuple(layers),
            memory=type(strategy.memory)(),
        ),
        value=total**2,
        lower_bound=least**2,
        scope="this block structure",
        spans={**draft.spans, **{first + number: own for number, own in whole.spans.items()}},
    )


def _scaled(layer: Layer, share: float) -> Layer:
    """The blocks of a layer at so many times their cost."""
    return replace(layer, noise=layer.noise / share, costs=layer.costs * share)
