"""A bound for all mechanisms on counts of the nodes of a hierarchy, at any size (claim T-006)."""

from collections.abc import Sequence

import numpy as np

from residua._arrays import Array, Integers
from residua.bounds.singular import refuse_other
from residua.errors import WorkloadError
from residua.linalg.matrices import VANISHING
from residua.linalg.trees import Levels, Nest, Tree, merged, passes, root_trace, slopes
from residua.schema import Date, Hierarchy
from residua.solve.cells import solve_cells
from residua.solve.trees import solve_tree
from residua.workload import Identity, Partition, Table, Total, Workload

ROUNDING = 1e-9  # relative: what is allowed for rounding errors of eigenvalues


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
    whole = Nest.of(nodes).tree.cut(int(np.flatnonzero(asked)[-1]))
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


def product_bound(tree: Tree, weights: Sequence[Levels], grams: Sequence[Array], leaves: Array) -> float:
    """No mechanism of privacy cost 1 reaches below this on tables of nodes times other queries (T-009).

    Table t asks queries with gram `grams[t]`, (cells, cells), of every node; `weights[t]` counts them, a node
    with all that it stands for. `leaves` are any weights, with all that each stands for; the cells of the
    others get those that are best for all tables together.
    """
    asked = [sum(float(own.sum()) for own in each) for each in weights]
    total = sum(weight * gram for weight, gram in zip(asked, grams, strict=True))
    values, vectors = np.linalg.eigh(total)
    kept = values > VANISHING * values[-1]
    cells = solve_cells((vectors[:, kept] * np.sqrt(values[kept])).T, 1e-3).cell_weights
    seen = [np.sqrt(np.outer(cells, cells)) * gram for gram in grams]
    single = [[own / stands for own, stands in zip(each, tree.stands_for, strict=True)] for each in weights]
    traces = []
    for members in _commuting(seen):
        levels = list(zip(*(single[at] for at in members), strict=True))
        traces.append(_trace(tree, levels, _profiles([seen[at] for at in members]), leaves))
    return float(np.sum(np.square(traces)) / (leaves.sum() * cells.sum()))


def _trace(tree: Tree, levels: Sequence[Sequence[Array]], profiles: Array, leaves: Array) -> float:
    """The trace of the root, one tree for each direction; directions in proportion share one."""
    total, known = 0.0, {}
    for row in profiles:
        scale = float(row.max())
        key = tuple(np.round(row / scale, 9).tolist())
        if key not in known:
            mixed = [np.tensordot(row / scale, np.stack(each), axes=1) for each in levels]
            known[key] = root_trace(tree, mixed, leaves / tree.stands_for[-1])
        total += np.sqrt(scale * (1 - ROUNDING)) * known[key]
    return float(total)


def _commuting(grams: Sequence[Array]) -> list[list[int]]:
    """Numbers of grams in groups that have common eigenvectors."""
    found: list[list[int]] = []
    for number, gram in enumerate(grams):
        for group in found:
            both = [gram @ grams[at] for at in group]
            if all(np.abs(each - each.T).max() <= ROUNDING * np.abs(each).max() for each in both):
                group.append(number)
                break
        else:
            found.append([number])
    return found


def _profiles(grams: Sequence[Array]) -> Array:
    """Eigenvalues of grams with common eigenvectors, (directions, grams), but for directions of none."""
    mixed = sum(gram / np.trace(gram) * (1 + 0.37 * np.sin(7.0 * at)) for at, gram in enumerate(grams))
    vectors = np.linalg.eigh(mixed)[1]
    found = np.stack(
        [np.einsum("ie,ij,je->e", vectors, gram, vectors, optimize=True) for gram in grams], axis=1
    )
    found = np.clip(found, 0.0, None)
    return np.asarray(found[(found / found.max(axis=0)).max(axis=1) > ROUNDING])
