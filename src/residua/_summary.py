"""What a plan says about itself, in figures and in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from residua.mechanisms.draft import Scope
from residua.privacy import Privacy
from residua.workload.queries import spelled

MOST_ROWS = 40


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far from the best a plan can be.

    `lower_bound` is on the objective at the plan's budget; `gap` is relative; `scope` says for whom the bound
    holds: "all mechanisms", or "this block structure".
    """

    lower_bound: float
    gap: float
    scope: Scope

    def describe(self) -> str:
        """One sentence."""
        if not math.isfinite(self.gap):
            return "No lower bound is known for this plan."
        structure = "any that measures the same blocks and adds up their costs"
        whom = "any mechanism" if self.scope == "all mechanisms" else structure
        return (
            f"Proved: no total variance below {self.lower_bound:.6g} is possible for {whom}; "
            f"this plan is at most {self.gap:.2%} above that."
            if self.gap >= 5e-5
            else f"Proved: this plan is within {self.gap:.0e} of the best total variance of {whom}."
        )


@dataclass(frozen=True, slots=True)
class TableSummary:
    """The predicted error of one table's queries: root mean square and largest standard deviation.

    `max_stddev` is nan where there are too many queries to go through one by one.
    """

    name: str
    families: str
    queries: int
    rmse: float
    max_stddev: float


def explain_plan(
    title: str,
    privacy: Privacy,
    summaries: Sequence[TableSummary],
    more: int,
    certificate: Certificate,
    measured: Sequence[str],
) -> str:
    """A plan in words; `summaries` are of the first tables, and there are so many `more`."""
    lines = [title, "", "Privacy", *("  " + line for line in privacy.describe().splitlines())]
    lines += ["", "Predicted error (standard deviation of each number)", *_table(summaries)]
    if more:
        lines.append(f"  ... and {more:,} more tables")
    lines += ["", "Measured", *("  " + line for line in measured)]
    lines += ["", certificate.describe()]
    return "\n".join(lines)


def _table(summaries: Sequence[TableSummary]) -> list[str]:
    rows = [
        (row.name, row.families or "total", spelled(row.queries), _figure(row.rmse), _figure(row.max_stddev))
        for row in summaries
    ]
    head = ("table", "queries asked", "numbers", "typical", "largest")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    left = (True, True, False, False, False)
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if start else cell.rjust(width)
            for cell, width, start in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in (head, *rows)
    ]


def _figure(number: float) -> str:
    """Four digits, or a dash for what is not known."""
    return "-" if math.isnan(number) else f"{number:,.4g}"
