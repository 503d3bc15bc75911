"""Sixty statements as analysts write them: what a release answers, beside DuckDB on the records themselves.

Written before the work. A release with next to no noise must give what DuckDB gives; what is refused must
name a way to the goal.
"""

import math

import duckdb
import numpy as np
import pytest

import residua as rs

REGIONS = ("north", "north east", "south", "south east", "west")
SCHEMA = rs.Schema(
    {
        "age": rs.Integer(0, 79),
        "sex": rs.Categorical("F", "M"),
        "work": rs.Categorical("employed", "inactive", "unemployed"),
        "region": rs.Categorical(*REGIONS),
        "children": rs.Integer(0, 5),
        "born": rs.Date("2020-01-01", "2023-12-31", by="month"),
        "marital status": rs.Categorical("married", "single"),
    }
)
RECORDS = 4000


def _people() -> dict[str, list]:
    draw = np.random.default_rng(3)
    months = np.datetime64("2020-01", "M") + draw.choice(48, RECORDS, p=np.linspace(1, 3, 48) / 96)
    return {
        "age": np.minimum(draw.poisson(36, RECORDS), 79).tolist(),
        "sex": draw.choice(["F", "M"], RECORDS, p=[0.53, 0.47]).tolist(),
        "work": draw.choice(["employed", "inactive", "unemployed"], RECORDS, p=[0.6, 0.31, 0.09]).tolist(),
        "region": draw.choice(REGIONS, RECORDS, p=[0.1, 0.15, 0.2, 0.25, 0.3]).tolist(),
        "children": np.minimum(draw.poisson(1.2, RECORDS), 5).tolist(),
        "born": (months.astype("M8[D]") + 13).astype(object).tolist(),
        "marital status": draw.choice(["married", "single"], RECORDS, p=[0.7, 0.3]).tolist(),
    }


PEOPLE = _people()

# What DuckDB answers too, and must answer alike.
SAME = [
    "SELECT COUNT(*) FROM people",
    "select count(1) as n from people",
    "SELECT COUNT(age) FROM people",
    "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY n DESC",
    "SELECT region, COUNT(*) FROM people GROUP BY 1 ORDER BY 2 DESC LIMIT 3",
    "SELECT region, COUNT(*) AS n FROM people GROUP BY region HAVING COUNT(*) > 700 ORDER BY region",
    "SELECT SUM(CASE WHEN sex = 'F' THEN 1 ELSE 0 END) AS women, COUNT(*) AS everybody FROM people",
    "SELECT sex, COUNT(*) FILTER (WHERE work = 'employed') AS employed FROM people GROUP BY sex",
    "SELECT COUNT(CASE WHEN age >= 50 THEN 1 END) AS older FROM people",
    "SELECT AVG(age) FROM people",
    "SELECT sex, AVG(age) AS mean_age FROM people GROUP BY sex ORDER BY sex",
    "SELECT sex, MEDIAN(age) FROM people GROUP BY sex",
    "SELECT sex, QUANTILE_DISC(age, 0.9) AS p90 FROM people GROUP BY sex",
    "SELECT STDDEV_POP(age) AS spread, VAR_POP(age) AS squared FROM people",
    "SELECT sex, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS pct FROM people GROUP BY sex",
    "WITH t AS (SELECT sex, COUNT(*) AS n FROM people GROUP BY sex) "
    "SELECT sex, 100.0 * n / SUM(n) OVER () AS pct FROM t ORDER BY pct DESC",
    "SELECT SUM(n) FROM (SELECT region, COUNT(*) AS n FROM people WHERE sex = 'F' GROUP BY region) AS s",
    "SELECT 'women' AS who, COUNT(*) AS n FROM people WHERE sex = 'F' "
    "UNION ALL SELECT 'men', COUNT(*) FROM people WHERE sex = 'M'",
    "SELECT sex, work, COUNT(*) FROM people GROUP BY ALL ORDER BY sex, work",
    "SELECT FLOOR(age / 10) * 10 AS decade, COUNT(*) FROM people GROUP BY decade HAVING COUNT(*) > 100",
    "SELECT age // 20 AS band, COUNT(*) FROM people GROUP BY 1 ORDER BY 1",
    "SELECT COUNT(*) FROM people WHERE region LIKE 'south%'",
    "SELECT COUNT(*) FROM people WHERE region ILIKE '%EAST'",
    "SELECT region, COUNT(*) FROM people WHERE region NOT LIKE 'north%' GROUP BY region",
    "SELECT EXTRACT(YEAR FROM born) AS year, COUNT(*) FROM people GROUP BY year ORDER BY year",
    "SELECT YEAR(born) AS y, sex, COUNT(*) AS n FROM people GROUP BY y, sex ORDER BY y, sex",
    "SELECT COUNT(*) FROM people WHERE born BETWEEN DATE '2021-01-01' AND DATE '2021-12-31'",
    "SELECT sex, COUNT(*) FROM people WHERE born >= '2022-07-01' GROUP BY sex",
    "SELECT QUARTER(born) AS q, COUNT(*) FROM people WHERE YEAR(born) = 2022 GROUP BY q ORDER BY q",
    "SELECT sex, AVG(CASE WHEN work = 'employed' THEN 1.0 ELSE 0 END) AS rate FROM people GROUP BY sex",
    "SELECT SUM(age) FROM people",
    "SELECT sex, SUM(children) * 1.0 / COUNT(*) AS children_each FROM people GROUP BY sex ORDER BY sex",
    "SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 45 THEN 'middle' ELSE 'old' END AS band, "
    "COUNT(*) AS n FROM people GROUP BY band ORDER BY n",
    "SELECT sex, work, COUNT(*) AS n FROM people GROUP BY ROLLUP (sex, work)",
    "SELECT sex, 1.0 * COUNT(*) FILTER (WHERE work = 'unemployed') / "
    "COUNT(*) FILTER (WHERE work <> 'inactive') AS rate FROM people GROUP BY sex",
    "SELECT region, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 1) AS pct FROM people GROUP BY region",
    "WITH y AS (SELECT YEAR(born) AS year, COUNT(*) AS n FROM people GROUP BY 1) "
    "SELECT year, n - LAG(n) OVER (ORDER BY year) AS more FROM y WHERE year > 2020",
    "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS up_to FROM people WHERE age BETWEEN 20 AND 50 "
    "GROUP BY age",
    "SELECT sex, COUNT(*) AS n, AVG(age) AS years, AVG(children) AS each FROM people GROUP BY sex",
    "SELECT region, COUNT(*) FROM people GROUP BY region "
    "HAVING SUM(CASE WHEN sex = 'F' THEN 1 ELSE 0 END) > 300",
    "SELECT * FROM (SELECT region, COUNT(*) AS n FROM people GROUP BY region) WHERE n > 700",
    "WITH a AS (SELECT sex, work, COUNT(*) AS n FROM people GROUP BY sex, work), "
    "b AS (SELECT sex, SUM(n) AS total FROM a GROUP BY sex) SELECT sex, total FROM b ORDER BY total",
    "SELECT sex, work, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY sex) AS pct "
    "FROM people GROUP BY sex, work",
    "SELECT 100.0 * COUNT(*) / (SELECT COUNT(*) FROM people) AS pct FROM people WHERE sex = 'F'",
    "SELECT COUNT_IF(age >= 40) AS n FROM people",
    "SELECT sex, CAST(COUNT(*) AS DOUBLE) / NULLIF(SUM(COUNT(*)) OVER (), 0) AS p FROM people GROUP BY sex",
    "SELECT UPPER(region) AS name, COUNT(*) FROM people GROUP BY name",
    'SELECT "marital status", COUNT(*) FROM people GROUP BY "marital status" ORDER BY 2 DESC',
    "SELECT p.sex, COUNT(*) FROM people AS p WHERE p.children IN (0, 1) AND NOT p.sex = 'M' GROUP BY p.sex",
]

# What is answered in our own way: groups in whole numbers, days as text.
OWN = {
    "SELECT age / 10 AS decade, COUNT(*) FROM people GROUP BY decade": [str(n) for n in range(8)],
    "SELECT date_trunc('year', born) AS y, COUNT(*) FROM people GROUP BY y": [
        f"{year}-01-01" for year in range(2020, 2024)
    ],
}

REFUSED = {
    "SELECT MAX(age) FROM people": "QUANTILE_DISC(age, 0.99)",
    "SELECT COUNT(DISTINCT region) FROM people": "GROUP BY region",
    "SELECT * FROM people LIMIT 10": "COUNT(*)",
    "SELECT sex, COUNT(*), RANK() OVER (ORDER BY COUNT(*) DESC) FROM people GROUP BY sex": "ORDER BY",
    "SELECT COUNT(*) FROM people JOIN regions USING (region)": "one table",
    "SELECT COUNT(*) FROM people WHERE age > (SELECT AVG(age) FROM people)": "ask for it first",
    "SELECT marital status, COUNT(*) FROM people GROUP BY marital status": '"marital status"',
    "SELECT sex, COUNT(*) FROM people GROPU BY sex": "GROUP",
    "SELECT COVAR_SAMP(age, children) FROM people": "regression",
}


@pytest.fixture(scope="module")
def release() -> rs.Release:
    work = rs.marginals(SCHEMA, up_to=2)
    work += rs.table(SCHEMA, ["sex", "work", "region"])
    return rs.measure(rs.plan(work, rs.zcdp(10**8)), PEOPLE, ledger=None, noise=rs.simulated(seed=1))


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    import pandas as pd

    connection = duckdb.connect()
    frame = pd.DataFrame(PEOPLE)
    connection.register("frame", frame)
    connection.execute("CREATE TABLE people AS SELECT * REPLACE (born::DATE AS born) FROM frame")
    return connection


def test_there_are_sixty_and_fifty_are_answered():
    assert len(SAME) + len(OWN) + len(REFUSED) == 60
    assert len(SAME) + len(OWN) >= 50


def rows_of(found) -> list[tuple]:
    """The labels and figures of an answer, without errors, as a database would give them."""
    names = found.column_names
    if "query" in names:  # a plain count
        labels = [name for name in names[1 : names.index("query")] if found[name].null_count < len(found)]
        names = [*labels, "value"]
    errors = {"stddev", "lower", "upper"}
    names = [name for name in names if name not in errors and name.rpartition("_")[2] not in errors]
    return [tuple(row[name] for name in names) for row in found.to_pylist()]


def alike(one: tuple, two: tuple) -> bool:
    def same(a, b):
        if a is None or b is None or isinstance(a, str) != isinstance(b, str):
            return str(a) == str(b)
        return a == b if isinstance(a, str) else math.isclose(float(a), float(b), rel_tol=1e-4, abs_tol=1e-2)

    return len(one) == len(two) and all(map(same, one, two))


@pytest.mark.parametrize("text", SAME)
def test_a_release_answers_as_a_database_would(release, database, text):
    found, expected = rows_of(release.sql(text)), database.sql(text).fetchall()
    if "ORDER BY" not in text.rpartition(")")[2]:
        found, expected = (sorted(each, key=str) for each in (found, expected))
    if "LAG" in text:
        expected = [row for row in expected if row[1] is not None]
        found = found[-len(expected) :]
    if "OVER (ORDER BY age)" in text:  # a plain cumulative count names its cells
        found, expected = (
            [row[-1:] for row in sorted(each, key=lambda row: row[-1])] for each in (found, expected)
        )
    assert len(found) == len(expected)
    assert all(map(alike, found, expected)), (found[:3], expected[:3])


@pytest.mark.parametrize("text", OWN)
def test_groups_of_a_column_have_the_labels_of_their_values(release, text):
    found = release.sql(text)
    assert [str(row[0]) for row in rows_of(found)] == OWN[text]
    assert sum(found["value"].to_pylist()) == pytest.approx(RECORDS, abs=0.1)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_names_a_way_to_the_goal(release, text):
    with pytest.raises(rs.WorkloadError, match="line 1, column") as refusal:
        release.sql(text)
    assert REFUSED[text] in str(refusal.value)


@pytest.fixture(scope="module")
def noisy() -> rs.Release:
    work = rs.marginals(SCHEMA, up_to=2)
    return rs.measure(rs.plan(work, rs.zcdp("0.05")), PEOPLE, ledger=None, noise=rs.simulated(seed=2))


def figures(found) -> list[list[float]]:
    return [found[name].to_pylist() for name in ("value", "stddev", "lower", "upper")]


def own(found) -> list[list[float]]:
    return [getattr(found, name).reshape(-1).tolist() for name in ("values", "stddev", "lower", "upper")]


def moment(counts: np.ndarray, power: int) -> float:
    return counts @ np.arange(len(counts)) ** power / counts.sum()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (
            "SELECT sex, work, 1.0 * COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY sex) AS p "
            "FROM t GROUP BY sex, work",
            lambda release: release.share("work", within="sex"),
        ),
        ("SELECT sex, AVG(age) FROM t GROUP BY sex", lambda release: release.mean("age", by="sex")),
        (
            "SELECT region, QUANTILE_CONT(age, 0.5) FROM t GROUP BY region",
            lambda release: release.quantile("age", [0.5], by="region"),
        ),
        (
            "SELECT a - b FROM (SELECT COUNT(*) FILTER (WHERE sex = 'F') AS a, "
            "COUNT(*) FILTER (WHERE sex = 'M') AS b FROM t)",
            lambda release: release.difference(
                rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE sex = 'F'"),
                rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE sex = 'M'"),
            ),
        ),
        (
            "SELECT LN(SUM(CASE WHEN sex = 'F' THEN 1 ELSE 0 END)) - LN(COUNT(*)) FROM t",
            lambda release: release.derived(
                lambda t: np.log(t["a"]) - np.log(t["b"]),
                {
                    "a": rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE sex = 'F'"),
                    "b": rs.sql(SCHEMA, "SELECT COUNT(*) FROM t"),
                },
            ),
        ),
        (
            "SELECT STDDEV_POP(age) FROM t",
            lambda release: release.derived(
                lambda t: np.sqrt(moment(t["n"], 2) - moment(t["n"], 1) ** 2),
                {"n": rs.table(SCHEMA, ["age"])},
            ),
        ),
    ],
)  # fmt: skip
def test_errors_are_carried_along_as_by_the_statistics_of_a_release(noisy, text, same):
    for found, expected in zip(figures(noisy.sql(text)), own(same(noisy)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_plan_is_made_for_what_a_statement_needs():
    text = "SELECT sex, AVG(age) AS years, COUNT(*) AS n FROM t GROUP BY sex HAVING COUNT(*) > 10 ORDER BY n"
    work = rs.sql(SCHEMA, text, name="means")
    assert work.count == 4  # a sum and a count for each sex
    assert {*work.names} == {"means"}
    release = rs.measure(rs.plan(work, rs.zcdp(10**6)), PEOPLE, ledger=None, noise=rs.simulated(seed=1))
    found = release.sql(text)
    assert found.column_names[:5] == ["sex", "years", "years_stddev", "years_lower", "years_upper"]
    ages = np.array(PEOPLE["age"])
    expected = {sex: ages[np.array(PEOPLE["sex"]) == sex].mean() for sex in "FM"}
    for row in found.to_pylist():
        assert row["years"] == pytest.approx(expected[row["sex"]], abs=1e-2)


def test_missing_values_are_left_out_of_sums_and_found_by_is_null():
    schema = rs.Schema(age=rs.Integer(0, 9, outside="other"), sex=rs.Categorical("F", "M"))
    data = {"age": [1, 2, None, 5], "sex": ["F", "F", "M", "M"]}
    plan = rs.plan(rs.marginals(schema, up_to=2), rs.zcdp(10**6))
    release = rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1))
    for text, expected in [
        ("SELECT AVG(age) FROM t", 8 / 3),
        ("SELECT COUNT(age) FROM t", 3),
        ("SELECT COUNT(*) FROM t WHERE age IS NULL", 1),
        ("SELECT COUNT(*) FROM t WHERE age IS NOT NULL AND sex = 'M'", 1),
        ("SELECT MEDIAN(age) FROM t", 2),
        ("SELECT SUM(CASE WHEN age < 3 THEN 10 ELSE 1 END) FROM t", 22),
        ("SELECT COUNT(*) FROM t WHERE COALESCE(age, 7) = 7", 1),
        ("SELECT COUNT(*) FROM t WHERE COALESCE(NULL, age, 7) = 7", 1),
    ]:
        assert release.sql(text)["value"].to_pylist() == pytest.approx([expected], abs=0.05), text


def test_levels_are_grouped_and_rolled_up_with_their_labels():
    schema = rs.Schema(day=rs.Date("2023-01-01", "2024-12-31", by="month"), sex=rs.Categorical("F", "M"))
    data = {"day": ["2023-02-03", "2024-05-06", "2024-06-01"], "sex": ["F", "M", "F"]}
    plan = rs.plan(rs.table(schema, ["day", "sex"]), rs.zcdp(10**6))
    release = rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1))
    asked = "day.year AS y, day.quarter AS q, COUNT(*) AS n"
    text = f"SELECT {asked} FROM t GROUP BY day.year, day.quarter ORDER BY q"
    found = release.sql(text).to_pylist()
    assert [(row["y"], row["q"]) for row in found][4:6] == [(2024, "2024-Q1"), (2024, "2024-Q2")]
    assert [round(row["value"]) for row in found] == [1, 0, 0, 0, 0, 2, 0, 0]


def test_distinct_values_of_nothing_are_refused_like_those_of_a_column():
    schema = rs.Schema(sex=rs.Categorical("F", "M"))
    for text in ("SELECT COUNT(DISTINCT) FROM t", "SELECT COUNT(DISTINCT sex) FROM t"):
        with pytest.raises(rs.WorkloadError, match="one person alone can add a value; GROUP BY"):
            rs.sql(schema, text)
