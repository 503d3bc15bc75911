"""`residua plan`: every error before any data is touched, and what other budgets would buy."""

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from residua._plan import Plan
from residua.cli.files import refuse_to_replace
from residua.cli.progress import progress_bar
from residua.cli.screens import AsJson, Force, columns, figure, show, show_json
from residua.privacy import Budget, budget_from_record

FACTORS = {
    "a quarter": Fraction(1, 4),
    "half": Fraction(1, 2),
    "this plan": Fraction(1),
    "double": Fraction(2),
    "four times": Fraction(4),
}
DELTA = "1e-6"
MOST_SEARCHED = 2_000  # tables whose largest error is looked for


def plan(
    spec: Annotated[Path, typer.Argument(help="The release spec, a YAML file.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Save the plan here (over output.plan of the spec).")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the error of every table before any data is touched.

    \b
    Examples:
      residua plan people.yaml
      residua plan people.yaml -o people.plan
    """
    from residua.spec import load_spec

    asked = load_spec(spec)
    target = output or asked.plan_file
    refuse_to_replace([] if target is None else [target], force)
    with progress_bar() as progress:
        found = asked.plan(progress)
        others = {words: _at(found, factor) for words, factor in FACTORS.items()}
    if target is not None:
        found.save(target)
    if as_json:
        show_json(plan_document(found) | {"budgets": _budgets_document(others), "file": target})
        return
    show([*plan_screen(found, others), *([] if target is None else ["", f"Saved the plan as {target}"])])


def plan_screen(found: Plan, others: dict[str, Plan]) -> Iterator[str]:
    """The plan in words, and the same tables at other budgets."""
    yield from found.explain().splitlines()
    yield ""
    yield "What other budgets would buy (standard deviation of each number)"
    head = ("budget", "", f"epsilon at delta {DELTA}", "typical", "largest")
    rows = [
        (
            words,
            _amount(each.budget),
            f"{each.privacy.epsilon(DELTA):.4g}",
            figure(each.rmse),
            figure(_largest(each)),
        )
        for words, each in others.items()
    ]
    yield from columns(head, rows, left=(0, 1))


def plan_document(found: Plan) -> dict[str, Any]:
    """The plan as a JSON document."""
    proof = found.certificate
    tables = [
        {
            "name": row.name,
            "queries": row.families or "total",
            "numbers": row.queries,
            "rmse": row.rmse,
            "max_stddev": row.max_stddev,
        }
        for row in found.summary()
    ]
    return {
        "hash": found.hash,
        "method": found.method,
        "budget": found.budget.record(),
        "privacy": found.privacy.record() | {f"epsilon at delta {DELTA}": found.privacy.epsilon(DELTA)},
        "table_count": found.workload.tables,
        "numbers": found.workload.count,
        "rmse": found.rmse,
        "max_stddev": _largest(found),
        "total_variance": found.total_variance,
        "tables": tables,
        "certificate": {"lower_bound": proof.lower_bound, "gap": proof.gap, "scope": proof.scope},
        "measured": list(found.mechanism.describe()),
    }


def _at(found: Plan, factor: Fraction) -> Plan:
    """The plan with its budget multiplied."""
    return found if factor == 1 else found.rescale(scaled(found.budget, factor))


def _largest(found: Plan) -> float:
    """Largest standard deviation of any number, or nan where there are too many tables to go through."""
    return math.sqrt(found.max_variance) if found.workload.tables <= MOST_SEARCHED else math.nan


def _budgets_document(others: dict[str, Plan]) -> list[dict[str, Any]]:
    return [
        {
            "budget": each.budget.record(),
            "epsilon": each.privacy.epsilon(DELTA),
            "delta": DELTA,
            "rmse": each.rmse,
            "max_stddev": _largest(each),
        }
        for each in others.values()
    ]


def scaled(budget: Budget, factor: Fraction) -> Budget:
    """The budget with its amount multiplied; a delta stays as it is.

    >>> from residua.privacy import approx_dp
    >>> scaled(approx_dp(1, "1e-6"), Fraction(2))
    approx_dp('2', '1/1000000')
    """
    record = budget.record()
    amounts = {
        name: str(Fraction(text) * factor)
        for name, text in record.items()
        if name not in ("definition", "delta")
    }
    return budget_from_record(record | amounts)


def _amount(budget: Budget) -> str:
    """`rho = 0.1`, as far as a few digits go."""
    amounts = {name: Fraction(text) for name, text in budget.record().items() if name != "definition"}
    return ", ".join(f"{name} = {float(value):.4g}" for name, value in amounts.items())
