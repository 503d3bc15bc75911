"""A small plan by places, uneven in every way, for whoever measures one."""

import numpy as np

import residua as rs


def shuffled_places(draw: np.random.Generator, leaves: int = 60) -> rs.Hierarchy:
    """An uneven hierarchy whose leaves stand in no order."""
    state = draw.integers(0, 4, leaves)
    county = state * 10 + draw.integers(0, 3, leaves)
    paths = [(f"s{a}", f"c{b}", f"t{at}") for at, (a, b) in enumerate(zip(state, county, strict=True))]
    return rs.Hierarchy(("state", "county", "tract"), paths)


def some_plan(seed: int) -> rs.Plan:
    """Tables of which some end above others, and one without the place."""
    schema = rs.Schema(
        place=shuffled_places(np.random.default_rng(seed)),
        sex=rs.Categorical("F", "M"),
        age=rs.Integer(0, 3),
        work=rs.Integer(0, 2),
    )
    asked = [
        rs.levels(schema, "place", ["sex", "age"]),
        rs.table(schema, ["place.county", "work"]),
        rs.table(schema, ["place.state", "work", "age"]),
        rs.table(schema, ["work", "sex"]),
    ]
    return rs.plan(sum(asked[1:], asked[0]), rs.zcdp(1), method="places")
