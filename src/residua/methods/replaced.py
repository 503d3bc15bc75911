"""Plans where a record is replaced by another: the number of records is public, and costs nothing (S-014)."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from residua._limits import REPLACED_CELLS
from residua.methods.dense import joint_integer_rows, one_block
from residua.methods.draft import Draft
from residua.methods.effort import Account
from residua.privacy import Unit
from residua.solve.pairs import solve_pairs
from residua.strategy.integers import independent_integers
from residua.strategy.strategy import Strategy
from residua.workload import Workload
from residua.workload.union import joint_gram

OPERATIONS = 1_000.0  # of all steps, in units of cells^3
KNOWN = 100.0  # times as accurate as any other number that is measured


def replaced_drafts(
    account: Account, work: Workload, unit: Unit, method: str, draft: Draft, gap: float
) -> Iterator[Draft]:
    """The best plan over few joint cells; over others, a draft with the number as good as known.

    None where the number of records is not public: some may be dropped, or all of a person's be replaced.
    """
    dropped = any(attribute.outside == "drop" for attribute in work.schema.attributes)
    if dropped or unit.id is not None:
        return
    cells = math.prod(work.schema.sizes[at] for at in work.attributes)
    affordable = account.affords(OPERATIONS * cells**3, "the optimum for replaced records")
    best = replaced_draft(work, gap) if affordable and method in ("auto", "dense") else None
    if best is not None:
        yield best
    elif any(layer.subsets.shape[1] == 0 for layer in draft.strategy.layers):
        yield replace(draft, strategy=_knowing(draft.strategy), value=None)


def _knowing(strategy: Strategy) -> Strategy:
    """The strategy with blocks over no attribute that are far more accurate than others."""
    layers = [
        layer
        if layer.subsets.shape[1]
        else replace(layer, costs=layer.costs * KNOWN, noise=layer.noise / KNOWN)
        for layer in strategy.layers
    ]
    return replace(strategy, layers=tuple(layers))


def replaced_draft(work: Workload, gap: float) -> Draft | None:
    """The best plan for replacing a record, of one matrix over the joint cells; None where those are many.

    Its bound for that, at the cost of a record replaced, is `for_person`.
    """
    cells = math.prod(work.schema.sizes[at] for at in work.attributes)
    if not 2 <= cells <= REPLACED_CELLS:
        return None
    found = solve_pairs(joint_gram(work), gap)
    if not len(found.strategy):
        return None
    known = KNOWN * math.sqrt(float((found.strategy**2).sum(axis=0).max()))
    matrix = np.concatenate([found.strategy, np.full((1, cells), known)])
    strategy, _ = one_block(work, matrix)
    asked = joint_integer_rows(work, work.attributes)
    spans = {}
    if len(matrix) < cells:
        rows = None if asked is None else np.concatenate([asked, np.ones((1, cells), dtype=np.int64)])
        spans = {0: independent_integers(rows, len(matrix))}
    unit = strategy.scaled(1 / strategy.cost())
    return Draft(unit, 0.0, "all mechanisms", spans=spans, for_person=found.lower)
