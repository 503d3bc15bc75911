"""Synthetic rows by graphical models: they resemble what was released, and say what they are."""

import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

import residua as rs
from residua.postprocess.facts import Facts
from residua.postprocess.graphical import load_mbi, observations
from residua.postprocess.pieces import PieceErrors

SCHEMA = rs.Schema(age=rs.Integer(18, 22), sex=rs.Categorical("F", "M"), place=rs.Categorical("a", "b", "c"))
WORK = rs.table(SCHEMA, ["age", "sex"]) + rs.table(SCHEMA, ["sex", "place"])


def rows(count=2000):
    generator = np.random.default_rng(0)
    sex = generator.integers(0, 2, count)
    age = np.minimum(generator.poisson(1 + sex, count), 4)
    return np.column_stack([age, sex, (age + generator.integers(0, 2, count)) % 3])


def released(work, rho="0.5", **options):
    return rs.measure(rs.plan(work, rs.zcdp(rho), **options), rows(), ledger=None, noise=rs.simulated(seed=1))


@pytest.fixture(scope="module")
def release():
    return released(WORK)


@pytest.fixture(scope="module")
def found(release):
    return release.synthetic(2000, iterations=100, replicates=2)


def test_rows_and_model_are_near_the_release(found, release):
    assert found.codes.shape == (2000, 3)
    assert np.abs(found.model.values() - release.nonnegative().values()).mean() < 3
    assert np.abs(found.counts.values() - found.model.values()).max() < 6


def test_rows_say_what_they_are_and_keep_the_hash(found, release, tmp_path):
    path = tmp_path / "rows.parquet"
    found.write(path)
    table = pq.read_table(path)
    assert table.num_rows == 2000
    assert set(table["age"].to_pylist()) <= set(range(18, 23))
    assert set(table["place"].to_pylist()) <= {"a", "b", "c"}
    metadata = table.schema.metadata
    assert metadata[b"residua.release"].decode() == found.release_hash == release.hash
    assert metadata[b"residua.biased"] == b"true"
    assert float(metadata[b"residua.rmse"]) == found.counts.rmse > 0
    assert found.biased
    assert "invention" in found.note
    assert "SIMULATED" in repr(found)
    assert np.array_equal(SCHEMA.encode(table.to_pandas()), found.codes)


def test_rows_of_another_number_stand_for_all_records(release):
    few = release.synthetic(200, iterations=50, replicates=0)
    total = release.values(rs.marginals(SCHEMA, ways=0))[0]
    assert len(few.codes) == 200
    assert few.counts.table("sex").values.sum() == pytest.approx(total)


def test_the_same_seed_gives_the_same_rows(release):
    first, second = (release.synthetic(300, iterations=50, replicates=0, seed=4) for _ in range(2))
    assert np.array_equal(first.codes, second.codes)


def test_a_model_that_is_too_large_is_refused_with_what_would_make_it_feasible():
    schema = rs.Schema.of_sizes([40] * 8)
    data = np.zeros((10, 8), dtype=np.int64)
    plan = rs.plan(rs.marginals(schema, ways=2), rs.zcdp(1))
    release = rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=0))
    with pytest.raises(rs.Infeasible, match=r"28 tables.*megabytes.*of them fit.*oracle='approximate'"):
        release.synthetic(10)


def test_some_tables_can_be_chosen(release):
    few = release.synthetic(100, tables=rs.table(SCHEMA, ["age", "sex"]), iterations=50, replicates=0)
    assert few.columns == ("age", "sex")


def test_the_approximate_oracle_needs_no_junction_tree(release):
    mixed = release.synthetic(2000, oracle="approximate", iterations=300, replicates=0)
    assert np.abs(mixed.model.values() - release.nonnegative().values()).mean() < 12
    assert np.abs(mixed.counts.values() - mixed.model.values()).mean() < 15


def test_public_facts_hold_in_every_row(release):
    never = rs.impossible(rs.sql(SCHEMA, "SELECT COUNT(*) FROM p WHERE age = 18 AND sex = 'M'"))
    with pytest.warns(rs.PublicFactWarning):
        found = release.synthetic(500, facts=[never], iterations=50, replicates=0)
    assert not ((found.codes[:, 0] == 0) & (found.codes[:, 1] == 1)).any()


def test_impossible_cells_that_a_model_cannot_keep_empty_are_refused(release):
    never = rs.impossible(rs.sql(SCHEMA, "SELECT COUNT(*) FROM p WHERE age = 18 AND sex = 'M'"))
    with pytest.warns(rs.PublicFactWarning), pytest.raises(rs.DataError, match="use oracle='exact'"):
        release.synthetic(500, facts=never, oracle="approximate", iterations=50)
    with pytest.warns(rs.PublicFactWarning), pytest.raises(rs.DataError, match="need a table on age x sex"):
        release.synthetic(500, facts=never, tables=rs.table(SCHEMA, ["sex"]), iterations=50)


def test_a_known_table_is_all_but_reproduced(release):
    counts = np.bincount(rows()[:, 1], minlength=2)
    with pytest.warns(rs.PublicFactWarning):
        found = release.synthetic(
            2000, facts=rs.known(rs.table(SCHEMA, ["sex"]), counts), iterations=300, replicates=0
        )
    assert found.model.table("sex").values == pytest.approx(counts, abs=3)


@pytest.mark.parametrize(
    ("work", "method"),
    [
        (WORK, "residualplanner"),
        (rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}), "querysmasher"),
        (rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}), "identity"),
    ],
)
def test_observations_are_uncorrelated_with_one_standard_deviation(work, method):
    release = released(work, method=method)
    plan = release.plan
    source = release._unbiased()
    tables = source.tables()
    errors = PieceErrors(plan.strategy, SCHEMA)
    seen = observations(tables, errors, Facts.of((), SCHEMA))
    for each in seen:
        sizes = tuple(SCHEMA.sizes[at] for at in each.subset)
        rows_of = np.array([each.of(cell.reshape(sizes)) for cell in np.eye(int(np.prod(sizes)))]).T
        names = [SCHEMA.names[at] for at in each.subset]
        queries = rs.linear(SCHEMA, names, rows_of)
        found = plan.covariance(queries, queries)
        if each.scales is None:  # not turned: the numbers are centred, and so is their covariance
            projector = np.eye(1)
            for size in sizes:
                projector = np.kron(projector, np.eye(size) - 1 / size)
            assert found == pytest.approx(each.stddev**2 * projector, abs=1e-6 * each.stddev**2)
        else:
            assert found == pytest.approx(np.eye(len(found)), abs=1e-6)


def test_a_query_computes_in_jax_what_the_observation_is():
    mbi = load_mbi()
    release = released(rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}), method="querysmasher")
    tables = release._unbiased().tables()
    errors = PieceErrors(release.plan.strategy, SCHEMA)
    for each in observations(tables, errors, Facts.of((), SCHEMA)):
        names = [SCHEMA.names[at] for at in each.subset]
        marginal = tables.marginal(each.subset)
        factor = mbi.Factor(mbi.Domain(names, marginal.shape), jnp.asarray(marginal))
        assert np.asarray(each(factor)) == pytest.approx(each.of(marginal), rel=1e-3, abs=1e-2)
        dense = np.array([each.of(cell.reshape(marginal.shape)) for cell in np.eye(marginal.size)])
        assert np.linalg.norm(dense, 2) ** 2 <= each.op_norm_sq() * (1 + 1e-9)
