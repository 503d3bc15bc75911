"""Marginals of better strategies than plain cells: one p-Identity strategy per attribute, on many subsets.

Contains OPT_M (plain cells) and, where tables ask one family of each attribute, OPT_plus; its answers use
all measurements at once (claim H-025). Weights of terms and strategies of attributes are improved in turn.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from residua.methods.draft import Draft, Progress
from residua.methods.hdmm.bounds import lower_bound
from residua.methods.hdmm.demand import Kernel
from residua.methods.hdmm.marginals import plain_kernels, weighted_terms
from residua.methods.hdmm.p_identity import opt0
from residua.methods.hdmm.refine import Around, better_kernel
from residua.privacy import NoiseLaw
from residua.strategy.strategy import Strategy
from residua.workload import Queries, Workload
from residua.workload.symmetric import Identity, Total

Array = NDArray[np.float64]

TURNS = 6
TURN_GAIN = 1e-3  # relative; strategies are improved in turn until a turn gains less
TOTALS = 1e-6  # of what is asked of an attribute: its total, which every nested strategy needs


def nested(work: Workload, law: NoiseLaw, progress: Progress | None = None) -> Draft:
    """The best nested strategy found, at cost 1."""
    plain = plain_kernels(work)
    best, value = weighted_terms(work, law, plain, progress)
    if _several_families(work):
        kernels = _own_kernels(work, law, plain)
        other, found = weighted_terms(work, law, kernels, progress)
        if law == "laplace":
            other, found = _refined(work, kernels, other, found, progress)
        if found < value:
            best = other
    return Draft(best, *lower_bound(work, law))


def _several_families(work: Workload) -> bool:
    """Whether some attribute is asked for something other than its cells or its total."""
    return any(
        not isinstance(factor.queries, Identity | Total) and len(factor.attributes) == 1
        for group in work.groups()
        for factor in group.factors
    )


def _families(work: Workload) -> dict[int, dict[Queries, float]]:
    """For each attribute the families asked of it alone, with the weights of the tables that ask them."""
    found: dict[int, dict[Queries, float]] = {}
    for group in work.groups():
        for factor in group.factors:
            if len(factor.attributes) == 1:
                mine = found.setdefault(factor.attributes[0], {})
                mine[factor.queries] = mine.get(factor.queries, 0.0) + group.weight
    return found


def _own_kernels(work: Workload, law: NoiseLaw, plain: Mapping[int, Kernel]) -> dict[int, Kernel]:
    """For each attribute the best strategy for what is asked of it alone, plain cells where it is tied."""
    tied = {
        at
        for group in work.groups()
        for factor in group.factors
        if len(factor.attributes) > 1
        for at in factor.attributes
    }
    known: dict[object, Kernel] = {}
    kernels = dict(plain)
    for at, families in _families(work).items():
        key = frozenset(families.items())
        if at in tied or all(isinstance(each, Identity | Total) for each in families):
            continue
        if key not in known:
            gram = np.sum([weight * each.gram() for each, weight in families.items()], axis=0)
            gram = gram + TOTALS * float(np.trace(gram)) / len(gram)
            found = opt0(gram, law)
            whole = found.weights is not None and found.weights.shape[1] == len(gram)
            known[key] = Kernel.of(found.matrix, len(known) + 1, found.weights if whole else None)
        kernels[at] = known[key]
    return kernels


def _refined(
    work: Workload,
    kernels: dict[int, Kernel],
    strategy: Strategy,
    value: float,
    progress: Progress | None,
) -> tuple[Strategy, float]:
    """The strategy after improving attributes and weights in turn, and its total weighted variance."""
    number = max(kernel.number for kernel in kernels.values())
    for turn in range(TURNS):
        trial = dict(kernels)
        for at in sorted(trial):
            if trial[at].weights is not None:
                number += 1
                trial[at] = better_kernel(Around.of(work, at, trial, strategy), trial[at], number)
        other, found = weighted_terms(work, "laplace", trial)
        if progress is not None:
            progress("improving nested strategies", (turn + 1) / TURNS)
        gained = found < value * (1 - TURN_GAIN)
        if found < value:
            kernels, strategy, value = trial, other, found
        if not gained:
            break
    return strategy, value
