"""A plan given what is publicly known: how its measurements are answered so that they agree with it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from residua._arrays import Array
from residua.answering.given import Given, GivenPlaces
from residua.answering.places import Places
from residua.answering.protocol import Answerer
from residua.errors import DataError
from residua.plans import Plan
from residua.postprocess.facts import Fact, facts_of, told
from residua.postprocess.pieces import largest_sets
from residua.postprocess.placed_facts import PlacedFacts, known_tables
from residua.strategy.strategy import Strategy
from residua.workload import Table


def informed(plan: Plan, given: Fact | Iterable[Fact]) -> tuple[Plan, str]:
    """The plan with figures and estimates given the facts (claim T-016), and those in words."""
    facts = facts_of(given, plan.schema)
    if not facts:
        raise DataError("give a public fact, made by rs.known or rs.impossible")
    words = told(facts, 4)
    known = list(known_tables(facts, largest_sets(plan.workload.groups())))
    strategy = replace(plan.strategy)
    with plan.naming():
        object.__setattr__(strategy, "answerer", _given(plan.strategy, facts, known))
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
    return GivenPlaces(own, placed.known)
