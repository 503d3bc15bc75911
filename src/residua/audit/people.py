"""Invented persons with ids, some with more records than are counted, and their neighbours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from residua.audit.neighbours import FEW, Cells, Neighbour, cells_of, codes, columns_of, dearest, strangers
from residua.plans import Plan
from residua.privacy.unit import Person
from residua.schema import Schema

MOST = 12  # records of a person that has many
WORD = 2**64


@dataclass(frozen=True, slots=True)
class Visit:
    """A record with its id; nobody's if that is empty."""

    who: str
    cells: Cells


def base_people(plan: Plan, chance: np.random.Generator) -> list[Visit]:
    """A few persons: one with more records than are counted, if that is not very many, and three others."""
    many = min(plan.unit.max_records + 2, MOST)
    return [Visit(who, _record(plan.schema, chance)) for who in (*["a"] * many, "b", "b", "c", "d")]


def people(plan: Plan, what: str, visits: Sequence[Visit]) -> Neighbour:
    """These records as columns of values and of ids."""
    columns = columns_of(plan.schema, [each.cells for each in visits])
    columns[str(plan.unit.id)] = [each.who for each in visits]
    refused = plan.unit.missing_id == "error" and any(not each.who for each in visits)
    return Neighbour(what, columns, None if refused else tuple(_counted(plan, visits)))


def people_beside(plan: Plan, base: Sequence[Visit], chance: np.random.Generator) -> Iterator[Neighbour]:
    """Neighbours of base data: a whole person comes, goes or is replaced, with and without cells and ids."""
    rest = [each for each in base if each.who != "a"]
    here, coming = (rest, "a") if plan.unit.replacing else (list(base), "new")
    how, noun = ("replaced by" if plan.unit.replacing else "added with"), f"one {plan.unit.noun}"
    most = min(plan.unit.max_records, MOST)
    options = [cells_of(attribute) for attribute in plan.schema.attributes]
    dear, other = dearest(plan.batches, options, chance), _record(plan.schema, chance)
    patterns = {
        "one dear record many times": [dear] * (most + 1),
        "dear records of different classes": [_elsewhere(plan, dear, at) for at in range(2 * most)],
        "many records": [_record(plan.schema, chance) for _ in range(2 * most + 1)],
        "one record": [other],
    }
    for what, cells in patterns.items():
        visits = [*here, *(Visit(coming, each) for each in cells)]
        yield people(plan, f"{noun} {how} {what}", [visits[at] for at in chance.permutation(len(visits))])
    if not plan.unit.replacing:
        yield people(plan, f"{noun} of many records removed", rest)
        yield people(plan, f"{noun} of one record removed", base[:-1])
    yield people(plan, f"a record without an id, policy {plan.unit.missing_id}", [*here, Visit("", other)])
    yield from _outside(plan, here, Visit(coming, other))


def _outside(plan: Plan, here: Sequence[Visit], own: Visit) -> Iterator[Neighbour]:
    """A person with one record that has no value in an attribute, or one outside it."""
    for at, attribute in list(enumerate(plan.schema.attributes))[:FEW]:
        for what, value, fate in strangers(attribute):
            columns = columns_of(plan.schema, [each.cells for each in (*here, own)])
            columns[plan.schema.names[at]][-1] = value
            columns[str(plan.unit.id)] = [each.who for each in (*here, own)]
            cells = [] if fate is None else [(*own.cells[:at], fate, *own.cells[at + 1 :])]
            yield Neighbour(what, columns, None if fate == -1 else (*_counted(plan, here), *cells))


def _record(schema: Schema, chance: np.random.Generator) -> Cells:
    return tuple(int(chance.choice(cells_of(attribute))) for attribute in schema.attributes)


def _elsewhere(plan: Plan, cells: Cells, number: int) -> Cells:
    """The record in another class of each attribute that has a cap."""
    found = list(cells)
    for cap in Person.of(plan.unit, plan.schema).caps:
        options = cells_of(plan.schema.attributes[cap.attribute])
        firsts = {int(cap.classes[cell]): cell for cell in reversed(options)}
        found[cap.attribute] = sorted(firsts.values())[number % len(firsts)]
    return tuple(found)


def _counted(plan: Plan, visits: Sequence[Visit]) -> list[Cells]:
    """The records that are counted, person by person: the rule in words (claim E-010), one by one."""
    found = []
    for who in dict.fromkeys(each.who for each in visits):
        own = [each.cells for each in visits if each.who == who]
        if who:
            found += _first(plan, own)
        elif plan.unit.missing_id == "own":
            found += own
    return found


def _first(plan: Plan, records: Sequence[Cells]) -> list[Cells]:
    """The first of a person's records in the order of their marks, up to every cap and then to the bound."""
    person, mixes = Person.of(plan.unit, plan.schema), [_mix(plan.schema, each) for each in records]
    salt = _scrambled(sum(mixes) % WORD)
    order = sorted(range(len(records)), key=lambda at: _scrambled(mixes[at] ^ salt))
    for cap in person.caps:
        classes = [int(cap.classes[records[at][cap.attribute]]) for at in order]
        order = [at for n, at in enumerate(order) if classes[:n].count(classes[n]) < cap.most]
    return [records[at] for at in order[: person.unit.max_records]]


def _mix(schema: Schema, record: Cells) -> int:
    """A mix of a record's codes, which are packed into words of 64 bits."""
    words, used = [0], 0
    for code, many in zip(codes(schema, [record])[0].tolist(), schema.codes, strict=True):
        bits = (many - 1).bit_length()
        words, used = ([*words, 0], 0) if used + bits > 64 else (words, used)
        words[-1], used = words[-1] | code << used, used + bits
    found = 0
    for word in words:
        found = _scrambled((found + word) % WORD)
    return found


def _scrambled(word: int) -> int:
    for _ in range(2):
        word = (word ^ word >> 32) * 0xD6E8FEB86659FD93 % WORD
    return ((word ^ word >> 32) + 0x9E3779B97F4A7C15) % WORD
