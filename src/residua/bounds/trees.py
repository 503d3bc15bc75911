"""A bound for all mechanisms on counts of the nodes of a hierarchy, at any size (claim T-006)."""

from collections.abc import Sequence

import numpy as np

from residua._arrays import Array, Integers
from residua.bounds.singular import refuse_other
from residua.errors import WorkloadError
from residua.linalg.trees import Tree, merged, passes, root_trace, slopes
from residua.schema import Date, Hierarchy
from residua.solve.trees import solve_tree
from residua.workload import Identity, Partition, Table, Total, Workload


def tree(work: Workload) -> float:
    """The bound for counts of the nodes of one hierarchy, or of the steps of one date, at some levels.

    Takes a few seconds for a million places, where the other bounds hold a matrix over them.

    >>> import residua as rs
    >>> place = rs.Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")])
    >>> schema = rs.Schema(place=place)
    >>> work = rs.table(schema, place=rs.level("state")) + rs.table(schema, ["place"])
    >>> round(rs.bounds.tree(work), 3), round(rs.bounds.dual(work), 3)
    (5.732, 5.732)
    """
    refuse_other(work)
    (place, *others) = work.attributes or (0,)
    attribute = work.schema.attributes[place]
    if others or not isinstance(attribute, Hierarchy | Date):
        raise WorkloadError("this bound is for tables on one hierarchy or date alone; use rs.bounds.svd")
    nodes = [attribute.level_of(level) for level in attribute.levels]
    asked = np.zeros(len(nodes) + 1)
    for group in work.groups():
        asked[_level(group, nodes)] += group.weight
    whole = tree_of(nodes).cut(int(np.flatnonzero(asked)[-1]))
    small, _ = merged(whole)
    weights = [own * stands for own, stands in zip(asked, small.stands_for, strict=False)]
    found = solve_tree(small, [each[:, None] for each in weights])
    return tree_bound(small, weights, [each[:, 0] for each in found.precisions])


def _level(group: Table, nodes: Sequence[Integers]) -> int:
    """The level that a table asks: 0 for the total, and the last for every leaf."""
    queries = group.factors[0].queries if group.factors else None
    if queries is None or isinstance(queries, Total):
        return 0
    if isinstance(queries, Identity):
        return len(nodes)
    for number, classes in enumerate(nodes, start=1):
        if isinstance(queries, Partition) and np.array_equal(queries.classes, classes):
            return number
    raise WorkloadError(f"table {group.name!r} asks no level of its hierarchy; use rs.bounds.svd")


def tree_of(nodes: Sequence[Integers]) -> Tree:
    """The tree with a root above nodes that are given level by level for each leaf, (leaves,) each."""
    order = np.lexsort(nodes[::-1])
    above, parents = np.zeros(len(order), dtype=np.int64), []
    for own in (each[order] for each in nodes):
        starts = np.flatnonzero(np.diff(own, prepend=-1))
        parents.append(above[starts])
        above = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(own)))
    return Tree.of(parents)


def tree_bound(tree: Tree, weights: Sequence[Array], precisions: Sequence[Array]) -> float:
    """No mechanism of privacy cost 1 has weighted variances of node counts below this.

    `weights[l]`, (nodes,), count a node with all that it stands for. Any positive weights on the leaves give
    a bound; those taken are what the precisions of the leaves are worth.
    """
    columns = [each[:, None] for each in weights]
    found = passes(tree, [each[:, None] for each in precisions])
    worth = -slopes(tree, found, columns)[-1][:, 0]
    single = [own / stands for own, stands in zip(weights, tree.stands_for, strict=True)]
    return root_trace(tree, single, worth / tree.stands_for[-1]) ** 2 / float(np.sum(worth))
