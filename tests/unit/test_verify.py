"""Verification by strangers: honest releases hold, forged ones do not, and what is not checked is said."""

from pathlib import Path

import forging
import numpy as np
import pytest
from kinds import GAUSS, MARGINALS, PLANS, PREFIXES, SMALL, released, so_far
from typer.testing import CliRunner

import residua as rs
from residua.cli import app
from residua.solve.cells import solve_cells
from residua.verify import Verification, variances, verify
from residua.verify.bound import bracket

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("*.release"))


def verdicts(found: Verification) -> dict[str, str]:
    return {check.subject: check.verdict for check in found.checks}


@pytest.mark.parametrize("name", PLANS)
def test_every_kind_of_honest_release_holds(name, tmp_path):
    released(name).save(tmp_path / "a.release")
    found = verify(tmp_path / "a.release")
    assert found.holds, found.false
    told = verdicts(found)
    assert told["cost"] == told["noise"] == told["spans"] == told["errors"] == "holds"
    if released(name).plan.objective == "total_variance" and not released(name).plan.unit.replacing:
        assert told["gap"] == told["lower bound"] == "holds"


def test_the_cost_of_a_release_so_far_is_recomputed(tmp_path):
    so_far().save(tmp_path / "a.release")
    found = verify(tmp_path / "a.release")
    assert found.holds, found.false
    told = verdicts(found)
    assert told["cost"] == told["noise"] == told["spans"] == told["errors"] == "holds"
    assert next(c.words for c in found.checks if c.subject == "cost").endswith(
        "by the costs that blocks state"
    )


@pytest.mark.parametrize("forgery", forging.FORGERIES)
def test_a_forged_release_so_far_is_rejected(forgery, tmp_path):
    so_far().save(tmp_path / "honest.release")
    if forging.forged(tmp_path / "honest.release", tmp_path / "a.release", forging.FORGERIES[forgery], 7):
        assert not verify(tmp_path / "a.release").holds


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_releases_of_format_1_hold(path):
    found = verify(path)
    assert found.holds, found.false


@pytest.mark.parametrize("forgery", forging.FORGERIES)
@pytest.mark.parametrize("name", PLANS)
def test_a_forged_release_is_rejected(name, forgery, tmp_path):
    released(name).save(tmp_path / "honest.release")
    if forging.forged(tmp_path / "honest.release", tmp_path / "a.release", forging.FORGERIES[forgery], 7):
        assert not verify(tmp_path / "a.release").holds


def test_a_file_that_was_edited_or_is_none_is_rejected(tmp_path):
    released("blocks").save(tmp_path / "a.release")
    whole = (tmp_path / "a.release").read_bytes()
    (tmp_path / "b.release").write_bytes(whole[:-40])
    [check] = verify(tmp_path / "b.release").checks
    assert check.verdict == "false"
    assert not verify(tmp_path / "nowhere.release").holds


@pytest.mark.parametrize(
    "name", ["blocks", "best weights", "product", "dense", "fourier", "time beside blocks"]
)
def test_pieces_give_what_one_matrix_over_all_cells_gives(name, monkeypatch):
    plan = released(name).plan
    joint = variances.way_for(plan.strategy, SMALL.sizes, (0, 1, 2))
    monkeypatch.setattr(variances, "JOINT_CELLS", 1)
    pieces = variances.way_for(plan.strategy, SMALL.sizes, (0, 1, 2))
    assert isinstance(joint, variances.Joint)
    assert isinstance(pieces, variances.Pieces)
    asked = [*PREFIXES.groups(), *rs.marginals(SMALL, ways=3).groups(), *rs.marginals(SMALL, ways=0).groups()]
    asked += rs.table(SMALL, {("a1", "a0"): rs.affine, "a2": rs.total}).groups()
    for table in asked:
        one, other = joint.table(table), pieces.table(table)
        assert one.in_span == other.in_span
        if one.in_span:
            np.testing.assert_allclose(one.variances, other.variances, rtol=1e-9)


def test_variances_are_those_of_a_plain_pseudo_inverse():
    strategy = released("union").plan.strategy
    way = variances.way_for(strategy, SMALL.sizes, (0, 1, 2))
    [table] = rs.table(SMALL, {("a0", "a1"): rs.affine}).groups()
    rows = [
        variances._spread(block, dict(enumerate(np.indices(SMALL.sizes).reshape(3, -1))), 24)
        for block in variances.blocks_of(strategy)
    ]
    queries = np.kron(table.factors[0].queries.matrix(), np.ones((1, 2)))
    gram = np.concatenate(rows).T @ np.concatenate(rows)
    expected = np.diagonal(queries @ np.linalg.pinv(gram, rcond=1e-12) @ queries.T)
    np.testing.assert_allclose(way.table(table).variances, expected, rtol=1e-8)


def test_structures_that_are_too_large_are_said_to_be_unchecked(monkeypatch, tmp_path):
    monkeypatch.setattr(variances, "JOINT_CELLS", 1)
    released("union").save(tmp_path / "a.release")
    found = verify(tmp_path / "a.release")
    assert found.holds
    assert verdicts(found)["spans"] == "unchecked"
    assert verdicts(found)["figures"] == "unchecked"


@pytest.mark.parametrize("size", [1, 2, 9])
def test_the_bracket_holds_the_optimum(size):
    prefix = np.tril(np.ones((size, size)))
    low, high = bracket(prefix.T @ prefix)
    solution = solve_cells(prefix, 1e-9)
    assert low * (1 - 1e-9) <= solution.upper
    assert high * (1 + 1e-9) >= solution.lower
    assert high == pytest.approx(low, rel=1e-5)


def test_what_could_not_be_checked_is_said(tmp_path):
    released("blocks").save(tmp_path / "a.release")
    found = verify(tmp_path / "a.release")
    assert verdicts(found)["origin"] == verdicts(found)["ideal"] == "unchecked"
    assert "could not be checked" in list(found.describe())[-1]


def test_the_command_tells_forged_releases_by_its_exit_code(tmp_path):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(2), dataset="people")
    plan = rs.plan(MARGINALS, GAUSS)
    rs.measure(plan, np.zeros((5, 3), np.int32), ledger=ledger).save(tmp_path / "a.release")
    run = CliRunner().invoke(app, ["verify", str(tmp_path / "a.release"), "--ledger", str(ledger.path)])
    assert run.exit_code == 0
    assert "paid: by entry 2" in run.output
    forging.forged(tmp_path / "a.release", tmp_path / "b.release", forging.other_totals, 1)
    run = CliRunner().invoke(app, ["verify", str(tmp_path / "b.release"), "--json"])
    assert run.exit_code == 1
    assert '"holds": false' in run.output
    assert "do not rely on this release" in run.output
