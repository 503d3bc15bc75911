"""The fast part of every reproduction, and the verdicts that make a reproduction fail."""

import importlib
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import residua as rs

FOLDER = Path(__file__).parents[2] / "reproductions"


@pytest.fixture
def script(monkeypatch):
    """A function from a script's name to its module, imported as running it would."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@pytest.fixture
def comparison(script):
    return script("_comparison").Comparison("a table")


def test_the_svd_bound_table_is_reproduced_but_for_its_largest_workload(script, capsys):
    assert script("svd_bound_table2").main(["--fast"]) == 0
    assert "20 figures, 0 failed" in capsys.readouterr().out


def test_the_one_dimensional_hdmm_table_is_reproduced_on_small_domains(script, capsys):
    table5 = script("hdmm_table5")
    table = table5.Comparison("small domains")
    for cells in (64, 256):
        table5.compare_size(table, cells)
    assert (table.rows, table.exit_code()) == (40, 0)
    assert "width32 256 optimum" in capsys.readouterr().out


def test_the_fitness_table_is_reproduced(script, capsys):
    assert script("fitness_table2").main() == 0
    assert "13 figures, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["identity", "hierarchical", "wavelet", "dense"])
def test_the_figures_of_the_hdmm_table_are_those_of_plans(script, method):
    table5: ModuleType = script("hdmm_table5")
    work = rs.table(rs.Schema.of_sizes([64]), a0=rs.prefix)
    queries = table5.Prefix(64)
    matrices = {
        "identity": lambda: np.eye(64),
        "hierarchical": lambda: table5.covariance(table5.hierarchical_matrix(64)),
        "wavelet": lambda: table5.covariance(table5.wavelet_matrix(64)),
    }
    if method == "dense":
        total = table5.solve(queries.root()).upper
    else:
        total = float(queries.trace(matrices[method]()))
    plan = rs.plan(work, rs.approx_dp(1, 1e-6), method=method, gap=1e-6)
    assert table5.rmse(total, queries) == pytest.approx(plan.ideal.rmse, rel=1e-6)


def test_the_mean_over_permutations_is_the_mean_over_permutations(script):
    table5 = script("hdmm_table5")
    queries, matrix = table5.Ranges(16), table5.covariance(table5.hierarchical_matrix(16))
    generator = np.random.default_rng(0)
    orders = (generator.permutation(16) for _ in range(20_000))
    sampled = np.mean([np.sum(queries.gram() * matrix[np.ix_(order, order)]) for order in orders])
    assert table5.mean_over_permutations(queries, matrix) == pytest.approx(sampled, rel=0.01)


@pytest.mark.parametrize(
    ("rule", "ours", "theirs", "holds"),
    [
        ("agrees", 1.2349, "1.23", True),
        ("agrees", 1.2351, "1.23", False),
        ("agrees", 3.0344e7, "3.034e7", True),
        ("agrees", 3.0346e7, "3.034e7", False),
        ("agrees", Decimal("4.8851e310"), "4.885e310", True),
        ("agrees", Decimal("4.8851e310"), "4.885e156", False),
        ("at_most", 1.0, "1.23", True),
        ("at_most", 1.2349, "1.23", True),
        ("at_most", 1.2351, "1.23", False),
        ("impossible", 1.2351, "1.23", True),
        ("impossible", 1.2349, "1.23", False),
        ("at_least", 2.0, "1.23", True),
        ("at_least", 1.2251, "1.23", True),
        ("at_least", 1.2249, "1.23", False),
    ],
)
def test_a_figure_holds_up_to_rounding_of_the_last_printed_digit(comparison, rule, ours, theirs, holds):
    getattr(comparison, rule)("figure", ours, theirs)
    assert comparison.exit_code() == (0 if holds else 1)


def test_a_closed_form_must_agree_within_its_tolerance(comparison):
    comparison.close("inside", 1.0009, 1.0, 1e-3)
    assert comparison.exit_code() == 0
    comparison.close("outside", 1.0011, 1.0, 1e-3)
    assert comparison.exit_code() == 1


def test_a_figure_set_beside_the_printed_one_is_not_judged(comparison, capsys):
    comparison.beside("figure", 5.0, "1.23", "for a reason")
    assert comparison.exit_code() == 0
    assert "not judged; for a reason" in capsys.readouterr().out


def test_an_empty_table_reproduces_nothing(comparison):
    assert comparison.exit_code() == 1


def test_every_reproduction_is_tried_by_a_test() -> None:
    tests = "".join(path.read_text() for path in FOLDER.parent.glob("tests/unit/test_reproductions*.py"))
    scripts = [path.stem for path in FOLDER.glob("[a-z]*.py")]
    assert scripts
    assert [name for name in scripts if f'"{name}"' not in tests] == []
