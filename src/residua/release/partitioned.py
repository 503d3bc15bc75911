"""Answers written in parts, one for each node of a level: memory for one state, whatever the nation."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np

from residua._arrays import Integers
from residua.errors import DataError
from residua.linalg.classes import Classes
from residua.workload import Table, Workload
from residua.workload.views import classes_of

PART, ALL = "answers.parquet", "all"


def write_parts(
    folder: str | os.PathLike[str], work: Workload, by: str, write: Callable[[Path, Workload], None]
) -> None:
    """Write tables to a folder that is either whole or not there: `place.state=NY/answers.parquet`.

    Tables that do not tell the nodes apart, such as those of the nation, go to `place.state=all`.
    """
    target = Path(folder)
    if target.exists():
        raise DataError(f"{target} is there already; name a folder that is not")
    unfinished = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        for label, tables in parts_of(work, by):
            part = unfinished / f"{quote(by, safe='. ')}={quote(label, safe=' ')}"
            part.mkdir(parents=True)
            write(part / PART, tables)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def parts_of(work: Workload, by: str) -> Iterator[tuple[str, Workload]]:
    """The tables within each node of a level, by its label, and first those that are about all of them."""
    schema, at = work.schema, work.schema.resolve(by)[0]
    nodes, labels = schema.classes(by), schema[by].labels()
    groups = list(work.groups())
    apart = [_tells_apart(group, at, nodes) for group in groups]
    if not all(apart):
        rest = tuple(group for group, own in zip(groups, apart, strict=True) if not own)
        yield ALL, Workload(schema, rest)
    split = [group for group, own in zip(groups, apart, strict=True) if own]
    for number, label in enumerate(labels if split else ()):
        yield label, Workload(schema, tuple(_within(work, group, at, nodes == number) for group in split))


def _tells_apart(group: Table, at: int, nodes: Integers) -> bool:
    """Whether every query of a table is about one node."""
    for factor in group.factors:
        if at in factor.attributes:
            own = classes_of(factor.queries, factor.attributes.index(at))
            return bool(np.array_equal(nodes[own.first][own.classes], nodes))
    return False


def _within(work: Workload, group: Table, at: int, cells: Integers) -> Table:
    """The queries of a table on some cells of an attribute."""
    # What restricts tables loads sqlglot, which takes as long as the rest of the package.
    from residua.workload.sql.conditions import Region
    from residua.workload.sql.factors import factors

    inside = Classes(cells.astype(np.int64))
    mask = np.array([bool(cells[first]) for first in inside.first])
    return replace(group, factors=factors(work.schema, group.factors, [Region((at,), (inside,), mask)]))
