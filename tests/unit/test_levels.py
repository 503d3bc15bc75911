"""Levels wherever an attribute can be named: 'place.county', 'day.quarter'."""

import numpy as np
import pytest

import residua as rs
from residua.errors import SchemaError, WorkloadError

PLACES = [("NY", "Kings", "K1"), ("NY", "Kings", "K2"), ("NY", "Bronx", "B1"), ("NJ", "Essex", "E1")]
SCHEMA = rs.Schema(
    {
        "place": rs.Hierarchy(("state", "county", "tract"), PLACES),
        "day": rs.Date("2024-01-01", "2024-12-31", by="month"),
        "sex": rs.Categorical("F", "M"),
        "place.ward": rs.Categorical("x", "y"),
    }
)
COUNTY = np.array([0, 0, 1, 2])


def dense(work: rs.Workload) -> np.ndarray:
    """The queries of a workload over the cells of place, day, sex and ward."""
    found = []
    for group in work.groups():
        order, matrix = [], np.ones((1, 1))
        for factor in group.factors:
            order += factor.attributes
            matrix = np.kron(matrix, factor.queries.matrix())
        rest = [at for at in range(4) if at not in order]
        matrix = np.kron(matrix, np.ones((1, int(np.prod([SCHEMA.sizes[at] for at in rest])))))
        shape = [SCHEMA.sizes[at] for at in (*order, *rest)]
        back = np.argsort([*order, *rest])
        found.append(matrix.reshape(-1, *shape).transpose(0, *(1 + back)).reshape(len(matrix), -1))
    return np.concatenate(found)


def same(one: rs.Workload, other: rs.Workload) -> bool:
    return np.array_equal(dense(one), dense(other))


def test_a_name_means_an_attribute_or_a_level_of_one_and_a_dotted_name_wins():
    assert SCHEMA.resolve("place") == (0, None)
    assert SCHEMA.resolve("place.county") == (0, "county")
    assert SCHEMA.resolve("place.tract") == (0, None)
    assert SCHEMA.resolve("day.quarter") == (1, "quarter")
    assert SCHEMA.resolve("place.ward") == (3, None)
    assert SCHEMA["place.county"].labels() == ("NY/Kings", "NY/Bronx", "NJ/Essex")
    assert SCHEMA.classes("place.county").tolist() == COUNTY.tolist()
    assert SCHEMA.classes("sex").tolist() == [0, 1]
    with pytest.raises(SchemaError, match=r"attribute 'place' has no level 'conty' .did you mean 'county'"):
        SCHEMA.resolve("place.conty")
    with pytest.raises(SchemaError, match=r"'sex.county' is not in the schema"):
        SCHEMA.resolve("sex.county")


def test_a_level_of_an_attribute_with_a_dot_in_its_name_can_be_named():
    schema = rs.Schema({"a": SCHEMA["day"], "a.b": SCHEMA["place"]})
    assert schema.resolve("a.b.county") == (1, "county")
    assert schema.resolve("a.year") == (0, "year")


def test_every_family_on_a_level_asks_what_it_asks_of_the_nodes():
    nodes = (np.arange(3)[:, None] == COUNTY).astype(float)
    kings = rs.buckets({"city": ["Kings", "Bronx"], "none": ["NJ/Essex"]})
    for family in (rs.identity, rs.total, rs.prefix, rs.ranges, rs.predicates, rs.width(2), kings):
        work = rs.table(SCHEMA, {"place.county": family, "sex": rs.identity})
        (group,) = work.groups()
        over = family.bind(SCHEMA["place.county"]).matrix() @ nodes
        assert np.array_equal(group.factors[0].queries.matrix(), over)
    assert same(rs.table(SCHEMA, ["place.county"]), rs.table(SCHEMA, place=rs.level("county")))
    assert same(rs.table(SCHEMA, ["place.tract"]), rs.table(SCHEMA, ["place"]))


def test_words_and_names_tell_the_level():
    work = rs.table(SCHEMA, {"day.quarter": rs.prefix, "place.county": rs.identity})
    (group,) = work.groups()
    assert group.name == "day.quarter x place.county"
    assert group.describe(1, SCHEMA) == "day.quarter up to 2024-Q1 and place.county = NY/Bronx"
    runs = rs.marginals(SCHEMA, ways=2, attributes=["place.state", "sex", "day"])
    assert list(runs.names) == ["place.state x sex", "place.state x day", "sex x day"]
    assert runs.select("place.state x sex").count == 4


def test_one_attribute_at_two_levels_of_a_table_is_refused():
    with pytest.raises(WorkloadError, match="'place' is there twice; name its finest level only"):
        rs.table(SCHEMA, ["place.state", "place.county"])


def test_levels_is_the_same_table_at_every_level():
    work = rs.levels(SCHEMA, "place", ["sex"], weight=2.0, name="people")
    each = [rs.table(SCHEMA, [f"place.{level}", "sex"]) for level in ("state", "county", "tract")]
    assert same(work, each[0] + each[1] + each[2])
    assert list(work.names) == ["people by state", "people by county", "people by tract"]
    assert [group.weight for group in work.groups()] == [2.0] * 3
    assert rs.levels(SCHEMA, "day").count == 1 + 4 + 12
    with pytest.raises(WorkloadError, match="'sex' has no levels"):
        rs.levels(SCHEMA, "sex")


def test_conditions_on_levels_select_their_cells():
    work = rs.table(SCHEMA, ["sex"], where="place.state = 'NY' AND day.quarter < '2024-07-01'")
    masks = np.kron([1, 1, 1, 0], np.arange(12) < 6)
    assert np.array_equal(dense(work), np.kron(masks, np.kron(np.eye(2), np.ones((1, 2)))))
    within = rs.table(SCHEMA, ["place.county"], where="place.state = 'NY'")
    assert [text for group in within.groups() for text in group.descriptions(SCHEMA)] == [
        "place.county = NY/Kings",
        "place.county = NY/Bronx",
    ]
    part = rs.table(SCHEMA, ["place.county"], where="place IN ('K1', 'E1')")
    assert [text for group in part.groups() for text in group.descriptions(SCHEMA)] == [
        "place in {NY/Kings/K1} (NY/Kings)",
        "place in NJ/Essex",
    ]


@pytest.mark.parametrize("column", ["place.county", "t.place.county", "PLACE.County", '"place.county"'])
def test_sql_groups_by_levels(column):
    work = rs.sql(SCHEMA, f"SELECT {column}, COUNT(*) FROM t GROUP BY {column}")
    assert same(work, rs.table(SCHEMA, ["place.county"]))
    assert list(work.names) == ["place.county"]


def test_sql_filters_by_levels_and_rolls_them_up():
    work = rs.sql(SCHEMA, "SELECT COUNT(*) FROM person WHERE place.state = 'NY' AND day.year = '2024'")
    assert dense(work).reshape(4, -1).sum(axis=1).tolist() == [48, 48, 48, 0]
    chosen = "SELECT place.state, place.county, sex, COUNT(*) FROM t"
    text = f"{chosen} GROUP BY ROLLUP (place.state, place.county), sex"
    sets = [["place.county", "sex"], ["place.state", "sex"], ["sex"]]
    tables = [rs.table(SCHEMA, each) for each in sets]
    assert same(rs.sql(SCHEMA, text), tables[0] + tables[1] + tables[2])
    both = rs.sql(
        SCHEMA, "SELECT place.state, place.county, COUNT(*) FROM t GROUP BY place.state, place.county"
    )
    assert same(both, rs.table(SCHEMA, ["place.county"]))
    running = rs.sql(
        SCHEMA, "SELECT day.quarter, SUM(COUNT(*)) OVER (ORDER BY day.quarter) FROM t GROUP BY day.quarter"
    )
    assert same(running, rs.table(SCHEMA, {"day.quarter": rs.prefix}))


def test_in_sql_a_dotted_attribute_wins_and_unknown_levels_are_told():
    ward = rs.sql(SCHEMA, "SELECT place.ward, COUNT(*) FROM t GROUP BY place.ward")
    assert same(ward, rs.table(SCHEMA, ["place.ward"]))
    assert same(
        rs.sql(SCHEMA, "SELECT place.state, COUNT(*) FROM place GROUP BY place.state"),
        rs.table(SCHEMA, ["place.state"]),
    )
    with pytest.raises(WorkloadError, match=r"'place' has no level 'conty' .did you mean 'county'"):
        rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE place.conty = 'x'")
    with pytest.raises(WorkloadError, match="there is no table 'p' in FROM"):
        rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE p.sex = 'F'")


def people() -> dict[str, object]:
    draw = np.random.default_rng(1)
    return {
        "place": draw.choice([path[-1] for path in PLACES], 500),
        "day": draw.choice(["2024-01-05", "2024-05-05", "2024-12-31"], 500),
        "sex": draw.choice(["F", "M"], 500),
        "place.ward": draw.choice(["x", "y"], 500),
    }


@pytest.fixture(scope="module")
def release() -> rs.Release:
    work = rs.levels(SCHEMA, "place", ["sex"]) + rs.table(
        SCHEMA, {"day.quarter": rs.prefix, "sex": rs.identity}
    )
    plan = rs.plan(work, rs.zcdp("0.5"))
    return rs.measure(plan, people(), ledger=None, noise=rs.simulated(seed=1))


def test_a_release_has_tables_at_levels_which_add_up(release):
    found = release.table("sex", "place.county")
    assert found.names == ("sex", "place.county")
    assert found.axes == (("F", "M"), ("NY/Kings", "NY/Bronx", "NJ/Essex"))
    leaves = release.table("place", "sex").values
    assert np.allclose(found.values[:, 0], leaves[0] + leaves[1])
    states = release.table("place.state").values
    assert np.allclose(states, [leaves[:3].sum(), leaves[3].sum()])
    answers = release.answers(rs.table(SCHEMA, ["place.county"])).to_pylist()
    nodes = ("NY/Kings", "NY/Bronx", "NJ/Essex")
    assert [row["query"] for row in answers] == [f"place.county = {node}" for node in nodes]


def test_statistics_and_crosstabs_take_levels(release):
    shares = release.share("sex", within="place.county")
    assert shares.values.shape == (3, 2)
    assert np.allclose(shares.values.sum(axis=1), 1)
    means = release.mean("sex", by="place.state", values=[0.0, 1.0])
    table = release.table("place.state", "sex").values
    assert np.allclose(means.values, table[:, 1] / table.sum(axis=1))
    shown = release.crosstab(rows=["place.county"], columns=["sex"], margins=True)
    assert np.allclose(shown.values[:3, :2], release.table("place.county", "sex").values)
    assert np.allclose(
        release.nonnegative(replicates=0).table("place.state").values.sum(),
        release.nonnegative(replicates=0).table("place").values.sum(),
    )


def test_plans_of_levels_survive_their_files(release, tmp_path):
    release.save(tmp_path / "a.release")
    again = rs.Release.load(tmp_path / "a.release")
    assert again.hash == release.hash
    work = rs.table(SCHEMA, ["place.county"], where="place.state = 'NY'")
    rs.plan(work, rs.zcdp(1)).save(tmp_path / "a.plan")
    assert list(rs.Plan.load(tmp_path / "a.plan").workload.names) == list(work.names)


def test_specs_take_levels(tmp_path):
    (tmp_path / "places.csv").write_text("state,county\nNY,Kings\nNY,Bronx\nNJ,Essex\n")
    (tmp_path / "a.yaml").write_text("""
schema:
  fields:
    - {name: place, type: string, residua: {hierarchy: {levels: [state, county], path: places.csv}}}
    - {name: sex, type: string, constraints: {enum: [F, M]}}
tables:
  - columns: [place.state, sex]
  - {columns: [sex], levels: place, name: all}
  - {families: {place.county: identity, sex: total}}
  - {marginals: 1-way, attributes: [place.state]}
  - {sql: "SELECT place.state, COUNT(*) FROM t GROUP BY place.state"}
privacy: {definition: zcdp, rho: 0.1}
""")
    from residua.spec import load_spec

    spec = load_spec(tmp_path / "a.yaml")
    names = [
        "place.state x sex",
        "all by state",
        "all by county",
        "place.county x sex",
        "place.state",
        "place.state",
    ]
    assert [group.name for group in spec.workload.groups()] == names
