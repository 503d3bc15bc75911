"""Forty pieces of ordinary work: what offices, agencies and companies would write down.

Surveys, flights, births, taxes, labour force: 3 to 60 columns, integers of up to 1,000 cells, conditions,
prefixes, ranges, hierarchies of up to 8,000 leaves, unions of 5 to 5,000 tables. Written down before the
planner was made fast on them; a case is never made smaller.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

import numpy as np

import residua as rs

Case = Callable[[], rs.Workload]
CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    """Enter a piece of work under the name of its function."""
    CASES[make.__name__.replace("_", " ")] = make
    return make


def places(*sizes: int, seed: int = 1) -> rs.Hierarchy:
    """An uneven tree with so many nodes a level."""
    draw = np.random.default_rng(seed)
    levels = ("state", "county", "tract", "block")[: len(sizes)]
    paths: list[tuple[str, ...]] = [()]
    for size in sizes:
        weights = draw.gamma(1.0, 1.0, len(paths))
        more = 1 + draw.multinomial(size - len(paths), weights / weights.sum()) if paths != [()] else [size]
        numbers = iter(range(size))
        paths = [
            (*path, f"{len(path)}-{next(numbers)}")
            for path, k in zip(paths, more, strict=True)
            for _ in range(k)
        ]
    return rs.Hierarchy(levels, paths)


def categories(*sizes: int) -> dict[str, rs.Categorical]:
    """Columns of so many answers each."""
    return {
        f"q{at}": rs.Categorical(*(f"answer {n}" for n in range(size))) for at, size in enumerate(sizes, 1)
    }


def union(parts: Sequence[rs.Workload]) -> rs.Workload:
    """All of them."""
    return reduce(add, parts)


PERSON = {"age": rs.Integer(0, 99), "sex": rs.Categorical("F", "M"), "region": categories(12)["q1"]}


@case
def survey_of_3_columns() -> rs.Workload:
    return rs.marginals(rs.Schema(PERSON), up_to=3)


@case
def survey_of_12_columns_pairs() -> rs.Workload:
    return rs.marginals(rs.Schema({**PERSON, **categories(5, 5, 5, 4, 4, 7, 3, 2, 10)}), up_to=2)


@case
def survey_of_60_columns_pairs() -> rs.Workload:
    sizes = [2 + at % 6 for at in range(57)]
    return rs.marginals(rs.Schema({**PERSON, **categories(*sizes)}), up_to=2)


@case
def survey_of_30_columns_triples() -> rs.Workload:
    sizes = [2 + at % 4 for at in range(30)]
    return rs.marginals(rs.Schema(categories(*sizes)), up_to=3)


@case
def survey_with_every_question_by_age_and_sex() -> rs.Workload:
    schema = rs.Schema({**PERSON, **categories(*[5] * 25)})
    return union([rs.table(schema, ["age", "sex", name]) for name in schema.names[3:]])


@case
def survey_with_cumulative_age() -> rs.Workload:
    schema = rs.Schema({**PERSON, **categories(5, 5, 5)})
    names = schema.names[1:]
    return union([rs.table(schema, {"age": rs.prefix, name: rs.identity}) for name in names])


@case
def survey_hybrid_up_to_2() -> rs.Workload:
    schema = rs.Schema({**PERSON, "hours": rs.Integer(0, 80), **categories(7, 5, 3, 2)})
    return rs.all_tables(schema, ways=(1, 2), numeric=rs.prefix, categorical=rs.identity)


@case
def survey_hybrid_up_to_3() -> rs.Workload:
    schema = rs.Schema({"age": rs.Integer(0, 39), "hours": rs.Integer(0, 19), **categories(7, 5, 3, 2)})
    return rs.all_tables(schema, ways=(1, 2, 3), numeric=rs.prefix, categorical=rs.identity)


@case
def survey_of_5000_tables() -> rs.Workload:
    schema = rs.Schema(categories(*[3] * 32))
    return rs.marginals(schema, ways=3) + rs.table(schema, ["q1", "q2"])


@case
def survey_weighted_towards_totals() -> rs.Workload:
    schema = rs.Schema({**PERSON, **categories(5, 4, 3)})
    return (
        100.0 * rs.marginals(schema, ways=1)
        + 10.0 * rs.marginals(schema, ways=2)
        + rs.marginals(schema, ways=3)
    )


FLIGHTS = {
    "carrier": categories(14)["q1"],
    "delay": rs.Integer(-50, 300),
    "hour": rs.Integer(0, 23),
    "weekday": rs.Integer(1, 7),
    "month": rs.Integer(1, 12),
}


@case
def flights_pairs_prefix_and_condition() -> rs.Workload:
    schema = rs.Schema(FLIGHTS)
    late = rs.sql(schema, "SELECT carrier, COUNT(*) FROM t WHERE delay > 15 AND hour >= 18 GROUP BY carrier")
    return rs.marginals(schema, up_to=2) + rs.table(schema, delay=rs.prefix) + late


@case
def flights_delay_by_carrier_cumulative() -> rs.Workload:
    schema = rs.Schema(FLIGHTS)
    return rs.table(schema, carrier=rs.identity, delay=rs.prefix) + rs.table(
        schema, delay=rs.prefix, hour=rs.prefix
    )


@case
def flights_delay_ranges() -> rs.Workload:
    return rs.table(rs.Schema(FLIGHTS), delay=rs.ranges)


@case
def flights_routes() -> rs.Workload:
    ports = [f"port {at}" for at in range(120)]
    schema = rs.Schema(origin=rs.Categorical(*ports), goal=rs.Categorical(*ports), month=rs.Integer(1, 12))
    return rs.marginals(schema, up_to=2)


@case
def flights_five_conditions() -> rs.Workload:
    schema = rs.Schema(FLIGHTS)
    conditions = (
        "delay > 15",
        "delay > 60 AND hour < 9",
        "delay <= 0 OR hour = 12",
        "weekday >= 6",
        "month IN (6, 7, 8)",
    )
    texts = [f"SELECT carrier, COUNT(*) FROM t WHERE {each} GROUP BY carrier" for each in conditions]
    return union([rs.sql(schema, text) for text in texts])


BIRTHS = {
    "mother": rs.Integer(12, 55),
    "father": rs.Integer(12, 70),
    "weeks": rs.Integer(20, 45),
    "grams": rs.Integer(0, 599),
    "sex": rs.Categorical("F", "M"),
    "plural": rs.Integer(1, 4),
}


@case
def births_pairs() -> rs.Workload:
    return rs.marginals(rs.Schema(BIRTHS), ways=(1, 2))


@case
def births_parents_age_difference() -> rs.Workload:
    schema = rs.Schema(mother=rs.Integer(15, 49), father=rs.Integer(15, 49), sex=rs.Categorical("F", "M"))
    return rs.table(schema, {("mother", "father"): rs.abs_diff}) + rs.marginals(schema, up_to=2)


@case
def births_weight_cumulative_by_weeks() -> rs.Workload:
    schema = rs.Schema(BIRTHS)
    return rs.table(schema, grams=rs.prefix, sex=rs.identity) + rs.table(
        schema, weeks=rs.prefix, grams=rs.identity
    )


@case
def births_weight_of_1000_cells() -> rs.Workload:
    return rs.table(
        rs.Schema(grams=rs.Integer(0, 999), sex=rs.Categorical("F", "M")), grams=rs.prefix, sex=rs.identity
    )


@case
def births_low_weight_conditions() -> rs.Workload:
    schema = rs.Schema(BIRTHS)
    low = "SELECT mother, COUNT(*) FROM t WHERE grams < 250 AND weeks < 37 GROUP BY mother"
    return rs.marginals(schema, ways=1) + rs.sql(schema, low) + rs.table(schema, ["mother", "sex"])


TAXES = {
    "income": rs.Integer(0, 499),
    "filing": categories(5)["q1"],
    "children": rs.Integer(0, 9),
    "year": rs.Integer(2015, 2024),
}


@case
def taxes_cumulative_income() -> rs.Workload:
    schema = rs.Schema(TAXES)
    return rs.table(schema, income=rs.prefix, filing=rs.identity) + rs.table(
        schema, income=rs.prefix, year=rs.identity
    )


@case
def taxes_income_ranges_500() -> rs.Workload:
    return rs.table(rs.Schema(TAXES), income=rs.ranges)


@case
def taxes_pairs_hybrid() -> rs.Workload:
    return rs.all_tables(rs.Schema(TAXES), ways=(1, 2), numeric=rs.prefix, categorical=rs.identity)


@case
def taxes_brackets_and_deciles() -> rs.Workload:
    schema = rs.Schema(TAXES)
    brackets = rs.buckets(*(range(at, at + 50) for at in range(0, 500, 50)))
    return rs.table(schema, income=brackets, filing=rs.identity) + rs.table(schema, income=rs.prefix)


@case
def taxes_explicit_rates() -> rs.Workload:
    schema = rs.Schema(TAXES)
    draw = np.random.default_rng(5)
    return rs.linear(schema, ("income",), draw.random((300, 500))) + rs.marginals(schema, ways=1)


@case
def labour_force_pairs() -> rs.Workload:
    schema = rs.Schema(
        {**PERSON, "hours": rs.Integer(0, 98), "industry": categories(21)["q1"], **categories(4, 9, 3)}
    )
    return rs.marginals(schema, up_to=2)


@case
def labour_force_rates_by_age_groups() -> rs.Workload:
    schema = rs.Schema({**PERSON, "status": categories(3)["q1"], "industry": categories(21)["q1"]})
    groups = rs.buckets(*(range(at, at + 10) for at in range(0, 100, 10)))
    first = rs.table(schema, age=groups, sex=rs.identity, status=rs.identity)
    return (
        first
        + rs.table(schema, age=groups, region=rs.identity, status=rs.identity)
        + rs.table(schema, ["industry"])
    )


@case
def labour_force_hours_by_everything() -> rs.Workload:
    schema = rs.Schema({**PERSON, "hours": rs.Integer(0, 98), **categories(4, 9, 3)})
    others = [name for name in schema.names if name != "hours"]
    return union([rs.table(schema, {"hours": rs.prefix, name: rs.identity}) for name in others])


@case
def labour_force_moving_windows() -> rs.Workload:
    schema = rs.Schema(month=rs.Integer(0, 239), status=categories(3)["q1"])
    return rs.table(schema, month=rs.width(12), status=rs.identity) + rs.table(schema, ["month", "status"])


@case
def labour_force_affine_hours_and_tenure() -> rs.Workload:
    schema = rs.Schema(hours=rs.Integer(0, 30), tenure=rs.Integer(0, 24), sex=rs.Categorical("F", "M"))
    return rs.table(schema, {("hours", "tenure"): rs.affine}) + rs.marginals(schema, up_to=2)


def by_place(tree: rs.Hierarchy, *levels: str) -> rs.Workload:
    """Age groups and sex at every level of a tree."""
    schema = rs.Schema(place=tree, age=categories(18)["q1"], sex=rs.Categorical("F", "M"))
    families = [rs.level(each) for each in levels] + [rs.identity]
    tables = [rs.table(schema, place=each, age=rs.identity, sex=rs.identity) for each in families]
    return union([rs.table(schema, ["age", "sex"]), *tables])


@case
def places_100_leaves() -> rs.Workload:
    return by_place(places(4, 20, 100), "state", "county")


@case
def places_200_leaves() -> rs.Workload:
    return by_place(places(6, 40, 200), "state", "county")


@case
def places_1000_leaves() -> rs.Workload:
    return by_place(places(10, 120, 1000), "state", "county")


@case
def places_8000_leaves_counts() -> rs.Workload:
    schema = rs.Schema(place=places(51, 800, 8000))
    return (
        rs.table(schema, place=rs.level("state"))
        + rs.table(schema, place=rs.level("county"))
        + rs.table(schema, ["place"])
    )


@case
def places_8000_leaves_by_sex() -> rs.Workload:
    schema = rs.Schema(place=places(51, 800, 8000), sex=rs.Categorical("F", "M"))
    county = rs.table(schema, place=rs.level("county"), sex=rs.identity)
    return county + rs.table(schema, ["place", "sex"]) + rs.table(schema, ["sex"])


@case
def industries_and_places() -> rs.Workload:
    industry = rs.Hierarchy(("sector", "code"), [(f"s{at // 9}", f"c{at}") for at in range(80)])
    schema = rs.Schema(place=places(5, 30), industry=industry)
    fine = rs.table(schema, place=rs.level("state"), industry=rs.identity)
    return (
        fine + rs.table(schema, place=rs.identity, industry=rs.level("sector")) + rs.marginals(schema, ways=1)
    )


@case
def one_prefix_of_1025_cells() -> rs.Workload:
    return rs.table(rs.Schema(minute=rs.Integer(0, 1024)), minute=rs.prefix)


@case
def two_prefixes_40_by_30() -> rs.Workload:
    schema = rs.Schema(a=rs.Integer(0, 39), b=rs.Integer(0, 29))
    return rs.table(schema, a=rs.prefix, b=rs.prefix) + rs.table(schema, ["a", "b"])


@case
def visits_weekly_pattern() -> rs.Workload:
    schema = rs.Schema(day=rs.Integer(0, 364), hour=rs.Integer(0, 23), channel=categories(6)["q1"])
    return (
        rs.table(schema, day=rs.prefix)
        + rs.table(schema, day=rs.identity, channel=rs.identity)
        + rs.table(schema, hour=rs.circular, channel=rs.identity)
    )


@case
def admissions_mixed() -> rs.Workload:
    schema = rs.Schema(
        {**PERSON, "stay": rs.Integer(0, 364), "ward": categories(30)["q1"], "outcome": categories(4)["q1"]}
    )
    first = rs.table(schema, stay=rs.prefix, outcome=rs.identity) + rs.table(
        schema, ["ward", "outcome", "sex"]
    )
    return first + rs.table(schema, age=rs.prefix, ward=rs.identity) + rs.marginals(schema, up_to=1)
