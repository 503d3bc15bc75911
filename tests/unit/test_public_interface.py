"""The public interface: its names, their documentation, and the examples that describe it."""

import inspect
import pkgutil
import types
from pathlib import Path

import numpy as np
import pytest

import residua as rs
from residua import errors

PUBLIC = {name: getattr(rs, name) for name in rs.__all__}


def test_the_list_of_public_names_is_sorted_and_has_no_duplicates():
    assert rs.__all__ == sorted(set(rs.__all__))


def test_every_public_name_is_listed_and_there_on_first_use():
    modules = {module.name for module in pkgutil.iter_modules(rs.__path__)}
    helpers = {"TYPE_CHECKING", "import_module"}
    for name in rs.__all__:
        assert getattr(rs, name) is not None
    bound = {
        name
        for name, value in vars(rs).items()
        if not name.startswith("_") and not (isinstance(value, types.ModuleType) and name in modules)
    }
    assert bound - helpers == set(rs.__all__) - {"bounds", "engines", "__version__"}
    assert isinstance(rs.bounds, types.ModuleType)
    assert isinstance(rs.engines, types.ModuleType)
    assert dir(rs) == sorted(rs.__all__)


def test_a_name_that_is_not_there_is_refused_as_of_any_module():
    with pytest.raises(AttributeError, match="module 'residua' has no attribute 'plann'"):
        rs.plann  # noqa: B018 - looking it up is the test


def test_every_exception_is_public():
    tree = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert tree <= set(rs.__all__)
    for name in tree:
        assert issubclass(PUBLIC[name], rs.ResiduaError)


@pytest.mark.parametrize(
    "name", [name for name, value in PUBLIC.items() if inspect.isclass(value) or inspect.isroutine(value)]
)
def test_every_public_function_and_class_says_what_it_gives(name):
    words = inspect.getdoc(PUBLIC[name])
    assert words
    assert words[0].isupper()
    assert len(words.splitlines()[0]) <= 110


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if inspect.isclass(value)])
def test_every_public_method_says_what_it_gives(name):
    for attribute, value in vars(PUBLIC[name]).items():
        if attribute.startswith("_") or not (inspect.isroutine(value) or isinstance(value, property)):
            continue
        assert inspect.getdoc(getattr(PUBLIC[name], attribute)), f"{name}.{attribute}"


def test_every_family_prints_as_it_is_written():
    for name in ("abs_diff", "affine", "circular", "identity", "predicates", "prefix", "ranges", "total"):
        assert repr(PUBLIC[name]) == name
        assert PUBLIC[name] is getattr(rs.workload, name)


def test_every_bound_is_documented():
    for name in ("svd", "supreme_svd", "dual", "product_dual"):
        assert inspect.getdoc(getattr(rs.bounds, name))


def test_the_version_is_that_of_the_package():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'\nversion = "{rs.__version__}"\n' in project


# The design's examples, as far as they exist


SCHEMA = rs.Schema(
    age=rs.Integer(0, 99),
    sex=rs.Categorical("F", "M"),
    income=rs.Binned(0, 10_000, 25_000, 50_000, above=True),
)
FORTY = rs.Schema.of_sizes([10] * 40)


def test_a_schema_is_written_with_keywords_or_a_mapping(tmp_path):
    places = tmp_path / "places.csv"
    places.write_text("state,county,tract\nNY,Kings,1\nNY,Kings,2\nNY,Bronx,3\nNJ,Essex,4\n")
    place = rs.Hierarchy.load(places, levels=("state", "county", "tract"))
    schema = rs.Schema({"income>50K": rs.Categorical("no", "yes"), "place": place})
    assert schema.sizes == (2, 4)
    assert SCHEMA.sizes == (100, 2, 4)
    assert FORTY.names[:2] == ("a0", "a1")
    work = rs.table(schema, {"place": rs.level("county"), "income>50K": rs.identity})
    assert work.count == 6


def test_workloads_of_the_design_have_these_sizes():
    hybrid = rs.all_tables(SCHEMA, ways=(1, 2, 3), numeric=rs.prefix, categorical=rs.identity)
    assert rs.marginals(SCHEMA, up_to=3).tables == 8
    assert rs.marginals(FORTY, ways=2).count == 780 * 100
    assert rs.all_tables(FORTY, ways=(1, 2), family=rs.prefix).count == 400 + 78_000
    assert hybrid.count == len(hybrid) == 106 + 608 + 800
    assert rs.all_tables(FORTY, ways=2, family=rs.affine).count == 780 * 19
    assert rs.linear(FORTY, ("a0", "a3"), np.ones((2, 100)), weights=None).count == 2


def test_a_table_is_written_in_three_ways():
    first = rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}, name="T1")
    assert first.names == ("T1",)
    assert rs.table(SCHEMA, age=rs.prefix).count == 100
    assert rs.table(SCHEMA, ["age", "sex"]).names == ("age x sex",)


def test_a_union_keeps_order_and_weights():
    one = rs.table(SCHEMA, ["sex"])
    work = 2.0 * one + rs.marginals(SCHEMA, ways=1, name="one-way")
    assert [group.name for group in work.groups()] == ["sex", *["one-way"] * 3]
    assert [group.weight for group in work.groups()] == [2.0, 1.0, 1.0, 1.0]


def test_a_plan_of_the_design_says_all_it_promises(tmp_path):
    work = rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}, name="T1")
    for budget in (rs.privacy_cost(1), rs.zcdp("0.1"), rs.gdp(1), rs.approx_dp(1, 1e-6)):
        rs.plan(work, budget, gap=1e-2)
    budget = rs.zcdp(0.1)
    plan = rs.plan(work, budget, unit=rs.Unit(max_records=3, neighbours="add_remove"), method="auto")
    assert plan.rmse == pytest.approx(plan.ideal.rmse, rel=1e-4)
    assert plan.total_variance >= plan.certificate.lower_bound
    assert plan.max_variance >= plan.rmse**2
    assert plan.certificate.gap <= 1e-4
    assert plan.certificate.scope in ("all mechanisms", "this block structure")
    proved = plan.privacy
    assert proved.cost == 2 * proved.rho
    assert proved.mu == pytest.approx(0.2**0.5)
    assert proved.delta(proved.epsilon(1e-6)) <= 1e-6
    assert plan.variances(work).shape == (200,)
    assert "T1" in plan.explain()
    assert plan.rescale(rs.zcdp("0.2")).rmse == pytest.approx(plan.rmse / 2**0.5)
    assert "auto" in str(rs.compare(plan, rs.plan(work, budget, method="identity")))
    plan.save(tmp_path / "people.plan")
    assert rs.Plan.load(tmp_path / "people.plan").hash == plan.hash


def test_bounds_of_the_design_are_in_order():
    work = rs.marginals(FORTY, ways=2)
    assert rs.bounds.svd(work) <= rs.bounds.supreme_svd(work) <= rs.bounds.dual(work)


PLAN = rs.plan(rs.table(rs.Schema(sex=rs.Categorical("F", "M")), ["sex"]), rs.zcdp(1))
LEFT_OUT = {
    "ledger": (lambda: rs.measure(PLAN, {"sex": ["F"]}), rs.LedgerError, r"rs\.Ledger\.create.*ledger="),
    "delta": (lambda: rs.approx_dp(1), rs.BudgetError, r"delta.*such as rs\.approx_dp\(1, 1e-6\)"),
    "delta of privacy": (PLAN.privacy.epsilon, rs.BudgetError, r"delta.*such as .*epsilon\(1e-6\)"),
    "epsilon of privacy": (PLAN.privacy.delta, rs.BudgetError, r"epsilon.*such as .*delta\(1\)"),
    "dataset": (lambda: rs.Ledger.create("x.db", rs.zcdp(1)), rs.LedgerError, "dataset="),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_argument_that_was_left_out_is_an_error_with_a_remedy(name):
    call, kind, words = LEFT_OUT[name]
    with pytest.raises(kind, match=words):
        call()


def test_other_mistakes_in_a_call_are_those_of_python():
    with pytest.raises(TypeError, match="unexpected keyword argument 'seeed'"):
        rs.measure(PLAN, {"sex": ["F"]}, ledger=None, seeed=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'epsilon'"):
        rs.approx_dp(delta=1)
