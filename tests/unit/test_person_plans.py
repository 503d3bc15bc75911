"""Plans that protect a person with several records, from planning to the ledger."""

from dataclasses import replace

import numpy as np
import pytest

import residua as rs
from residua.kernel.cost import person_cost
from residua.methods.registry import methods_for
from residua.methods.whole import whole_draft
from residua.privacy.unit import Person
from residua.strategy.persons import shared_for
from residua.strategy.rounding import record_cost

SCHEMA = rs.Schema(quarter=rs.Integer(0, 7), region=rs.Integer(0, 4), age=rs.Integer(0, 5))
QUARTERLY = rs.table(SCHEMA, ["quarter", "region"]) + rs.table(SCHEMA, ["quarter", "age"])
BUDGET = rs.privacy_cost(1)
SPREAD = rs.Unit(id="person_id", max_records=8, one_per="quarter")


def test_one_record_a_quarter_is_planned_with_an_eighth_of_the_variance():
    spread = rs.plan(QUARTERLY, BUDGET, unit=SPREAD)
    anywhere = rs.plan(QUARTERLY, BUDGET, unit=rs.Unit(id="person_id", max_records=8))
    assert anywhere.total_variance / spread.total_variance == pytest.approx(8, rel=1e-6)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("budget", [BUDGET, rs.pure_dp(1)])
@pytest.mark.parametrize("method", ["auto", "identity", "hdmm-kron"])
def test_plans_spend_the_budget_of_a_person_and_no_more(neighbours, budget, method):
    unit = rs.Unit(id="person_id", max_records=5, max_per={"quarter": 2}, neighbours=neighbours)
    work = QUARTERLY + rs.table(SCHEMA, {"age": rs.prefix})
    plan = rs.plan(work, budget, unit=unit, method=method)
    person = Person.of(unit, SCHEMA)
    assert 0.999 < person_cost(plan.batches, person) / person.allowance(budget) <= 1
    assert plan.total_variance >= plan.certificate.lower_bound
    again = rs.plan(work, budget, unit=unit, method=method).rescale(budget)
    assert again.rmse == pytest.approx(plan.rmse)


def test_shares_for_a_person_are_the_best_of_their_blocks():
    work, person = rs.marginals(SCHEMA, up_to=2), Person.of(SPREAD, SCHEMA)
    draft = methods_for("gaussian")["querysmasher"](work, 1e-4, None)
    found = shared_for(draft.strategy, person)

    def variance(strategy):
        scaled = strategy.scaled(1 / record_cost(strategy, person))
        return sum(scaled.totals(part)[0] for part in work.parts)

    best = variance(found)
    assert best < variance(draft.strategy)
    chance = np.random.default_rng(3)
    for _ in range(5):
        factors = [np.exp(0.2 * chance.standard_normal(len(layer.costs))) for layer in found.layers]
        layers = [
            replace(layer, costs=layer.costs * factor, noise=layer.noise / factor)
            for layer, factor in zip(found.layers, factors, strict=True)
        ]
        assert variance(replace(found, layers=tuple(layers))) > best


@pytest.mark.parametrize(
    "work", [QUARTERLY, rs.marginals(SCHEMA, up_to=2), rs.all_tables(SCHEMA, 3, family=rs.prefix)]
)
def test_an_attribute_kept_whole_asks_of_the_others_what_the_tables_do(work):
    rows = np.tril(np.ones((8, 8)))
    draft = whole_draft(work, 0, rows, lambda own: methods_for("gaussian")["querysmasher"](own, 1e-4, None))
    whole = sum(draft.strategy.totals(part)[0] for part in work.parts)
    assert whole == pytest.approx(draft.value, rel=1e-8)
    assert draft.strategy.cost() == pytest.approx(1)
    assert all((layer.subsets == 0).any(axis=1).all() for layer in draft.strategy.layers)


def test_an_attribute_that_is_asked_with_another_is_not_kept_whole():
    work = rs.all_tables(SCHEMA, 2, rs.affine)
    assert whole_draft(work, 0, np.eye(8), lambda own: None) is None


def test_releases_with_different_bounds_share_the_ledger_of_a_person(tmp_path):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(1), dataset="visits", unit=SPREAD)
    data = {"quarter": [0, 1, 1], "region": [0, 1, 2], "age": [0, 1, 2], "person_id": [1, 1, 2]}
    for unit in (SPREAD, rs.Unit(id="person_id", max_records=3)):
        plan = rs.plan(QUARTERLY, rs.zcdp("0.1"), unit=unit)
        rs.measure(plan, data, ledger=ledger)
    other = rs.plan(QUARTERLY, rs.zcdp("0.1"), unit=rs.Unit(id="household_id", max_records=3))
    with pytest.raises(rs.BudgetError, match="'household_id'"):
        rs.measure(other, data | {"household_id": [1, 1, 1]}, ledger=ledger)


def test_a_plan_for_persons_survives_its_file(tmp_path):
    plan = rs.plan(QUARTERLY, BUDGET, unit=SPREAD)
    plan.save(tmp_path / "visits.plan")
    back = rs.Plan.load(tmp_path / "visits.plan")
    assert back.unit == SPREAD
    assert back.hash == plan.hash


def test_what_is_left_unspent_is_not_told_where_records_are_spread():
    plan = rs.plan(QUARTERLY, BUDGET, unit=SPREAD)
    with pytest.raises(rs.WorkloadError, match="one_per"):
        plan.spare()
