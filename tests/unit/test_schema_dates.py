"""Dates: cells, levels, labels and what data may look like."""

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import residua as rs
from residua.schema.dates import STEPS, Date

DAYS = st.dates(datetime.date(1850, 1, 1), datetime.date(2150, 12, 31))


@given(DAYS, DAYS, st.sampled_from(STEPS))
def test_cells_are_the_steps_from_first_to_last(one, other, by):
    low, high = min(one, other), max(one, other)
    date = Date(low, high, by=by)
    labels = [date.label(0), date.label(date.size - 1)]
    expected = {
        "year": f"{low.year}",
        "quarter": f"{low.year}-Q{(low.month + 2) // 3}",
        "month": f"{low:%Y-%m}",
        "day": f"{low}",
    }
    assert labels[0] == expected[by].zfill(len(expected[by]))
    assert date.encode([str(low), str(high)]).tolist() == [0, date.size - 1]
    for level in date.levels:
        numbers = date.level_of(level)
        assert numbers[0] == 0
        assert set(np.diff(numbers).tolist()) <= {0, 1}
        assert len(date.level_labels(level)) == numbers[-1] + 1


def test_every_label_is_read_back_as_its_cell():
    for by in STEPS:
        date = Date("2023-11-05", "2025-02-10", by=by)
        assert date.encode(list(date.labels())).tolist() == list(range(date.size))


@pytest.mark.parametrize(
    "text", ["2024-13-01", "yesterday", "20240101", "2024-01-01x", "2026-01-01", "", "2023"]
)
def test_what_is_no_day_of_the_range_is_outside(text):
    date = Date("2024-01-01", "2025-12-31", by="month", outside="drop")
    assert date.encode([text, "2024-01-15"]).tolist() == [-1, 0]


def test_policies_hold_for_days():
    assert Date("2024-01-01", "2024-12-31", by="month", outside="clip").encode(
        ["1999-01-01", "2030-01-01"]
    ).tolist() == [0, 11]
    other = Date("2024-01-01", "2024-12-31", by="quarter", outside="other")
    assert other.encode(["1999-01-01", "2024-05-01"]).tolist() == [4, 1]
    assert other.level_labels("year") == ("2024", "(other)")
    assert other.level_of("year").tolist() == [0, 0, 0, 0, 1]
    with pytest.raises(rs.DataError, match="1 value is outside Date"):
        Date("2024-01-01", "2024-12-31").encode(["1999-01-01"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Date("2024-02-30", "2024-12-31"), "'2024-02-30' is no day"),
        (lambda: Date("2025-01-01", "2024-01-01"), "the first day is after the last"),
        (lambda: Date("2024-01-01", "2024-12-31", by="week"), "group days by rs.buckets"),
        (lambda: Date("2024-01-01", "2024-12-31", by="month").level_of("day"), "is finer than its cells"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(make, words):
    with pytest.raises(rs.SchemaError, match=words):
        make()


SCHEMA = rs.Schema(day=Date("2024-01-01", "2025-12-31", by="month"), sex=rs.Categorical("F", "M"))


def test_dates_are_asked_by_level_prefix_and_sql():
    assert rs.table(SCHEMA, day=rs.level("quarter"), sex=rs.identity).count == 16
    assert rs.table(SCHEMA, day=rs.prefix).count == 24
    with pytest.raises(rs.WorkloadError, match="no level 'day'"):
        rs.table(SCHEMA, day=rs.level("day"))
    for where, months in (
        ("day >= DATE '2025-01-01'", 12),
        ("day < '2024-03-01'", 2),
        ("day BETWEEN '2024-02-01' AND '2024-04-30'", 3),
        ("day = '2024-02-15'", 1),
        ("day > '2024-01-31'", 23),
    ):
        (group,) = rs.sql(SCHEMA, f"SELECT COUNT(*) FROM t WHERE {where}").groups()
        assert np.count_nonzero(group.factors[0].queries.matrix()) == months
    with pytest.raises(rs.WorkloadError, match="falls within a month; compare by < or >= at the first day"):
        rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE day < '2024-02-15'")
    with pytest.raises(rs.WorkloadError, match="holds dates, and 5 is none"):
        rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE day < 5")


def test_dates_of_every_type_are_read_the_same_way(tmp_path):
    import pandas as pd
    import pyarrow as pa

    texts = ["2024-01-15", "2025-12-31", "2024-02-29"]
    days = [datetime.date.fromisoformat(text) for text in texts]
    times = [datetime.datetime(day.year, day.month, day.day, 23, 59) for day in days]
    forms = {
        "text": texts,
        "days": days,
        "times": times,
        "numpy": np.array(texts, dtype="M8[s]"),
        "arrow": pa.array(days),
        "stamps": pa.array(times, type=pa.timestamp("ms", tz="America/New_York")),
        "pandas": pd.Series(pd.to_datetime(texts)),
    }
    local = pa.array(times).cast(pa.timestamp("us"))
    import pyarrow.compute as pc

    forms["stamps"] = pc.assume_timezone(local, "America/New_York")
    for name, form in forms.items():
        assert SCHEMA["day"].encode(form).tolist() == [0, 23, 1], name


def test_dates_survive_schema_files_plans_and_releases(tmp_path):
    SCHEMA.save(tmp_path / "schema.yaml")
    assert rs.Schema.load(tmp_path / "schema.yaml") == SCHEMA
    work = rs.table(SCHEMA, day=rs.level("year"), sex=rs.identity) + rs.table(SCHEMA, day=rs.prefix)
    plan = rs.plan(work, rs.zcdp(1))
    plan.save(tmp_path / "dates.plan")
    assert rs.Plan.load(tmp_path / "dates.plan").hash == plan.hash
    (tmp_path / "people.csv").write_text("day,sex\n2024-01-05,F\n2025-07-01,M\n2024-01-06,F\n")
    release = rs.measure(plan, tmp_path / "people.csv", ledger=None, noise=rs.simulated(seed=1))
    answers = release.answers()
    assert "day.year = 2024 and sex = F" in answers["query"].to_pylist()


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("{name: d, type: date}", "a date needs its range"),
        ("{name: d, type: date, constraints: {minimum: 2024-01-01, maximum: soon}}", "'soon' is no day"),
        (
            "{name: d, type: integer, constraints: {minimum: 0, maximum: 9}, residua: {by: day}}",
            "by needs type: date",
        ),
    ],
)
def test_fields_of_dates_are_refused_with_the_remedy(tmp_path, field, words):
    (tmp_path / "schema.yaml").write_text(f"fields: [{field}]\n")
    with pytest.raises(rs.SchemaError, match=words):
        rs.Schema.load(tmp_path / "schema.yaml")
