"""The second opinion: it accepts true solutions and names what is wrong with false ones."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from solver_oracle import verify_solution, verify_targets

from residua.solve.cells import Solution, solve_cells
from residua.solve.targets import solve_targets

Array = NDArray[np.float64]

PREFIX = np.tril(np.ones((6, 6)))
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])
GOOD = solve_cells(PREFIX * np.sqrt(WEIGHTS)[:, None])
TARGETS = np.array([1.0, 2.0, 2.0, 1.0, 4.0, 1.0])
GOOD_TARGETS = solve_targets(np.eye(6), PREFIX, TARGETS)


def problem(solution: Solution) -> str:
    seen = verify_solution(PREFIX, WEIGHTS, solution)
    assert not seen.holds(np.inf)
    return "; ".join(seen.problems)


def test_a_true_solution_holds_and_its_numbers_are_recomputed() -> None:
    seen = verify_solution(PREFIX, WEIGHTS, GOOD)
    assert seen.problems == ()
    assert seen.holds(1e-6)
    assert not seen.holds(0.0)
    assert seen.cost == pytest.approx(1, abs=1e-12)
    assert seen.value == pytest.approx(GOOD.upper, rel=1e-9)
    assert seen.lower == pytest.approx(GOOD.lower, rel=1e-9)
    assert seen.outside < 1e-13


def test_a_root_may_stand_for_the_queries() -> None:
    assert verify_solution(PREFIX * np.sqrt(WEIGHTS)[:, None], None, GOOD).holds(1e-6)


def test_a_strategy_that_costs_more_than_one_is_found() -> None:
    assert "privacy cost is 1.0000" in problem(replace(GOOD, strategy=GOOD.strategy * (1 + 1e-9)))


def test_a_strategy_that_is_worse_than_claimed_is_found() -> None:
    assert "total weighted variance" in problem(replace(GOOD, strategy=GOOD.strategy * (1 - 1e-9)))
    assert "total weighted variance" in problem(replace(GOOD, upper=GOOD.upper * (1 - 1e-6)))


def test_a_strategy_that_lacks_a_query_is_found() -> None:
    assert "is no combination" in problem(replace(GOOD, strategy=GOOD.strategy[:-1]))


def test_a_strategy_that_lacks_a_query_by_little_is_found() -> None:
    queries = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    solution = solve_cells(queries)
    assert verify_solution(queries, None, solution).holds(1e-6)
    seen = verify_solution(queries, None, replace(solution, strategy=solution.strategy + 1e-9 * np.eye(2, 3)))
    assert any("is no combination" in text for text in seen.problems)
    assert 1e-11 < seen.outside < 1e-8


def test_dependent_or_zero_rows_are_found() -> None:
    twice = np.vstack([GOOD.strategy[:3], GOOD.strategy[:3]]) / np.sqrt(2)
    assert "dependent" in problem(replace(GOOD, strategy=twice))
    assert "row of the strategy is zero" in problem(replace(GOOD, strategy=0.0 * GOOD.strategy))


def test_a_lower_bound_that_the_weights_do_not_prove_is_found() -> None:
    assert "prove at most" in problem(replace(GOOD, lower=GOOD.lower * (1 + 1e-6)))
    assert "prove at most" in problem(replace(GOOD, cell_weights=np.full(6, 1 / 6)))
    assert "is not a number" in problem(replace(GOOD, cell_weights=GOOD.cell_weights - 0.5))


def test_bounds_in_the_wrong_order_are_found() -> None:
    assert "above the claimed upper bound" in problem(replace(GOOD, upper=GOOD.lower * (1 - 1e-6)))


def test_the_trap_of_a_vanishing_cell_weight_is_found() -> None:
    trap = Solution(np.eye(3)[[0, 2]], np.array([0.5, 0.0, 0.5]), 2.0, 2.0, 1)
    seen = verify_solution(np.eye(3), None, trap)
    assert any("query 1 is no combination" in text for text in seen.problems)


def test_a_true_target_solution_holds() -> None:
    seen = verify_targets(PREFIX, TARGETS, GOOD_TARGETS)
    assert seen.problems == ()
    assert seen.holds(1e-6)
    assert seen.value == pytest.approx(1, abs=1e-9)
    assert seen.cost == pytest.approx(GOOD_TARGETS.upper, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"strategy": GOOD_TARGETS.strategy * (1 - 1e-6)}, "above its target"),
        ({"strategy": GOOD_TARGETS.strategy * (1 + 1e-6)}, "privacy cost"),
        ({"strategy": GOOD_TARGETS.strategy[1:]}, "is no combination"),
        ({"variances": GOOD_TARGETS.variances * (1 - 1e-6)}, "above its stated variance"),
        ({"lower": GOOD_TARGETS.lower * (1 + 1e-6)}, "prove at most"),
        ({"upper": GOOD_TARGETS.lower * (1 - 1e-6)}, "above the claimed upper bound"),
        ({"query_weights": -GOOD_TARGETS.query_weights}, "query weight 0 is not a number"),
    ],
)
def test_a_false_target_solution_is_found_out(changes: dict[str, object], text: str) -> None:
    seen = verify_targets(PREFIX, TARGETS, replace(GOOD_TARGETS, **changes))  # type: ignore[arg-type]
    assert not seen.holds(np.inf)
    assert text in "; ".join(seen.problems)


def test_a_target_missed_by_a_query_without_weight_is_found() -> None:
    targets = TARGETS.copy()
    idle = int(np.argmin(GOOD_TARGETS.query_weights))
    targets[idle] = 0.5 * GOOD_TARGETS.variances[idle]
    assert any(
        f"query {idle} has variance" in text
        for text in verify_targets(PREFIX, targets, GOOD_TARGETS).problems
    )
