"""Two releases as one (A-006)."""

import numpy as np
import pytest

import residua as rs

SCHEMA = rs.Schema.of_sizes([3, 4, 2])
MARGINALS = rs.marginals(SCHEMA, up_to=2)
PREFIXES = rs.all_tables(SCHEMA, ways=(1, 2), family=rs.prefix)
CODES = np.stack([np.random.default_rng(1).integers(0, size, 2000) for size in SCHEMA.sizes], axis=1).astype(
    np.int32
)


def planned(work: rs.Workload, method: str = "querysmasher") -> rs.Plan:
    return rs.plan(work, rs.zcdp(1), method=method)


def measured(plan: rs.Plan, seed: int) -> rs.Release:
    return rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=seed))


def privacy_matrix(plan: rs.Plan) -> np.ndarray:
    """X over all cells, from the covariance of all cells that a plan of everything answers."""
    strategy = plan.mechanism
    cells = int(np.prod(SCHEMA.sizes))
    total = np.zeros((cells, cells))
    for layer in strategy.layers:
        for subset, numbers, noise in zip(layer.subsets, layer.shapes, layer.noise, strict=True):
            rows = np.ones((1, 1))
            order = [int(subset[place]) for places in layer.layout for place in places]
            for number in numbers:
                rows = np.kron(rows, strategy.shapes[number].matrix)
            tensor = rows.reshape(len(rows), *(SCHEMA.sizes[at] for at in order))
            tensor = tensor.transpose(0, *(1 + np.argsort(order)))
            shape = [size if at in order else 1 for at, size in enumerate(SCHEMA.sizes)]
            wide = np.broadcast_to(tensor.reshape(len(rows), *shape), (len(rows), *SCHEMA.sizes))
            flat = wide.reshape(len(rows), -1)
            total += flat.T @ flat / noise
    return total


def test_the_same_plan_twice_halves_every_variance_and_averages() -> None:
    plan = planned(MARGINALS)
    first, second = measured(plan, 1), measured(plan, 2)
    both = rs.combine(first, second)
    np.testing.assert_allclose(both.plan.variances(MARGINALS), plan.variances(MARGINALS) / 2)
    np.testing.assert_allclose(both.values(MARGINALS), (first.values() + second.values()) / 2)
    assert both.plan.privacy.rho == 2


def test_different_plans_give_the_variances_of_least_squares_over_both() -> None:
    one, other = planned(MARGINALS), planned(PREFIXES)
    both = rs.combine(measured(one, 1), measured(other, 2))
    covariance = np.linalg.pinv(privacy_matrix(one) + privacy_matrix(other), rcond=1e-11)
    work = rs.marginals(SCHEMA, ways=2)
    found = both.plan.variances(work)
    rows = []
    for first, second in ((0, 1), (0, 2), (1, 2)):
        for i in range(SCHEMA.sizes[first]):
            for j in range(SCHEMA.sizes[second]):
                mask = np.zeros(SCHEMA.sizes)
                place: list[int | slice] = [slice(None)] * 3
                place[first], place[second] = i, j
                mask[tuple(place)] = 1
                rows.append(mask.reshape(-1))
    wanted = np.einsum("ij,jk,ik->i", np.array(rows), covariance, np.array(rows))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_a_combination_saves_and_loads(tmp_path) -> None:
    both = rs.combine(measured(planned(MARGINALS), 1), measured(planned(PREFIXES), 2))
    both.save(tmp_path / "both.release")
    loaded = rs.Release.load(tmp_path / "both.release")
    np.testing.assert_array_equal(loaded.values(), both.values())
    assert loaded.simulated


def test_what_cannot_be_combined_is_refused_by_name() -> None:
    release = measured(planned(MARGINALS), 1)
    with pytest.raises(rs.Infeasible, match="one release twice"):
        rs.combine(release, rs.Release(release.plan, release.measurements, release.audit))
    dense = measured(planned(MARGINALS, "identity"), 3)
    with pytest.raises(rs.Infeasible, match="block plans"):
        rs.combine(release, dense)
    smashed = measured(planned(PREFIXES, "smasher"), 4)
    with pytest.raises(rs.Infeasible, match="different weights"):
        rs.combine(release, smashed)
    elsewhere = rs.Schema.of_sizes([3, 4])
    plan = rs.plan(rs.marginals(elsewhere, ways=1), rs.zcdp(1), method="querysmasher")
    other = rs.measure(plan, CODES[:, :2], ledger=None, noise=rs.simulated(seed=5))
    with pytest.raises(rs.SchemaError, match="different schemas"):
        rs.combine(release, other)
