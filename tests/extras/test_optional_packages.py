"""Each optional extra is installed, new enough, and does the one thing Residua wants of it."""

import re
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PYPROJECT["project"]["optional-dependencies"]
REQUIREMENTS = [(extra, each) for extra, listed in EXTRAS.items() for each in listed]


def release_number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.match(r"\d+(\.\d+)*", text)[0].split("."))


@pytest.mark.parametrize(("extra", "requirement"), REQUIREMENTS)
def test_every_extra_is_installed_at_its_lower_bound_or_later(extra, requirement):
    name, bound = requirement.split(">=")
    assert release_number(version(name.partition("[")[0])) >= release_number(bound)


def test_spark_brings_dataframes_without_starting_a_cluster():
    from pyspark.sql import DataFrame, functions

    assert callable(DataFrame.groupBy)
    assert callable(functions.count)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_frame_gives_its_columns_as_arrays(package):
    frames = import_module(package)
    frame = frames.DataFrame({"age": [30, 40], "sex": [0, 1]})
    assert frame["age"].to_numpy().tolist() == [30, 40]


def test_clarabel_solves_a_convex_problem_through_cvxpy():
    import cvxpy

    x = cvxpy.Variable(2)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(x)), [cvxpy.sum(x) == 1])
    problem.solve(solver=cvxpy.CLARABEL)
    assert problem.status == cvxpy.OPTIMAL
    assert np.allclose(x.value, 0.5)


def test_mbi_projects_a_domain_to_a_marginal():
    import mbi

    domain = mbi.Domain(["age", "sex"], [100, 2])
    assert domain.project(["sex"]).size() == 2


def test_jax_counts_in_64_bits_when_asked():
    import jax

    with jax.enable_x64(True):
        assert int(jax.numpy.asarray(2**40) + 1) == 2**40 + 1


def test_a_chart_becomes_a_picture_without_a_browser_or_network():
    import altair
    import vl_convert

    data = altair.Data(values=[{"x": 0, "y": 1}, {"x": 1, "y": 3}])
    chart = altair.Chart(data).mark_line().encode(x="x:Q", y="y:Q")
    assert vl_convert.vegalite_to_svg(chart.to_json()).startswith("<svg")


def test_psycopg_brings_its_own_client_library():
    import psycopg

    assert psycopg.pq.__impl__ == "binary"
