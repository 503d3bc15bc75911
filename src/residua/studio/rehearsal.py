"""A rehearsal: what would be published of invented people, drawn anew as often as one likes.

The people are invented from the schema alone. The noise is simulated, and the answers take the way that
those of a release take.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import residua as rs
from residua.answering.protocol import apply_queries
from residua.errors import WorkloadError
from residua.plans import Plan
from residua.release import Release
from residua.report.grid import grid_of
from residua.schema import Schema
from residua.studio.figures import LEVEL
from residua.workload import Table, Workload

MOST_PEOPLE = 200_000  # that are invented: more would only take longer
MOST_CELLS = 1_500  # of a table that is looked at
MOST_VALUES = 1_000  # of a number that are told apart
MOST_COUNTED = 2_000_000  # cells whose true counts are held
MOST_MEASURED = 4_000_000  # numbers that one throw measures


def invented(schema: Schema, people: int, seed: int) -> NDArray[np.int32]:
    """Codes of people who do not exist, shape (people, attributes): uneven, as real ones are."""
    draw = np.random.default_rng(seed)
    columns = []
    for codes in schema.codes:
        size = min(codes, MOST_VALUES)
        place = (np.arange(size) + 0.5) / size
        middle, width = draw.uniform(0.2, 0.6), draw.uniform(0.2, 0.6)
        shares = np.exp(-(((place - middle) / width) ** 2)) * draw.uniform(0.6, 1.4, size)
        columns.append(draw.choice(size, people, p=shares / shares.sum()) * (codes // size))
    return np.stack(columns, axis=1).astype(np.int32)


def rehearse(plan: Plan, number: int, people: int, seed: int) -> dict[str, Any]:
    """One table of the plan as it would be published, beside the truth about the invented people."""
    group = _chosen(plan, number)
    if sum(len(each.subsets) * each.rows for each in plan.batches) > MOST_MEASURED:
        raise WorkloadError("this plan measures too much for a quick rehearsal; try it with fewer tables")
    count = min(max(people, 1), MOST_PEOPLE)
    codes = invented(plan.schema, count, seed=1)  # the same people for every throw of the dice
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=seed))
    grid = grid_of(group, plan.schema)
    values, half = _answers(release, group)
    truth = _truth(plan, codes, group)
    return {
        "name": group.name,
        "people": count,
        "rowNames": grid.row_names,
        "columnNames": grid.column_names,
        "rows": grid.rows,
        "columns": grid.columns,
        "values": values[grid.places].tolist(),
        "halves": half[grid.places].tolist(),
        "truth": None if truth is None else truth[grid.places].tolist(),
        "below": _margin(release, grid.below),
        "beside": _margin(release, grid.beside),
        "corner": _margin(release, grid.corner),
    }


def _chosen(plan: Plan, number: int) -> Table:
    for at, group in enumerate(plan.workload.groups()):
        if at == number:
            if group.count > MOST_CELLS:
                raise WorkloadError(f"{group.name!r} has {group.count:,} numbers, too many to look at here")
            return group
    raise WorkloadError(f"there is no table {number + 1} in this plan")


def _answers(release: Release, group: Table) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Published numbers, and half the width of their intervals."""
    rows = release.answers(Workload(release.plan.schema, (group,)), level=LEVEL)
    value, upper = (rows[name].to_numpy().astype(np.float64) for name in ("value", "upper"))
    return value, upper - value


def _margin(release: Release, group: Table | None) -> dict[str, Any] | None:
    if group is None:
        return None
    values, half = _answers(release, group)
    return {"values": values.tolist(), "halves": half.tolist()}


def _truth(plan: Plan, codes: NDArray[np.int32], group: Table) -> NDArray[np.float64] | None:
    """The true numbers of the invented people, where the table is made of few cells."""
    schema, own = plan.schema, tuple(sorted(group.attributes))
    sizes = [schema.sizes[at] for at in own]
    if math.prod(sizes) > MOST_COUNTED:
        return None
    (weights,) = rs.engines.Memory(processes=1).open(schema, codes).tally([own])
    counts = weights.reshape(sizes) / math.prod(schema.units[at] for at in own)
    return apply_queries(counts.transpose([own.index(at) for at in group.attributes]), group.factors).reshape(
        -1
    )
