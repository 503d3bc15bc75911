"""The fast part of the reproductions of HDMM's Tables 3, 4, 6 and 7, and the Census tables they use."""

import importlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    """A function from a script's name to its module, imported as running it would."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "reproductions")
    return importlib.import_module


def test_the_table_of_two_way_marginals_is_reproduced(script, capsys):
    assert script("hdmm_table3").main() == 0
    assert "6 figures, 0 failed" in capsys.readouterr().out


def test_the_one_dimensional_laplace_table_is_reproduced_on_64_cells(script, capsys):
    table4 = script("hdmm_table4")
    table = table4.Comparison("64 cells")
    table4.compare_size(table, 64)
    assert (table.rows, table.exit_code()) == (28, 0)
    assert "prefix 64 OPT_0" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "law"), [("hdmm_table6", "laplace"), ("hdmm_table7", "gaussian")])
def test_marginals_of_the_population_survey_are_reproduced(script, name, law):
    module, rows = script(name), script("_hdmm_rows")
    table = rows.Comparison("CPS marginals")
    key = ("CPS", "All Marginals")
    rows.compare_row(table, key, module.PRINTED[key], law)
    assert table.exit_code() == 0


def test_the_census_tables_have_the_counts_and_the_sensitivity_of_the_paper(script):
    census, products = script("_census"), script("_products")
    work = census.sf1()
    assert work.count == 4151
    assert census.sf1(by_state=True).count == 215_852
    assert np.prod(work.schema.sizes) == 500_480
    assert products.noise_on_answers(work, "laplace") == pytest.approx(70.71, abs=0.005)
    assert products.noise_on_answers(work, "gaussian") == pytest.approx(29.87, abs=0.005)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_the_error_of_the_workload_itself_is_that_of_the_plan_of_this_name(script, law):
    products = script("_products")
    work = products.rs.marginals(products.rs.Schema.of_sizes([2, 3, 4]), up_to=2)
    assert products.rank(work) == 18  # of 36 queries
    found = products.workload_itself(work, law)
    assert found == pytest.approx(products.rmse(work, law, "workload"))
    assert found < products.noise_on_answers(work, law)


def test_families_that_all_tables_ask_multiply_the_rank(script):
    products = script("_products")
    schema = products.rs.Schema.of_sizes([2, 3, 4])
    one, all_three = [
        products.rs.table(schema, {**own, "a2": products.rs.prefix})
        + products.rs.table(schema, {"a0": products.rs.identity, "a2": products.rs.prefix})
        for own in ({}, {"a1": products.rs.identity})
    ]
    assert products.rank(one) == 4 * 2
    assert products.rank(all_three) == 4 * (3 + 2 - 1)


def test_a_search_may_end_a_little_above_the_printed_figure_and_no_more(script):
    table = script("_comparison").Comparison("a table")
    table.nearly("below", 1.0, "1.23", 0.01)
    table.nearly("close", 1.24, "1.23", 0.01)
    assert table.exit_code() == 0
    table.nearly("above", 1.26, "1.23", 0.01)
    assert table.exit_code() == 1


def test_the_benchmark_of_one_attribute_runs_on_few_cells(script, capsys):
    assert script("p_identity").main(["--cells", "64"]) == 0
    assert "64" in capsys.readouterr().out
