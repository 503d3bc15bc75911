"""Invented data, their neighbours, and what these may change in what is measured, at what cost."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from residua._arrays import Integers
from residua.kernel.measurement import Measurement
from residua.plans import Plan
from residua.schema import Attribute, Binned, Categorical, Date, Hierarchy, Integer, Number, Schema

Cells = tuple[int, ...]
"""The cell of a record in each attribute of the schema."""


def answers(batch: Measurement, records: Sequence[Cells]) -> Integers:
    """What each block measures of these records without noise, modulo 2^64: (blocks, rows)."""
    total = np.zeros((len(batch.subsets), batch.rows), dtype=np.int64)
    for record in records:
        total += change(batch, record)
    return total


def change(batch: Measurement, record: Cells) -> Integers:
    """What one more record adds to each measured number: its column of every block (claim X-006)."""
    codes = np.array(record, dtype=np.int64)
    for part in batch.derived:
        codes[part.place] = part.classes()[tuple(record[at] for at in part.attributes)]
    seen = codes[batch.subsets]  # (blocks, axes)
    found = np.full((len(batch.subsets), 1), batch.multiplier, dtype=np.int64)
    if batch.within is not None:  # the block of its own cell sees it, no other does
        found *= (np.arange(len(found)) == codes[batch.within])[:, None]
    axis = 0
    for matrix in batch.matrices:
        at = np.zeros(len(seen), dtype=np.int64)
        cells = 1
        while cells < matrix.shape[1]:
            at = at * batch.sizes[axis] + seen[:, axis]
            cells *= batch.sizes[axis]
            axis += 1
        column = matrix[:, at].T  # (blocks, rows of this matrix)
        found = (found[:, :, None] * column[:, None, :]).reshape(len(found), -1)
    return found


def cost(batches: Sequence[Measurement], added: Sequence[Cells], removed: Sequence[Cells]) -> Fraction:
    """Exact privacy cost of some records coming and others going, from the integers and parameters."""
    total = Fraction(0)
    for batch in batches:
        apart = (answers(batch, added) - answers(batch, removed)).astype(object)
        sizes = (abs(apart) if batch.law == "laplace" else apart * apart).sum(axis=1)
        for size, owner in zip(sizes.tolist(), batch.owners.tolist(), strict=True):
            total += Fraction(size) / batch.parameters[owner]
    return total


def dearest(
    batches: Sequence[Measurement], options: Sequence[Sequence[int]], chance: np.random.Generator
) -> Cells:
    """A record that costs as much as a short search finds: random ones, then the best of each attribute."""
    drawn = [tuple(int(chance.choice(cells)) for cells in options) for _ in range(8)]
    best = max(drawn, key=lambda cells: cost(batches, [cells], []))
    for at, cells in enumerate(options):
        tried = [(*best[:at], cell, *best[at + 1 :]) for cell in _some(cells, chance)]
        best = max([best, *tried], key=lambda cells: cost(batches, [cells], []))
    return best


def _some(cells: Sequence[int], chance: np.random.Generator) -> Sequence[int]:
    return cells if len(cells) <= 8 else sorted({cells[0], cells[-1], *chance.choice(cells, 6).tolist()})


RECORDS = 7
FEW = 6  # attributes whose policies are tried
NOWHERE = "(no such value \N{SNOWMAN})"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Data beside the base data: what it tries, the data, and the records that are counted of them.

    `counted` is None where the schema's policy refuses the data.
    """

    what: str
    data: object
    counted: tuple[Cells, ...] | None


def base_records(schema: Schema, chance: np.random.Generator) -> list[Cells]:
    """A few records inside the schema."""
    options = [cells_of(attribute) for attribute in schema.attributes]
    return [tuple(int(chance.choice(cells)) for cells in options) for _ in range(RECORDS)]


def cells_of(attribute: Attribute) -> Sequence[int]:
    """Cells that records are put into; of a quantity, which is shared out among cells, its two ends."""
    if attribute.unit == 1:
        return range(attribute.inner_size)
    return (0, attribute.inner_size - 1 - (attribute.codes - 1 > _last(attribute)))


def _last(attribute: Any) -> int:
    """The code of the highest value."""
    return int(attribute.steps[-1]) if isinstance(attribute, Number) else attribute.codes - 1


def neighbours_of(plan: Plan, base: Sequence[Cells], chance: np.random.Generator) -> Iterator[Neighbour]:
    """Neighbours of base data under the plan's unit, as codes and as values, and with values outside."""
    schema, people = plan.schema, plan.unit.max_records
    options = [cells_of(attribute) for attribute in schema.attributes]
    dear = dearest(plan.batches, options, chance)
    other = tuple(int(chance.choice(cells)) for cells in options)
    coming = [dear] * people
    whom = "a record" if people == 1 else f"a person of {people} records"
    if plan.unit.replacing:
        going = list(base[people:])
        yield inside(schema, f"{whom} replaced by the dearest", coming + going)
        yield inside(schema, f"{whom} replaced by another", [other] * people + going)
    else:
        yield inside(schema, f"{whom} added, the dearest", [*base, *coming])
        yield inside(schema, f"{whom} added", [*base, *[other] * people])
        yield inside(schema, f"{whom} removed", list(base[people:]))
        yield inside(schema, "a record removed from the end", list(base[:-1]))
    if can_say(schema):
        again = [dear, *base[1:]] if plan.unit.replacing else [*base, dear]
        yield Neighbour("values instead of codes", columns_of(schema, again), tuple(again))
    yield from _outside(schema, base, other, replacing=plan.unit.replacing)


def codes(schema: Schema, records: Sequence[Cells]) -> Any:
    """Records as an array of codes: cells, but of a quantity the number of steps."""
    found = np.array(records, dtype=np.int64).reshape(len(records), len(schema.attributes))
    for at, attribute in enumerate(schema.attributes):
        if attribute.unit > 1:
            inside = found[:, at] == cells_of(attribute)[1]
            found[inside, at] = _last(attribute)
    return found


def inside(schema: Schema, what: str, records: Sequence[Cells]) -> Neighbour:
    """These records as an array of codes."""
    return Neighbour(what, codes(schema, records), tuple(records))


def _outside(schema: Schema, base: Sequence[Cells], record: Cells, *, replacing: bool) -> Iterator[Neighbour]:
    """One record with a code or a value outside an attribute, or none, under the attribute's policy."""
    kept = list(base[1:]) if replacing else list(base)
    spoken = can_say(schema)
    for at, attribute in list(enumerate(schema.attributes))[:FEW]:
        policy, size = attribute.outside, attribute.size
        nearest = {"below": 0, "above": cells_of(attribute)[-1]}
        for where, code in (("below", -3), ("above", attribute.codes + 3)):
            fate = {"drop": None, "other": size - 1, "clip": nearest[where]}.get(policy, -1)
            given = codes(schema, [*kept, (*record[:at], code, *record[at + 1 :])])
            yield _under(f"a code {where} the schema, policy {policy}", given, kept, record, at, fate)
        for what, value, lot in strangers(attribute) if spoken else ():
            columns = columns_of(schema, [*kept, record])
            columns[schema.names[at]][-1] = value
            yield _under(what, columns, kept, record, at, lot)


def strangers(attribute: Attribute) -> Iterator[tuple[str, object, int | None]]:
    """Values that have no cell: what each is, and the cell it gets; None if dropped, -1 if refused."""
    if isinstance(attribute, Number):  # has no value that is said, but its ends
        return
    policy = attribute.outside
    fate = {"drop": None, "other": attribute.size - 1}.get(policy, -1)
    yield f"a missing value, policy {policy}", None, attribute.size - 1 if policy == "missing" else fate
    clipped = attribute.cell(_nearest(attribute)) if policy == "clip" else fate
    yield f"a value outside, policy {policy}", _stranger(attribute), clipped


def _under(
    what: str, data: object, kept: Sequence[Cells], record: Cells, at: int, fate: int | None
) -> Neighbour:
    """The neighbour whose last record has this cell in one attribute: None if dropped, -1 if refused."""
    if fate == -1:
        return Neighbour(what, data, None)
    counted = [] if fate is None else [(*record[:at], fate, *record[at + 1 :])]
    return Neighbour(what, data, (*kept, *counted))


def can_say(schema: Schema) -> bool:
    """Whether values of all attributes can be invented; of kinds that users made, only codes can."""
    kinds = (Integer, Categorical, Binned, Date, Hierarchy, Number)
    return all(isinstance(each, kinds) for each in schema.attributes)


def written(columns: Mapping[str, Sequence[Any]], path: Path) -> Path:
    """A CSV file of columns."""
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([columns, *zip(*columns.values(), strict=True)])
    return path


def columns_of(schema: Schema, records: Sequence[Cells]) -> dict[str, list[Any]]:
    """Records as columns of values."""
    return {
        name: [_value(attribute, record[at]) for record in records]
        for at, (name, attribute) in enumerate(zip(schema.names, schema.attributes, strict=True))
    }


def _value(attribute: Any, cell: int) -> object:
    """A value that a cell stands for."""
    if isinstance(attribute, Integer):
        return attribute.low + cell
    if isinstance(attribute, Binned):
        return attribute.edges[cell]
    if isinstance(attribute, Number):
        return float(attribute.high if cell else attribute.low)
    return attribute.values[cell] if isinstance(attribute, Categorical) else attribute.label(cell)


def _nearest(attribute: Any) -> object:
    """The value of the cell nearest to the stranger."""
    low = isinstance(attribute, Binned) and attribute.above
    return _value(attribute, 0 if low else attribute.inner_size - 1)


def _stranger(attribute: Any) -> object:
    """A value that an attribute has no cell for, above all that it has, or below where it is open above."""
    if isinstance(attribute, Integer):
        return attribute.high + 7
    if isinstance(attribute, Binned):
        return attribute.edges[0] - 1 if attribute.above else attribute.edges[-1] + 1
    if isinstance(attribute, Categorical) and not isinstance(attribute.values[0], str):
        return max(map(int, attribute.values)) + 7
    return NOWHERE
