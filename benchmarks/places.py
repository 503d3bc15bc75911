"""Places: planning by size, redistricting tables from start to end, and the budget split of 2020.

Fails where planning takes longer than stated, or that of eight million blocks more than 4 GB; where planning
or answering grows faster than the number of places to the power 1.1; where a state of 25,000 blocks takes
more than 3 CPU minutes or 3 GB, a nation of 85,000 tracts more than 20 CPU minutes or 4 GB; where the split
of 2020 is better than ours in total; or where whole tables of the nation take more than 2 CPU minutes or do
not add up. Figures are of one run on one core. Give a number of blocks to try a smaller state.
"""

import csv
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import residua as rs
from residua.answering.blocks import Layer

LEVELS = ("state", "county", "tract", "group", "block")
SPLIT = (104, 1440, 447, 687, 1256, 165)  # of 4099: nation, state, county, tract, block group, block
NATION = (51, 3_227, 85_000, 240_000)
BLOCKS = 8_000_000
STATE = (1, 62, 2_000, 6_000, 25_000)
GROWTH = 1.1


def places(sizes: Sequence[int], levels: Sequence[str], seed: int = 1) -> rs.Hierarchy:
    """Places of an uneven tree with so many nodes at each level, from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "places.csv"
        write(path, sizes, levels, seed)
        return rs.Hierarchy.load(path, levels=levels)


def write(path: Path, sizes: Sequence[int], levels: Sequence[str], seed: int = 1) -> None:
    """The file of such places."""
    draw, owners, parents = np.random.default_rng(seed), 1, []
    for size in sizes:
        weights = draw.gamma(1.0, 1.0, owners)
        parents.append(
            np.repeat(np.arange(owners), 1 + draw.multinomial(size - owners, weights / weights.sum()))
        )
        owners = size
    nodes = [np.arange(sizes[-1])]
    for own in parents[:0:-1]:
        nodes.insert(0, own[nodes[0]])
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(levels)
        writer.writerows(zip(*(own.tolist() for own in nodes), strict=True))


def timed(what: str, start: float, most: float = np.inf) -> float:
    """CPU seconds since a start, told; the run fails where they are too many."""
    taken = time.process_time() - start
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  {what}: {taken:.1f} CPU s, {held:.2f} GB at most so far", flush=True)
    assert taken <= most, f"{what} took {taken:.1f} CPU s, more than {most}"
    return taken


def planned(sizes: Sequence[int], most: float, **others: rs.Integer) -> float:
    """CPU seconds to plan the same table at every level, and of the nation."""
    schema = rs.Schema(place=places(sizes, LEVELS[: len(sizes)]), **others)
    work = rs.table(schema, list(others)) + rs.levels(schema, "place", list(others))
    start = time.process_time()
    plan = rs.plan(work, rs.zcdp(1))
    taken = timed(
        f"{sizes[-1]:,} places at {len(sizes) + 1} levels{' by ' + ', '.join(others) if others else ''}",
        start,
        most,
    )
    print(f"    at most {plan.certificate.gap:.3%} above any mechanism")
    return taken


def planning() -> None:
    print("planning")
    all_blocks()
    planned((51,), 60)  # loads what has to be loaded
    people = {"age": rs.Integer(0, 17), "sex": rs.Integer(0, 1)}
    planned(NATION[:2], 3, **people)
    planned(NATION[:3], 10, **people)
    planned(NATION, 20, **people)
    few, many = (planned((51, 500, size), 60) for size in (10_000, 1_000_000))
    exponent = np.log(many / few) / np.log(100)
    print(f"  growth from 10,000 to 1,000,000 places: exponent {exponent:.2f}, at most {GROWTH}")
    assert exponent <= GROWTH


def all_blocks() -> None:
    """Counts of eight million blocks, in processes of their own: their memory is told apart."""
    with tempfile.TemporaryDirectory() as folder:
        for step in ("write", "plan"):
            subprocess.run([sys.executable, __file__, step, f"{folder}/places.csv"], check=True)


def plan_blocks(path: Path) -> None:
    start = time.process_time()
    schema = rs.Schema(place=rs.Hierarchy.load(path, levels=LEVELS))
    timed(f"read {schema.sizes[0]:,} places", start)
    work = rs.table(schema, []) + rs.levels(schema, "place")
    start = time.process_time()
    plan = rs.plan(work, rs.zcdp(1))
    timed("plan their counts at six levels", start, 60)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert held <= 4, f"{held:.2f} GB were held"
    start = time.process_time()
    plan.save(path.with_name("blocks.plan"))
    timed("save the plan", start)


def redistricting(schema: rs.Schema) -> rs.Workload:
    """Race, alone and by origin, for all and for those of voting age, at every level."""
    tables = (["race"], ["hispanic", "race"], ["adult", "race"], ["adult", "hispanic", "race"])
    found = [
        work for names in tables for work in (rs.table(schema, names), rs.levels(schema, "place", names))
    ]
    return sum(found[1:], found[0])


def people(schema: rs.Schema, count: int) -> np.ndarray:
    """Codes of invented people: few races are common, and places differ in size."""
    draw = np.random.default_rng(2)
    place = np.minimum((draw.beta(0.8, 1.2, count) * schema.sizes[0]).astype(np.int32), schema.sizes[0] - 1)
    race = np.minimum(draw.geometric(0.45, count) - 1, 62).astype(np.int32)
    return np.column_stack([place, race, draw.integers(0, 2, count), draw.integers(0, 2, count)])


def state(sizes: Sequence[int], records: int) -> None:
    print(f"a state of {sizes[-1]:,} blocks")
    place = places(sizes, LEVELS)
    schema = rs.Schema(place=place, race=rs.Integer(0, 62), hispanic=rs.Integer(0, 1), adult=rs.Integer(0, 1))
    work, codes = redistricting(schema), people(schema, records)
    whole = start = time.process_time()
    plan = rs.plan(work, rs.zcdp(1))
    timed(f"plan of {work.count:,} numbers", start)
    start = time.process_time()
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    timed(f"measure {records:,} records", start)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.parquet"
        release.write_answers(path)
        timed(f"all answers with errors, {path.stat().st_size / 2**20:,.0f} MB", start)
    timed("all of it", whole, 180)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert held <= 3, f"{held:.2f} GB were held"
    against_2020(plan)


def against_2020(plan: rs.Plan) -> None:
    """Total variance of each level, ours beside that of the split of 2020 at the same privacy cost."""
    strategy = plan.strategy
    counts = [1, *(plan.schema[f"place.{level}"].size for level in LEVELS)]
    shares = {
        count: sum(own for own, each in zip(SPLIT, counts, strict=True) if each == count) for count in counts
    }
    theirs = replace(strategy, layers=tuple(_at_shares(strategy.layers, shares)), grain=None)
    theirs = theirs.scaled(strategy.cost() / theirs.cost())
    print("total variance of each level, the split of 2020 over ours")
    sums = np.zeros((2, len(counts)))
    for group in plan.workload.groups():
        depth = next(
            (at for at, level in enumerate(LEVELS, start=1) if f"place.{level} " in f"{group.name} "), 0
        )
        sums[:, depth] += [each.total(group, weighted=True) for each in (strategy, theirs)]
    for name, (mine, other) in zip(("nation", *LEVELS), sums.T, strict=True):
        print(f"  {name:7} {other / mine:6.2f}")
    ours, split = sums.sum(axis=1)
    print(f"  all     {split / ours:6.2f}")
    assert ours < split


def _at_shares(layers: Sequence[Layer], shares: dict[int, int]) -> Iterator[Layer]:
    """Layers whose levels have these shares of the budget, each divided among tables as the layers do it."""
    whole: dict[int, np.ndarray] = {}  # of each place, or of all blocks on all places together
    for layer in layers:
        own = layer.costs.sum(keepdims=True) if layer.within is None else layer.costs
        whole[len(own)] = whole.get(len(own), 0) + own
    for layer in layers:
        places = 1 if layer.within is None else len(layer.noise)
        costs = layer.costs / whole[places] * shares[places] / sum(SPLIT)
        yield replace(layer, noise=layer.noise * layer.costs / costs, costs=costs, shares=None)


def answering() -> None:
    """Growth of answering: estimates, values and errors of the counts of all places."""
    print("answering")
    taken = []
    for size in (10_000, 1_000_000):
        schema = rs.Schema(place=places((51, 500, size), LEVELS[:3]))
        work = rs.table(schema, []) + rs.levels(schema, "place")
        plan = rs.plan(work, rs.zcdp(1))
        codes = np.arange(size, dtype=np.int32)[:, None]
        release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
        release.plan.strategy.answerer.require_answerable(next(work.groups()))  # loads what has to be
        start = time.process_time()
        release.values(work)
        plan.variances(work)
        taken.append(timed(f"all answers and errors of {size:,} places", start))
    exponent = np.log(taken[1] / taken[0]) / np.log(100)
    print(f"  growth from 10,000 to 1,000,000 places: exponent {exponent:.2f}, at most {GROWTH}")
    assert exponent <= GROWTH


def nation(sizes: Sequence[int], records: int) -> None:
    """The same tables for all tracts of a nation, measured and answered in parts, written state by state."""
    print(f"a nation of {sizes[-1]:,} tracts")
    place = places(sizes, LEVELS[: len(sizes)])
    schema = rs.Schema(place=place, race=rs.Integer(0, 62), hispanic=rs.Integer(0, 1), adult=rs.Integer(0, 1))
    work, codes = redistricting(schema), people(schema, records)
    whole = time.process_time()
    plan = rs.plan(work, rs.zcdp(1))
    timed(f"plan of {work.count:,} numbers", whole)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nation.release"
        rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1), into=path)
        timed(f"measure {records:,} records into {path.stat().st_size / 2**20:,.0f} MB", whole)
        start = time.process_time()
        release = rs.Release.load(path)
        timed("load", start)
        for names in (["place.state", "race"], ["place.county", "adult"]):
            start = time.process_time()
            release.table(names)
            timed(f"table of {' by '.join(names)}", start)
        release.write_answers(Path(folder) / "answers", by="place.state")
        written = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
    timed(f"all of it, {written / 2**20:,.0f} MB", whole, 1200)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert held <= 4, f"{held:.2f} GB were held"


def whole_tables(sizes: Sequence[int], records: int, most: float = 120) -> None:
    """Whole tables of all tracts of a nation by age and sex, states' totals known: they add up exactly."""
    print(f"whole tables of {sizes[-1]:,} tracts")
    place = places(sizes, LEVELS[: len(sizes)])
    schema = rs.Schema(place=place, age=rs.Integer(0, 17), sex=rs.Integer(0, 1))
    draw = np.random.default_rng(3)
    codes = np.column_stack([draw.integers(0, size, records, dtype=np.int32) for size in schema.sizes])
    work = rs.table(schema, ["age", "sex"]) + rs.levels(schema, "place", ["age", "sex"])
    release = rs.measure(rs.plan(work, rs.zcdp(1)), codes, ledger=None, noise=rs.simulated(seed=1))
    states = np.bincount(place.level_of("state")[codes[:, 0]])
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rs.PublicFactWarning)
        found = release.rounded(rs.known(rs.table(schema, ["place.state"]), states), replicates=0)
    timed("shared out from the nation down", start, most)
    assert found.tables.disagreement() == 0
    assert (found.table("place.state").values == states).all()


def main() -> None:
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else STATE[-1]
    if blocks == STATE[-1]:
        planning()
        answering()
    state([max(1, size * blocks // STATE[-1]) for size in STATE], records=40 * blocks)
    if blocks == STATE[-1]:
        nation(NATION[:3], records=10_000_000)
        whole_tables(NATION[:3], records=10_000_000)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(Path(sys.argv[2]), (*NATION, BLOCKS), LEVELS)
    elif sys.argv[1:2] == ["plan"]:
        plan_blocks(Path(sys.argv[2]))
    else:
        main()
