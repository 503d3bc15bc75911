"""A short suite for an installed wheel: every part of it once. It needs nothing but the package.

`python test_wheel.py` runs it without a test runner, which the environments of `make test-wheel` do not have.
"""

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import residua as rs

SCHEMA = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"))
PEOPLE = {"age": [3, 5, 5, 8], "sex": ["F", "M", "F", "M"]}
METHODS = ("auto", "smasher", "querysmasher", "residualplanner+", "dense", "hdmm", "identity", "hierarchical")
CSV = "age,sex\n3,F\n5,M\n5,F\n8,M\n"


def simulated(plan, data=PEOPLE):
    return rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1))


def test_the_package_is_typed_and_says_its_version():
    assert (Path(rs.__file__).parent / "py.typed").is_file()
    assert importlib.metadata.version("residua") == rs.__version__


def test_every_public_name_is_there():
    assert all(getattr(rs, name) is not None for name in rs.__all__)


def test_every_module_can_be_imported():
    folder = Path(rs.__file__).parent
    optional = ("altair", "mbi", "pyspark", "cvxpy", "jax", "optax")
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(("residua", *path.relative_to(folder).with_suffix("").parts))
        try:
            __import__(name.removesuffix(".__init__"))
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in optional:
                raise


def test_methods_plan_measure_and_answer():
    work = rs.marginals(SCHEMA, up_to=2) + rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}, name="T")
    for method in METHODS:
        plan = rs.plan(work, rs.zcdp("0.1"), method=method)
        release = simulated(plan)
        assert release.table("sex").values.shape == (2,)
        assert len(release.values()) == work.count
        assert (release.rounded(replicates=0).table("sex").values >= 0).all()
        assert "T" in plan.explain()
    pure = rs.plan(work, rs.pure_dp(1))
    assert np.isfinite(simulated(pure).values()).all()


def test_explicit_queries_sql_targets_and_bounds():
    own = rs.linear(SCHEMA, ("sex",), np.eye(2))
    sql = rs.sql(SCHEMA, "SELECT sex, COUNT(*) FROM people WHERE age >= 5 GROUP BY sex")
    plan = rs.plan(own + sql, targets=rs.stddev(5))
    assert plan.max_variance <= 25
    assert rs.bounds.svd(own) <= rs.bounds.supreme_svd(own) * (1 + 1e-9)


def test_a_release_is_paid_for_saved_and_loaded():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "people.csv").write_text(CSV)
        rs.Ledger.create(folder / "budget.db", rs.zcdp(1), dataset="people")
        plan = rs.plan(rs.marginals(SCHEMA, up_to=2), rs.zcdp("0.1"))
        plan.save(folder / "people.plan")
        release = rs.measure(folder / "people.plan", folder / "people.csv", ledger=folder / "budget.db")
        release.save(folder / "people.release")
        loaded = rs.Release.load(folder / "people.release")
        assert loaded.hash == release.hash
        assert loaded.answers().num_rows == plan.workload.count
        assert rs.Ledger.open(folder / "budget.db").remaining < 1


def test_the_command_line_goes_from_a_file_to_tables():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def residua(*words):
            command = [sys.executable, "-m", "residua.cli", *words]
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stderr
            return run.stdout

        (folder / "people.csv").write_text(CSV)
        residua("init", "people.csv", "--read-values")
        spec = folder / "people.yaml"
        spec.write_text(spec.read_text().replace("CONFIRM", "confirmed"))
        assert "error" in residua("plan", "people.yaml")
        residua("budget", "create", "budget.db", "--zcdp", "1", "--dataset", "people")
        residua("release", "people.yaml")
        assert "stddev" in residua("answer", "people.release", "--table", "sex")


if __name__ == "__main__":
    for name, law in list(globals().items()):
        if name.startswith("test_"):
            law()
            print(name)
