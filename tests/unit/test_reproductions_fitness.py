"""The fast part of the fitness-for-use reproductions, and that their workloads are the published ones."""

import importlib
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "reproductions"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


def test_small_marginals_are_reproduced_and_cost_less_than_published(script, capsys):
    tables = script("fitness_tables")
    table = tables.Comparison("small marginals")
    for size in (2, 4):
        ratio = tables.fixed(
            table, str(size), tables.marginals(size), tables.MARGINALS[size], tables.SHRINKAGE
        )
        table.agrees(f"{size} CA", ratio, tables.MARGINALS[size][2])
    assert table.exit_code() == 0
    assert "2 privacy cost" in capsys.readouterr().out


def test_random_ranges_with_random_targets_are_met_and_beside_the_printed_figures(
    script, capsys, monkeypatch
):
    tables = script("fitness_tables")
    monkeypatch.setattr(tables, "SEEDS", {64: 1})
    table = tables.Comparison("random ranges")
    name, draw, kind, lines = tables.RANDOM[1]
    tables.random_rows(table, name, draw, kind, 64, lines[64])
    assert table.exit_code() == 0
    assert "wCA-II" in capsys.readouterr().out


def test_the_workloads_have_the_published_sizes(script):
    fitness = script("_fitness")
    source = np.random.default_rng(0)
    assert fitness.redistricting().shape == (319, 252)
    assert fitness.pyramid().shape == (351, 232)
    assert fitness.marginals(4).shape == (3 * 4 + 3 * 16, 64)
    assert fitness.random_ranges(64, source).shape == (128, 64)
    assert fitness.random_signs(64, source).shape == (128, 64)
    assert fitness.related(64, source).shape == (32, 64)


def test_the_least_total_variance_is_that_of_the_optimal_strategy(script):
    fitness = script("_fitness")
    queries = np.vstack([np.eye(8), np.ones(8)])
    total = fitness.least_total(queries, np.ones(9)).sum()
    assert total == pytest.approx((7 + 3) ** 2 / 8, rel=1e-5)  # gram I + 11', its root has trace 7 + 3
    assert fitness.cells_alone(queries).max() == 8
