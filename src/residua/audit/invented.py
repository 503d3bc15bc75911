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
from residua.schema import Attribute, Binned, Categorical, Integer, Schema
from residua.workload import Workload, all_tables, identity, marginals, prefix, ranges, table
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
    methods = ["auto", "auto", *BUILT_IN[law]]
    return plan(_work(schema, chance), budget, method=_any(chance, methods), unit=_unit(schema, chance))


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
        lambda: Integer(-1, size - 2, outside=numeric),
        lambda: Binned(*(10 * at for at in range(size + 1)), above=bool(size % 2), outside=numeric),
        lambda: Categorical(*map(str, range(size)), outside="drop" if numeric == "clip" else numeric),
    )
    found: Attribute = _any(chance, kinds)()
    return found


def _budget(chance: np.random.Generator) -> tuple[Budget, Any]:
    amount = f"{float(chance.uniform(0.05, 3)):.3f}"
    kinds = ((zcdp, "gaussian"), (gdp, "gaussian"), (privacy_cost, "gaussian"), (pure_dp, "laplace"))
    if chance.random() < 0.1:
        return approx_dp(amount, "1e-6"), "gaussian"
    make, law = _any(chance, kinds)
    return make(amount), law


def _work(schema: Schema, chance: np.random.Generator) -> Workload:
    ways = int(chance.integers(1, len(schema.names) + 1))
    first, *_ = schema.names
    options = (
        lambda: marginals(schema, up_to=ways),
        lambda: all_tables(schema, ways, _any(chance, FAMILIES)),
        lambda: table(schema, {name: _any(chance, FAMILIES) for name in schema.names[:ways]}),
        lambda: marginals(schema, ways=1) + 3 * table(schema, {first: prefix}),
        lambda: (
            sql(schema, f"SELECT {first}, COUNT(*) FROM t GROUP BY {first}") + marginals(schema, ways=ways)
        ),
    )
    found: Workload = _any(chance, options)()
    return found
