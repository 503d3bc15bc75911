"""What a plan says about itself, in figures and in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from residua._manifests import entry, number, text
from residua._text import columns, counted, visible
from residua.errors import FileFormatError
from residua.methods.draft import Scope
from residua.privacy import Privacy
from residua.workload.queries import spelled

MOST_ROWS = 40
OPTIMAL = 1e-6  # a plan no further than this from the best is called optimal
SMALL = 1e-4  # and of one no further than this only that is said
ROUNDING = 1e-9  # by which floats may find a value below its bound
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
        if self.gap >= SMALL:
            return (
                f"Proved: no {what} below {self.lower_bound:.6g} is possible for {whom}; "
                f"this plan is at most {percent_up(self.gap)} above that."
            )
        if self.gap >= OPTIMAL:
            return f"Proved: the {what} of this plan is within {SMALL:.2%} of the best of {whom}."
        return f"Proved: this plan is optimal; its {what} is within {OPTIMAL:.4%} of the best of {whom}."

    def nearness(self) -> str:
        """How far from the best the plan can be, in a word or two.

        >>> Certificate(100.0, 4e-10, "all mechanisms").nearness()
        'optimal'
        >>> Certificate(100.0, 0.0123, "all mechanisms").nearness()
        'within 1.23%'
        """
        if not math.isfinite(self.gap):
            return "no bound known"
        return f"within {percent_up(self.gap)}" if self.gap >= OPTIMAL else "optimal"

    def to_manifest(self) -> dict[str, Any]:
        """The certificate as JSON can hold it, but for its objective; a gap that is not finite is None."""
        gap = self.gap if math.isfinite(self.gap) else None
        return {"lower_bound": self.lower_bound, "gap": gap, "scope": self.scope}

    @classmethod
    def from_manifest(cls, record: Mapping[str, Any], objective: str) -> "Certificate":
        """The certificate that `record` wrote."""
        scope = text(record, "scope")
        if scope not in _WHOM:
            raise FileFormatError(f"this version knows no certificate for {scope!r}")
        gap = math.inf if entry(record, "gap") is None else number(record, "gap")
        return cls(number(record, "lower_bound"), gap, scope, objective)


def certified(value: float, lower: float, scope: Scope, objective: str = "total_variance") -> Certificate:
    """The certificate of a plan whose objective has this value and this lower bound."""
    gap = value / lower - 1 if lower > 0 else math.inf
    return Certificate(lower, 0.0 if -ROUNDING < gap < 0 else gap, scope, objective)


def percent_up(fraction: float) -> str:
    """A distance that must not be understated: a percentage with two decimals, rounded up.

    >>> percent_up(0.0123), percent_up(4e-6)
    ('1.23%', '0.01%')
    """
    return f"{math.ceil(fraction * 10_000 * (1 - 1e-9)) / 100:.2f}%"


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
        lines.append(f"  ... and {counted(more, 'more table', 'more tables')}")
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
