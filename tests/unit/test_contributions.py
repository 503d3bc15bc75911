"""How many records persons have, looked at privately; units of persons in specs and on the command line."""

import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import residua as rs
from residua.audit import audit
from residua.cli import app

VISITS = {"patient_id": ["a", "b", "a", "", "c", "a", "b", None], "day": [1, 2, 3, 4, 5, 6, 7, 8]}


def looked(data, **how):
    how = {"most": 3, "id": "patient_id", "missing_id": "drop"} | how
    found = rs.contributions(data, rs.zcdp(500), ledger=None, noise=rs.simulated(seed=1), **how)
    return found.table("records").values.round().tolist()


def test_persons_are_counted_by_how_many_records_they_have(tmp_path):
    pa.parquet.write_table(pa.table(VISITS), tmp_path / "one.parquet")
    pa.parquet.write_table(pa.table(VISITS), tmp_path / "two.parquet")
    assert looked(VISITS) == looked(str(tmp_path / "one.parquet")) == [1, 1, 1]
    assert looked(duckdb.connect().from_arrow(pa.table(VISITS))) == [1, 1, 1]
    assert looked(str(tmp_path / "*.parquet")) == [0, 1, 2]
    assert looked(VISITS, most=2) == [1, 2]


def test_ids_may_be_any_whole_numbers():
    assert looked({"patient_id": [7, 7, 7, 9, 2**62, 2**62, -5]}) == [2, 1, 1]


def test_text_that_python_reads_is_counted_too(tmp_path):
    (tmp_path / "visits.csv").write_bytes("patient_id,day\né,1\né,2\n\xff,3\n".encode("latin-1"))
    assert looked(tmp_path / "visits.csv") == [1, 1, 0]


def test_records_without_an_id_follow_the_policy():
    assert looked(VISITS, missing_id="own") == [3, 1, 1]
    with pytest.raises(rs.DataError, match="records without an id"):
        looked(VISITS, missing_id="error")


def test_a_look_is_paid_for(tmp_path):
    unit = rs.Unit(id="patient_id", max_records=4)
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(1), dataset="visits", unit=unit)
    rs.contributions({"patient_id": [1, 1, 2]}, rs.zcdp("0.25"), id="patient_id", ledger=ledger)
    assert float(ledger.spent) == pytest.approx(0.25)


SPEC = """
schema:
  fields:
    - {name: quarter, type: integer, constraints: {minimum: 0, maximum: 3}}
    - {name: place, type: integer, constraints: {minimum: 0, maximum: 2}}
tables:
  - columns: [quarter, place]
privacy:
  definition: zcdp
  rho: 1
  unit: UNIT
"""


def test_a_spec_says_whose_records_are_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = SPEC.replace("UNIT", "{id: patient_id, max_records: 4, one_per: quarter, missing_id: drop}")
    (tmp_path / "visits.yaml").write_text(spec)
    (tmp_path / "visits.csv").write_text("patient_id,quarter,place\n" + "7,0,1\n" * 9 + ",1,1\n")
    run = CliRunner()
    made = run.invoke(
        app,
        [
            "budget",
            "create",
            "b.db",
            "--zcdp",
            "1",
            "--dataset",
            "v",
            "--id",
            "patient_id",
            "--missing-id",
            "drop",
        ],
    )
    assert made.exit_code == 0, made.output
    found = run.invoke(app, ["plan", "visits.yaml"])
    assert "one patient: all records with one value of 'patient_id'" in " ".join(found.output.split())
    done = run.invoke(app, ["release", "visits.yaml", "--data", "visits.csv", "--ledger", "b.db"])
    assert done.exit_code == 0, done.output
    release = rs.Release.load("visits.release")
    assert release.plan.unit == rs.Unit(id="patient_id", max_records=4, one_per="quarter", missing_id="drop")
    assert np.abs(release.table("quarter", "place").values.sum() - 1) < 30


@pytest.mark.parametrize(
    ("unit", "told"),
    [
        ("{max_records: 4, one_per: quarter}", "need id, the column that says whose record each is"),
        ("{id: patient_id, max_records: 1, one_per: quarter}", "says nothing where max_records is 1"),
        ("{id: patient_id, max_records: 2, missing_id: forget}", "error, drop, own"),
    ],
)
def test_a_unit_that_cannot_be_is_refused_where_it_is_written(unit, told, tmp_path):
    (tmp_path / "visits.yaml").write_text(SPEC.replace("UNIT", unit))
    found = CliRunner().invoke(app, ["plan", str(tmp_path / "visits.yaml")])
    assert found.exit_code != 0
    assert told in " ".join(found.output.split())


def test_a_report_says_whose_privacy_is_protected():
    schema = rs.Schema(quarter=rs.Integer(0, 3))
    plan = rs.plan(rs.table(schema, ["quarter"]), rs.zcdp(1), unit=rs.Unit(id="household_id", max_records=2))
    assert "one household: all records with one value of 'household_id'" in plan.explain()
    assert json.loads(json.dumps(plan.unit.to_manifest()))["id"] == "household_id"


def test_an_audit_invents_persons_with_ids():
    schema = rs.Schema(quarter=rs.Integer(0, 3))
    plan = rs.plan(rs.table(schema, ["quarter"]), rs.zcdp(1), unit=rs.Unit(id="household_id", max_records=2))
    found = audit(plan, rounds=1)
    assert found.alarms == []
    assert found.neighbours["one household of many records removed"] == 1


WORK = rs.table(rs.Schema(quarter=rs.Integer(0, 7), sex=rs.Integer(0, 1)), ["quarter", "sex"])


def test_what_each_bound_costs_in_noise_is_known_without_data():
    anywhere = rs.compare_max_records(WORK, rs.zcdp(1), rs.Unit(id="who", max_records=8))
    assert anywhere.names == ("at most 1", "at most 2", "at most 4", "at most 8")
    errors = [plan.total_variance for plan in anywhere.plans]
    assert np.allclose(np.array(errors) / errors[0], [1, 4, 16, 64])
    assert [plan.unit.max_records for plan in anywhere.plans] == [1, 2, 4, 8]
    apart = rs.compare_max_records(WORK, rs.zcdp(1), rs.Unit(id="who", max_records=6, one_per="quarter"))
    assert apart.names[-1] == "at most 6"
    assert [plan.unit.max_per for plan in apart.plans] == [{}, *[{"quarter": 1}] * 3]
    errors = [plan.total_variance for plan in apart.plans]
    assert np.allclose(np.array(errors) / errors[0], [1, 2, 4, 6])
    assert "at most 6" in str(apart)


def test_bounds_to_compare_may_be_given_and_one_alone_is_refused():
    unit = rs.Unit(id="who", max_records=8, max_per={"quarter": 2})
    found = rs.compare_max_records(WORK, rs.zcdp(1), unit, bounds=(2, 3))
    assert [plan.unit.max_per for plan in found.plans] == [{}, {"quarter": 2}]
    with pytest.raises(rs.WorkloadError, match="at least two plans"):
        rs.compare_max_records(WORK, rs.zcdp(1), rs.Unit(id="who"))


def test_a_ledger_of_periods_pays_for_a_look_at_one(tmp_path):
    unit = rs.Unit(id="patient_id")
    rs.Ledger.create(tmp_path / "l.db", rs.zcdp(1), dataset="visits", unit=unit, periods="month")
    look = {"data": {"patient_id": [1, 1, 2]}, "budget": rs.zcdp("0.1"), "id": "patient_id"}
    with pytest.raises(rs.LedgerError, match="say of which period"):
        rs.contributions(**look, ledger=tmp_path / "l.db")
    found = rs.contributions(**look, ledger=tmp_path / "l.db", period="2026-01")
    assert found.audit["period"] == "2026-01"
