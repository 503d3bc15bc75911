"""Laws of unions, weights and selection, on drawn workloads."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from residua.schema import Schema
from residua.workload import (
    Family,
    Workload,
    affine,
    all_tables,
    circular,
    identity,
    linear,
    marginals,
    predicates,
    prefix,
    ranges,
    table,
    total,
)

SCHEMA = Schema.of_sizes([4, 3, 2, 3])
FAMILIES = st.sampled_from([identity, prefix, ranges, circular, predicates, total])
NAMES = st.sampled_from([None, "T", "a0", "a0 x a1", "rest"])
WEIGHTS = st.floats(1e-3, 1e3)


@st.composite
def single_tables(draw: st.DrawFn) -> Workload:
    names = draw(st.permutations(SCHEMA.names))[: draw(st.integers(0, 3))]
    spec: dict[str, Family] = {name: draw(FAMILIES) for name in names}
    return table(SCHEMA, spec, name=draw(NAMES), weight=draw(WEIGHTS))


@st.composite
def runs(draw: st.DrawFn) -> Workload:
    ways = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    family, name = draw(FAMILIES), draw(NAMES)
    return draw(
        st.sampled_from(
            [
                all_tables(SCHEMA, ways, family, name=name),
                marginals(SCHEMA, up_to=ways[0], name=name),
                all_tables(SCHEMA, 2, affine, name=name),
            ]
        )
    )


@st.composite
def matrices(draw: st.DrawFn) -> Workload:
    rows = draw(st.integers(1, 4))
    values = np.random.default_rng(draw(st.integers(0, 99))).normal(size=(rows, 6))
    weights = draw(st.none() | st.lists(WEIGHTS, min_size=rows, max_size=rows))
    return linear(SCHEMA, ("a2", "a1"), values, weights, name=draw(NAMES))


workloads = st.recursive(single_tables() | runs() | matrices(), lambda w: st.builds(Workload.__add__, w, w))


def brute_count(work: Workload) -> int:
    return sum(math.prod(factor.queries.count for factor in group.factors) for group in work.groups())


@given(workloads)
def test_counts_are_those_of_the_groups(work: Workload) -> None:
    assert work.count == len(work) == brute_count(work)
    assert work.tables == len(list(work.groups()))
    assert work.attributes == tuple(sorted({a for group in work.groups() for a in group.attributes}))
    assert work.names == tuple(dict.fromkeys(group.name for group in work.groups()))


@given(workloads, workloads)
def test_a_union_is_one_after_the_other(one: Workload, two: Workload) -> None:
    both = one + two
    assert list(both.groups()) == [*one.groups(), *two.groups()]
    assert both.count == one.count + two.count


@given(workloads, WEIGHTS)
def test_a_factor_multiplies_every_weight_and_nothing_else(work: Workload, factor: float) -> None:
    for scaled in (factor * work, work * factor):
        for old, new in zip(work.groups(), scaled.groups(), strict=True):
            assert new.weight == old.weight * factor
            assert (new.name, new.factors) == (old.name, old.factors)


@given(workloads, workloads, WEIGHTS)
def test_scaling_distributes_over_unions(one: Workload, two: Workload, factor: float) -> None:
    assert list((factor * (one + two)).groups()) == list((factor * one + factor * two).groups())


@given(workloads)
def test_select_keeps_the_groups_of_a_name_in_order(work: Workload) -> None:
    for name in work.names:
        assert list(work.select(name).groups()) == [group for group in work.groups() if group.name == name]
    assert sum(work.select(name).count for name in work.names) == work.count


@given(workloads, workloads)
def test_select_of_a_union_is_the_union_of_selections(one: Workload, two: Workload) -> None:
    for name in one.names:
        expected = list(one.select(name).groups())
        if name in two.names:
            expected += list(two.select(name).groups())
        assert list((one + two).select(name).groups()) == expected


@given(workloads)
def test_a_saved_workload_comes_back(work: Workload) -> None:
    arrays: dict[str, NDArray[np.float64]] = {}
    back = Workload.from_manifest(work.to_manifest(arrays), arrays, SCHEMA)
    assert list(back.groups()) == list(work.groups())


@given(single_tables())
def test_queries_of_a_table_are_the_products_of_its_factors_in_order(work: Workload) -> None:
    (group,) = work.groups()
    factor_words = [
        [factor.describe(index, SCHEMA) for index in range(factor.queries.count)] for factor in group.factors
    ]
    expected = [" and ".join(filter(None, words)) or "all" for words in itertools.product(*factor_words)]
    assert list(group.descriptions(SCHEMA)) == expected
    assert [group.describe(index, SCHEMA) for index in range(group.count)] == expected
