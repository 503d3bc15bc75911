"""A declared cell for missing values, and for nothing else."""

import numpy as np
import pytest

import residua as rs
from residua.audit.neighbours import strangers
from residua.report import plan_contents

SCHEMA = rs.Schema(
    age=rs.Integer(0, 3, outside="missing"),
    sex=rs.Categorical("F", "M", "-", outside="missing"),
    place=rs.Hierarchy(("region", "town"), [("N", "x"), ("S", "y")], outside="missing"),
)
PEOPLE = {
    "age": [0, None, 3, None],
    "sex": ["F", "", "-", "NA"],
    "place": ["x", "y", None, "?"],
}


@pytest.fixture(scope="module")
def release():
    plan = rs.plan(rs.marginals(SCHEMA, up_to=2), rs.zcdp(10**8))
    return rs.measure(plan, PEOPLE, ledger=None, noise=rs.simulated(seed=1))


def test_missing_values_have_a_cell_of_their_own(release):
    assert SCHEMA["age"].labels() == ("0", "1", "2", "3", "(missing)")
    assert np.rint(release.table("age").values).tolist() == [1, 0, 0, 1, 2]
    assert np.rint(release.table("sex").values).tolist() == [1, 0, 1, 2]  # a label is a label
    assert np.rint(release.table("place.region").values).tolist() == [1, 1, 2]
    assert SCHEMA["place"].level_labels("region") == ("N", "S", "(missing)")


@pytest.mark.parametrize("values", [{"age": [7]}, {"age": ["x"]}, {"sex": ["X"]}, {"place": ["z"]}])
def test_any_other_value_is_an_error(values):
    with pytest.raises(rs.DataError, match="1 value is outside"):
        SCHEMA.encode({name: column[:1] for name, column in PEOPLE.items()} | values)


def test_sql_and_statistics_know_them_as_missing(release):
    def count(text):
        return round(release.sql(f"SELECT COUNT(*) FROM t WHERE {text}")["value"][0].as_py())

    assert [count("age IS NULL"), count("age IS NOT NULL"), count("age >= 0")] == [2, 2, 2]
    assert count("sex = '(missing)'") == 2
    assert release.mean("age").values == pytest.approx(1.5, abs=0.01)


def test_files_reports_and_audits_know_the_policy(tmp_path):
    SCHEMA.save(tmp_path / "schema.yaml")
    assert rs.Schema.load(tmp_path / "schema.yaml") == SCHEMA
    assert rs.Schema.from_manifest(SCHEMA.to_manifest({}), {}) == SCHEMA
    contents = plan_contents(rs.plan(rs.table(SCHEMA, ["age"]), rs.zcdp(1)))
    assert "missing ones are counted" in contents.attributes[0][3]
    assert [fate for _, _, fate in strangers(SCHEMA["age"])] == [4, -1]


def test_numbers_say_it_with_a_word_of_their_own():
    with pytest.raises(rs.SchemaError, match="missing=True"):
        rs.Number(0, 10, step=1, outside="missing")
    with pytest.raises(rs.SchemaError, match="outside='missing' takes it"):
        rs.Categorical("a", "(missing)", outside="missing")
