"""A fast part of every reproduction and benchmark of block methods."""

import importlib
from decimal import Decimal
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import residua as rs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    """A function from a script's name to its module, imported as running it would."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "reproductions")
    return importlib.import_module


@pytest.fixture
def table(script):
    return script("_comparison").Comparison("a table")


@pytest.mark.parametrize("ways", ["1-way", "2-way", "3-way", "<=3-way"])
def test_hybrid_tables_on_cps_are_reproduced(script, table, ways):
    table2 = script("querysmasher_table2")
    work, printed = table2.workload("CPS", ways), table2.PRINTED["CPS", ways]
    table2.compare_row(table, ways, work, printed)
    assert (table.rows, table.exit_code()) == (4, 0)


@pytest.mark.parametrize("name", ["Adult", "CPS", "Loans"])
@pytest.mark.parametrize("family", ["affine", "abs_diff"])
def test_the_pairs_of_every_data_set_are_as_many_as_printed(script, table, name, family):
    table3 = script("querysmasher_table3")
    printed = table3.PRINTED[name, family].queries.replace(",", "")
    table.agrees("#queries", Decimal(table3.workload(name, family).count), printed)
    assert table.exit_code() == 0


@pytest.mark.parametrize("kind", ["marginal", "prefix", "range", "circular", "affine", "abs", "random"])
def test_every_type_of_query_is_reproduced_on_ten_cells(script, table, kind):
    table4 = script("querysmasher_table4")
    table4.compare_kind(table, kind, 10, [1.0] * table4.tables(), table4.PRINTED[10, kind], None)
    assert table.rows >= 3
    assert table.exit_code() == 0


@pytest.mark.parametrize("kind", ["marginal", "prefix", "affine", "abs"])
def test_weighted_tables_are_reproduced_on_ten_cells(script, table, kind):
    table8 = script("querysmasher_table8")
    queries, wff, qs = table8.PRINTED[10, kind]
    printed = table8.Printed(queries, None, None, wff, qs)
    table8.compare_kind(table, kind, 10, table8.table_weights(), printed, table8.DECIMALS)
    assert (table.rows, table.exit_code()) == (3, 0)


def test_mixed_tables_are_reproduced_on_ten_cells(script, table):
    script("querysmasher_table5").compare_size(table, 10, 10)
    assert (table.rows, table.exit_code()) == (3, 0)


def test_marginals_are_reproduced_on_cps_and_synthetic_data(script, table):
    tables = script("residualplanner_tables")
    for size in (2, 16):
        ours = tables.figures(tables.at_most_three([size] * 5))
        tables.compare(table, f"Table 9 n={size}", ours, tables.TABLE_9[size])
    for attributes in (4, 10):
        ours = tables.figures(tables.at_most_three([10] * attributes))
        tables.compare(table, f"Table 11 d={attributes}", ours, tables.TABLE_11[attributes])
    for kind, printed in tables.TABLES_15_TO_17["15", "CPS"].items():
        tables.compare(table, kind, tables.figures(tables.workload("CPS", kind)), printed)
    assert (table.rows, table.exit_code()) == (22, 0)


def test_small_marginals_are_those_of_few_cells(script):
    tables = script("residualplanner_tables")
    schema = rs.Schema.of_sizes([100, 60, 7])
    found = {frozenset(group.attributes) for group in tables.small_marginals(schema).groups()}
    sizes = np.array(schema.sizes)
    subsets = [frozenset(each) for ways in range(4) for each in combinations(range(3), ways)]
    assert found == {each for each in subsets if sizes[list(each)].prod() <= tables.SMALL}


@pytest.mark.parametrize("method", ["querysmasher", "residualplanner+", "fourier"])
def test_figures_of_the_reproductions_are_the_ideal_figures_of_plans(script, method):
    schema = rs.Schema.of_sizes([4, 5, 3])
    work = 2.0 * rs.all_tables(schema, 1, rs.prefix) + rs.all_tables(schema, 2, rs.ranges)
    plan = rs.plan(work, rs.privacy_cost(1), method=method)
    assert script("_figures").ideal(work, method).rmse == pytest.approx(plan.ideal.weighted_rmse, rel=1e-9)


def test_a_workload_worse_than_printed_fails_the_reproduction(script, table):
    figures = script("_figures")
    work = rs.marginals(rs.Schema.of_sizes([3, 3]), ways=1)
    figures.compare_row(table, "made up", work, figures.Printed("6", None, None, None, "0.100"))
    assert table.exit_code() == 1


def test_tables_with_weights_cost_what_the_same_workload_costs_otherwise_written(script, monkeypatch):
    synthetic = script("_synthetic")
    monkeypatch.setattr(synthetic, "ATTRIBUTES", 3)
    weights = [1.0, 2.0, 3.0, 4.0, 5.0, 1.0]
    work = synthetic.weighted_tables("affine", 4, weights)
    schema = rs.Schema.of_sizes([4, 4, 4])
    singles = zip(weights[:3], schema.names, strict=True)
    one = [weight * rs.table(schema, {name: rs.prefix}) for weight, name in singles]
    pairs = zip(weights[3:], combinations(schema.names, 2), strict=True)
    two = [weight * rs.table(schema, {pair: rs.affine}) for weight, pair in pairs]
    other = sum(two, start=sum(one[1:], start=one[0]))
    ours, theirs = (script("_figures").ideal(each, "querysmasher").rmse for each in (work, other))
    assert work.count == other.count
    assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "method", "numbers"),
    [
        ("querysmasher_table6", "querysmasher", (10, 10)),
        ("querysmasher_table7", "querysmasher", (10, 4)),
        ("residualplanner_table1", "residualplanner", (10,)),
    ],
)
def test_a_benchmark_measures_a_plan_from_schema_to_file(script, name, method, numbers):
    row = script("_fresh").measure(script(name).workload, method, *numbers)
    assert min(row.wall, row.cpu, row.peak, row.file, row.rmse) > 0


def test_the_examples_and_small_tables_of_largest_variance_are_reproduced(script, table):
    largest = script("residualplanner_max_variance")
    largest.compare_example(table, "C.1", largest.C_1, [1.0] * 6)
    largest.compare_example(table, "C.2", largest.C_2, [1.0] * 5 + [3.0])
    for size in (2, 16, 64):
        hdmm, planner = largest.TABLE_10[size]
        largest.compare_row(table, f"Table 10 n={size}", largest.at_most_three([size] * 5), planner, hdmm)
    for attributes in (6, 30):
        hdmm, planner = largest.TABLE_12[attributes]
        work = largest.at_most_three([10] * attributes)
        largest.compare_row(table, f"Table 12 d={attributes}", work, planner, hdmm)
    for kind, (hdmm, _, gurobi) in largest.TABLES_19_TO_21["19", "CPS"].items():
        largest.compare_row(table, kind, largest.workload("CPS", kind), gurobi, hdmm)
    assert (table.rows, table.exit_code()) == (36, 0)


def test_the_benchmark_of_largest_variance_measures_draft_and_plan(script, capsys):
    benchmark = script("max_variance")
    limits = script("_timing").Limits()
    benchmark.run(benchmark.Case("4", benchmark.marginals([3] * 4), 1.0, 60.0), limits)
    assert limits.exit_code() == 0
    assert "e-0" in capsys.readouterr().out  # the gap is shown
