"""A small census of invented people, planned, measured and answered before your eyes: `residua demo`."""

import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np

import residua as rs
from residua._arrays import Array, Integers
from residua._text import columns
from residua.accuracy.figures import percent_up
from residua.answering.protocol import apply_queries
from residua.linalg.matrices import threads_for
from residua.spec import load_spec
from residua.workload import Table

SPEC = files("residua") / "demo.yaml"
LEVELS = (rs.zcdp("0.01"), rs.zcdp("0.05"), rs.zcdp("0.25"))
SHOWN = 1  # of the levels: the one that the later sections are about
DELTA = "1e-6"
BASELINES = {"identity": "every cell", "hierarchical": "trees of sums", "wavelet": "Haar wavelets"}
NORMAL_95 = 1.96
PEOPLE = 100_000
COUNTY_SHARES = (0.19, 0.16, 0.13, 0.04, 0.15, 0.12, 0.08, 0.09, 0.04)
# Chances of each kind of work, by age from 0, 15, 25 and 65 years on.
WORK_BY_AGE = ((0.0, 0.0, 1.0), (0.35, 0.10, 0.55), (0.78, 0.06, 0.16), (0.08, 0.01, 0.91))

_table = partial(columns, indent="   ", gap="   ")


def census() -> rs.Workload:
    """The tables to be published, on a schema of four attributes."""
    return load_spec(str(SPEC)).workload


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


def _published(work: rs.Workload) -> Iterator[str]:
    yield from _heading(f"1. To be published: {work.tables} tables with {work.count} numbers")
    schema = work.schema
    sizes = ", ".join(f"{name} ({size})" for name, size in zip(schema.names, schema.sizes, strict=True))
    yield f"   Attributes and their cells: {sizes}"
    yield ""
    rows = [(own.name, f"{own.count}", own.describe(own.count // 3, schema)) for own in work.groups()]
    yield from _table(("table", "numbers", "one of them"), rows, left=(0, 2))


def _errors(plan: rs.Plan) -> Iterator[str]:
    yield from _heading("2. How wrong each number will be, at three levels of privacy")
    plans = [plan.rescale(level) for level in LEVELS]
    rhos = [f"{float(each.privacy.rho):g}" for each in plans]
    epsilons = [f"{each.privacy.epsilon(DELTA):.2f}" for each in plans]
    empty = [""] * len(plans)
    rows = [(f"privacy: epsilon at delta {DELTA}", *epsilons)]
    rows += [("", *empty), ("error: standard deviation", *empty)]
    for tables in zip(*(each.summary() for each in plans), strict=True):
        rows.append((f"  {tables[0].name}", *(f"{table.rmse:.1f}" for table in tables)))
    rows.append(("  all numbers together", *(f"{each.rmse:.1f}" for each in plans)))
    yield from _table(("privacy: rho of zCDP", *rhos), rows, left=(0,))
    widest = plans[SHOWN].summary(plan.workload.select("Counties"))[0].max_stddev
    yield ""
    yield f"   Read: at rho = {rhos[SHOWN]}, each county's population will be published within"
    yield f"   {NORMAL_95 * widest:.0f} people of the truth with probability 95%, however large the county."


def _certificate(plan: rs.Plan) -> Iterator[str]:
    yield from _heading("3. Could another mechanism do better?")
    proof = plan.certificate
    everybody = proof.scope == "all mechanisms"
    whom = "linear unbiased Gaussian mechanism" if everybody else "choice on these blocks"
    all_of_them = f"sum of the {plan.workload.count} variances at rho = {float(plan.privacy.rho):g}"
    proved = (f"proved: no {whom} is below", f"{proof.lower_bound:,.1f}")
    yield from _table((all_of_them, f"{plan.total_variance:,.1f}"), [proved], left=(0,))
    yield f"   So at most {percent_up(proof.gap)} of it could be saved, by whatever choice of measurements."


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


def release_story(folder: Path) -> Iterator[str]:
    """The lines about a release of invented people, whose files are left in a folder."""
    yield from _heading(f"5. Releasing the tables of {PEOPLE:,} invented people")
    people = folder / "people.csv"
    invent(people)
    (folder / "census.yaml").write_bytes(SPEC.read_bytes())
    spec = load_spec(folder / "census.yaml")
    ledger = rs.Ledger.create(folder / "budget.db", rs.zcdp("0.25"), dataset="invented people")
    release = rs.measure(spec.plan(), people, ledger=ledger, note="demo")
    release.save(spec.release_file)
    ledger.complete(ledger.entries()[0], release.hash)
    release.write_answers(spec.answers_file)
    yield "   The ledger was debited before any noise was drawn; the noise is exact and from the system."
    yield from ("   " + line for line in ledger.describe().splitlines())
    yield from _against_truth(release, people)
    yield from _next_steps(folder)


def invent(path: Path) -> None:
    """Write a CSV file of invented people."""
    import pyarrow as pa
    from pyarrow import csv

    draw = np.random.default_rng(2024)
    schema = census().schema
    counties = np.array([path.rpartition("/")[2] for path in schema["place"].labels()])
    county = draw.choice(len(counties), PEOPLE, p=COUNTY_SHARES)
    age = np.minimum(draw.gamma(2.6, 15.5, PEOPLE) + draw.uniform(0, 6, PEOPLE), 104).astype(np.int64)
    stage = np.searchsorted((15, 25, 65), age, side="right")
    limits = np.cumsum(WORK_BY_AGE, axis=1)[stage]
    work = (draw.random(PEOPLE)[:, None] > limits[:, :2]).sum(axis=1)
    columns = {
        "age": age,
        "sex": np.array(schema["sex"].labels())[(draw.random(PEOPLE) < 0.49).astype(int)],
        "place": counties[county],
        "work": np.array(schema["work"].labels())[work],
    }
    csv.write_csv(pa.table(columns), path)


def _against_truth(release: rs.Release, people: Path) -> Iterator[str]:
    from pyarrow import csv

    yield from _heading("6. What was published, beside the truth (known here, since we invented it)")
    work = release.plan.workload
    codes = work.schema.encode(csv.read_csv(people))
    cells = np.ravel_multi_index(tuple(codes.T), work.schema.sizes)
    histogram = np.bincount(cells, minlength=work.schema.cells).reshape(work.schema.sizes)
    truth = {group.name: exact_answers(group, histogram) for group in work.groups()}
    answers = release.answers(work.select("Counties")).to_pylist()
    rows = []
    for row, true in zip(answers, truth["Counties"].tolist(), strict=True):
        value, stddev, off = f"{row['value']:,.1f}", f"{row['stddev']:.1f}", f"{row['value'] - true:+.1f}"
        interval = f"{row['lower']:,.0f} to {row['upper']:,.0f}"
        rows.append((row["place"], value, stddev, interval, f"{true:,.0f}", off))
    yield from _table(("county", "published", "stddev", "95% interval", "truth", "off by"), rows, left=(0,))
    whole = release.answers()
    true = np.concatenate([truth[group.name] for group in work.groups()])
    inside = (whole["lower"].to_numpy() <= true) & (true <= whole["upper"].to_numpy())
    yield ""
    yield f"   The truth is in the 95% interval of {int(inside.sum())} of all {work.count} published numbers."


def exact_answers(group: Table, histogram: Integers) -> Array:
    """The true answers of one table, whose families are on one attribute each."""
    asked = [factor.attributes[0] for factor in group.factors]
    others = tuple(axis for axis in range(histogram.ndim) if axis not in asked)
    counts: Array = histogram.sum(axis=others).astype(np.float64)
    counts = counts.transpose([sorted(asked).index(axis) for axis in asked])
    return apply_queries(counts, group.factors).reshape(-1)


def _next_steps(folder: Path) -> Iterator[str]:
    yield from _heading("Next")
    yield f"   Look around in {folder}"
    steps = (
        ("census.yaml", "the spec: edit it, then plan it again"),
        ("census.parquet", "every published number with its error"),
        ("people.csv", "the invented people"),
        ("residua answer census.release --table place,work", "any table that the measurements support"),
        ("residua report census.release", "its privacy, its errors, and how it came to be"),
        ("residua budget show budget.db", "what was spent, by what, and what is left"),
        ("residua init people.csv -o mine.yaml", "start a spec of your own"),
    )
    yield from _table(steps[0], steps[1:], left=(0, 1))


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield text
    yield "-" * len(text)


def main(folder: Path | None = None) -> None:
    """Print the demo; its files are left in the folder, or in a new temporary one."""
    place = Path(tempfile.mkdtemp(prefix="residua-demo-")) if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise rs.FileFormatError(f"{place} is not empty; name a new folder for the files of the demo")
    with threads_for(0):  # measuring and answering too; planning sees to it by itself
        for line in story(census()):
            print(line, flush=True)
        for line in release_story(place):
            print(line, flush=True)


if __name__ == "__main__":
    main()
