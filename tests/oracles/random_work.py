"""Random workloads of given sizes, the query matrix of each name, and the semidefinite program of a loss."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from random_plans import random_table

import residua as rs
from residua.linalg.matrices import join, row_space, spread

Array = NDArray[np.float64]

LOSSES: dict[str, Callable[[Any], Any]] = {
    "max": lambda v: cp.max(v),
    "sum and max": lambda v: cp.sum(v) + 3 * cp.max(v),
    "squares": lambda v: cp.sum_squares(v),
    "norm 4": lambda v: cp.norm(v, 4),
    "log-sum-exp": lambda v: cp.log_sum_exp(v),
    "hinge": lambda v: cp.sum(v) + 10 * cp.sum(cp.pos(v - 3)),
}


WIDE = 512  # joint cells above which no attribute has more than a fourth of that many


def random_sizes(rng: Generator, least: int, most: int) -> list[int]:
    """Sizes of one to four attributes with a number of joint cells in this range."""
    while True:
        ways = int(rng.integers(1, 5))
        widest = np.log(most if most <= WIDE else WIDE / 4)
        sizes = np.maximum(2, np.round(np.exp(rng.uniform(0, widest, ways)))).astype(int).tolist()
        if least <= math.prod(sizes) <= most:
            return [int(size) for size in sizes]


def random_work(rng: Generator, least: int, most: int, *, levels: bool = False) -> rs.Workload:
    """One to four tables of random families, conditions and weights, on attributes of random sizes.

    With `levels` the first attribute may be one of places in groups, with tables at both levels.
    """
    sizes = random_sizes(rng, least, most)
    schema = rs.Schema.of_sizes(sizes)
    tables = [random_table(schema, rng) for _ in range(int(rng.integers(1, 5)))]
    if levels and rng.random() < 0.2:
        groups = rng.integers(0, max(sizes[0] // 3, 1), sizes[0])
        tree = rs.Hierarchy(("group", "leaf"), [(f"g{own}", f"l{at}") for at, own in enumerate(groups)])
        others = {f"a{at}": rs.Integer(0, size - 1) for at, size in enumerate(sizes) if at}
        schema = rs.Schema({"place": tree, **others})
        chosen = [name for name in others if rng.random() < 0.5]
        tables = [
            float(rng.choice([1.0, 3.0])) * rs.table(schema, [place, *chosen])
            for place in ("place.group", "place.leaf", "place")
        ]
        tables += [rs.table(schema, dict.fromkeys(others, rs.prefix))] if others else []
    elif levels and rng.random() < 0.15:
        family = (rs.circular, rs.width(min(3, *sizes)), rs.identity)[int(rng.integers(3))]
        ways = range(1, int(rng.integers(1, len(sizes) + 1)) + 1)
        tables = [rs.all_tables(schema, ways=tuple(ways), family=family)]
    return reduce(lambda one, other: one + other, tables)


def query_matrix(work: rs.Workload) -> Array:
    """All queries over the joint cells of the schema, (queries, cells)."""
    sizes, rows = work.schema.sizes, []
    for table in work.groups():
        matrix = join(queries.matrix() for queries in table.families)
        places = list(table.attributes)
        rows.append(spread(matrix, [sizes[place] for place in places], places, list(sizes)))
    return np.concatenate(rows)


def least_loss(work: rs.Workload, loss: Callable[[Any], Any]) -> float:
    """The least loss of all mechanisms of privacy cost 1, by a semidefinite program."""
    matrices = [query_matrix(work.select(name)) for name in work.names]
    basis = row_space(np.concatenate(matrices))  # (cells, rank)
    inner = cp.Variable((basis.shape[1], basis.shape[1]), PSD=True)
    asked = [np.linalg.qr(matrix @ basis, mode="r") / math.sqrt(len(matrix)) for matrix in matrices]
    means = cp.Variable(len(asked))
    conditions = [cp.diag(basis @ inner @ basis.T) <= 1]
    conditions += [cp.matrix_frac(own.T, inner) <= mean for own, mean in zip(asked, means, strict=True)]
    problem = cp.Problem(cp.Minimize(loss(means)), conditions)
    problem.solve(solver=cp.CLARABEL)
    assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
    return float(problem.value)
