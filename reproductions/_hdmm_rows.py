"""Rows of HDMM's Tables 6 and 7: one multi-dimensional workload, every method that the paper prints."""

import argparse
import math
from dataclasses import dataclass

from _comparison import Comparison
from _products import (
    ALLOWED,
    GAUSSIAN_VARIANCE,
    WORKLOADS,
    identity,
    noise_on_answers,
    rmse,
    workload_itself,
)

import residua as rs
from residua.errors import Infeasible
from residua.privacy import NoiseLaw

OUR_TABLES = "SF1 from the public table definitions; the paper does not list its own"
BASELINES = ("identity", "hierarchical", "hb", "wavelet", "greedy", "eigen", "datacube")


@dataclass(frozen=True, slots=True)
class Printed:
    """One row of a table as text; no figure where the paper has none.

    `odd` says why the figure of noise on the answers cannot be held against us.
    """

    identity: str
    direct: str
    datacube: str | None
    kron: str
    union: str
    marginals: str
    hdmm: str
    svdb: str | None
    odd: str = ""


def compare_row(table: Comparison, key: tuple[str, str], printed: Printed, law: NoiseLaw) -> None:
    """Every printed figure of one workload, and for the Census ours against our own baselines."""
    work = WORKLOADS[key]()
    name = " ".join(key)
    census = key[0] == "Census"
    if printed.odd:
        table.beside(f"{name} direct noise", noise_on_answers(work, law), printed.direct, printed.odd)
    else:
        table.agrees(f"{name} direct noise", noise_on_answers(work, law), printed.direct)
    if census:
        table.beside(f"{name} Identity", identity(work, law), printed.identity, OUR_TABLES)
    else:
        table.agrees(f"{name} Identity", identity(work, law), printed.identity)
    found = {}
    for method in ("hdmm-kron", "hdmm-union", "hdmm-marginals"):
        try:
            found[method] = rmse(work, law, method)
        except Infeasible:
            continue  # nothing to unite where one product asks for everything
    theirs = {"hdmm-kron": printed.kron, "hdmm-union": printed.union, "hdmm-marginals": printed.marginals}
    for method, ours in found.items():
        if census:
            table.beside(f"{name} {method}", ours, theirs[method], OUR_TABLES)
        else:
            table.nearly(f"{name} {method}", ours, theirs[method], ALLOWED)
    best = min(found.values())
    if census:
        table.beside(f"{name} HDMM", best, printed.hdmm, OUR_TABLES)
        compare_baselines(table, name, work, law, best)
    else:
        table.nearly(f"{name} HDMM", best, printed.hdmm, ALLOWED)
    if printed.datacube is not None:
        reason = "ours merges marginals by the error of least squares, theirs by a bound on it"
        table.beside(f"{name} DataCube", rmse(work, law, "datacube"), printed.datacube, reason)
    if printed.svdb is not None:
        unit = 2.0 if law == "laplace" else GAUSSIAN_VARIANCE
        table.agrees(f"{name} SVDB", math.sqrt(unit * rs.bounds.svd(work) / work.count), printed.svdb)


def compare_baselines(table: Comparison, name: str, work: rs.Workload, law: NoiseLaw, ours: float) -> None:
    """HDMM against every baseline on the same tables."""
    errors = {method: rmse(work, law, method) for method in BASELINES}
    errors["noise on answers"] = noise_on_answers(work, law)
    errors["workload itself"] = workload_itself(work, law)
    for method, theirs in errors.items():
        table.at_most(f"{name} HDMM, our {method}", ours, f"{theirs:.4g}", "both ours")


def reproduce(
    number: int, words: str, rows: dict[tuple[str, str], Printed], law: NoiseLaw, arguments: list[str] | None
) -> int:
    """The exit code of a whole table; `--fast` leaves out all but the smallest schema."""
    parser = argparse.ArgumentParser(description=f"HDMM, Table {number}: {words}")
    parser.add_argument("--fast", action="store_true", help="CPS only")
    fast = parser.parse_args(arguments).fast
    table = Comparison(f"HDMM, Table {number}: {words}")
    for key, printed in rows.items():
        if key[0] == "CPS" or not fast:
            compare_row(table, key, printed, law)
    return table.exit_code()
