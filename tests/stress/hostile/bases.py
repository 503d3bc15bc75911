"""Sound plans and releases of every method, law and kind of strategy: what hostile files are made from."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import residua as rs
from residua.methods.registry import methods_for

FIXTURES = Path(__file__).parents[2] / "fixtures"
SCHEMA = rs.Schema(
    age=rs.Integer(0, 4),
    sex=rs.Categorical("F", "M"),
    pay=rs.Binned(0, 10, 20, above=True, outside="other"),
    place=rs.Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")]),
)
RECORDS = np.array([[0, 0, 0, 0], [1, 1, 3, 2], [4, 0, 2, 1], [4, 1, 1, 1], [2, 0, 0, 2]])
TWO_WAY = rs.marginals(SCHEMA, ways=(0, 1, 2)) + 2 * rs.table(
    SCHEMA, age=rs.prefix, sex=rs.identity, name="T"
)
FAMILIES = (
    rs.table(SCHEMA, {"age": rs.ranges, "place": rs.level("state")}, name="ranges")
    + rs.table(SCHEMA, {("age", "pay"): rs.affine, "sex": rs.total})
    + rs.all_tables(SCHEMA, 2, rs.abs_diff, attributes=["age", "pay"])
    + rs.linear(SCHEMA, ("sex", "age"), np.arange(20.0).reshape(2, 10), [1.0, 2.0], name="linear")
    + rs.table(SCHEMA, age=rs.width(2), sex=rs.buckets({"all": ["F", "M"], "F": ["F"]}))
    + rs.table(SCHEMA, age=rs.circular, pay=rs.predicates)
)
TIED = rs.table(SCHEMA, ["sex"], where="age >= 3 OR pay < 10") + rs.table(SCHEMA, ["age"])
ASKED = {"two-way": TWO_WAY, "families": FAMILIES, "tied": TIED}


def plans() -> Iterator[tuple[str, rs.Plan]]:
    """Plans by name."""
    units = {"": rs.Unit(), "-replaced": rs.Unit(max_records=2, neighbours="replace_one")}
    for law in ("gaussian", "laplace"):
        budget = rs.zcdp("0.1") if law == "gaussian" else rs.pure_dp(1)
        for method in methods_for(law):
            for title, work in ASKED.items():
                for ending, unit in units.items():
                    try:
                        yield (
                            f"{law}-{method}-{title}{ending}",
                            rs.plan(work, budget, unit=unit, method=method),
                        )
                    except rs.ResiduaError:  # not every method plans every workload
                        continue
    yield "targets", rs.plan(TWO_WAY, targets={name: rs.stddev(5) for name in TWO_WAY.names})
    yield "largest", rs.plan(TWO_WAY, rs.approx_dp(1, "1e-6"), objective="max_variance")
    each = np.linspace(1, 2, TIED.count)
    yield "targets-by-query", rs.plan(TIED, targets=each)


def make(folder: Path, *, fresh: bool) -> None:
    """Write the files that mutants are made from into a folder: those that are kept, and fresh ones."""
    folder.mkdir(parents=True)
    for path in FIXTURES.iterdir():
        if path.suffix in (".plan", ".release"):
            (folder / path.name).write_bytes(path.read_bytes())
    if not fresh:
        return
    kept = {}
    for name, plan in plans():
        plan.save(folder / f"{name}.plan")
        release = rs.measure(plan, RECORDS, ledger=None, noise=rs.simulated(seed=1))
        release.save(folder / f"{name}.release")
        kept[name] = release
    for name in ("gaussian-auto-two-way", "gaussian-identity-two-way", "gaussian-smasher-families"):
        again = rs.measure(kept[name].plan, RECORDS, ledger=None, noise=rs.simulated(seed=2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these releases have no ledger
            rs.combine(kept[name], again).save(folder / f"{name}-combined.release")
