"""The person tables of the 2010 Census Summary File 1 at the national level, from the Bureau's definitions.

P1, P3, P4, P5, P8, P9, P10, P11, P12, P12A-I, PCT12 and PCT12A-O: 4,151 counts, the number that the HDMM
paper states, over sex (2), Hispanic origin (2), race (any of six, 2^6 cells), age (0..114) and relationship
(17). None of these tables asks about relationship. SF1+ asks every count for the nation and for each of 51
states.
"""

from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

import residua as rs
from residua.workload import Table, Workload
from residua.workload.explicit import Explicit
from residua.workload.tables import Factor

Array = NDArray[np.float64]

ATTRIBUTES = {
    "sex": rs.Integer(0, 1),
    "hispanic": rs.Integer(0, 1),
    "race": rs.Integer(0, 63),
    "age": rs.Integer(0, 114),
    "relationship": rs.Integer(0, 16),
}
STATES = 51
FIVE_YEARS = (0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85, 115)
SINGLE_YEARS = (*range(101), 105, 110, 115)


def _cells(size: int, chosen: list[int]) -> Array:
    row = np.zeros(size)
    row[chosen] = 1.0
    return row


def _groups(edges: tuple[int, ...]) -> Array:
    return np.array([_cells(115, list(range(a, b))) for a, b in pairwise(edges)])


ALL_RACES = list(range(64))
ALONE = [1 << race for race in range(6)]
SEVERAL = [code for code in ALL_RACES if code.bit_count() > 1]
SEVEN = np.array([_cells(64, [code]) for code in ALONE] + [_cells(64, SEVERAL)])  # six alone, two or more
ONE = {name: np.ones((1, size)) for name, size in (("sex", 2), ("hispanic", 2), ("race", 64), ("age", 115))}
SEXES, BOTH = np.eye(2), np.concatenate([np.ones((1, 2)), np.eye(2)])
ADULT = _cells(115, list(range(18, 115)))[None]
HISPANIC, OTHERS = np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])


def _detailed_races() -> Array:
    """One race, each; two or more; of each number of races the sum and every combination: 70 counts."""
    rows = [_cells(64, ALONE), *(_cells(64, [code]) for code in ALONE), _cells(64, SEVERAL)]
    for many in range(2, 7):
        codes = [sum(1 << race for race in chosen) for chosen in combinations(range(6), many)]
        rows += [_cells(64, codes), *(_cells(64, [code]) for code in codes)]
    return np.array(rows)


def _tables() -> list[tuple[str, dict[str, Array]]]:
    """Every table as products of predicates on attributes."""
    detailed = _detailed_races()
    everyone = np.concatenate([np.ones((1, 64)), detailed])
    found: list[tuple[str, dict[str, Array]]] = [
        ("P1", {}),
        ("P3", {"race": np.concatenate([np.ones((1, 64)), SEVEN])}),
        ("P4", {"hispanic": BOTH}),
        ("P5", {"race": np.concatenate([np.ones((1, 64)), SEVEN]), "hispanic": SEXES}),
        ("P5", {}),
        ("P8", {"race": everyone}),
        ("P9", {"hispanic": BOTH}),
        ("P9", {"race": detailed, "hispanic": OTHERS}),
        ("P10", {"race": everyone, "age": ADULT}),
        ("P11", {"hispanic": BOTH, "age": ADULT}),
        ("P11", {"race": detailed, "hispanic": OTHERS, "age": ADULT}),
    ]
    for name, edges in (("P12", FIVE_YEARS), ("PCT12", SINGLE_YEARS)):
        nation: list[tuple[str, dict[str, Array]]] = [
            ("", {}),
            ("A-G", {"race": SEVEN}),
            ("H", {"hispanic": HISPANIC}),
        ]
        whites = {"race": SEVEN[:1], "hispanic": OTHERS}
        nation.append(("I", whites) if name == "P12" else ("I-O", {"race": SEVEN, "hispanic": OTHERS}))
        for suffix, who in nation:
            found.append((name + suffix, {**who, "sex": BOTH}))
            found.append((name + suffix, {**who, "sex": SEXES, "age": _groups(edges)}))
    return found


def sf1(*, by_state: bool = False) -> Workload:
    """SF1, or SF1+ where every count is asked for the nation and by state."""
    attributes = dict(ATTRIBUTES) | ({"state": rs.Integer(0, STATES - 1)} if by_state else {})
    schema = rs.Schema(attributes)
    states = np.concatenate([np.ones((1, STATES)), np.eye(STATES)])
    parts = []
    for name, predicates in _tables():
        asked = predicates | ({"state": states} if by_state else {})
        factors = tuple(
            Factor((schema.position(attribute),), Explicit((rows.shape[1],), rows, None, None))
            for attribute, rows in asked.items()
        )
        parts.append(Table(name, factors))
    return Workload(schema, tuple(parts))
