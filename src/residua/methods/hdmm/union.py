"""OPT_plus: tables in clusters, a product for each, all answered together by least squares (claim H-032).

The weights are the paper's, best where every cluster is answered from its own product; answers from all of
them at once can only be better. Clusters are tried in two ways: tables that ask about the same attributes,
and two halves that share as few attributes as possible.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Placed, Shape
from residua.errors import Infeasible
from residua.methods.draft import Draft, Progress
from residua.methods.hdmm.bounds import lower_bound
from residua.methods.hdmm.kron import best_product, value_of
from residua.methods.hdmm.products import TOTAL, Products
from residua.privacy import NoiseLaw
from residua.privacy.laws import unit_variance
from residua.strategy.build import of_blocks
from residua.strategy.strategy import Strategy
from residua.workload import Workload

Array = NDArray[np.float64]

MOST_CLUSTERS = 40


def union(work: Workload, law: NoiseLaw, progress: Progress | None = None) -> Draft:
    """The best union of products found, at cost 1."""
    asked = Products.of(work)
    if not asked.axes:
        raise Infeasible("all tables ask for the number of records, so that there is nothing to unite")
    found: list[tuple[float, Strategy]] = []
    refused = Infeasible("all tables ask about the same attributes, so that there is nothing to unite")
    for clusters in _clusterings(asked):
        strategy = _united(work, asked, clusters, law, progress)
        try:
            found.append((sum(strategy.totals(part)[0] for part in work.parts), strategy))
        except Infeasible as error:  # too many different products for these cells; fewer may do
            refused = error
    if not found:
        raise refused
    return Draft(min(found, key=lambda each: each[0])[1], *lower_bound(work, law))


def _united(
    work: Workload,
    asked: Products,
    clusters: Sequence[Sequence[int]],
    law: NoiseLaw,
    progress: Progress | None,
) -> Strategy:
    """A product for each cluster of tables, with the best split of the cost if none helped another."""
    terms, errors = [], []
    for cluster in clusters:
        part = asked.take(cluster)
        strategies = best_product(part, law, progress)
        pairs = zip(part.axes, strategies, strict=True)
        terms.append([Placed(axis.attributes, Shape.of(axis.sizes, each.matrix)) for axis, each in pairs])
        errors.append(value_of(part, strategies))
    # Least sum(error / c^2) for sum(c) = 1; Gaussian noise: least sum(error / c) for sum(c) = 1.
    weights = np.array(errors) ** (1 / 3 if law == "laplace" else 1 / 2)
    weights = weights / weights.sum()
    power = 2 if law == "laplace" else 1
    blocks = [
        (factors, unit_variance(law) / float(weight) ** power)
        for factors, weight in zip(terms, weights, strict=True)
    ]
    return of_blocks(work.schema.sizes, blocks, law)


def _clusterings(asked: Products) -> Iterator[list[list[int]]]:
    """Ways to divide the tables into at least two clusters."""
    signatures: dict[tuple[bool, ...], list[int]] = {}
    for table, row in enumerate(asked.families.tolist()):
        signatures.setdefault(tuple(family != TOTAL for family in row), []).append(table)
    by_signature = list(signatures.values())
    if 2 <= len(by_signature) <= MOST_CLUSTERS:
        yield by_signature
    if len(by_signature) > 2:
        yield _halves(signatures)
    if len(by_signature) == 1 and 2 <= len(asked.weights) <= MOST_CLUSTERS:
        yield [[table] for table in range(len(asked.weights))]


def _halves(signatures: dict[tuple[bool, ...], list[int]]) -> list[list[int]]:
    """Two clusters, grown around the two sets of attributes that share least."""
    keys = np.array(list(signatures), dtype=np.float64)
    sizes = keys.sum(axis=1)
    shared = keys @ keys.T
    likeness = shared / np.maximum(sizes[:, None] + sizes[None, :] - shared, 1.0)
    first, second = divmod(int(np.argmin(likeness)), len(keys))
    halves: list[list[int]] = [[], []]
    for at, tables in enumerate(signatures.values()):
        halves[int(likeness[at, second] > likeness[at, first])] += tables
    return [half for half in halves if half]
