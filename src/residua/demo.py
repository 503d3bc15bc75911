"""A small census release, planned before your eyes: `python -m residua.demo`. No data is involved."""

from collections.abc import Iterable, Iterator, Sequence

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
BASELINES = ("identity", "hierarchical", "wavelet")
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
    yield "Residua: planning a small census release"
    yield "No data is needed for any of this. All errors are known before anybody's answers are touched."
    yield from _published(work)
    yield ""
    yield "Planning (the best of all mechanisms is searched for; a few seconds) ..."
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
    names = [f"rho = {float(each.privacy.rho):g}" for each in plans]
    epsilons = [f"{each.privacy.epsilon(DELTA):.2f}" for each in plans]
    rows = [
        (tables[0].name, *(f"{table.rmse:.1f}" for table in tables))
        for tables in zip(*(each.summary() for each in plans), strict=True)
    ]
    overall = ("all numbers", *(f"{each.rmse:.1f}" for each in plans))
    head = ("standard deviation of", *names)
    yield from _table(head, [(f"epsilon at delta {DELTA}", *epsilons), *rows, overall], left=(0,))
    example = plans[SHOWN].summary(plan.workload.select("Counties"))[0]
    yield ""
    yield f"   Read: at {names[SHOWN]}, nineteen of twenty county populations will be published within"
    yield f"   {NORMAL_95 * example.max_stddev:.0f} people of the truth, whatever the counties' sizes. Errors have mean zero."


def _certificate(plan: rs.Plan) -> Iterator[str]:
    yield from _heading("3. Could another mechanism do better?")
    proof = plan.certificate
    yield f"   Sum of the variances of all {plan.workload.count} numbers:   {plan.total_variance:>10,.1f}"
    whom = "any unbiased mechanism" if proof.scope == "all mechanisms" else "any on the same blocks"
    yield f"   Proved impossible, for {whom}, below: {proof.lower_bound:>10,.1f}"
    yield f"   So at most {proof.gap:.2%} could be gained, by any method, known or not yet invented."


def _comparison(plan: rs.Plan) -> Iterator[str]:
    yield from _heading("4. Against strategies that do not look at the tables")
    rows = [("this plan", f"{plan.rmse:.1f}", "1.0", "1.0")]
    for method in BASELINES:
        other = rs.plan(plan.workload, plan.budget, method=method)
        ratio = other.rmse / plan.rmse
        rows.append((method, f"{other.rmse:.1f}", f"{ratio:.1f}", f"{ratio**2:.1f}"))
    head = ("method", "overall error", "times ours", "privacy (rho) for the error of ours, times")
    yield from _table(head, rows, left=(0,))


def _next_steps() -> Iterator[str]:
    yield from _heading("Next")
    yield "   README.md                  the same in ten lines of Python"
    yield "   print(plan.explain())      a plan in words; plan.summary() the same as figures"
    yield "   plan.covariance(a, b)      errors of sums and differences of published numbers"
    yield "   plan.save('census.plan')   one file, with a hash that identifies it"
    yield "   help(residua.plan)         units of privacy, methods, gaps"


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
    for line in story(census()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
