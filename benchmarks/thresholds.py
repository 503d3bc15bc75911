"""Work just below and above limits at which planning changes its way: 1% more cells, not 3 times the time.

Each pair is two workloads of one kind whose sizes are on both sides of a limit of `residua._limits`; both are
planned, in an interpreter of their own each, and processor seconds compared. Fails where the larger one takes
more than 3 times as long (and more than a second longer: below that it is noise). `thresholds.py NAME ...`
takes only pairs whose name has these words.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import product

from _fresh import Row, measure, print_row
from _timing import Limits

import residua as rs
from residua import _limits as at

JUMP, NOISE, PATIENCE = 3.0, 1.0, 300.0

Pair = tuple[Callable[[int], rs.Workload], int, int]
"""A workload by a size, and the sizes below and above a limit."""


def prefixes(cells: int) -> rs.Workload:
    """Running totals over one attribute."""
    return rs.table(rs.Schema.of_sizes([cells]), a0=rs.prefix)


def ranges(cells: int) -> rs.Workload:
    """Ranges of one attribute."""
    return rs.table(rs.Schema.of_sizes([cells]), a0=rs.ranges)


def mixed(*others: int) -> Callable[[int], rs.Workload]:
    """Running totals and ranges over an attribute of so many cells beside others, none of them plain."""

    def made(cells: int) -> rs.Workload:
        schema = rs.Schema.of_sizes([cells, *others])
        first = rs.table(schema, {"a0": rs.prefix, "a1": rs.identity})
        rest = {f"a{number}": rs.prefix for number in range(1, len(others) + 1)}
        return first + rs.table(schema, rest) + rs.table(schema, {"a0": rs.identity, **rest})

    return made


def plain(*others: int) -> Callable[[int], rs.Workload]:
    """Running totals over an attribute of so many cells beside others that are asked for plain counts."""

    def made(cells: int) -> rs.Workload:
        schema = rs.Schema.of_sizes([cells, *others])
        return rs.marginals(schema, up_to=2) + rs.table(schema, a0=rs.prefix)

    return made


def conditions(cells: int) -> rs.Workload:
    """Two conditions across attributes beside marginals."""
    schema = rs.Schema.of_sizes([cells, 24, 6])
    late = f"SELECT a2, COUNT(*) FROM t WHERE a0 > {cells // 3} AND a1 >= 18 GROUP BY a2"
    early = f"SELECT COUNT(*) FROM t WHERE a0 < {cells // 5} OR a1 < 6"
    return rs.marginals(schema, up_to=2) + rs.sql(schema, late) + rs.sql(schema, early)


def leaves(count: int) -> rs.Workload:
    """Age groups and sex at three levels of places."""
    rows = [(f"s{leaf % 5}", f"c{leaf % 5}-{leaf % 23}", f"t{leaf}") for leaf in range(count)]
    tree = rs.Hierarchy(("state", "county", "tract"), rows)
    schema = rs.Schema(place=tree, age=rs.Integer(0, 17), sex=rs.Categorical("F", "M"))
    return rs.levels(schema, "place", ["age", "sex"])


def listed(cells: int) -> rs.Workload:
    """Affine queries on two attributes beside marginals."""
    schema = rs.Schema.of_sizes([cells, 20, 3])
    return rs.table(schema, {("a0", "a1"): rs.affine}) + rs.marginals(schema, up_to=2)


def pairs() -> dict[str, Pair]:
    """Every pair by its name: the limit, and what is planned."""
    found: dict[str, Pair] = {
        "DENSE_CELLS prefix": (prefixes, at.DENSE_CELLS // 2, at.DENSE_CELLS // 2 + 20),
        "BOUND_CELLS ranges": (ranges, at.BOUND_CELLS, at.BOUND_CELLS + 20),
        "JOINT_CELLS prefix": (prefixes, at.JOINT_CELLS, at.JOINT_CELLS + 1),
        "COMPARED_PLACES": (leaves, at.COMPARED_PLACES, at.COMPARED_PLACES + 1),
        "LIGHT_WORK places": (leaves, 240, 260),
        "places of a thousand": (leaves, 1_000, 1_010),
        "FREE_CELLS affine": (listed, 203, 206),
        "SPLIT_CELLS affine": (listed, 34, 36),
        "CENTRING and conditions": (conditions, 340, 344),
        "UNION_WORK conditions": (conditions, 60, 61),
    }
    for other, cells in ((12, 340), (12, 170), (12, 90), (4, 256)):
        found[f"dense work {cells} x {other} x 2"] = (mixed(other, 2), cells, cells + max(1, cells // 100))
    for width, cells in product((5, 50), (51, 400, 1_000)):
        found[f"PLAIN_CELLS {cells} x {width}"] = (plain(width, 3), cells, cells + max(1, cells // 100))
    for rank in (at.BRIEF_RANK, at.BLOCK_RANK):
        side = round(rank**0.5) + 1
        found[f"rank {rank}"] = (mixed(side, 2), side, side + 1)
    return found


def run(name: str, cells: int) -> Row | str:
    """The figures of one workload in an interpreter of its own, or why there are none."""
    command = [sys.executable, __file__, "--one", name, str(cells)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"stopped after {PATIENCE:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:120]
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    known = pairs()
    if sys.argv[1:2] == ["--one"]:
        print_row(measure(lambda: known[sys.argv[2]][0](int(sys.argv[3])), "auto"))
        return 0
    limits = Limits()
    print(f"{'limit':32}{'cells':>7}{'CPU s':>8}{'cells':>7}{'CPU s':>8}{'times':>7}")
    for name, (_, below, above) in known.items():
        if not all(word in name for word in sys.argv[1:]):
            continue
        rows = run(name, below), run(name, above)
        if isinstance(rows[0], str) or isinstance(rows[1], str):
            print(f"{name:32}  {rows}", flush=True)
            limits.check(False, f"{name} was not planned")
            continue
        before, after = rows[0].cpu, rows[1].cpu
        print(f"{name:32}{below:>7}{before:>8.2f}{above:>7}{after:>8.2f}{after / before:>7.2f}", flush=True)
        limits.check(
            after <= max(JUMP * before, before + NOISE), f"{name}: {after / before:.1f} times the time"
        )
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
