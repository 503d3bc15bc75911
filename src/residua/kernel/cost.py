"""The privacy cost of one record, or one person, from integers and their noise alone, never rounded down.

A block alone costs its dearest cell, or its dearest pair of cells (`block`). The dearest of one block need
not be that of another, so the costs of several are added up before the largest is taken (claim K-004): they
become whole numbers of grains, each rounded up, in tables over the axes that blocks look at. Places of an
axis that never cost more than another are left out. What is left is added up over all joint places of as many
axes as the limit allows; the largest sums of several such clusters are added.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from residua._arrays import Integers
from residua.errors import BudgetError
from residua.kernel.measurement import (
    GRAIN_BITS,
    Measurement,
    block_cost,
    column_costs,
    cost_power,
    costs_by_cell,
    grain_of,
)
from residua.kernel.paths import paths_cost
from residua.kernel.person import separate_person_cost
from residua.linalg.classes import JointClasses
from residua.privacy import Budget, Unit
from residua.privacy.unit import Person
from residua.schema import Schema

MOST_BLOCKS = 2**11  # beyond which each is bounded alone
OWN = 2**18  # cells of a block, or pairs of them, beyond which it is bounded alone
TOGETHER = 2**31  # tables times joint places, of all blocks
APART = 2**26  # the same, of each cluster where those of all blocks are more
CLUSTER = 2**20  # joint places of such a cluster
LOOKED_AT = 64  # clusters, for one that has room
AT_ONCE = 2**18  # joint places in one array: it stays in the processor's cache
DEAREST = 2**6  # places of an axis that are compared with all others

Axis = int | JointClasses
"""What a block looks at: an attribute, or a derived one whose attributes have too many joint cells."""
Key = tuple[int, ...]
"""Numbers of axes, ascending."""
TableRun = dict[Key, Integers]
"""Costs in grains by the axes that they depend on, (places of each axis...): a place is a cell or a pair."""


def person_cost(measurements: Sequence[Measurement], person: Person) -> Fraction:
    """Privacy cost of what is kept of one person, added, removed or replaced, or a little more (K-010)."""
    unit = person.unit
    record = replaced_cost(measurements) if unit.replacing else added_cost(measurements)
    if unit.replacing and unit.id is not None:  # by a person of whom nothing is kept, perhaps
        record = max(record, added_cost(measurements))
    whole = int(person.records ** cost_power(measurements[0].law)) * record
    return min(whole, separate_person_cost(measurements, person)) if person.caps else whole


def refuse_dropped(batches: Sequence[Measurement], unit: Unit, schema: Schema, budget: Budget) -> None:
    """BudgetError where a record may be replaced by one that is dropped, which costs more (P-032)."""
    if unit.id is not None or all(attribute.outside != "drop" for attribute in schema.attributes):
        return
    gone = person_cost(batches, Person(Unit(unit.max_records)))
    if gone > Person.of(unit, schema).allowance(budget):
        raise BudgetError(
            "a record whose new values are dropped is missing from every count, which costs more than the "
            f"{budget!r} that this plan states; declare outside='other' instead of 'drop', or plan with "
            "neighbours='add_remove'"
        )


def added_cost(measurements: Sequence[Measurement]) -> Fraction:
    """Privacy cost of adding or removing one record, or a little more (claim K-005).

    The largest entry of the privacy matrix where the noise is Gaussian, an epsilon where it is Laplace.
    """
    return _cost(measurements, False)


def replaced_cost(measurements: Sequence[Measurement]) -> Fraction:
    """Privacy cost of replacing one record by any other, or a little more (claim K-005)."""
    return _cost(measurements, True)


def _cost(measurements: Sequence[Measurement], replaced: bool) -> Fraction:
    if len({each.law for each in measurements}) > 1:
        raise ValueError("costs of Gaussian and of Laplace noise do not add up")
    anywhere = [each for each in measurements if each.within is None]
    within = [each for each in measurements if each.within is not None]
    alone = _alone(anywhere, replaced)
    whole = sum(alone, Fraction(0))
    if whole and 1 < sum(len(each.subsets) for each in anywhere) <= MOST_BLOCKS:
        whole = min(whole, _joint(anywhere, alone, replaced))
    return whole + paths_cost(within, replaced=replaced) if within else whole


def _alone(measurements: Sequence[Measurement], replaced: bool) -> list[Fraction]:
    """What the blocks of each measurement cost by themselves, added up."""
    known: dict[object, int] = {}
    found = []
    for each in measurements:
        key = (each.multiplier, *((matrix.shape, matrix.tobytes()) for matrix in each.matrices))
        if key not in known:
            known[key] = block_cost(each, replaced=replaced)
        blocks = np.bincount(each.owners, minlength=len(each.parameters)).tolist()
        pairs = zip(blocks, each.parameters, strict=True)
        found.append(sum((many * known[key] / parameter for many, parameter in pairs), Fraction(0)))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Blocks of a measurement that cost the same at noise of parameter 1, each on axes of its own."""

    measurement: Measurement
    costs: Integers  # (places of each axis...), in units of `unit`
    unit: int
    axes: Sequence[tuple[Axis, ...]]
    owners: Sequence[int]  # whose noise each block has

    def in_grains(self, owner: int, places: Sequence[list[int]], grain: Fraction) -> Integers:
        """Costs at some places of each axis with noise of one parameter, rounded up to whole grains."""
        each = self.unit / self.measurement.parameters[owner] / grain
        chosen = self.costs[np.ix_(*places)].squeeze().astype(object)
        return np.asarray(-(-chosen * each.numerator // each.denominator), dtype=np.int64)


def _joint(measurements: Sequence[Measurement], alone: Sequence[Fraction], replaced: bool) -> Fraction:
    """A bound on the cost of the dearest cell, or pair of cells, of all blocks together.

    Exact, up to a grain for each block, where all attributes in use have few joint cells.
    """
    whole, rest = sum(alone, Fraction(0)), Fraction(0)
    runs: list[_Run] = []
    for each, own in zip(measurements, alone, strict=True):
        found = _runs(each, replaced)
        runs += found
        rest += Fraction(0) if found else own
    grain = grain_of(whole)
    return rest + grain * sum(_largest(cluster) for cluster in _clusters(_tables(runs, grain)))


def _runs(measurement: Measurement, replaced: bool) -> list[_Run]:
    """The blocks of a measurement by what they look at; none if that is too much, or costs all the same."""
    most = math.isqrt(OWN) if replaced else OWN
    columns = (column_costs(measurement.law, matrix) for matrix in measurement.matrices)
    level = measurement.cells == 1 if replaced else all(own.min() == own.max() for own in columns)
    if level or measurement.cells > most:
        return []
    by_cell = costs_by_cell(measurement, replaced=replaced)
    unit = 2 ** max(0, int(by_cell.max()).bit_length() - GRAIN_BITS)
    by_cell = np.asarray(-(-by_cell // unit), dtype=np.int64)
    derived = {part.place: part for part in measurement.derived}
    alike: dict[tuple[JointClasses | None, ...], list[int]] = {}
    for number, subset in enumerate(measurement.subsets.tolist()):
        alike.setdefault(tuple(derived.get(at) for at in subset), []).append(number)
    multiple = measurement.multiplier ** cost_power(measurement.law)
    runs = []
    for parts, numbers in alike.items():
        cells, opened = _looks_at(measurement.sizes, parts, most)
        axes = [_axes(subset, opened) for subset in measurement.subsets[numbers].tolist()]
        owners = measurement.owners[numbers].tolist()
        costs = _over(by_cell, cells)
        runs.append(_Run(measurement, costs, unit * multiple, axes, owners))
    return runs


def _looks_at(
    sizes: Sequence[int], parts: Sequence[JointClasses | None], most: int
) -> tuple[Integers, list[tuple[Axis, ...] | None]]:
    """Which of a block's cells joint cells of its axes are in, (sizes...), and axes, None for the attribute.

    A derived attribute becomes those that it is made of where all of them have few joint cells, else an axis
    of its own, as if it had nothing to do with them: that only adds combinations. One of one cell is no axis.
    """
    joint = math.prod(size if part is None else part.cells for size, part in zip(sizes, parts, strict=True))
    cells = np.zeros((), dtype=np.int64)
    axes: list[tuple[Axis, ...] | None] = []
    for size, part in zip(sizes, parts, strict=True):
        if size == 1:
            axes.append(())
        elif part is not None and joint <= most:
            cells = np.add.outer(size * cells, part.classes())
            axes.append(part.attributes)
        else:
            cells = np.add.outer(size * cells, np.arange(size))
            axes.append(None if part is None else (part,))
    return cells, axes


def _axes(subset: Sequence[int], own: Sequence[tuple[Axis, ...] | None]) -> tuple[Axis, ...]:
    pairs = zip(subset, own, strict=True)
    return tuple(axis for at, axes in pairs for axis in ((at,) if axes is None else axes))


def _over(costs: Integers, cells: Integers) -> Integers:
    """Costs of a block's cells, or pairs of cells, over its axes: (cells of each axis, or pairs of them)."""
    if costs.ndim == 1:
        return costs[cells]
    flat, sizes = cells.reshape(-1), cells.shape
    tensor = costs[flat][:, flat].reshape((*sizes, *sizes))
    order = [place for axis in range(len(sizes)) for place in (axis, len(sizes) + axis)]
    return tensor.transpose(order).reshape([size**2 for size in sizes])


def _tables(runs: Sequence[_Run], grain: Fraction) -> TableRun:
    """The costs of all blocks, those on the same axes added up, without places that do not matter."""
    kept = _places(runs)
    numbers = {axis: number for number, axis in enumerate(kept)}
    known: dict[object, Integers] = {}
    tables: TableRun = {}
    for at, run in enumerate(runs):
        for axes, owner in zip(run.axes, run.owners, strict=True):
            places = [kept[axis] for axis in axes]
            key = (at, owner, *map(id, places))
            if key not in known:
                known[key] = run.in_grains(owner, places, grain)
            mine = [numbers[axis] for axis, own in zip(axes, places, strict=True) if len(own) > 1]
            table, name = known[key].transpose(np.argsort(mine)), tuple(sorted(mine))
            _add(tables, name, table)
    return tables


def _places(runs: Sequence[_Run]) -> dict[Axis, list[int]]:
    """The places of each axis that matter: no other costs as much or more in every block on it."""
    users: dict[Axis, set[tuple[int, int]]] = {}
    for number, run in enumerate(runs):
        for axes in run.axes:
            for place, axis in enumerate(axes):
                users.setdefault(axis, set()).add((number, place))
    known: dict[frozenset[tuple[int, int]], list[int]] = {}
    found = {}
    for axis, uses in users.items():
        key = frozenset(uses)
        if key not in known:
            known[key] = _dearest([np.moveaxis(runs[at].costs, place, 0) for at, place in sorted(uses)])
        found[axis] = known[key]
    return found


def _dearest(tables: Sequence[Integers]) -> list[int]:
    """Places along the first axis, without many that cost less than another throughout."""
    flat = [table.reshape(len(table), -1) for table in tables]
    total = sum(table.sum(axis=1, dtype=np.float64) / table.max() for table in flat if table.any())
    left = np.argsort(-np.asarray(total), kind="stable")
    kept: list[int] = []
    while len(left) and len(kept) < DEAREST:
        kept.append(int(left[0]))
        left = left[np.any([(table[left] > table[left[0]]).any(axis=1) for table in flat], axis=0)]
    return sorted([*kept, *left.tolist()])


def _clusters(tables: TableRun) -> list[TableRun]:
    """All tables if their axes have few joint places; else sets, each table in one of the last with room."""
    sizes = _sizes(tables)
    if len(tables) * math.prod(sizes.values()) <= TOGETHER:
        return [tables]
    limit = min(CLUSTER, APART // len(tables))
    found: list[tuple[dict[int, int], TableRun]] = []
    for key in sorted(tables, key=lambda key: (-tables[key].size, key)):
        for axes, own in found[-LOOKED_AT:]:
            more = {axis: sizes[axis] for axis in key if axis not in axes}
            if math.prod(axes.values()) * math.prod(more.values()) <= limit:
                axes.update(more)
                own[key] = tables[key]
                break
        else:
            found.append(({axis: sizes[axis] for axis in key}, {key: tables[key]}))
    return [own for _, own in found]


def _largest(tables: TableRun, known: int = 0) -> int:
    """The largest sum of the tables over all joint places of their axes, or `known` if that is more."""
    sizes = _sizes(tables)
    if math.prod(sizes.values()) <= AT_ONCE:
        return max(known, int(_added_up(tables).max()))
    # One axis after the other is fixed, without places whose largest costs add up to no more than is known.
    axis = max(sizes, key=lambda each: (sizes[each], sum(each in key for key in tables)))
    bounds = np.zeros(sizes[axis], dtype=np.int64)
    for key, table in tables.items():
        others = tuple(at for at, each in enumerate(key) if each != axis)
        bounds += table.max(axis=others)
    for place in np.argsort(-bounds, kind="stable").tolist():
        if bounds[place] > known:
            known = _largest(_fixed(tables, axis, place), known)
    return known


def _fixed(tables: TableRun, axis: int, place: int) -> TableRun:
    """The tables at one place of an axis, over the others."""
    found: TableRun = {}
    for key, table in tables.items():
        if axis in key:
            table = np.take(table, place, axis=key.index(axis))
            key = tuple(each for each in key if each != axis)
        _add(found, key, table)
    return found


def _add(tables: TableRun, key: Key, table: Integers) -> None:
    tables[key] = tables[key] + table if key in tables else table


def _added_up(tables: TableRun) -> Integers:
    """The sum of several tables over all their axes: those over few axes first, while the sum is small."""
    sizes = _sizes(tables)
    axes = sorted(sizes)
    total = np.zeros((), dtype=np.int64) + tables.get((), 0)
    for last, axis in enumerate(axes):
        total = np.repeat(total[..., None], sizes[axis], axis=-1)
        for key, table in tables.items():
            if key and key[-1] == axis:
                total += table.reshape([sizes[each] if each in key else 1 for each in axes[: last + 1]])
    return total


def _sizes(tables: TableRun) -> dict[int, int]:
    """Places of each axis."""
    return {axis: size for key, table in tables.items() for axis, size in zip(key, table.shape, strict=True)}
