"""Coverage of intervals of derived statistics: 10,000 releases of three data sets, small groups included.

Answers of one release are linear in its noise, whose covariance is known; so a release is a draw of the joint
table, and everything else is computed from it by the code that users call. Run with -s to see the figures.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv

import residua as rs
from residua.privacy.budgets import interval_margin
from residua.release.intervals import Intervals, whole_ends
from residua.release.regression import Relates
from residua.release.statistics import Derives

RELEASES = 10_000
SURVEY = Path(__file__).parents[1] / "data" / "survey.csv"
GROUPS = tuple("abcdefgh")


def skewed() -> tuple[rs.Schema, np.ndarray, str]:
    """Groups of 15 to 6,000 records: a long tail, as of occupations or places."""
    schema = rs.Schema(
        group=rs.Categorical(*GROUPS), work=rs.Categorical("x", "y", "z"), age=rs.Integer(0, 11)
    )
    draw = np.random.default_rng(1)
    sizes = np.array([6000, 2500, 1000, 400, 160, 70, 30, 15])
    group = np.repeat(np.arange(8), sizes)
    work = draw.choice(3, len(group), p=[0.65, 0.3, 0.05])
    return schema, np.stack([group, work, np.minimum(draw.poisson(2 + work * 2), 11)], 1), "0.05"


def census() -> tuple[rs.Schema, np.ndarray, str]:
    """Invented people whose work depends on their age and sex."""
    schema = rs.Schema(
        group=rs.Categorical("F", "M"), work=rs.Categorical("x", "y", "z"), age=rs.Integer(0, 17)
    )
    draw = np.random.default_rng(2)
    age = np.minimum(draw.gamma(3.0, 2.4, 20_000).astype(int), 17)
    sex = draw.integers(0, 2, 20_000)
    odds = 1 / (1 + np.exp(-(age - 6.0) / 2 - 0.4 * sex))
    work = np.where(draw.random(20_000) < odds, 0, np.where(draw.random(20_000) < 0.3, 1, 2))
    return schema, np.stack([sex, work, age], 1), "0.01"


def survey() -> tuple[rs.Schema, np.ndarray, str]:
    """600 answers of a survey, a sixth of them without some value."""
    rows = csv.read_csv(SURVEY).to_pydict()
    schema = rs.Schema(
        group=rs.Categorical("north", "south", "east", "west"),
        work=rs.Categorical("no", "yes", outside="other"),
        age=rs.Binned(18, 30, 40, 50, 60, 70, 91),
    )
    kept = [at for at, age in enumerate(rows["age"]) if age is not None]
    columns = {"group": "region", "work": "satisfied", "age": "age"}
    found = [schema[name].encode([rows[own][at] for at in kept]) for name, own in columns.items()]
    return schema, np.stack(found, 1), "0.05"


class Drawn(Derives, Relates):
    """Simulated releases of one plan, one after the other: all that statistics ask of a release."""

    def __init__(self, schema: rs.Schema, codes: np.ndarray, rho: str) -> None:
        work = rs.marginals(schema, up_to=3) + rs.table(schema, group=rs.identity, age=rs.prefix)
        self.plan, self.schema = rs.plan(work, rs.zcdp(rho)), schema
        self.joint = rs.table(schema, list(schema.names))
        self.truth = np.zeros(schema.sizes)
        np.add.at(self.truth, tuple(codes.T), 1)
        self.truth = self.truth.reshape(-1)
        covariance = self.plan.covariance(self.joint, self.joint)
        values, vectors = np.linalg.eigh(covariance)
        self.root = vectors * np.sqrt(np.clip(values, 0, None))
        self.known: dict[object, np.ndarray] = {}
        self.cells = self.truth

    def draw(self, random: np.random.Generator) -> None:
        """Another release."""
        self.cells = self.truth + self.root @ random.standard_normal(len(self.truth))

    def values(self, work: rs.Workload) -> np.ndarray:
        return self._rows(work) @ self.cells

    def covariance(self, left: rs.Workload, right: rs.Workload) -> np.ndarray:
        key = (_key(left), _key(right))
        if key not in self.known:
            self.known[key] = self.plan.covariance(left, right)
        return self.known[key]

    def _rows(self, work: rs.Workload) -> np.ndarray:
        key = _key(work)
        if key not in self.known:
            (group,) = work.groups()
            rows = np.ones((1, 1))
            for at, size in enumerate(self.schema.sizes):
                own = [each.queries.matrix() for each in group.factors if each.attributes == (at,)]
                joint = [each for each in group.factors if len(each.attributes) > 1]
                assert not joint or len(group.factors) == 1
                rows = np.kron(rows, own[0] if own else np.ones((1, size)))
            if group.factors and len(group.factors[0].attributes) > 1:
                rows = self._spread(group.factors[0])
            self.known[key] = rows
        return self.known[key]

    def _spread(self, factor) -> np.ndarray:
        """Rows of a factor on several attributes, over all joint cells."""
        shape, sizes = [1] * 3, self.schema.sizes
        for at in factor.attributes:
            shape[at] = sizes[at]
        order = np.argsort(factor.attributes)
        rows = factor.queries.matrix().reshape(-1, *(sizes[at] for at in factor.attributes))
        rows = rows.transpose(0, *(1 + order)).reshape(-1, *shape)
        return np.broadcast_to(rows, (len(rows), *sizes)).reshape(len(rows), -1)


def _key(work: rs.Workload) -> object:
    return tuple(group.factors for group in work.groups())


def asked(source: Drawn) -> dict[str, Callable[[], rs.release.statistics.Statistic]]:
    """The statistics that are tried, by name."""
    schema = source.schema
    numbers = [20.0, 35, 45, 55, 65, 80] if schema["age"].size == 6 else None
    top = rs.linear(schema, ("work",), np.eye(schema["work"].size)[:1])
    other = rs.linear(schema, ("work",), np.eye(schema["work"].size)[1:2])
    return {
        "shares": lambda: source.share("work", within="group"),
        "ratios": lambda: source.ratio(top, other),
        "means": lambda: source.mean("age", by="group", values=numbers),
        "differences": lambda: source.difference(top, other),
        "quantiles": lambda: source.quantile("age", by="group", values=numbers),
    }


@pytest.mark.parametrize("data", [skewed, census, survey])
def test_intervals_cover_as_often_as_they_say(data, capsys):
    source = Drawn(*data())
    statistics = asked(source)
    counts = rs.table(source.schema, ["group", "work"])
    truths = {name: statistic().values for name, statistic in statistics.items()}
    numbers = source.values(counts)
    stddev = np.sqrt(source.plan.variances(counts))
    together = Intervals(0.95, simultaneous=True).margin("gaussian", source.covariance(counts, counts))
    sidak = float(interval_margin("gaussian", 0.95 ** (1 / len(numbers))))
    z = float(interval_margin("gaussian", 0.95))
    covered: dict[str, list[np.ndarray]] = {name: [] for name in (*truths, "whole", "simultaneous")}
    widths, random = [], np.random.default_rng(3)
    for _ in range(RELEASES):
        source.draw(random)
        for name, statistic in statistics.items():
            found = statistic()
            covered[name].append((found.lower <= truths[name]) & (truths[name] <= found.upper))
        values = source.values(counts)
        low, high = whole_ends(values - z * stddev, values + z * stddev)
        widths.append((high - low) / (2 * z * stddev))
        covered["whole"].append((low <= numbers) & (numbers <= high))
        covered["simultaneous"].append(np.array([(np.abs(values - numbers) <= together * stddev).all()]))
    rates = {name: float(np.mean(each)) for name, each in covered.items()}
    with capsys.disabled():
        print(f"\n{data.__name__}: coverage of 95% intervals in {RELEASES:,} releases")
        print("  " + "  ".join(f"{name} {rate:.2%}" for name, rate in rates.items()))
        print(f"  half widths of simultaneous intervals: {together:.3f} stddev, Sidak's {sidak:.3f}")
        print(f"  whole intervals are {np.mean(widths):.3f} times as wide as plain ones")
    for name in ("shares", "ratios", "means", "differences"):
        assert 0.94 <= rates[name] <= 0.965, name
    for name in ("quantiles", "whole", "simultaneous"):
        assert rates[name] >= 0.94, name
    assert together <= sidak
