"""A bound for all mechanisms on counts of the nodes of a tree, in passes up the tree (claim T-006)."""

from collections.abc import Sequence

import numpy as np

from residua.linalg.trees import Array, Tree, passes, root_trace, slopes


def tree_bound(tree: Tree, weights: Sequence[Array], precisions: Sequence[Array]) -> float:
    """No mechanism of privacy cost 1 has weighted variances of node counts below this.

    `weights[l]`, (nodes,), count a node with all that it stands for. Any positive weights on the leaves give
    a bound; those taken are what the precisions of the leaves are worth.
    """
    columns = [each[:, None] for each in weights]
    found = passes(tree, [each[:, None] for each in precisions])
    worth = -slopes(tree, found, columns)[-1][:, 0]
    each = worth / tree.stands_for[-1]
    single = [own / stands for own, stands in zip(weights, tree.stands_for, strict=True)]
    return root_trace(tree, single, each) ** 2 / float(np.sum(worth))
