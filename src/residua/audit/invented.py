"""Invented plans of every kind: random schemas, policies, tables, methods, units and budgets."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from residua.errors import ResiduaError
from residua.methods.registry import BUILT_IN
from residua.planning import plan
from residua.plans import Plan
from residua.privacy import Budget, Unit, approx_dp, gdp, privacy_cost, pure_dp, zcdp
from residua.schema import Attribute, Binned, Categorical, Hierarchy, Integer, Number, Schema
from residua.workload import (
    Workload,
    affine,
    all_tables,
    identity,
    levels,
    marginals,
    prefix,
    ranges,
    sum_of,
    table,
    total,
)
from residua.workload.sql import sql

FAMILIES = (identity, prefix, ranges)


def invented_plans(seed: int = 0) -> Iterator[Plan]:
    """One plan after the other, without end; requests that no method takes are passed over."""
    for number in count():
        chance = np.random.default_rng([seed, number])
        try:
            yield _plan(chance)
        except ResiduaError:  # such as a method that has no such noise; the next request is another one
            continue


def _plan(chance: np.random.Generator) -> Plan:
    schema = Schema({f"a{at}": _attribute(chance) for at in range(int(chance.integers(1, 4)))})
    budget, law = _budget(chance)
    work, unit = _work(schema, chance), _unit(schema, chance)
    if chance.random() < 0.1:
        return plan(work, budget, over=_any(chance, schema.names), unit=unit)  # measured in one go, too
    if chance.random() < 0.1:
        return plan(work, budget, objective="max_variance", unit=unit)
    methods = ["auto", "auto", *BUILT_IN[law]]
    return plan(work, budget, method=_any(chance, methods), unit=unit)


def _unit(schema: Schema, chance: np.random.Generator) -> Unit:
    neighbours = _any(chance, ("add_remove", "add_remove", "replace_one"))
    if chance.random() < 0.7:
        return Unit(int(chance.choice([1, 1, 3])), neighbours)
    most, missing = int(chance.integers(1, 5)), _any(chance, ("error", "drop", "own"))
    per = {_any(chance, schema.names): int(chance.integers(1, most))} if most > 1 else {}
    capped = per if chance.random() < 0.5 else {}
    return Unit(most, neighbours, id="who", max_per=capped, missing_id=missing)


def _any(chance: np.random.Generator, options: Any) -> Any:
    return options[int(chance.integers(0, len(options)))]


def _attribute(chance: np.random.Generator) -> Attribute:
    size = int(chance.integers(2, 6))
    numeric = _any(chance, ("error", "drop", "clip", "other", "missing"))
    kinds = (
        lambda: Hierarchy(
            ("state", "county"), _paths(size), outside=_any(chance, ("error", "drop", "other"))
        ),
        lambda: Number(-20, 20 * size, step=20, outside=_any(chance, ("error", "drop", "clip"))),
        lambda: Integer(-1, size - 2, outside=numeric),
        lambda: Binned(*(10 * at for at in range(size + 1)), above=bool(size % 2), outside=numeric),
        lambda: Categorical(*map(str, range(size)), outside="drop" if numeric == "clip" else numeric),
    )
    found: Attribute = _any(chance, kinds)()
    return found


def _paths(size: int) -> list[tuple[str, str]]:
    """Counties of states, two in most."""
    return [(f"s{at // 2}", f"c{at}") for at in range(size + 1)]


def _budget(chance: np.random.Generator) -> tuple[Budget, Any]:
    amount = f"{float(chance.uniform(0.05, 3)):.3f}"
    kinds = ((zcdp, "gaussian"), (gdp, "gaussian"), (privacy_cost, "gaussian"), (pure_dp, "laplace"))
    if chance.random() < 0.1:
        return approx_dp(amount, "1e-6"), "gaussian"
    make, law = _any(chance, kinds)
    return make(amount), law


def _work(schema: Schema, chance: np.random.Generator) -> Workload:
    ways = int(chance.integers(1, len(schema.names) + 1))
    first, last = schema.names[0], schema.names[-1]
    options = (
        lambda: marginals(schema, up_to=ways),
        lambda: all_tables(schema, ways, _any(chance, FAMILIES)),
        lambda: table(schema, {name: _any(chance, FAMILIES) for name in schema.names[:ways]}),
        lambda: table(schema, {(first, last): affine}) + marginals(schema, ways=1),
        lambda: marginals(schema, ways=1) + 3 * table(schema, {first: prefix}),
        lambda: (
            sql(schema, f"SELECT {first}, COUNT(*) FROM t GROUP BY {first}") + marginals(schema, ways=ways)
        ),
    )
    summed = [name for name in schema.names if schema[name].unit > 1]
    within = [name for name in schema.names if isinstance(schema[name], Hierarchy)]
    if summed and chance.random() < 0.5:
        return _sums(schema, _any(chance, summed))
    if within and chance.random() < 0.5:
        place = _any(chance, within)
        return levels(schema, place, [name for name in schema.names if name != place][: ways - 1])
    found: Workload = _any(chance, options)()
    return found


def _sums(schema: Schema, name: str) -> Workload:
    """Counts and sums of a number, in all and by every other attribute."""
    found = table(schema, {name: [total, sum_of]})
    for other in schema.names:
        if schema[other].unit == 1:
            found += table(schema, {other: [identity], name: [total, sum_of]})
    return found
