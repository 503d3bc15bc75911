"""A small census release, planned before your eyes: `python -m residua.demo`. No data is involved."""

from collections.abc import Iterable, Iterator, Sequence

from threadpoolctl import threadpool_limits

import residua as rs

COUNTIES = (
    ("North", "Alder"),
    ("North", "Birch"),
    ("North", "Cedar"),
    ("North", "Dogwood"),
    ("South", "Elm"),
    ("South", "Fir"),
    ("South", "Hazel"),
    ("West", "Juniper"),
    ("West", "Larch"),
)
LEVELS = (rs.zcdp("0.01"), rs.zcdp("0.05"), rs.zcdp("0.25"))
SHOWN = 1  # of the levels: the one that the later sections are about
DELTA = "1e-6"
BASELINES = {
    "identity": "every cell",
    "hierarchical": "trees of sums",
    "wavelet": "Haar wavelets",
}
NORMAL_95 = 1.96

Row = tuple[str, ...]


def census() -> rs.Workload:
    """The tables to be published, on a schema of four attributes."""
    schema = rs.Schema(
        age=rs.Binned(*range(0, 90, 5), above=True),
        sex=rs.Categorical("female", "male"),
        place=rs.Hierarchy(("state", "county"), COUNTIES),
        work=rs.Categorical("employed", "unemployed", "neither"),
    )
    state = rs.level("state")
    return (
        rs.table(schema, name="Residents")
        + rs.table(schema, place=state, name="States")
        + rs.table(schema, ["place"], name="Counties")
        + rs.table(schema, ["age", "sex"], name="Pyramid")
        + rs.table(schema, place=state, age=rs.prefix, name="Cumulative ages")
        + rs.table(schema, place=rs.identity, age=rs.buckets(15, 65), name="Dependants")
        + rs.table(schema, age=rs.buckets(15, 25, 65), sex=rs.identity, work=rs.identity, name="Labour force")
        + rs.table(schema, ["place", "work"], name="County labour")
    )


def story(work: rs.Workload) -> Iterator[str]:
    """The lines of the demo, each as soon as it is known."""
    yield "Residua demo: planning a small census release"
    yield "No data is needed for this: all errors are known before anybody's answers are touched."
    yield from _published(work)
    yield ""
    yield "Looking for the best mechanism; this takes some seconds ..."
    plan = rs.plan(work, LEVELS[SHOWN])
    yield from _errors(plan)
    yield from _certificate(plan)
    yield from _comparison(plan)
    yield from _next_steps()


def _published(work: rs.Workload) -> Iterator[str]:
    yield from _heading(f"1. To be published: {work.tables} tables with {work.count} numbers")
    schema = work.schema
    sizes = ", ".join(f"{name} ({size})" for name, size in zip(schema.names, schema.sizes, strict=True))
    yield f"   Attributes and their cells: {sizes}"
    yield ""
    rows = [
        (group.name, f"{group.count}", group.describe(group.count // 3, schema)) for group in work.groups()
    ]
    yield from _table(("table", "numbers", "one of them"), rows, left=(0, 2))


def _errors(plan: rs.Plan) -> Iterator[str]:
    yield from _heading("2. How wrong each number will be, at three levels of privacy")
    plans = [plan.rescale(level) for level in LEVELS]
    rhos = [f"{float(each.privacy.rho):g}" for each in plans]
    epsilons = [f"{each.privacy.epsilon(DELTA):.2f}" for each in plans]
    rows = [
        (tables[0].name, *(f"{table.rmse:.1f}" for table in tables))
        for tables in zip(*(each.summary() for each in plans), strict=True)
    ]
    rows.append(("all numbers together", *(f"{each.rmse:.1f}" for each in plans)))
    gap = ("", *[""] * len(plans))
    privacy = (f"privacy: epsilon at delta {DELTA}", *epsilons)
    error = ("error: standard deviation", *[""] * len(plans))
    indented = [(f"  {row[0]}", *row[1:]) for row in rows]
    yield from _table(("privacy: rho of zCDP", *rhos), [privacy, gap, error, *indented], left=(0,))
    widest = plans[SHOWN].summary(plan.workload.select("Counties"))[0].max_stddev
    yield ""
    yield f"   Read: at rho = {rhos[SHOWN]}, each county's population will be published within"
    yield f"   {NORMAL_95 * widest:.0f} people of the truth with probability 95%, however large the county."


def _certificate(plan: rs.Plan) -> Iterator[str]:
    yield from _heading("3. Could another mechanism do better?")
    proof = plan.certificate
    whom = (
        "linear unbiased Gaussian mechanism" if proof.scope == "all mechanisms" else "choice on these blocks"
    )
    facts = (
        (
            f"sum of the {plan.workload.count} variances at rho = {float(plan.privacy.rho):g}",
            plan.total_variance,
        ),
        (f"proved: no {whom} is below", proof.lower_bound),
    )
    rows = [(words, f"{value:,.1f}") for words, value in facts]
    yield from _table(rows[0], rows[1:], left=(0,))
    yield f"   So at most {proof.gap:.2%} of it could be saved, by whatever choice of measurements."


def _comparison(plan: rs.Plan) -> Iterator[str]:
    yield from _heading("4. Against strategies that do not look at the tables")
    rho = float(plan.privacy.rho)
    rows = [("this plan", "what these tables ask for", f"{plan.rmse:.1f}", "1.0", f"{rho:.2f}")]
    for method, measures in BASELINES.items():
        other = rs.plan(plan.workload, plan.budget, method=method)
        ratio = other.rmse / plan.rmse
        rows.append((method, measures, f"{other.rmse:.1f}", f"{ratio:.1f}", f"{rho * ratio**2:.2f}"))
    head = ("method", "measures", f"error at rho = {rho:g}", "times ours", f"rho needed for {plan.rmse:.1f}")
    yield from _table(head, rows, left=(0, 1))


def _next_steps() -> Iterator[str]:
    yield from _heading("Next")
    steps = (
        ("README.md", "the same in ten lines of Python"),
        ("residua.demo.census()", "the tables above, to play with: work = census()"),
        ("plan = residua.plan(work, ...)", "help(residua.plan) tells of units of privacy, methods and gaps"),
        ("print(plan.explain())", "a plan in words; plan.summary() gives its figures"),
        ("plan.covariance(a, b)", "for the errors of sums and differences of published numbers"),
        ("plan.save('census.plan')", "one file, with a hash that identifies it"),
    )
    yield from _table(steps[0], steps[1:], left=(0, 1))


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield text
    yield "-" * len(text)


def _table(head: Row, rows: Iterable[Row], left: Sequence[int]) -> Iterator[str]:
    """Aligned columns; those in `left` start at the left, numbers end at the right."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        cells = (
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield ("   " + "   ".join(cells)).rstrip()


def main() -> None:
    """Print the demo."""
    import scipy.linalg  # noqa: F401  its BLAS must be there for the limit to hold

    with threadpool_limits(limits=1, user_api="blas"):  # more threads slow matrices of this size down
        for line in story(census()):
            print(line, flush=True)


if __name__ == "__main__":
    main()
