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
