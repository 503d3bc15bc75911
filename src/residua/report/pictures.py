"""What a table asks for, in words, and how its numbers are laid out in a picture."""

import math

import numpy as np

from residua.report.contents import Picture
from residua.schema import Schema
from residua.workload import Factor, Identity, Table
from residua.workload.groupings import Partition

MOST_LINES = 40
MOST_SERIES = 4


def picture_of(group: Table, schema: Schema) -> Picture | None:
    """The layout of a table's picture, or None where it would not be readable.

    The factor with the most queries gives the lines; all others together give the series.
    """
    counts = [factor.queries.count for factor in group.factors]
    if not counts or group.count == 1:
        return None
    main = int(np.argmax(counts))
    others = [at for at in range(len(counts)) if at != main]
    if counts[main] > MOST_LINES or math.prod(counts[at] for at in others) > MOST_SERIES:
        return None
    places = np.moveaxis(np.arange(group.count).reshape(counts), main, 0).reshape(counts[main], -1)
    series = [""]
    for at in others:
        words = labels_of(group.factors[at], schema)
        series = [", ".join(filter(None, (before, word))) for before in series for word in words]
    axis = " x ".join(schema.names[at] for at in group.factors[main].attributes)
    return Picture(axis, tuple(labels_of(group.factors[main], schema)), tuple(series), places)


def labels_of(factor: Factor, schema: Schema) -> list[str]:
    """Words for each query of a factor; only the label where it asks for one cell."""
    if isinstance(factor.queries, Identity):
        return list(schema.attributes[factor.attributes[0]].labels())
    return [factor.describe(index, schema) for index in range(factor.queries.count)]


_ASKED = {
    "identity": "each {0}",
    "prefix": "{0} up to each value",
    "ranges": "every range of {0}",
    "circular": "every range of {0}, going round",
    "total": "",
    "predicates": "every set of values of {0}",
}


def asked_words(group: Table, schema: Schema) -> str:
    """What a table asks for, without the names of families: `each sex; age up to each value`."""
    words = [_factor_words(factor, schema) for factor in group.factors]
    return "; ".join(filter(None, words)) or "the number of records"


def _factor_words(factor: Factor, schema: Schema) -> str:
    name = " and ".join(schema.names[at] for at in factor.attributes)
    queries = factor.queries
    if queries.title in _ASKED:
        return _ASKED[queries.title].format(name)
    if isinstance(queries, Partition):
        return f"each {queries.level} of {name}" if queries.level else f"{queries.count:,} groups of {name}"
    return f"{queries.count:,} {'count' if queries.count == 1 else 'counts'} by {name}"
