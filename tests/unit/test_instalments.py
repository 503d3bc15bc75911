"""Plans that are measured in instalments lose nothing against those that wait for the end."""

from itertools import pairwise

import numpy as np
import pytest

import residua as rs
from residua.answering.periods import Periods
from residua.errors import SchemaError, WorkloadError
from residua.kernel.instalments import Schedule
from residua.methods.effort import Account
from residua.methods.instalments import _uncentred, triangular, with_time

COST = rs.privacy_cost(1)


def months(n):
    return rs.Schema(month=rs.Integer(0, n - 1))


def to_date(n):
    """Year to date: sums since the last January."""
    rows = np.tril(np.ones((n, n)))
    for at in range(n):
        rows[at, : at - at % 12] = 0
    return rows


def asked(n, kind):
    schema = months(n)
    if kind == "to date":
        return rs.linear(schema, ("month",), to_date(n))
    return rs.table(schema, month=rs.prefix if kind == "running" else rs.width(4))


def dense_rows(plan):
    """Everything that a plan measures as one matrix over all joint cells, in units of the noise."""
    sizes = plan.schema.sizes
    rows = []
    for batch in plan.batches:
        for block, owner in enumerate(batch.owners.tolist()):
            matrix = np.ones((1, 1))
            for own in batch.matrices:
                matrix = np.kron(matrix, own)
            axes = batch.subsets[block].tolist()
            tensor = matrix.reshape(-1, *(sizes[at] for at in axes))
            order = np.argsort(axes)
            tensor = tensor.transpose(0, *(1 + order))
            full = tensor.reshape(len(tensor), *(sizes[at] if at in axes else 1 for at in range(len(sizes))))
            full = np.broadcast_to(full, (len(tensor), *sizes)).reshape(len(tensor), -1)
            noise = float(batch.parameters[owner]) + 1 / 12
            rows.append(batch.multiplier * full / np.sqrt(noise))
    return np.concatenate(rows)


@pytest.mark.parametrize("kind", ["running", "moving", "to date"])
@pytest.mark.parametrize("n", [12, 64])
def test_an_instalment_plan_is_as_good_as_the_offline_optimum(n, kind):
    work = asked(n, kind)
    plan = rs.plan(work, COST, over="month")
    bound = rs.bounds.dual(work)
    assert plan.total_variance <= 1.001 * bound
    [batch] = plan.batches
    [matrix] = batch.matrices
    assert not np.triu(matrix, 1).any()
    assert np.diagonal(matrix).all()


def test_the_figures_of_running_totals():
    figures = {n: rs.plan(asked(n, "running"), COST, over="month").rmse for n in (12, 64)}
    assert figures == {12: pytest.approx(1.60735, abs=5e-5), 64: pytest.approx(2.0999, abs=5e-5)}


def grouped():
    schema = rs.Schema(region=rs.Categorical(*"abc"), month=rs.Integer(0, 5), sex=rs.Categorical("F", "M"))
    work = rs.table(schema, month=rs.identity, region=rs.identity) + rs.table(schema, ["region"])
    work += rs.table(schema, month=rs.prefix, sex=rs.identity) + 3 * rs.table(schema, month=rs.width(3))
    return work


def test_with_groups_it_reaches_the_optimum_of_all_mechanisms():
    plan = rs.plan(grouped(), COST, over="month")
    assert plan.certificate.scope == "all mechanisms"
    assert plan.total_variance <= 1.001 * plan.certificate.lower_bound
    assert Schedule.of(plan.batches, 1, np.arange(6)).whole


def test_without_the_work_for_that_blocks_keep_time_whole_and_state_true_errors():
    work = grouped()
    plan = rs.plan(work, COST, over="month", effort="quick", gap=1e-3)
    draft = triangular(_uncentred(with_time(work, 1), 1, 1e-4, None, Account()), 1)
    assert draft.total(work) == pytest.approx(draft.value, rel=1e-6)
    assert draft.value <= 1.001 * draft.lower_bound
    assert plan.total_variance <= draft.total(work) * 1.0001 <= 1.1 * plan.total_variance
    for subset in (layer.subsets for layer in draft.strategy.layers):
        assert (subset == 1).any(axis=1).all()


def test_larger_workloads_are_no_worse_than_offline_and_answered_as_dense_least_squares():
    schema = rs.Schema(month=rs.Integer(0, 5), age=rs.Integer(0, 4), sex=rs.Categorical("F", "M"))
    work = rs.table(schema, month=rs.prefix, age=rs.prefix)
    work += rs.table(schema, month=rs.identity, sex=rs.identity)
    draft = triangular(_uncentred(with_time(work, 0), 0, 1e-4, None, Account()), 0)
    offline = rs.plan(work, COST, method="smasher")
    assert draft.total(work) <= 1.01 * offline.ideal.total_variance
    rs.register_method("blocks of time", lambda own, gap, progress: draft)
    plan = rs.plan(work, COST, method="blocks of time")
    assert Schedule.of(plan.batches, 0, np.arange(6)).whole
    rows = dense_rows(plan)
    cover = np.linalg.pinv(rows.T @ rows, rcond=1e-10, hermitian=True)
    prefix = np.kron(np.kron(np.tril(np.ones((6, 6))), np.tril(np.ones((5, 5)))), np.ones((1, 2)))
    wanted = np.einsum("qi,ij,qj->q", prefix, cover, prefix)
    assert plan.variances(work)[: len(prefix)] == pytest.approx(wanted, rel=1e-6)
    assert np.max(np.sum(rows * rows, axis=0)) <= 1


@pytest.mark.parametrize("renew", [4, "doubling"])
def test_renewed_plans_know_nothing_of_the_end_and_state_their_loss(renew):
    short, long = (rs.plan(asked(n, "running"), COST, over="month", renew=renew) for n in (12, 16))
    bound = rs.bounds.dual(asked(16, "running"))
    assert long.certificate.gap == pytest.approx(long.total_variance / bound - 1, abs=1e-3)
    assert 0.1 < long.certificate.gap < 1.5
    ends = [0, 4, 8] if renew == 4 else [0, 1, 3]
    first, second = (plan.batches[0].matrices[0] for plan in (short, long))
    for start, end in pairwise(ends):
        assert not second[end:, start:end].any()
        ours, theirs = first[start:end, start:end], second[start:end, start:end]
        assert ours / ours[0, 0] == pytest.approx(theirs / theirs[0, 0], abs=1e-4)


@pytest.mark.parametrize("kind", ["moving", "to date"])
def test_what_looks_back_little_loses_little_by_renewal(kind):
    plan = rs.plan(asked(24, kind), COST, over="month", renew=12)
    assert plan.certificate.gap < (1e-3 if kind == "to date" else 0.2)


def test_a_block_of_time_that_nothing_is_asked_of_is_measured_cell_by_cell():
    schema = months(6)
    work = rs.linear(schema, ("month",), np.eye(6)[[0, 5]])
    plan = rs.plan(work, COST, over="month", renew=2)
    assert plan.rmse == pytest.approx(1, rel=1e-3)


def test_with_groups_plans_are_renewed_too():
    plan = rs.plan(grouped(), COST, over="month", renew=3)
    assert Schedule.of(plan.batches, 1, np.arange(6)).whole
    assert plan.certificate.gap > 0


def test_persons_with_one_record_a_period_are_planned_for():
    schema = rs.Schema(quarter=rs.Integer(0, 7), region=rs.Categorical(*"abcd"))
    unit = rs.Unit(id="person_id", max_records=8, one_per="quarter")
    work = rs.table(schema, quarter=rs.identity, region=rs.identity)
    plan = rs.plan(work, COST, unit=unit, over="quarter")
    assert plan.rmse == pytest.approx(rs.plan(work, COST, unit=unit).rmse, rel=1e-3)
    assert Schedule.of(plan.batches, 0, np.arange(8)).whole


def test_what_cannot_be_planned_in_instalments_is_refused():
    age, sex = rs.Integer(0, 3, outside="other"), rs.Categorical("F", "M")
    schema = rs.Schema(month=rs.Integer(0, 3), age=age, sex=sex)
    work = rs.table(schema, month=rs.prefix)
    with pytest.raises(SchemaError, match="no run of periods"):
        rs.plan(work, COST, over="age")
    with pytest.raises(WorkloadError, match="need Gaussian noise"):
        rs.plan(work, rs.pure_dp(1), over="month")
    for options in ({"objective": "max_variance"}, {"method": "dense"}, {"targets": rs.stddev(3)}):
        with pytest.raises(WorkloadError, match="least total variance"):
            rs.plan(work, COST, over="month", **options)
    with pytest.raises(WorkloadError, match="renew goes with over"):
        rs.plan(work, COST, renew=3)
    for renew in (0, "yearly", True):
        with pytest.raises(WorkloadError, match="number of periods from 1 on"):
            rs.plan(work, COST, over="month", renew=renew)
    tied = rs.table(schema, ["sex"], where="month = 1 OR sex = 'F'")
    with pytest.raises(WorkloadError, match="joined across attributes"):
        rs.plan(tied, COST, over="month")
    joint = rs.table(schema, {("month", "sex"): rs.affine})
    assert rs.plan(joint, COST, over="month").rmse > 0
    with pytest.raises(WorkloadError, match="leave out renew"):
        rs.plan(joint, COST, over="month", renew=2)


def test_tables_of_many_attributes_are_planned_with_time_beside_them():
    sizes = {f"a{at}": rs.Integer(0, 9) for at in range(6)}
    schema = rs.Schema({"month": rs.Integer(0, 11), **sizes})
    work = rs.marginals(schema, up_to=3) + rs.table(schema, month=rs.prefix, a0=rs.identity)
    plan = rs.plan(work, COST, over="month")
    assert isinstance(plan.strategy.answerer, Periods)
    assert plan.total_variance <= 1.01 * rs.plan(work, COST).total_variance
