"""SQL workloads: what each statement means, how its queries are worded, and what is refused where."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import residua as rs
from residua.linalg.matrices import join, spread
from residua.workload import Partition, Prefix

SCHEMA = rs.Schema(
    {
        "age": rs.Integer(0, 99),
        "sex": rs.Categorical("F", "M"),
        "pay": rs.Binned(0, 10_000, 25_000, 50_000, above=True),
        "income>50K": rs.Categorical("no", "yes"),
        "code": rs.Categorical(3, 1, 2),
        "member": rs.Categorical(False, True),
        "place": rs.Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")]),
        "kids": rs.Integer(0, 3, outside="other"),
        "Name": rs.Categorical("x", "y"),
        "NAME": rs.Categorical("x", "y"),
    }
)


def only_group(text: str) -> rs.workload.Table:
    (group,) = rs.sql(SCHEMA, text).groups()
    return group


def words(text: str) -> list[str]:
    return [line for group in rs.sql(SCHEMA, text).groups() for line in group.descriptions(SCHEMA)]


def selected(condition: str) -> list[int]:
    """The cells of the one attribute that a condition restricts."""
    (factor,) = only_group(f"SELECT COUNT(*) FROM t WHERE {condition}").factors
    return np.flatnonzero(factor.queries.rows(0, 1)[0]).tolist()


def refusal(text: str) -> str:
    with pytest.raises(rs.WorkloadError) as caught:
        rs.sql(SCHEMA, text)
    (line,) = str(caught.value).splitlines()
    assert re.match(r"SQL, line \d+, column \d+: ", line)
    return line


def test_a_plain_group_by_is_the_marginal():
    group = only_group("SELECT sex, age, COUNT(*) FROM person GROUP BY sex, age")
    (expected,) = rs.table(SCHEMA, ["sex", "age"]).groups()
    assert group == expected


def test_a_count_without_groups_is_the_total():
    assert only_group("select count(*) from t").factors == ()
    assert words("SELECT COUNT(*) FROM t") == ["all"]


@pytest.mark.parametrize(
    ("condition", "cells"),
    [
        ("age = 7", [7]),
        ("7 = age", [7]),
        ("age <> 7 AND age < 10", [0, 1, 2, 3, 4, 5, 6, 8, 9]),
        ("3 > age", [0, 1, 2]),
        ("age BETWEEN 97 AND 200", [97, 98, 99]),
        ("age NOT BETWEEN 2 AND 98", [0, 1, 99]),
        ("age < 1.5", [0, 1]),
        ("age < '2'", [0, 1]),
        ("age <= -0.0", [0]),
        ("age > 97.5", [98, 99]),
        ("NOT (age > 1)", [0, 1]),
        ("NOT (age > 1 AND age <= 98)", [0, 1, 99]),
        ("age IN (5, 3, 5)", [3, 5]),
        ("age NOT IN (1) AND age <= 2", [0, 2]),
        ("AGE < 1 OR Age > 98", [0, 99]),
        ("t.age < 1", [0]),
        ("(age) < (1)", [0]),
        ("age < 1_0 AND age >= 9", [9]),
        ("pay >= 25000", [2, 3]),
        ("pay < 25000", [0, 1]),
        ("pay < 10000 OR pay >= 50000", [0, 3]),
        ("pay = '[10000, 25000)'", [1]),
        ("\"income>50K\" = 'yes'", [1]),
        ("code > 1", [0, 2]),
        ("code = 3", [0]),
        ("member", [1]),
        ("NOT member", [0]),
        ("member <> TRUE", [0]),
        ("place = 'Essex'", [2]),
        ("place IN ('NY/Kings', 'Bronx')", [0, 1]),
        ("kids >= 2", [2, 3]),
        ("NOT kids >= 2", [0, 1]),
        ("kids <> 1", [0, 2, 3]),
        ("kids = '(other)'", [4]),
        ("kids <> '(other)'", [0, 1, 2, 3]),
        ("kids = 1 OR kids = '(other)'", [1, 4]),
        ("\"Name\" = 'x'", [0]),
    ],
)
def test_a_condition_selects_its_cells(condition, cells):
    assert selected(condition) == cells


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        (
            "SELECT COUNT(*) FROM t WHERE age BETWEEN 18 AND 64 AND pay >= 25000",
            "age in 18..64 and pay >= 25000",
            "age in 18..64 and pay >= 25000",
        ),
        (
            "SELECT sex, COUNT(*) FROM t WHERE age < 2 GROUP BY sex",
            "sex = F and age in 0..1",
            "sex = M and age in 0..1",
        ),
        ("SELECT age, COUNT(*) FROM t WHERE age BETWEEN 18 AND 64 GROUP BY age", "age = 18", "age = 64"),
        (
            "SELECT CASE WHEN age < 18 THEN 'child' ELSE 'adult' END, COUNT(*) FROM t GROUP BY 1",
            "age in child",
            "age in adult",
        ),
        (
            "SELECT CASE WHEN age < 18 THEN 'child' ELSE 'adult' END g, COUNT(*) FROM t WHERE age < 30 "
            "GROUP BY g",
            "age in child",
            "age in 18..29 (adult)",
        ),
        ("SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM t GROUP BY age", "age <= 0", "age <= 99"),
        (
            "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM t WHERE age >= 18 GROUP BY age",
            "age in 18..18",
            "age in 18..99",
        ),
        (
            "SELECT pay, SUM(COUNT(*)) OVER (ORDER BY pay) FROM t WHERE pay >= 10000 GROUP BY pay",
            "pay in [10000, 25000)",
            "pay in [10000, ...)",
        ),
        (
            "SELECT sex, COUNT(*) FROM t WHERE age < 18 OR pay < 10000 AND member GROUP BY sex",
            "sex = F and (age < 18 OR pay < 10000 AND member)",
            "sex = M and (age < 18 OR pay < 10000 AND member)",
        ),
        (
            "SELECT sex, COUNT(*) FROM t WHERE NOT (sex = 'F' AND age < 18) GROUP BY sex",
            "sex = F and NOT (sex = 'F' AND age < 18)",
            "sex = M and NOT (sex = 'F' AND age < 18)",
        ),
    ],
)
def test_queries_are_worded_for_people(text, first, last):
    described = words(text)
    assert (described[0], described[-1]) == (first, last)


def test_conditions_joined_by_and_stay_a_product():
    group = only_group(
        "SELECT sex, COUNT(*) FROM t WHERE age < 18 AND (pay < 10000) AND NOT (code = 1 OR kids = 2) "
        "GROUP BY sex"
    )
    assert [factor.attributes for factor in group.factors] == [(1,), (0,), (2,), (4,), (7,)]
    assert all(isinstance(factor.queries, Partition) for factor in group.factors[1:])


def test_an_or_that_is_a_product_after_all_becomes_one():
    group = only_group("SELECT COUNT(*) FROM t WHERE sex = 'F' AND age < 3 OR age >= 97 AND sex = 'F'")
    assert sorted(factor.attributes for factor in group.factors) == [(0,), (1,)]


def test_a_condition_that_every_cell_meets_restricts_nothing():
    assert only_group("SELECT COUNT(*) FROM t WHERE age <= 200 AND age >= 0").factors == ()


def test_columns_that_an_or_ties_together_share_a_factor_and_groups_without_cells_are_left_out():
    group = only_group("SELECT sex, code, COUNT(*) FROM t WHERE sex = 'F' OR code = 1 GROUP BY sex, code")
    (factor,) = group.factors
    assert factor.attributes == (1, 4)
    assert factor.queries.count == 4


def test_rollup_cube_and_grouping_sets_give_a_table_each():
    names = [
        [group.name for group in rs.sql(SCHEMA, f"SELECT COUNT(*) FROM t GROUP BY {by}").groups()]
        for by in ("ROLLUP (age, sex)", "CUBE (age, sex)", "GROUPING SETS ((age, sex), sex, ())")
    ]
    assert names == [
        ["age x sex", "age", "total"],
        ["age x sex", "age", "sex", "total"],
        ["age x sex", "sex", "total"],
    ]


def test_a_cumulative_count_is_the_prefix_family():
    text = "SELECT sex, age, SUM(COUNT(*)) OVER (PARTITION BY sex ORDER BY age{}) FROM t GROUP BY sex, age"
    (expected,) = rs.table(SCHEMA, {"sex": rs.identity, "age": rs.prefix}).groups()
    for frame in ("", " ROWS UNBOUNDED PRECEDING", " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"):
        assert only_group(text.format(frame)) == expected
    assert isinstance(expected.factors[1].queries, Prefix)


def test_several_statements_are_a_union_with_one_name_and_weight():
    work = rs.sql(
        SCHEMA,
        "SELECT COUNT(*) FROM t;\nSELECT sex, COUNT(*) FROM t GROUP BY sex; -- end",
        name="T",
        weight=2,
    )
    assert [(group.name, group.weight, group.count) for group in work.groups()] == [
        ("T", 2.0, 1),
        ("T", 2.0, 2),
    ]


REFUSED_CONDITIONS = [
    ("sex = 'f'", "column 30: attribute 'sex': 'f' has no cell in Categorical('F', 'M') (did you mean 'F'?)"),
    ("age = 200", "attribute 'age': 200 has no cell in Integer(0, 99)"),
    ("age = 1e30", "attribute 'age': 1e+30 has no cell"),
    ("age = 1000000000000000000000000000000", "has no cell in Integer(0, 99)"),
    ("age = 'old'", "attribute 'age': 'old' has no cell"),
    ("age < 'old'", "attribute 'age' holds numbers, and 'old' is none"),
    ("age = TRUE", "attribute 'age' holds numbers, not TRUE"),
    ("age > 99", "no cell of the schema meets this WHERE"),
    ("age = 1 AND age = 2", "no cell of the schema meets this WHERE"),
    ("pay >= 26000", "26000 falls within a bin; compare by < or >= at an edge: 0, 10000, 25000, 50000"),
    ("pay > 25000", "25000 is no border by itself; compare by < or >= at an edge: 0, 10000"),
    ("pay = 25000", "attribute 'pay' holds bins"),
    ("sex < 'M'", "attribute 'sex' holds labels, which have no order"),
    ("place = 'NY'", "'NY' has no cell"),
    ("age IS NULL", "column 30: attribute 'age' has no cell for missing values"),
    ("age IS NOT NULL", "with outside='missing' they are counted in the cell '(missing)'"),
    ("age IS TRUE", "is not supported in a condition"),
    ("age = NULL", "no comparison with NULL is ever true"),
    ("age = kids", "'kids' is not a constant"),
    ("age + kids = 3", "looks at several columns; an expression to group or compare takes one"),
    ("sex + 1 = 3", "'F' is no number to calculate with"),
    ("pay / 2 > 3", "attribute 'pay' holds bins, which are no numbers to calculate with"),
    ("YEAR(age) = 3", "attribute 'age' holds no dates; declare it as rs.Date to ask for its year"),
    ("SQRT(age) = 3", "'SQRT(age)' is not supported; there are +"),
    ("age / 10 = 'x'", "no cell of the schema meets this WHERE"),
    ("age / 10 < 'x'", "0 and 'x' cannot be compared"),
    ("age", "attribute 'age' is not a condition by itself"),
    ("1 < age < 5", "is not a column of the table"),
    ("age IN ()", "IN needs a list of constants"),
    ("age IN (SELECT 1)", "QUERY is not supported with IN"),
    ("name = 'x'", "column 'name' may be any of 'Name', 'NAME'"),
    ("u.age = 1", "there is no table 'u' in FROM"),
    ("age BETWEEN 1 2", "AND is missing here or further on"),
]
REFUSED = [
    (
        "SELECT COUNT(*)\nFROM t\nWHERE agee = 1",
        "line 3, column 7: column 'agee' is not in the schema (did you mean 'age'?)",
    ),
    ("SELECT age, COUNT(*) FROM t", "'age' is selected but not in GROUP BY"),
    ("SELECT age FROM t GROUP BY age", "SELECT needs COUNT(*) once"),
    ("SELECT COUNT(DISTINCT age) FROM t", "one person alone can add a value; GROUP BY age counts each"),
    ("SELECT *, COUNT(*) FROM t", "name the columns"),
    ("SELECT SUM(pay) FROM t", "'pay': its last bin has no end"),
    ("SELECT AVG(sex) FROM t", "'sex': its cells are no numbers"),
    ("SELECT SUM(COUNT(*)) FROM t", "is a sum within another; put the inner one in a subquery"),
    ("SELECT CUONT(age), COUNT(*) FROM t", "there is no function CUONT (did you mean 'COUNT'?)"),
    ("SELECT QUANTILE_CONT(age, 2) FROM t", "a quantile is of one order between 0 and 1"),
    ("SELECT MEDIAN(age) + 1 FROM t", "a quantile has no slope to carry an error along"),
    ("SELECT age, MEDIAN(age) FROM t GROUP BY age", "quantiles of 'age' by itself say nothing"),
    ("SELECT sex || 'x', COUNT(*) FROM t GROUP BY sex ORDER BY 1", "selected but not in GROUP BY"),
    ("SELECT sex, COUNT(*) AS n FROM t GROUP BY sex ORDER BY 3", "there is no item 3 in SELECT to order by"),
    ("SELECT m FROM (SELECT COUNT(*) AS n FROM t)", "there is no column 'm' here"),
    ("SELECT COUNT(*) / (SELECT sex FROM t GROUP BY sex) FROM t", "needs one row and one column"),
    ("SELECT sex, COUNT(*), LAG(COUNT(*)) OVER () FROM t GROUP BY sex", "needs ORDER BY, such as LAG"),
    ("SELECT SUM(CASE WHEN age < 5 THEN 'x' END) FROM t", "is no number to sum"),
    ("SELECT COUNT(*) AS n, sex FROM t GROUP BY sex LIMIT x", "a limit is a whole number"),
    ("SELECT n, SUM(n) FROM (SELECT COUNT(*) AS n FROM t) GROUP BY n", "rows cannot be grouped by it"),
    ("SELECT sex, CASE WHEN COUNT(*) > 5 THEN 1 END FROM t GROUP BY sex", "a choice by a noisy number"),
    ("SELECT name FROM t LIMIT 5", "records of people are not published"),
    ("SELECT COUNT(*)", "FROM is missing"),
    ("SELECT COUNT(*) FROM t JOIN u ON 1 = 1", "JOINS are not supported: FROM needs one table"),
    ("SELECT COUNT(*) FROM (SELECT 1)", "FROM is missing"),
    ("SELECT DISTINCT COUNT(*) FROM t", "DISTINCT is not supported"),
    ("SELECT COUNT(*) FROM t UNION SELECT COUNT(*) FROM u", "write UNION ALL"),
    ("SELECT COUNT(*) FROM t UNION ALL SELECT 'x' FROM t GROUP BY ()", "the same kinds of columns"),
    ("WITH u AS (SELECT 1) SELECT COUNT(*) FROM u", "FROM is missing"),
    ("DELETE FROM t", "DELETE is not supported"),
    ("SELECT COUNT(*) FROM t GROUP BY age, CASE WHEN age < 5 THEN 1 END", "'age' is grouped in two ways"),
    ("SELECT COUNT(*) FROM t GROUP BY DISTINCT ROLLUP (age)", "DISTINCT is not supported"),
    ("SELECT age, COUNT(*) FROM t GROUP BY ROLLUP (1)", "'1' is not a column of the table"),
    ("SELECT age, SUM(COUNT(*)) OVER (ORDER BY 1) FROM t GROUP BY age", "'1' is not a column of the table"),
    ("SELECT COUNT(*) FROM t GROUP BY 2", "there is no item 2 in SELECT"),
    ("SELECT COUNT(*) FROM t GROUP BY age % kids", "looks at several columns"),
    (
        "SELECT CASE WHEN age < 5 THEN 1 WHEN sex = 'F' THEN 2 END c, COUNT(*) FROM t GROUP BY c",
        "CASE groups by one column",
    ),
    ("SELECT CASE WHEN age < 5 THEN sex END c, COUNT(*) FROM t GROUP BY c", "'sex' is not a constant"),
    (
        "SELECT CASE WHEN age < 5 THEN 1 END sex, COUNT(*) FROM t GROUP BY sex",
        "also the alias of something else",
    ),
    ("SELECT age, SUM(COUNT(*)) OVER (ORDER BY age DESC) FROM t GROUP BY age", "DESC is not supported"),
    ("SELECT sex, SUM(COUNT(*)) OVER (ORDER BY sex) FROM t GROUP BY sex", "not along 'sex'; rs.prefix"),
    (
        "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM t GROUP BY age, sex",
        "PARTITION BY and ORDER BY together",
    ),
    ("SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM t GROUP BY ROLLUP (age)", "not grouping sets"),
    ("SELECT age, AVG(COUNT(*)) OVER (ORDER BY age) FROM t GROUP BY age", "'AVG(COUNT(*))' is not supported"),
    (
        "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age ROWS 1 PRECEDING) FROM t GROUP BY age",
        "only ROWS UNBOUNDED PRECEDING",
    ),
    ("SELECT COUNT(*) FROM t WHERE (age = 1", "line 1, column 37: Expecting )"),
    ("SELECT COUNT(*) FROM t GROUP\nBY age (", "line 2, column 8: "),
    ("SELECT COUNT(*) FROM t WHERE sex = 'F", "column 36: what starts here never ends; ' is missing"),
    ("SELECT COUNT(*) FROM t /* end", "the text ends within a comment"),
    ("", "line 1, column 1: there is no statement"),
    (" ; ", "there is no statement"),
    ("SELECT COUNT(*) FROM t; ELSE COUNT(*) FROM t", "column 25: 'ELSE' has no meaning here"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [(f"SELECT COUNT(*) FROM t WHERE {text}", words) for text, words in REFUSED_CONDITIONS],
)
def test_a_condition_that_is_not_supported_is_refused_with_its_place(text, expected):
    assert expected in refusal(text)


@pytest.mark.parametrize(("text", "expected"), REFUSED)
def test_a_statement_that_is_not_supported_is_refused_with_its_place(text, expected):
    assert expected in refusal(text)


def test_numbers_of_any_length_are_compared_or_refused():
    for digits in (30, 400):
        number = "1" + "0" * digits
        assert "has no cell in Integer(0, 99)" in refusal(f"SELECT COUNT(*) FROM t WHERE age = {number}")
        assert only_group(f"SELECT COUNT(*) FROM t WHERE age < {number}").factors == ()
    assert "is not a constant" in refusal(f"SELECT COUNT(*) FROM t WHERE age < 1{'0' * 5000}")


def test_statements_nested_too_deeply_are_refused():
    assert "nested too deeply" in refusal(f"SELECT COUNT(*) FROM t WHERE {'(' * 5000}age = 1{')' * 5000}")


def test_a_condition_ties_kinds_of_cells_whatever_the_number_of_cells():
    wide = "age = 1 OR pay < 10000 OR place = 'Kings' OR kids = 1 OR sex = 'F' OR code = 1 OR member"
    (factor,) = only_group(f"SELECT COUNT(*) FROM t WHERE {wide}").factors
    assert factor.queries.cells == 72_000
    assert factor.queries.coarse.sizes == (2,) * 7


def test_a_condition_on_too_many_kinds_of_cells_is_refused_with_their_number():
    schema = rs.Schema.of_sizes([3] * 16)
    text = "SELECT COUNT(*) FROM t WHERE " + " OR ".join(f"a{at} = 1" for at in range(16))
    with pytest.raises(
        rs.WorkloadError, match="65,536 combinations of classes of cells, more than"
    ) as caught:
        rs.sql(schema, text)
    assert "so does NOT (A OR B): count that and the total" in str(caught.value)
    assert rs.sql(schema, text.replace("WHERE", "WHERE NOT (") + ")").count == 1


def test_a_disjunction_is_the_sum_of_two_counts_less_that_of_both():
    """Claim H-040."""
    schema = rs.Schema.of_sizes([4, 5])
    first, second = "a0 >= 2", "a1 IN (1, 3)"

    def row(condition):
        (group,) = rs.sql(schema, f"SELECT COUNT(*) FROM t WHERE {condition}").groups()
        rows = join(factor.queries.matrix() for factor in group.factors)
        return spread(rows, [schema.sizes[at] for at in group.attributes], group.attributes, schema.sizes)

    either = row(f"{first} OR {second}")
    np.testing.assert_array_equal(either, row(first) + row(second) - row(f"{first} AND {second}"))


def test_groups_tied_together_that_take_too_much_room_are_refused_with_their_size():
    schema = rs.Schema.of_sizes([100, 100, 100])
    tied = "WHERE a0 = 1 OR a1 = 1 OR a2 = 1"
    assert rs.sql(schema, f"SELECT COUNT(*) FROM t {tied} GROUP BY a0").count == 100
    with pytest.raises(rs.WorkloadError, match="numbers to hold, more than 10,000,000"):
        rs.sql(schema, f"SELECT COUNT(*) FROM t {tied} GROUP BY a0, a1")


def test_long_chains_of_conditions_are_read():
    text = "SELECT COUNT(*) FROM t WHERE " + " OR ".join(["age = 1", "age = 5"] * 1000)
    assert words(text) == ["age in {1, 5}"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM t WHERE " + " OR ".join(["age = 1"] * 20_000),
        "SELECT COUNT(*) FROM t WHERE age IN (" + ", ".join(["1"] * 200_000) + ")",
        "SELECT COUNT(*) FROM t WHERE " + "NOT " * 200_000 + "age = 1",
        "SELECT COUNT(*) FROM t;" * 20_000,
    ],
    ids=["OR", "IN", "NOT", "statements"],
)
def test_texts_that_would_take_minutes_to_read_are_refused_at_once(text, within):
    with within(2):
        assert "words and signs are more than the 20,000 that are read at once; use several" in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM t WHERE " + " OR ".join(f"age = {at % 90}" for at in range(4_900)),
        "SELECT COUNT(*) FROM t WHERE " + " AND ".join(f"age < {99 - at % 9}" for at in range(4_900)),
        "SELECT COUNT(*) FROM t WHERE sex IN (" + ", ".join(["'F'"] * 9_900) + ")",
        "SELECT COUNT(*) FROM t WHERE " + " OR ".join(["(age = 1 AND sex = 'F')"] * 1_900),
        "SELECT COUNT(*) FROM t GROUP BY CASE"
        + "".join(f" WHEN age = {at % 100} THEN 'x{at}'" for at in range(3_200))
        + " END",
    ],
    ids=["OR", "AND", "IN", "AND in OR", "CASE"],
)
def test_the_longest_texts_that_are_read_take_a_few_seconds(text, within):
    with within(10):
        assert rs.sql(SCHEMA, text).tables == 1


def test_the_values_of_a_list_are_told_apart_by_type():
    assert selected("age IN (1, 1.0, '1', 2)") == [1, 2]
    assert "holds numbers, not TRUE" in refusal("SELECT COUNT(*) FROM t WHERE age IN (1, TRUE)")
    assert selected("kids IN ('(other)', 2)") == [2, 4]
    assert "9 has no cell" in refusal("SELECT COUNT(*) FROM t WHERE kids IN (1, 9)")


def test_conditions_that_look_at_too_many_cells_in_all_are_refused(within):
    schema = rs.Schema(big=rs.Integer(0, 1_999_999), sex=rs.Categorical("F", "M"))
    few = "SELECT COUNT(*) FROM t WHERE " + " OR ".join(f"big = {at}" for at in range(5))
    assert rs.sql(schema, few).count == 1
    many = "SELECT COUNT(*) FROM t WHERE " + " OR ".join(f"big = {at}" for at in range(500))
    too_many = r"conditions look at 52,000,000 cells, more than 50,000,000"
    with within(5), pytest.raises(rs.WorkloadError, match=too_many):
        rs.sql(schema, many)


def test_a_long_condition_is_not_repeated_in_full_for_every_query():
    tied = " OR ".join(["(age = 1 AND sex = 'F')", "(age = 2 AND sex = 'M')"] * 500)
    for line in words(f"SELECT age, COUNT(*) FROM t WHERE {tied} GROUP BY age"):
        assert len(line) < 1_100
        assert line.endswith(" ...")


def test_an_error_quotes_long_parts_shortened():
    assert len(refusal(f"SELECT COUNT(*) FROM t WHERE age = {'1' * 9_000}")) < 400


def test_conditions_are_linked_by_the_attributes_they_share():
    text = "(age = 1 OR sex = 'F') AND (code = 1 OR member) AND (kids = 1 OR place = 'Kings') AND "
    text += "(sex = 'M' OR code = 2) AND pay < 10000"
    group = only_group(f"SELECT COUNT(*) FROM t WHERE {text}")
    assert [len(factor.attributes) for factor in group.factors] == [4, 2, 1]


def test_what_is_no_text_is_refused():
    with pytest.raises(rs.WorkloadError, match="SQL is given as text, not as int"):
        rs.sql(SCHEMA, 5)
    with pytest.raises(rs.WorkloadError, match="the name of a table is text"):
        rs.sql(SCHEMA, "SELECT COUNT(*) FROM t", name=5)
    with pytest.raises(rs.WorkloadError, match="weight"):
        rs.sql(SCHEMA, "SELECT COUNT(*) FROM t", weight=-1)


def test_a_workload_in_sql_can_be_planned_saved_and_loaded(tmp_path):
    schema = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"))
    work = rs.sql(schema, "SELECT sex, COUNT(*) FROM t WHERE age < 5 OR sex = 'F' GROUP BY ROLLUP (sex)")
    plan = rs.plan(work, rs.zcdp(1))
    plan.save(tmp_path / "people.plan")
    again = rs.Plan.load(tmp_path / "people.plan")
    assert again.hash == plan.hash
    for group, loaded in zip(work.groups(), again.workload.groups(), strict=True):
        assert list(loaded.descriptions(schema)) == list(group.descriptions(schema))
    np.testing.assert_array_equal(again.variances(again.workload), plan.variances(work))


def test_a_release_answers_sql_with_its_errors():
    schema = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"), kids=rs.Integer(0, 2))
    plan = rs.plan(rs.marginals(schema, ways=2), rs.zcdp(1))
    codes = np.indices(schema.sizes).reshape(3, -1).T
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=3))
    text = "SELECT sex, COUNT(*) FROM people WHERE age BETWEEN 2 AND 5 GROUP BY sex"
    table = release.sql(text, level=0.9)
    assert table.equals(release.answers(rs.sql(schema, text), level=0.9))
    assert table["query"].to_pylist() == ["sex = F and age in 2..5", "sex = M and age in 2..5"]
    np.testing.assert_allclose(table["value"], 12, atol=6 * max(table["stddev"].to_pylist()))
    with pytest.raises(rs.NotInSpan, match="'age', 'sex', 'kids'"):
        release.sql("SELECT COUNT(*) FROM people WHERE age < 5 AND sex = 'F' AND kids > 0")


def test_importing_residua_does_not_load_sqlglot():
    program = "import sys, residua; print('sqlglot' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_the_examples_of_the_guide_run(capsys):
    guide = Path(__file__).parents[2] / "docs" / "guides" / "sql.md"
    program = "\n".join(re.findall(r"```python\n(.*?)```", guide.read_text(), flags=re.DOTALL))
    exec(compile(program, guide.name, "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("5 212\n")
    assert "age in 18..99 and sex = F" in printed


def test_a_condition_tied_to_wide_tables_is_read_at_once(within):
    names = ("place", "code", "kids")
    schema = rs.Schema({"age": rs.Integer(0, 99), **{name: rs.Integer(0, 2) for name in names}})
    text = "SELECT COUNT(*) FROM t WHERE place <> 1 OR age != 0 OR code <> 1 GROUP BY place, age, code"
    with within(2):
        assert rs.sql(schema, text).count == 899
