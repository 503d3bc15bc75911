"""What a plan says about itself, in figures and in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from residua._text import columns, visible
from residua.mechanisms.draft import Scope
from residua.privacy import Privacy
from residua.workload.queries import spelled

MOST_ROWS = 40
WORTH_A_WORD = 5e-5  # relative; what is less would read 0.00%

_WHOM: dict[Scope, str] = {
    "all mechanisms": "any mechanism",
    "this block structure": "any that measures the same blocks and adds up their costs",
    "all Laplace noise": "any mechanism that adds independent Laplace noise",
}

OBJECTIVE_WORDS = {
    "total_variance": "total variance",
    "max_variance": "largest weighted variance",
    "targets": "common factor of the targets",
    "loss": "loss",
}


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far from the best a plan can be.

    `lower_bound` is on the objective at the plan's budget; `gap` is relative; `scope` says for whom the bound
    holds: "all mechanisms", "this block structure" or "all Laplace noise"; `objective` is what the plan
    makes small.
    """

    lower_bound: float
    gap: float
    scope: Scope
    objective: str = "total_variance"

    def describe(self) -> str:
        """What is proved, in one sentence."""
        if not math.isfinite(self.gap):
            return "No lower bound is known for this plan."
        whom = _WHOM[self.scope]
        what = OBJECTIVE_WORDS.get(self.objective, self.objective)
        return (
            f"Proved: no {what} below {self.lower_bound:.6g} is possible for {whom}; "
            f"this plan is at most {self.gap:.2%} above that."
            if self.gap >= WORTH_A_WORD
            else f"Proved: this plan is within {self.gap:.0e} of the best {what} of {whom}."
        )

    def record(self) -> dict[str, Any]:
        """The certificate as JSON can hold it, but for its objective; a gap that is not finite is None."""
        gap = self.gap if math.isfinite(self.gap) else None
        return {"lower_bound": self.lower_bound, "gap": gap, "scope": self.scope}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], objective: str) -> "Certificate":
        """The certificate that `record` wrote."""
        gap = math.inf if record["gap"] is None else record["gap"]
        return cls(record["lower_bound"], gap, record["scope"], objective)


def certified(value: float, lower: float, scope: Scope, objective: str = "total_variance") -> Certificate:
    """The certificate of a plan whose objective has this value and this lower bound."""
    return Certificate(lower, value / lower - 1 if lower > 0 else math.inf, scope, objective)


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
    targets: Sequence[str] = (),
    gain: float | None = None,
) -> str:
    """A plan in words; `summaries` are of the first tables, and there are so many `more`.

    `gain` is by how much the error of uniform centring is larger, where that is known.
    """
    lines = [title, "", "Privacy", *("  " + line for line in privacy.describe().splitlines())]
    rows = [
        (row.name, row.families or "total", spelled(row.queries), _figure(row.rmse), _figure(row.max_stddev))
        for row in summaries
    ]
    head = ("table", "queries asked", "numbers", "typical", "largest")
    lines += ["", "Predicted error (standard deviation of each number)", *columns(head, rows, left=(0, 1))]
    if more:
        lines.append(f"  ... and {more:,} more tables")
    if targets:
        lines += ["", "Targets", *("  " + line for line in targets)]
    lines += ["", "Measured", *("  " + line for line in measured)]
    lines += ["", certificate.describe()]
    if gain is not None and gain >= WORTH_A_WORD:
        lines.append(f"Uniform centring (QuerySmasher) would have an rmse {gain:.2%} larger.")
    elif gain is not None:
        lines.append("Uniform centring (QuerySmasher) would do as well.")
    return "\n".join(map(visible, lines))


def _figure(number: float) -> str:
    """Four digits, or a dash for what is not known."""
    return "-" if math.isnan(number) else f"{number:,.4g}"
