"""Plans by places against the optimum of all mechanisms on many trees, up to 1,500 joint cells."""

import numpy as np
import pytest
from places_twin import UNEVEN, excess, hierarchy, places_of, weighed

import residua as rs

WEIGHTS = [(1, 1, 1, 1, 1, 1), (100, 30, 5, 1, 0.3, 0.1)]
OTHERS = {
    "counts": {},
    "sex": {"sex": rs.Integer(0, 1)},
    "age and sex": {"age": rs.Integer(0, 2), "sex": rs.Integer(0, 1)},
}


def schema_with(place: rs.Hierarchy, others: str) -> rs.Schema:
    schema = rs.Schema(place=place, **OTHERS[others])
    if np.prod(schema.sizes) > 1500:
        schema = rs.Schema(place=place, **OTHERS["sex"])
    return schema


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("which", UNEVEN)
def test_uneven_trees(which, weights, others):
    schema = schema_with(places_of(UNEVEN[which]), others)
    assert excess(weighed(schema, [name for name in schema.names if name != "place"], weights)) <= 1.5e-3


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("seed", range(6))
def test_random_trees(seed, weights, others):
    draw = np.random.default_rng(seed)
    levels = 2 + seed % 3
    place = hierarchy(draw, levels, 1, {2: 22, 3: 9, 4: 5}[levels])
    schema = schema_with(place, others)
    assert excess(weighed(schema, [name for name in schema.names if name != "place"], weights)) <= 1e-3
