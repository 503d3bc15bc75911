"""Random workloads on few cells, and what the plans made for them measure of every cell."""

import math
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

import residua as rs

MOST_CELLS = 36
FAMILIES = (rs.identity, rs.prefix, rs.ranges, rs.total)


def random_workload(generator: np.random.Generator) -> rs.Workload:
    """Some tables of one or two attributes, with families of all kinds, weights and conditions."""
    sizes: list[int] = []
    while not sizes or math.prod(sizes) > MOST_CELLS:
        sizes = generator.integers(2, 6, generator.integers(1, 5)).tolist()
    schema = rs.Schema.of_sizes(sizes)
    if generator.random() < 0.25:  # some methods plan nothing else
        return rs.marginals(schema, up_to=int(generator.integers(1, len(sizes) + 1)))
    works = [random_table(schema, generator) for _ in range(generator.integers(1, 5))]
    return reduce(lambda one, other: one + other, works)


def random_table(schema: rs.Schema, generator: np.random.Generator) -> rs.Workload:
    ways = int(generator.integers(1, min(3, len(schema)) + 1))
    names = generator.permutation(schema.names)[:ways].tolist()
    weight = float(generator.choice([1.0, 1.0, 3.0, 1e-3]))
    kind = generator.integers(6)
    if kind == 0:
        rows = generator.integers(
            -2, 3, (2, math.prod(schema.sizes[schema.names.index(name)] for name in names))
        )
        rows[:, 0] = 1
        return weight * rs.linear(schema, names, rows, name="rows")
    if kind == 1 and ways == 2:
        return weight * rs.table(schema, {tuple(names): rs.affine})
    if kind == 2:
        condition = " or ".join(f"{name} >= 1" for name in names)
        return weight * rs.sql(schema, f"select count(*) from t where {condition}")
    families = generator.permutation(len(FAMILIES))
    return weight * rs.table(schema, {name: FAMILIES[families[at]] for at, name in enumerate(names)})


def columns(plan: rs.Plan) -> list[tuple[NDArray[Any], Fraction, str]]:
    """For each block the whole numbers that it measures of every joint cell, (rows, cells), and its noise."""
    cells = np.indices(plan.schema.sizes).reshape(len(plan.schema), -1)
    found = []
    for batch in plan.batches:
        codes = list(cells)
        for part in batch.derived:
            kinds = [own.classes[cells[at]] for at, own in zip(part.attributes, part.partitions, strict=True)]
            flat = np.ravel_multi_index(kinds, [own.count for own in part.partitions])
            codes[part.place] = part.joint.classes[flat]
        whole = reduce(np.kron, batch.matrices, np.ones((1, 1), dtype=np.int64)).astype(object)
        for subset, owner in zip(batch.subsets.tolist(), batch.owners.tolist(), strict=True):
            at = np.zeros(cells.shape[1], dtype=np.int64)
            for attribute, size in zip(subset, batch.sizes, strict=True):
                at = at * size + codes[attribute]
            found.append((batch.multiplier * whole[:, at], batch.parameters[owner], batch.law))
    return found
