"""Two thousand random plans of every method: what each costs a record, by brute force (claim K-005)."""

import math
from collections import Counter
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import residua as rs
from residua.kernel.cost import added_cost, replaced_cost
from residua.methods.registry import methods_for

PLANS = 2_000
MOST_CELLS = 36
LAWS = {"gaussian": rs.zcdp, "laplace": rs.pure_dp}
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


def true_cost(plan: rs.Plan, *, replaced: bool) -> Fraction:
    """The cost of the dearest joint cell, or of the dearest pair."""
    costs: Any = Fraction(0)
    for rows, parameter, law in columns(plan):
        change = rows[:, :, None] - (rows[:, None, :] if replaced else 0)
        costs = costs + (abs(change) if law == "laplace" else change * change).sum(axis=0) * (1 / parameter)
    return Fraction(costs.max())


def random_plan(generator: np.random.Generator, method: str, law: str, neighbours: Any) -> rs.Plan | None:
    """A plan, or None where that is refused."""
    budget = LAWS[law](Fraction(int(generator.integers(1, 1000)), int(generator.integers(1, 1000))))
    unit = rs.Unit(max_records=int(generator.integers(1, 3)), neighbours=neighbours)
    together = float(generator.choice([0.0, 1e9]))  # whether few cells are solved as one block
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("residua.methods.smasher.UNION_WORK", together)
        try:
            return rs.plan(random_workload(generator), budget, method=method, unit=unit, gap=1e-2)
        except rs.ResiduaError:
            return None


def test_no_plan_costs_more_than_it_states_or_much_less():
    generator = np.random.default_rng(18)
    kinds = [
        (method, law, neighbours)
        for law in LAWS
        for method in methods_for(law)
        for neighbours in ("add_remove", "replace_one")
    ]
    found: Counter[tuple[str, str, str]] = Counter()
    least = {True: Fraction(1), False: Fraction(1)}  # true cost over the budget, of one block and of several
    drawn = 0
    while found.total() < PLANS:
        kind = kinds[drawn % len(kinds)]
        drawn += 1
        plan = random_plan(generator, *kind)
        if plan is None:
            continue
        replaced = kind[2] == "replace_one"
        true, allowed = true_cost(plan, replaced=replaced), plan.unit.allowance(plan.budget)
        stated = (replaced_cost if replaced else added_cost)(plan.batches)
        assert true <= stated <= allowed
        single = sum(len(batch.subsets) for batch in plan.batches) == 1
        assert true > allowed * (1 - Fraction(1, 10**9 if single else 10**7)), (kind, plan)
        least[single] = min(least[single], true / allowed)
        found[kind] += 1
    print(f"\n{drawn:,} workloads, plans of each kind: {dict(found)}")
    unused = {single: f"{float(1 - part):.1e}" for single, part in least.items()}
    print(f"unused at most: {unused[True]} with one block, {unused[False]} with more")
    assert set(found) == set(kinds)
