"""SQL workloads against DuckDB: the same text, on data that has every cell, gives the same counts."""

import random
import re

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import residua as rs
from residua.answering.protocol import apply_queries
from residua.engines import MemoryEngine

SCHEMA = rs.Schema(
    age=rs.Integer(-1, 4),
    sex=rs.Categorical("M", "F", "it's"),
    pay=rs.Binned(0, 10, 25.5, above=True),
    grade=rs.Categorical(5, 1, 2),
    flag=rs.Categorical(False, True),
    o=rs.Integer(1, 2, outside="other"),
)
PLACE = re.compile(r"SQL, line (\d+), column (\d+): \S.*")


class Twin:
    """Random records with every cell of the schema, in DuckDB and as counts."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        cells = np.indices(SCHEMA.sizes).reshape(len(SCHEMA), -1).T
        codes = np.repeat(cells, rng.integers(1, 40, len(cells)), axis=0)
        self.engine = MemoryEngine(codes.astype(np.int32), SCHEMA.sizes)
        lower = np.array(SCHEMA["pay"].edges)[codes[:, 2]]
        within = np.where(rng.random(len(codes)) < 0.5, 0.0, rng.uniform(0, 9, len(codes)))
        columns = {
            "age": codes[:, 0] - 1,
            "sex": np.array(["M", "F", "it's"], dtype=object)[codes[:, 1]],
            "pay": lower + within,
            "grade": np.array([5, 1, 2])[codes[:, 3]],
            "flag": codes[:, 4] == 1,
            "o": pa.array(codes[:, 5] + 1, mask=codes[:, 5] == 2),
        }
        self.base = duckdb.connect()
        # Grouping by pay is grouping by its bins, so there is a table that has one value for each.
        for name, pay in (("people", columns["pay"]), ("binned", lower)):
            self.base.register(f"{name}_arrow", pa.table({**columns, "pay": pay}))
            self.base.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")

    def rows(self, text: str) -> list[tuple]:
        return self.base.execute(text).fetchall()

    def exact(self, group: rs.workload.Table) -> np.ndarray:
        """True answers of a table's queries, in order."""
        places = sorted(group.attributes)
        [counts] = self.engine.tally([tuple(places)])
        tensor = counts.reshape([SCHEMA.sizes[at] for at in places]).astype(float)
        return apply_queries(
            tensor.transpose([places.index(at) for at in group.attributes]), group.factors
        ).reshape(-1)


@pytest.fixture(scope="module")
def twin() -> Twin:
    return Twin()


COLUMNS = list(SCHEMA.names)
CASES = {
    "CASE WHEN age < 1 THEN 'low' WHEN age <= 2 OR age = 4 THEN 'mid' ELSE 'high' END": [
        "low",
        "mid",
        "high",
    ],
    "CASE sex WHEN 'F' THEN 'x' WHEN 'it''s' THEN 'y' END": ["x", "y", None],
    "CASE WHEN o > 1 THEN 'two' WHEN NOT o > 1 THEN 'one' ELSE 'none' END": ["two", "one", "none"],
}


def comparisons() -> st.SearchStrategy[str]:
    """Conditions on one column."""
    flip = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>", "!=": "!="}

    def either(column: str, sign: str, value: str, mirrored: bool) -> str:
        return f"{value} {flip[sign]} {column}" if mirrored else f"{column} {sign} {value}"

    def pairs(column: str, signs: list[str], values: list[str]) -> st.SearchStrategy[str]:
        sign, value = st.sampled_from(signs), st.sampled_from(values)
        return st.builds(either, st.just(column), sign, value, st.booleans())

    def lists(column: str, values: list[str]) -> st.SearchStrategy[str]:
        some = st.lists(st.sampled_from(values), min_size=1, max_size=3)
        word = st.sampled_from(["IN", "NOT IN"])
        return st.builds(lambda word, some: f"{column} {word} ({', '.join(some)})", word, some)

    order, equal = ["<", "<=", ">", ">="], ["=", "<>", "!="]
    between = st.builds(
        lambda column, word, low, high: f"{column} {word} {low} AND {high}",
        st.sampled_from(["age", "grade", "o"]),
        st.sampled_from(["BETWEEN", "NOT BETWEEN"]),
        st.integers(-2, 3),
        st.integers(0, 6),
    )
    return st.one_of(
        pairs("age", order, ["-9", "-1", "0", "1.5", "3", "200"]),
        pairs("age", equal, ["-1", "0", "3"]),
        pairs("sex", equal, ["'F'", "'M'", "'it''s'"]),
        pairs("pay", ["<", ">="], ["-5", "0", "10", "25.5"]),
        pairs("grade", order + equal, ["1", "2", "5"]),
        pairs("o", order + equal, ["1", "2"]),
        pairs("flag", equal, ["TRUE", "FALSE"]),
        st.just("flag"),
        lists("age", ["-1", "0", "4"]),
        lists("sex", ["'F'", "'M'"]),
        lists("o", ["1", "2"]),
        between,
    )


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)
WHERE = st.one_of(st.just(""), CONDITIONS.map(lambda text: f" WHERE {text}"))
GROUPS = st.lists(st.sampled_from([*COLUMNS, *CASES]), max_size=3, unique=True).filter(
    lambda chosen: len({attribute(each) for each in chosen}) == len(chosen)
)


def attribute(expression: str) -> int:
    """The attribute that an expression groups by."""
    return next(at for at, name in enumerate(COLUMNS) if re.search(rf"\b{name}\b", expression))


def rank(expression: str, value: object) -> int:
    """The place of a group among those of its expression."""
    if expression in CASES:
        return CASES[expression].index(value)
    kind = SCHEMA[expression]
    if value is None:
        return kind.size - 1
    return kind.edges.index(value) if isinstance(kind, rs.Binned) else kind.cell(value)


def workload_or_nothing(twin: Twin, text: str, where: str, table: str) -> rs.Workload | None:
    """The workload, or None where the text rightly was refused because no record can meet its WHERE."""
    try:
        return rs.sql(SCHEMA, text)
    except rs.WorkloadError as error:
        if "no cell of the schema meets" not in str(error):
            raise
        assert twin.rows(f"SELECT COUNT(*) FROM {table}{where}") == [(0,)]
        return None


@settings(max_examples=150)
@given(groups=GROUPS, where=WHERE)
def test_grouped_counts_are_those_of_a_database(twin, groups, where):
    table = "binned" if "pay" in groups else "people"
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    text = f"SELECT {', '.join([*groups, 'COUNT(*)'])} FROM {table}{where}{by}"
    work = workload_or_nothing(twin, text, where, table)
    if work is None:
        return
    (group,) = work.groups()
    order = sorted(range(len(groups)), key=lambda at: group.attributes.index(attribute(groups[at])))
    rows = sorted(twin.rows(text), key=lambda row: [rank(groups[at], row[at]) for at in order])
    assert twin.exact(group).tolist() == [row[-1] for row in rows]


@settings(max_examples=60)
@given(
    sets=st.sampled_from(
        [
            "ROLLUP (age, sex)",
            "CUBE (sex, flag, grade)",
            "GROUPING SETS ((age, sex), flag, ())",
            "flag, ROLLUP (sex, (age, grade))",
            "GROUPING SETS (ROLLUP (o, sex), (o, flag))",
            "CUBE (sex), CUBE (flag, sex)",
            "(age, sex)",
        ]
    ),
    where=WHERE,
)
def test_grouping_sets_are_those_of_a_database(twin, sets, where):
    text = f"SELECT COUNT(*) FROM people{where} GROUP BY {sets}"
    work = workload_or_nothing(twin, text, where, "people")
    if work is not None:
        found = np.concatenate([twin.exact(group) for group in work.groups()])
        assert sorted(found.tolist()) == sorted(row[0] for row in twin.rows(text))


@settings(max_examples=60)
@given(
    along=st.sampled_from(["age", "o", "pay"]),
    parts=st.lists(st.sampled_from(["sex", "flag", *CASES]), max_size=2, unique=True),
    where=WHERE,
)
def test_cumulative_counts_are_those_of_a_database(twin, along, parts, where):
    parts = [part for part in parts if attribute(part) != COLUMNS.index(along)]
    if len({attribute(part) for part in parts}) < len(parts):
        parts = parts[:1]
    by = f"PARTITION BY {', '.join(parts)} " if parts else ""
    window = f"SUM(COUNT(*)) OVER ({by}ORDER BY {along})"
    groups = ", ".join([*parts, along])
    text = f"SELECT {groups}, {window} FROM binned{where} GROUP BY {groups}"
    work = workload_or_nothing(twin, text, where, "binned")
    if work is not None:
        (group,) = work.groups()
        # Where a condition ties columns, a database has no row for a group without records of its own, but
        # the cumulative count is one of the others; every row of the database is there, in any case.
        found = twin.exact(group).tolist()
        expected = [float(row[-1]) for row in twin.rows(text)]
        assert set(expected) == set(found)
        assert len(found) > len(expected) or sorted(found) == sorted(expected)


GOOD = [
    "SELECT sex, age, COUNT(*) FROM people WHERE pay >= 10 AND age < 3 GROUP BY sex, age",
    "SELECT COUNT(*) FROM people WHERE age BETWEEN 0 AND 3 AND sex = 'F' OR NOT flag = TRUE",
    "SELECT grade, COUNT(*) AS n FROM people p WHERE p.sex IN ('F', 'M') AND o <> 2 GROUP BY 1",
    "SELECT CASE WHEN age < 1 THEN 'low' ELSE 'high' END AS band, sex, COUNT(*) FROM people\n"
    "GROUP BY GROUPING SETS ((band, sex), (sex), ())",
    "SELECT sex, age, SUM(COUNT(*)) OVER (PARTITION BY sex ORDER BY age) FROM people GROUP BY sex, age",
    "SELECT flag, COUNT(*) FROM people GROUP BY ROLLUP (flag, sex);\nSELECT COUNT(*) FROM people",
]
SPARE = [
    "(",
    ")",
    ",",
    "AND",
    "OR",
    "NOT",
    "=",
    "<",
    "'F",
    "7",
    "-",
    "*",
    ";",
    "NULL",
    "IS",
    "x",
    "GROUP",
    '"',
    ".",
]


def mutant(rng: random.Random) -> str:
    """A good statement with a token or two taken out, put in, or swapped."""
    tokens = re.findall(r"\s+|'[^']*'|\w+|[<>!]=|<>|.", rng.choice(GOOD))
    for _ in range(rng.choice([1, 1, 2])):
        at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(5):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, f" {rng.choice(SPARE)} ")
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = rng.choice(SPARE)
            case _:
                tokens.insert(at, tokens[other])
    return "".join(tokens)


@pytest.mark.parametrize("seed", range(6))
def test_broken_sql_is_refused_in_one_line_that_names_the_place_and_the_rest_counts_right(twin, seed):
    rng = random.Random(seed)
    refused = agreed = 0
    for _ in range(80):
        text = mutant(rng)
        try:
            work = rs.sql(SCHEMA, text)
        except rs.WorkloadError as error:
            line, column = map(int, PLACE.fullmatch(str(error)).groups())
            lines = text.split("\n")
            assert 1 <= line <= len(lines)
            assert 1 <= column <= len(lines[line - 1]) + 1
            refused += 1
            continue
        try:
            expected = [row[-1] for each in duckdb.extract_statements(text) for row in twin.rows(each.query)]
        except duckdb.Error:
            continue  # the table's name is free here, and not there
        found = np.concatenate([twin.exact(group) for group in work.groups()])
        assert sorted(found.tolist()) == sorted(map(float, expected)), text
        agreed += 1
    assert refused >= 20
    assert agreed >= 1
