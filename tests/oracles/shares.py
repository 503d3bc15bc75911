"""Shares of cells in exact fractions, one record at a time, to compare weights, costs and sums with."""

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from itertools import product
from math import comb

import numpy as np

import residua as rs


def shares(attribute: rs.schema.Attribute, code: int) -> list[Fraction]:
    """A record's share of each cell of one attribute."""
    found = [Fraction(0)] * attribute.size
    if not isinstance(attribute, rs.Number):
        found[code] = Fraction(1)
    elif code > attribute.steps[-1]:
        found[-1] = Fraction(1)
    else:
        steps, m = attribute.steps, attribute.degree
        at = max(number for number in range(len(steps) - 1) if steps[number] <= code)
        t = Fraction(code - steps[at], steps[at + 1] - steps[at])
        for i in range(m + 1):
            found[at * (m + 1) + i] = comb(m, i) * t**i * (1 - t) ** (m - i)
    assert sum(found) == 1
    return found


def weights(schema: rs.Schema, record: Sequence[int], attributes: Sequence[int]) -> dict[int, int]:
    """What one record adds to the cells of some attributes, the last fastest: whole, without zeros."""
    each = [(schema.attributes[at], shares(schema.attributes[at], record[at])) for at in attributes]
    found = {}
    for cells in product(*(range(own.size) for own, _ in each)):
        weight = Fraction(1)
        place = 0
        for cell, (own, part) in zip(cells, each, strict=True):
            weight *= part[cell] * own.unit
            place = place * own.size + cell
        if weight:
            assert weight.denominator == 1
            found[place] = int(weight)
    return found


def joint_shares(schema: rs.Schema, records: np.ndarray, attributes: Sequence[int]) -> np.ndarray:
    """Shares of the cells of some attributes, (records, cells), in floats."""
    tables = {
        at: {code: np.array(shares(schema.attributes[at], code), dtype=float) for code in set(records[:, at])}
        for at in attributes
    }
    parts = [np.stack([tables[at][code] for code in records[:, at]]) for at in attributes]
    ones = np.ones((len(records), 1))
    return reduce(lambda a, b: (a[:, :, None] * b[:, None, :]).reshape(len(a), -1), parts, ones)
