"""Plans by places as dense matrices over all joint cells, and trees to try them on."""

import numpy as np

import residua as rs


def hierarchy(draw: np.random.Generator, levels: int, least: int, most: int) -> rs.Hierarchy:
    """Places of an irregular tree, in an order that is not that of the tree."""
    paths = [(f"{at}",) for at in range(draw.integers(max(least, 2), most + 1))]
    for _ in range(levels - 1):
        paths = [
            (*path, f"{path[-1]}.{at}") for path in paths for at in range(draw.integers(least, most + 1))
        ]
    names = tuple(f"l{at}" for at in range(levels))
    return rs.Hierarchy(names, [paths[at] for at in draw.permutation(len(paths))])


def places_of(tree: list) -> rs.Hierarchy:
    """Places of nested lists of numbers of leaves: [[2, 1], [3]] has two states and three counties."""
    paths: list[tuple[str, ...]] = []

    def walk(node: list | int, path: tuple[str, ...]) -> None:
        for at, below in enumerate(node if isinstance(node, list) else [None] * node):
            own = (*path, f"{path[-1] if path else ''}.{at}")
            paths.append(own) if below is None else walk(below, own)

    walk(tree, ())
    return rs.Hierarchy(tuple(f"l{at}" for at in range(len(paths[0]))), paths)


UNEVEN = {
    "one large": [1] * 20 + [200],
    "large beside small": [[1], [1], [12], [1, 1, 1, 1, 30]],
    "combs": [[1] * k + [40] for k in range(6)],
    "powers of two": [2**k for k in range(8)],
    "powers of two at two levels": [[1, 2, 4, 8], [16, 32], [64], [1]],
    "halves": [[1, 100], [2, 50], [4, 25], [10, 10]],
    "chains": [[[1]], [[1, 1]], [[1, 1, 1, 60]]],
    "deep": [[[1], [1], [80]], [[1]]],
    "pairs": [[2, 50], [1, 1, 1], [100]],
    "long": [[[[1, 1], [20]], [[1], [1]]], [[[40]], [[1, 30]]]],
}
"""Trees that are as uneven as can be."""


def weighed(schema: rs.Schema, others: list[str], weights: tuple[float, ...]) -> rs.Workload:
    """The same table of the nation and of every level, weighed."""
    place = schema["place"]
    parts = [rs.table(schema, others)] + [rs.table(schema, [f"place.{own}", *others]) for own in place.levels]
    work = [weight * part for weight, part in zip(weights, parts, strict=False)]
    return sum(work[1:], work[0])


def least_total(G: np.ndarray) -> float:
    """A bound of the least total variance at cost 1 over all mechanisms, within 1e-5 of it."""
    v = np.ones(len(G))
    while True:
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(root[:, None] * G * root)
        roots = np.sqrt(np.clip(values, 0, None))
        diagonal = (vectors**2) @ roots
        if (diagonal / v).max() * v.sum() <= (1 + 1e-5) * roots.sum():
            return float(roots.sum() ** 2 / v.sum())
        v = diagonal


def excess(work: rs.Workload, **options: object) -> float:
    """How far the RMSE of a plan by places is above the least of all mechanisms, weights counted."""
    plan = rs.plan(work, rs.privacy_cost(1), method="places", **options)
    G = np.zeros((int(np.prod(work.schema.sizes)),) * 2)
    for group in work.groups():
        own = dense_queries(rs.Workload(work.schema, (group,)))
        G += group.weight * (own.T @ own)
    total = sum(plan.strategy.total(group, weighted=True) for group in work.groups())
    assert plan.certificate.lower_bound <= least_total(G) * (1 + 1e-4)
    return float(np.sqrt(total / least_total(G)) - 1)


def dense_rows(plan: rs.Plan) -> tuple[np.ndarray, np.ndarray]:
    """Every row that a plan measures over all joint cells, and one over the variance of its noise."""
    strategy, sizes = plan.strategy, plan.schema.sizes
    rows, precisions = [], []
    for layer, blocks in zip(strategy.layers, strategy.levels(), strict=True):
        for number, subset in enumerate(layer.subsets.tolist()):
            matrix = np.ones((1, 1))
            for shape in layer.shapes[number].tolist():
                matrix = np.kron(matrix, strategy.shapes[shape].matrix)
            order = [subset[place] for places in layer.layout for place in places]
            inner = matrix.reshape(len(matrix), *(sizes[at] for at in order))
            inner = np.moveaxis(inner, range(1, 1 + len(order)), 1 + np.argsort(np.argsort(order)))
            full = np.ones((len(matrix), *sizes))
            full = full * inner.reshape(
                len(matrix), *(sizes[at] if at in order else 1 for at in range(len(sizes)))
            )
            if blocks is not None:
                mask = (blocks == number).reshape(
                    [-1 if at == layer.within else 1 for at in range(len(sizes))]
                )
                full = full * mask
            rows.append(full.reshape(len(matrix), -1) * layer.multiplier)
            precisions += [1 / (layer.noise[number] * layer.multiplier**2)] * len(matrix)
    return np.concatenate(rows), np.array(precisions)


def dense_queries(work: rs.Workload) -> np.ndarray:
    found = []
    sizes = work.schema.sizes
    for group in work.groups():
        order, matrix = [], np.ones((1, 1))
        for factor in group.factors:
            order += factor.attributes
            matrix = np.kron(matrix, factor.queries.matrix())
        rest = [at for at in range(len(sizes)) if at not in order]
        matrix = np.kron(matrix, np.ones((1, int(np.prod([sizes[at] for at in rest])))))
        shape = [sizes[at] for at in (*order, *rest)]
        back = np.argsort([*order, *rest])
        found.append(matrix.reshape(-1, *shape).transpose(0, *(1 + back)).reshape(len(matrix), -1))
    return np.concatenate(found)


def joint_optimum(work: rs.Workload) -> float:
    return rs.plan(work, rs.privacy_cost(1), method="dense", gap=1e-5).ideal.rmse
