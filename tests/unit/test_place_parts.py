"""Parts of a tree of places: the same estimates as from all of it at once."""

import numpy as np
import pytest
from placed_plans import some_plan

import residua as rs
from residua.answering.place_parts import Division, PartsEstimator, PlaceParts
from residua.linalg.trees import Nest


@pytest.mark.parametrize("most", [40, 100, 300])
@pytest.mark.parametrize("seed", range(3))
def test_estimates_from_parts_are_those_from_all_places_at_once(seed, most):
    plan = some_plan(seed)
    release = rs.measure(
        plan,
        np.random.default_rng(seed).integers(0, plan.schema.sizes, (500, 4)),
        ledger=None,
        noise=rs.simulated(seed=seed),
    )
    strategy, source = plan.strategy, plan.strategy.answerer
    nest = source.nest
    division = Division.of(nest, [20] * len(nest.tree.sizes), most)
    numbers = source.numbers(release.measurements.in_units(strategy))
    parts, read = PlaceParts(source, division), []

    def part_of(part: int) -> dict:
        read.append(part)
        return {
            key: own[division.blocks(source.depths[key[0]], part)]
            for key, own in numbers.items()
            if source.depths[key[0]] >= division.depth
        }

    sums = parts.none()
    for part in range(len(division)):
        parts.add(sums, part, part_of(part))
    above = {key: own for key, own in numbers.items() if source.depths[key[0]] < division.depth}
    found = PartsEstimator(parts, above, sums, part_of)
    asked = [
        *plan.workload.groups(),
        *rs.table(plan.schema, {"age": rs.prefix, "place.county": rs.identity}).groups(),
        *rs.table(
            plan.schema, {"place": rs.buckets(["t0", "t7", "t30"], ["t2", "t59"]), "sex": rs.identity}
        ).groups(),
        *rs.sql(plan.schema, "SELECT COUNT(*) FROM t WHERE place.state = 's1' GROUP BY age, place").groups(),
    ]
    for group in asked:
        known = release._estimator.answers(group)
        assert np.allclose(found.answers(group), known, rtol=1e-9, atol=1e-9)
        some = found.sliced(group)
        if some is not None:
            places, compute = some
            values, variances = compute(slice(0, 1))
            assert np.allclose(values, known[: len(known) // places], rtol=1e-9, atol=1e-9)
            assert np.allclose(variances, strategy.variances(group)[: len(values)])
    read.clear()
    found._held = None
    found.answers(next(rs.table(plan.schema, ["place.state", "sex"]).groups()))
    assert division.depth == 1 or not read  # what is above the parts needs none of them


def test_parts_hold_all_places_once_and_end_with_states():
    nest = Nest.of([np.repeat([0, 1, 2], [3, 5, 2]), np.arange(10)])
    division = Division.of(nest, [1, 1, 1], 5)
    assert division.cuts.tolist() == [0, 3, 8, 10]
    assert division.of_places().tolist() == [0] * 3 + [1] * 5 + [2] * 2
    assert Division.of(nest, [1, 1, 1], 100) is None
    assert Division.of(nest, [1, 1, 1], 4).cuts.tolist() == [0, 3, 7, 8, 10]
    assert Division.of(nest, [0, 9, 1], 20).depth == 1
