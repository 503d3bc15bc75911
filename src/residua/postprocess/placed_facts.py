"""Public facts about places, known totals of nodes and places where nobody can be; plans given facts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array, Flags, Integers, Subset, settle
from residua.answering.asked_places import PlaceQueries, without_place
from residua.answering.given import AGREEMENT, Given, KnownPlaces, given_places
from residua.answering.places import Places
from residua.answering.protocol import Answerer
from residua.errors import DataError, WorkloadError
from residua.linalg.trees import Nest
from residua.plans import Plan
from residua.postprocess.facts import Fact, asked_at_all, facts_of, margin_of, told
from residua.postprocess.pieces import largest_sets
from residua.schema import Schema
from residua.strategy.strategy import Strategy
from residua.workload import Factor, Identity, Partition, Table


@dataclass(frozen=True, eq=False)
class PlacedFacts:
    """All facts by places: what is known of nodes, and cells of the others that cannot occur anywhere."""

    known: tuple[KnownPlaces, ...]
    masks: Mapping[Subset, Flags]

    @classmethod
    def of(cls, facts: Sequence[Fact], schema: Schema, place: int) -> "PlacedFacts":
        """The facts; refused where they tie places to cells that cannot occur, or contradict each other."""
        nest = every_level(schema, place)
        known: list[KnownPlaces] = []
        masks: dict[Subset, Flags] = {}
        for fact in facts:
            for number, group in enumerate(fact.groups):
                if not fact.impossible:
                    known += _known(nest, place, group, fact.values[number])
                elif place in group.attributes:
                    known.append(_empty(schema, place, group))
                else:
                    subset, cells = fact.tables[number]
                    assert cells is not None  # an impossible table has its cells
                    masks[subset] = ~cells.astype(bool) & masks.get(subset, np.True_)
        found = cls(tuple(known), masks)
        found._refuse_contradictions(nest, schema)
        return found

    def _refuse_contradictions(self, nest: Nest, schema: Schema) -> None:
        """Facts about nodes, and those below or above them, must add up."""
        for level in nest.classes:
            for subset in {own.others for own in self.known if own.others is not None}:
                first: dict[int, Array] = {}
                for own in self.known:
                    if own.others is None or not {*subset} <= {*own.others}:
                        continue
                    shared = margin_of(own.cells, own.others, subset, leading=1)
                    nodes, cells = KnownPlaces(own.level, own.nodes, subset, shared).by_nodes(level)
                    for node, counts in zip(nodes.tolist(), cells, strict=True):
                        before = first.setdefault(node, counts)
                        if np.abs(before - counts).max() > AGREEMENT * max(1.0, float(before.sum())):
                            names = " x ".join(schema.names[at] for at in subset) or "counts of places"
                            raise DataError(f"public facts contradict each other: {names} do not add up")


def every_level(schema: Schema, place: int) -> Nest:
    """The tree of all levels of an attribute."""
    attribute = schema.attributes[place]
    levels = [attribute.level_of(level) for level in attribute.levels]
    return Nest.of(levels or [np.arange(schema.sizes[place])])


def _known(nest: Nest, place: int, group: Table, values: Array) -> Iterator[KnownPlaces]:
    """What a known table says of the nodes that it asks for."""
    number, queries, rest = without_place(place, group)
    asked = PlaceQueries.of(nest, queries)
    if not asked.of_nodes:
        raise WorkloadError(f"table {group.name!r} asks for sets of places; give known totals of places")
    sizes = [factor.queries.count for factor in rest.factors]
    shape = [*sizes[:number], asked.count, *sizes[number:]] if queries is not None else [1, *sizes]
    cells = np.moveaxis(values.reshape(shape), number if queries is not None else 0, 0)
    cells = cells.transpose(0, *(1 + np.argsort(rest.attributes)))
    others = tuple(sorted(rest.attributes))
    for depth in np.unique(asked.depths).tolist():
        here = asked.depths == depth
        yield KnownPlaces(nest.classes[depth], asked.nodes[here], others, cells[here])


def _empty(schema: Schema, place: int, group: Table) -> KnownPlaces:
    """Places where nobody can be."""
    _, queries, rest = without_place(place, group)
    if not all(asked_at_all(factor.queries, group.name).all() for factor in rest.factors):
        raise WorkloadError(
            f"table {group.name!r} ties places to cells of other attributes; of places it can be said that "
            "nobody is there, and of cells of the others that they occur nowhere"
        )
    every = np.arange(schema.sizes[place])
    nodes = every if queries is None else np.flatnonzero(asked_at_all(queries, group.name))
    return KnownPlaces(every, nodes, None, np.zeros(len(nodes)))


def known_tables(facts: Sequence[Fact], sets: Sequence[Subset]) -> Iterator[tuple[Table, Array]]:
    """The facts as tables and their numbers: what cannot occur is zero in every cell of the tables `sets`."""
    for fact in facts:
        for number, group in enumerate(fact.groups):
            if fact.impossible:
                yield from _zeros(group, fact.schema, sets)
            else:
                yield group, fact.values[number]


def _zeros(group: Table, schema: Schema, sets: Sequence[Subset]) -> Iterator[tuple[Table, Array]]:
    """The cells that cannot occur of all tables that have the attributes, each to be zero."""
    cells: dict[int, Integers] = {}
    for factor in group.factors:
        if len(factor.attributes) > 1:
            raise WorkloadError(
                f"table {group.name!r} ties attributes in one condition; give it by attribute"
            )
        inside = asked_at_all(factor.queries, group.name)
        cells[factor.attributes[0]] = np.where(inside, np.cumsum(inside) - 1, -1)
    for subset in sets:
        if {*cells} <= {*subset}:
            asked = [Partition(cells[at]) if at in cells else Identity(schema.sizes[at]) for at in subset]
            factors = (Factor((at,), own) for at, own in zip(subset, asked, strict=True))
            found = Table(group.name, tuple(factors))
            yield found, np.zeros(found.count)


def place_of(plan: Plan, facts: Sequence[Fact]) -> int | None:
    """The attribute whose places tables are made by, from the nation down; None where there is none."""
    within = [layer.within for layer in plan.strategy.layers if layer.within is not None]
    for fact in facts:
        for group, (_, cells) in zip(fact.groups, fact.tables, strict=True):
            if cells is None:
                first = (factor.attributes[0] for factor in group.factors)
                within += [at for at in first if plan.schema.attributes[at].levels]
    if len({*within}) > 1:
        raise DataError(
            "facts about levels are kept of one attribute, that which the plan measures by places"
        )
    return within[0] if within else None


def informed(plan: Plan, given: Fact | Iterable[Fact]) -> tuple[Plan, str]:
    """The plan with figures and estimates given the facts (claim T-016), and those in words."""
    facts = facts_of(given, plan.schema)
    if not facts:
        raise DataError("give a public fact, made by rs.known or rs.impossible")
    words = told(facts, 4)
    known = list(known_tables(facts, largest_sets(plan.workload.groups())))
    strategy = replace(plan.strategy)
    with plan.naming():
        settle(strategy, answerer=_given(plan.strategy, facts, known))
    return replace(plan, strategy=strategy), words


def _given(strategy: Strategy, facts: Sequence[Fact], known: list[tuple[Table, Array]]) -> Answerer:
    """How answers are computed given the facts."""
    own = strategy.answerer
    if not isinstance(own, Places):
        return Given(own, known)
    placed = PlacedFacts.of(facts, facts[0].schema, own.place)
    if placed.masks:
        raise DataError(
            "cells that cannot occur are kept by nonnegative() and rounded(); given to a release by places, "
            "facts are known totals and places where nobody can be"
        )
    return given_places(own, placed.known)
