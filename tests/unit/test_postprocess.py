"""What a user holds after post-processing: answers, errors by simulation, and marks of what it is."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import residua as rs
from residua.postprocess.processed import noise_of

SCHEMA = rs.Schema(age=rs.Integer(0, 7), sex=rs.Categorical("F", "M"), place=rs.Categorical("a", "b", "c"))
WORK = rs.marginals(SCHEMA, ways=2) + rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}, name="up to")


def rows(count=600):
    generator = np.random.default_rng(5)
    return np.column_stack([generator.integers(0, size, count) for size in SCHEMA.sizes])


@pytest.fixture(scope="module")
def release():
    return rs.measure(rs.plan(WORK, rs.zcdp("0.1")), rows(), ledger=None, noise=rs.simulated(seed=7))


@pytest.fixture(scope="module", params=["nonnegative", "rounded"])
def found(request, release):
    return getattr(release, request.param)(replicates=3)


def test_results_keep_the_hash_and_say_that_they_are_biased(found, release):
    assert found.release_hash == release.hash
    assert found.biased
    assert release.hash[:12] in found.note
    assert "biased" in found.note
    assert "biased" in repr(found)
    assert repr(found).startswith("SIMULATED ")


def test_answers_carry_the_hash_the_bias_and_an_error_but_no_interval(found, release, tmp_path):
    answers = found.answers()
    assert answers.column_names[-3:] == ["query", "value", "error"]
    assert answers.num_rows == WORK.count
    assert np.array_equal(answers["value"].to_numpy(), found.values())
    assert np.array_equal(answers["error"].to_numpy(), found.errors())
    path = tmp_path / "tables.parquet"
    found.write_answers(path)
    stored = pq.read_table(path)
    assert stored.equals(answers)
    assert stored.schema.metadata[b"residua.biased"] == b"true"
    assert stored.schema.metadata[b"residua.release"].decode() == release.hash
    assert stored.schema.metadata[b"residua.simulated"] == b"true"


def test_a_table_comes_in_the_order_asked(found):
    table = found.table("sex", "age")
    assert table.values.shape == table.error.shape == (2, 8)
    assert np.array_equal(np.asarray(table), found.table("age", "sex").values.T)
    assert table.axes[0] == ("F", "M")
    assert table.to_pandas().loc[("M", "3"), "values"] == table.values[1, 3]
    assert found.table().to_pandas()["values"].item() == pytest.approx(found.table("age").values.sum())


def test_queries_are_answered_from_one_set_of_cells(found):
    cells = found.table("age", "sex").values
    assert found.values(WORK.select("up to")) == pytest.approx(np.cumsum(cells, axis=0).reshape(-1))


def test_what_lies_in_no_table_is_refused(found):
    with pytest.raises(rs.WorkloadError, match="in no table of the plan together"):
        found.values(rs.table(SCHEMA, ["age", "sex", "place"]))
    with pytest.raises(rs.SchemaError, match="different schemas"):
        found.values(rs.marginals(rs.Schema.of_sizes([2]), ways=1))
    with pytest.raises(rs.WorkloadError, match="asked about a workload"):
        found.values("age")


def test_a_query_outside_the_span_is_refused():
    work = rs.linear(SCHEMA, ["age"], [[1.0] * 4 + [0.0] * 4, [1.0] * 8])
    release = rs.measure(rs.plan(work, rs.zcdp(1)), rows(), ledger=None, noise=rs.simulated(seed=0))
    with pytest.raises(rs.NotInSpan, match="age"):
        release.nonnegative().table("age")


def test_without_a_measured_total_one_must_be_known():
    work = rs.linear(SCHEMA, ["sex"], [[1.0, -1.0]])
    release = rs.measure(rs.plan(work, rs.zcdp(1)), rows(), ledger=None, noise=rs.simulated(seed=0))
    with pytest.raises(rs.NotInSpan, match=r"rs\.known"):
        release.nonnegative()
    with pytest.warns(rs.PublicFactWarning):
        found = release.nonnegative(rs.known(rs.marginals(SCHEMA, ways=0), 600))
    assert found.values() == pytest.approx(release.values(), abs=1e-3)


def test_without_replicates_there_is_no_error_and_the_note_says_so(release):
    found = release.nonnegative(replicates=0)
    assert np.isnan(found.errors()).all()
    assert "not estimated" in found.note


@pytest.mark.parametrize("replicates", [-1, 2.5, True, None])
def test_replicates_are_a_number(release, replicates):
    with pytest.raises(rs.DataError, match="number of simulations"):
        release.nonnegative(replicates=replicates)


def test_where_nothing_is_cut_off_the_simulated_error_is_the_standard_error():
    everywhere = np.array([cell for cell in np.ndindex(8, 2, 3) for _ in range(300)])
    release = rs.measure(rs.plan(WORK, rs.zcdp(1)), everywhere, ledger=None, noise=rs.simulated(seed=1))
    simulated = release.nonnegative(replicates=60).rmse
    assert simulated == pytest.approx(release.plan.rmse, rel=0.1)


def test_the_simulated_error_is_that_of_many_releases():
    schema = rs.Schema.of_sizes([12, 10])
    data = np.random.default_rng(2).integers(0, 4, (300, 2))
    truth = np.histogram2d(*data.T, bins=[np.arange(13), np.arange(11)])[0].reshape(-1)
    plan = rs.plan(rs.marginals(schema, ways=2), rs.zcdp("0.1"))
    found = [
        rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=seed)).nonnegative() for seed in range(20)
    ]
    actual = np.sqrt(np.mean([(each.values() - truth) ** 2 for each in found]))
    assert found[0].rmse == pytest.approx(actual, rel=0.25)
    assert actual < 0.8 * plan.rmse


@pytest.mark.filterwarnings("ignore:a release that no ledger paid for:residua.DifferentDataWarning")
def test_combined_releases_are_post_processed_too():
    work = rs.marginals(SCHEMA, ways=2)
    plan = rs.plan(work, rs.zcdp("0.1"), method="querysmasher")
    pair = [rs.measure(plan, rows(), ledger=None, noise=rs.simulated(seed=seed)) for seed in (1, 2)]
    both = rs.combine(*pair)
    found = both.nonnegative(replicates=40)
    assert found.values().min() >= 0
    assert found.rmse < pair[0].plan.rmse
    strategy = both.plan.strategy
    noise = strategy.estimates(noise_of(strategy, np.random.default_rng(0)))
    assert {cells.ndim - 1 for cells in noise.cells} == {0, 1, 2}


@pytest.mark.filterwarnings("ignore:a release that no ledger paid for:residua.DifferentDataWarning")
def test_noise_of_a_combination_has_the_variances_of_its_plan():
    schema = rs.Schema.of_sizes([3, 4])
    data = np.zeros((10, 2), dtype=np.int64)
    plans = [
        rs.plan(rs.all_tables(schema, ways=2, family=rs.prefix), rs.zcdp(rho), method="querysmasher")
        for rho in ("0.1", "0.3")
    ]
    both = rs.combine(
        *(
            rs.measure(each, data, ledger=None, noise=rs.simulated(seed=3 + at))
            for at, each in enumerate(plans)
        )
    )
    source, squares = both._unbiased(), 0.0
    for number in range(400):
        squares += np.mean(source.noise(number).marginals(np.array([[0, 1]], np.int32), (3, 4)) ** 2) / 400
    cells = rs.table(schema, ["a0", "a1"])
    assert squares == pytest.approx(np.mean(both.plan.variances(cells)), rel=0.2)


def test_a_mechanism_with_laplace_noise_is_simulated_with_it():
    plan = rs.plan(rs.table(SCHEMA, ["age"]), rs.pure_dp(1), method="identity")
    release = rs.measure(plan, rows(), ledger=None, noise=rs.simulated(seed=1))
    source = release._unbiased()
    draws = [source.noise(number).marginals(np.array([[0]], np.int32), (8,)) for number in range(600)]
    assert np.mean(np.square(draws)) == pytest.approx(plan.rmse**2, rel=0.15)
    assert np.mean(np.abs(draws)) < 0.74 * plan.rmse  # 0.80 for a Gaussian, 0.71 for Laplace


def test_synthetic_rows_without_their_package_say_how_to_get_it(release, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mbi", None)
    with pytest.raises(rs.Infeasible, match=r"residua\[synth\]"):
        release.synthetic(10)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"rows": 0}, "rows"), ({"oracle": "best"}, "oracle"), ({"iterations": 0}, "iterations")],
)
def test_options_of_synthetic_rows_are_checked(release, options, words):
    with pytest.raises(rs.DataError, match=words):
        release.synthetic(**options)
