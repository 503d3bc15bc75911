"""How far the decomposition is from the optimum of all mechanisms on small domains (C-005 and Q-007)."""

import math
from collections.abc import Callable

import numpy as np
import pytest

import residua as rs
from residua.methods import smasher as module
from residua.methods.blocks import querysmasher
from residua.methods.dense import dense
from residua.methods.draft import Draft

GAP = 1e-4
SIZES = [(60,), (30, 30), (50, 40), (10, 9), (9, 8, 7), (14, 14, 14), (5, 4, 4), (7, 7, 7, 7), (3, 4, 3, 4)]
PAIRS = [(12, 12), (50, 40), (8, 7, 6), (12, 12, 12), (5, 5, 5, 5), (7, 7, 7, 7)]


def rmse(draft: Draft, work: rs.Workload) -> float:
    """Root mean square error of a draft, from its strategy alone."""
    return math.sqrt(math.fsum(draft.strategy.totals(part)[0] for part in work.parts) / work.count)


def decomposed(work: rs.Workload) -> tuple[float, float]:
    """Root mean square error of the decomposition alone, and of uniform centring."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "UNION_WORK", 0.0)
        draft = module.smasher(work, GAP)
    return rmse(draft, work), rmse(querysmasher(work, GAP), work)


def check(work: rs.Workload, most: float) -> None:
    """The method is within `most` of the optimum; the decomposition alone is printed beside it."""
    alone, uniform = decomposed(work)
    ours = rmse(module.smasher(work, GAP), work)
    best = rmse(dense(work, GAP), work)
    print(f"over the optimum: ours {ours / best - 1:.4%}, alone {alone / best - 1:.4%}, ", end="")
    print(f"uniform centring {uniform / best - 1:.4%}")
    assert best * (1 - 2 * GAP) <= ours <= most * best
    assert ours <= alone * (1 + GAP)
    assert alone <= uniform


def ways_of(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(1, min(3, len(sizes)) + 1))


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.parametrize("family", [rs.prefix, rs.ranges], ids=str)
def test_product_tables_are_within_a_fraction_of_a_percent(
    sizes: tuple[int, ...], family: rs.workload.Family
) -> None:
    check(rs.all_tables(rs.Schema.of_sizes(list(sizes)), ways_of(sizes), family), 1.006)


@pytest.mark.parametrize("ways", [(1,), (2,), (1, 2), (1, 2, 3)], ids=str)
def test_hybrid_tables_are_within_a_fraction_of_a_percent(ways: tuple[int, ...]) -> None:
    sex, place = rs.Categorical("F", "M"), rs.Categorical(*"abcdefg")
    schema = rs.Schema(age=rs.Integer(0, 19), sex=sex, pay=rs.Integer(0, 8), place=place)
    check(rs.all_tables(schema, ways, numeric=rs.prefix, categorical=rs.identity), 1.006)


@pytest.mark.parametrize("sizes", PAIRS, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.parametrize("family", [rs.affine, rs.abs_diff], ids=str)
@pytest.mark.parametrize("singles", [False, True], ids=["pairs", "pairs and prefixes"])
def test_pairs_of_joint_families_are_within_one_and_a_half_percent(
    sizes: tuple[int, ...], family: rs.workload.Family, singles: bool
) -> None:
    schema = rs.Schema.of_sizes(list(sizes))
    work = rs.all_tables(schema, 2, family)
    check(work + rs.all_tables(schema, 1, rs.prefix) if singles else work, 1.015)


@pytest.mark.parametrize("sizes", PAIRS, ids=lambda sizes: "x".join(map(str, sizes)))
def test_mixed_tables_are_within_one_and_a_half_percent(sizes: tuple[int, ...]) -> None:
    schema = rs.Schema.of_sizes(list(sizes))
    work = rs.all_tables(schema, 1, rs.ranges) + rs.all_tables(schema, 2, rs.affine)
    check(work + rs.all_tables(schema, min(3, len(sizes)), rs.prefix), 1.015)


DRAWS: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "sets": lambda draw, rows, cells: (draw.random((rows, cells)) < 0.3).astype(float),
    "real": lambda draw, rows, cells: draw.standard_normal((rows, cells)),
}


@pytest.mark.parametrize("sizes", [(10, 9), (6, 6, 6), (12, 12, 12), (5, 5, 5, 5)], ids=str)
@pytest.mark.parametrize("density", [0.3, 1.5], ids=["few", "many"])
@pytest.mark.parametrize("kind", list(DRAWS))
def test_random_explicit_pairs_are_within_four_percent(
    sizes: tuple[int, ...], density: float, kind: str
) -> None:
    schema = rs.Schema.of_sizes(list(sizes))
    draw = np.random.default_rng(len(sizes))
    tables = []
    for one in range(len(sizes)):
        for two in range(one + 1, len(sizes)):
            cells = sizes[one] * sizes[two]
            rows = DRAWS[kind](draw, max(1, int(density * cells)), cells)
            tables.append(rs.linear(schema, (schema.names[one], schema.names[two]), rows))
    check(sum(tables[1:], start=tables[0]), 1.04)
