"""What the reproductions of block methods share: figures at privacy cost 1, data sets, rows of a table.

Papers print the error of real-valued mechanisms, so a method's own figures are used here, before a plan turns
them into integers; `Plan.ideal` of a plan holds the same numbers.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

from _comparison import Comparison
from threadpoolctl import threadpool_limits

import residua as rs
from residua.methods.effort import Account
from residua.methods.registry import methods_for
from residua.methods.smasher import smasher

GAP = 1e-4

NUMERIC = {"Adult": (100, 100, 100, 99, 85), "CPS": (100, 50), "Loans": (101, 101, 101, 101)}
CATEGORICAL = {
    "Adult": (42, 16, 15, 9, 7, 6, 5, 2, 2),
    "CPS": (7, 4, 2),
    "Loans": (51, 36, 15, 8, 6, 5, 4, 3),
}

OWN_CHOICE = "ours: the best product found for each block; theirs: strategies we do not know"


@dataclass(frozen=True, slots=True)
class Ideal:
    """Root of the weighted mean variance at privacy cost 1, and the gap to the bound the method proves."""

    rmse: float
    gap: float


@dataclass(frozen=True, slots=True)
class Printed:
    """One row of a table as text; no figure where the paper has none."""

    queries: str
    rp_plus: str | None
    hdmm: str | None
    wff: str | None
    qs: str | None


def ideal(work: rs.Workload, method: str, effort: str = "normal") -> Ideal:
    """The figures of one method before rounding to integers, on one BLAS thread."""
    with threadpool_limits(limits=1, user_api="blas"):
        if method == "smasher":  # the one whose search an account ends
            draft = smasher(work, GAP, None, Account.of(effort))
        else:
            draft = methods_for("gaussian")[method](work, GAP, None)
    if draft.value is None:
        raise ValueError(f"method {method!r} does not state its total variance")
    gap = draft.value / draft.lower_bound - 1 if draft.lower_bound > 0 else math.inf
    return Ideal(math.sqrt(draft.value / work.count), gap)


def compare_row(
    table: Comparison, name: str, work: rs.Workload, printed: Printed, decimals: int | None = None
) -> None:
    """Every printed figure of one workload; WFF is rounded to `decimals` first, if given."""
    table.agrees(f"{name} #queries", Decimal(work.count), printed.queries.replace(",", ""))
    if printed.rp_plus is not None:
        table.beside(f"{name} RP+", ideal(work, "residualplanner+").rmse, printed.rp_plus, OWN_CHOICE)
    if printed.wff is not None:
        ours = ideal(work, "fourier").rmse
        table.agrees(f"{name} WFF", ours if decimals is None else rounded(ours, decimals), printed.wff)
    if printed.qs is not None:
        found = ideal(work, "querysmasher")
        hdmm = "" if printed.hdmm is None else f"; HDMM prints {printed.hdmm}"
        table.at_most(f"{name} QS", found.rmse, printed.qs, f"gap {found.gap:.0e}{hdmm}")


def rounded(value: float, decimals: int) -> Decimal:
    """The value rounded to so many decimals."""
    return Decimal(value).quantize(Decimal((0, (1,), -decimals)))


def dataset(name: str) -> rs.Schema:
    """A data set of the papers: numeric attributes n0, n1, .. and categorical ones c0, c1, .."""
    numeric = {f"n{at}": rs.Integer(0, size - 1) for at, size in enumerate(NUMERIC[name])}
    categorical = {
        f"c{at}": rs.Categorical(*(str(value) for value in range(size)))
        for at, size in enumerate(CATEGORICAL[name])
    }
    return rs.Schema({**numeric, **categorical})
