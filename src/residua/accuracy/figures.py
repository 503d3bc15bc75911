"""How wrong answers will be: figures of a workload and of its tables, the certificate, and targets met."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from residua._arrays import AnyArray, Array, Arrays, Manifest
from residua._limits import SEARCHED_TABLES
from residua._manifests import entry, flag, listed, number, numbers, positive, text, whole
from residua._text import columns, counted
from residua.accuracy.targets import Target, TargetParts, Targets, asked_of, normal_targets, ratios_of
from residua.errors import FileFormatError, WorkloadError
from residua.methods.draft import Scope
from residua.strategy.strategy import Strategy
from residua.workload import TableRun, Workload
from residua.workload.queries import spelled

OPTIMAL = 1e-6  # a plan no further than this from the best is called optimal
SMALL = 1e-4  # and of one no further than this only that is said
ROUNDING = 1e-9  # by which floats may find a value below its bound
BINDING = 1e-4  # share of the price from which a target is said to bind
LAXER = 0.1  # by how much a target is relaxed where its price is told
MOST_LINES = 40  # of targets and of tables that are told of, one by one

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

Totals = tuple[float, float]
"""Weighted and unweighted sum of the variances of all queries."""


class Figures:
    """The error of a workload's answers: `rmse`, `total_variance`, `max_variance`, `weighted_rmse`.

    Each is worked out when it is first asked for.
    """

    def __init__(self, count: int, totals: Callable[[], Totals], largest: Callable[[], float]) -> None:
        self._count, self._totals, self._largest = count, totals, largest

    @classmethod
    def of(cls, strategy: Strategy, work: Workload, totals: Totals | None = None) -> "Figures":
        """Figures of a strategy; `totals` are those of `totals_of`, where they are known."""

        def largest() -> float:
            groups = (group for part in work.parts for group in strategy.answerer.least_accurate(part))
            # One that is not known makes the largest of all not known.
            return max(map(strategy.largest, groups), key=lambda each: math.inf if math.isnan(each) else each)

        return cls(work.count, lambda: totals_of(strategy, work) if totals is None else totals, largest)

    @cached_property
    def totals(self) -> Totals:
        """Weighted and unweighted sum of the variances."""
        return self._totals()

    @property
    def total_variance(self) -> float:
        """Sum of weight times variance over all queries."""
        return self.totals[0]

    @property
    def rmse(self) -> float:
        """Square root of the mean variance, every query counting once."""
        return math.sqrt(self.totals[1] / self._count)

    @property
    def weighted_rmse(self) -> float:
        """Square root of the weighted total over the number of queries."""
        return math.sqrt(self.totals[0] / self._count)

    @cached_property
    def max_variance(self) -> float:
        """Largest variance of any query, weights aside; nan where there are too many to go through."""
        return float(self._largest())

    def scaled(self, factor: float) -> "Figures":
        """The same figures with every variance multiplied by `factor`."""

        def totals() -> Totals:
            weighted, plain = self.totals
            return weighted * factor, plain * factor

        return Figures(self._count, totals, lambda: self.max_variance * factor)

    def to_manifest(self, tables: int) -> dict[str, Any]:
        """The figures of so many tables as JSON can hold them; the largest only where finding it is quick."""
        largest = self.max_variance if tables <= SEARCHED_TABLES else math.nan
        return {"totals": list(self.totals), "largest": None if math.isnan(largest) else largest}

    @classmethod
    def from_manifest(cls, record: Manifest, work: Workload, strategy: Strategy | None) -> "Figures":
        """What `to_manifest` wrote; a largest variance that it lacks is the strategy's, if any."""
        totals = numbers(record, "totals")
        if len(totals) != 2 or not min(totals) > 0:
            raise FileFormatError("sums of variances are two numbers above zero")
        weighted, plain = totals
        if entry(record, "largest") is None and strategy is not None:
            return cls.of(strategy, work, (weighted, plain))
        largest = math.nan if record["largest"] is None else number(record, "largest")
        if largest < 0:
            raise FileFormatError("no variance is below zero")
        return cls(work.count, lambda: (weighted, plain), lambda: largest)

    def __repr__(self) -> str:
        return f"Figures(rmse={self.rmse:.6g}, total_variance={self.total_variance:.6g})"


def totals_of(strategy: Strategy, work: Workload) -> Totals:
    """Weighted and unweighted sum of the variances of all queries, refused where they overflow."""
    weighted = plain = 0.0
    for part in work.parts:
        more = strategy.totals(part)
        weighted, plain = weighted + more[0], plain + more[1]
        if not math.isfinite(weighted + plain):
            who = f"{'tables such as' if isinstance(part, TableRun) else 'table'} {next(part.names())!r}"
            raise WorkloadError(
                f"{who}: the sum of the variances of {spelled(part.count)} queries is beyond what a float "
                "holds; ask fewer queries, or spend more privacy"
            )
    return weighted, plain


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
    everywhere: float | None = None
    """Where the scope is narrower: a lower bound for all mechanisms, None where none is known."""

    @property
    def everywhere_gap(self) -> float:
        """The most that this plan can be above the best of all mechanisms."""
        if self.scope == "all mechanisms":
            return self.gap
        return (
            math.inf if self.everywhere is None else self.lower_bound * (1 + self.gap) / self.everywhere - 1
        )

    def left_undone(self, undone: Sequence[str]) -> str:
        """What was left undone, and the most that it could gain: no mechanism could gain more."""
        told, gap = f"Left undone at this effort: {', '.join(undone)}", self.everywhere_gap
        if not math.isfinite(gap):
            return f"{told}; what that could gain is not known."
        rooted = self.objective in ("total_variance", "max_variance")
        least = 1 / math.sqrt(1 + gap) if rooted else 1 / (1 + gap)
        return f"{told}; that could lower {'errors' if rooted else 'the loss'} by at most {1 - least:.2%}."

    def describe(self) -> str:
        """What is proved, in a sentence or two."""
        if not math.isfinite(self.gap):
            return "No lower bound is known for this plan."
        whom, what = _WHOM[self.scope], OBJECTIVE_WORDS.get(self.objective, self.objective)
        if self.gap >= SMALL:
            words = f"no {what} below {self.lower_bound:.6g} is possible for {whom}; "
            words += f"this plan is at most {percent_up(self.gap)} above that"
        elif self.gap >= OPTIMAL:
            words = f"the {what} of this plan is within {SMALL:.2%} of the best of {whom}"
        else:
            words = f"this plan is optimal; its {what} is within {OPTIMAL:.4%} of the best of {whom}"
        if self.everywhere is None:
            return f"Proved: {words}."
        share = math.floor(10_000 / (1 + self.everywhere_gap)) / 100  # which must not be overstated
        return f"Proved: {words}. No mechanism has less than {share:.2f}% of it."

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
        known = {} if self.everywhere is None else {"everywhere": self.everywhere}
        return {"lower_bound": self.lower_bound, "gap": gap, "scope": self.scope, **known}

    @classmethod
    def from_manifest(cls, record: Manifest, objective: str) -> "Certificate":
        """The certificate that `to_manifest` wrote."""
        scope = text(record, "scope")
        if scope not in _WHOM:
            raise FileFormatError(f"this version knows no certificate for {scope!r}")
        gap = math.inf if entry(record, "gap") is None else number(record, "gap")
        everywhere = positive(record, "everywhere") if "everywhere" in record else None
        return cls(number(record, "lower_bound"), gap, scope, objective, everywhere)


def certified(value: float, lower: float, scope: Scope, objective: str = "total_variance") -> Certificate:
    """The certificate of a plan whose objective has this value and this lower bound.

    A plan may be below the bound of its blocks, which adds up their costs, where the kernel proves that they
    cost less together; the bound then says no more than that adding up is no better.
    """
    lower = min(lower, value) if scope == "this block structure" else lower
    gap = value / lower - 1 if lower > 0 else math.inf
    return Certificate(lower, 0.0 if -ROUNDING < gap < 0 else gap, scope, objective)


def percent_up(fraction: float) -> str:
    """A distance that must not be understated: a percentage with two decimals, rounded up.

    >>> percent_up(0.0123), percent_up(4e-6)
    ('1.23%', '0.01%')
    """
    return f"{math.ceil(fraction * 10_000 * (1 - 1e-9)) / 100:.2f}%"


@dataclass(frozen=True, slots=True, eq=False)
class MetTarget:
    """One target: the largest ratio of a variance to what it allows, and its share of the price.

    `ratio` is that of what is released. `share` is between 0 and 1: allowing all queries of this target
    `1 + e` times the variance saves at most `e * share / (1 + e * share)` of the privacy cost (claim G-003).
    """

    name: str
    target: Target
    queries: int
    ratio: float
    share: float

    @property
    def binds(self) -> bool:
        """Whether a laxer target would save privacy."""
        return self.share >= BINDING

    def saving(self, laxer: float = LAXER) -> float:
        """The part of the privacy cost that `1 + laxer` times the variance would save at most."""
        return laxer * self.share / (1 + laxer * self.share)


@dataclass(frozen=True, slots=True, eq=False)
class Fitness:
    """The targets of a plan and how each is met.

    `factor` is the largest ratio of a variance to its target: at most 1 where all are met. `needed` is the
    privacy cost at which it would be 1, and `least` what no mechanism in the certificate's scope can go
    below; both are for the plan's unit of privacy. `least` is 0 where nothing is proved.
    """

    targets: Target | Mapping[str, Target]
    met: tuple[MetTarget, ...]
    needed: float
    least: float

    @property
    def factor(self) -> float:
        """Largest ratio of a variance to its target."""
        return max(line.ratio for line in self.met)

    def answers(self, targets: Targets) -> bool:
        """Whether these are the targets."""
        (single, ours), (bare, theirs) = _by_name(self.targets), _by_name(normal_targets(targets))
        return single == bare and ours.keys() == theirs.keys() and all(ours[k].same(theirs[k]) for k in ours)

    def describe(self, scope: Scope) -> Iterator[str]:
        """Lines for people; `scope` is the certificate's."""
        head = ("target", "asked", "numbers", "largest / asked", f"{LAXER:.0%} more variance saves")
        rows = []
        for line in self.met[:MOST_LINES]:
            asked, saves = line.target.describe(), f"up to {line.saving():.2%}" if line.binds else "nothing"
            rows.append((line.name, asked, spelled(line.queries), f"{line.ratio:.4f}", saves))
        yield from columns(head, rows, left=(0, 1), indent="")
        if len(self.met) > MOST_LINES:
            yield f"... and {counted(len(self.met) - MOST_LINES, 'more target', 'more targets')}"
        if self.factor > 1:
            yield f"RELAXED: at this budget variances reach {self.factor:.4g} times their targets."
        elif self.factor < 1 - 1e-3:
            yield f"At this budget every variance is at most {self.factor:.4g} times its target."
        whom = "no mechanism" if scope == "all mechanisms" else "none that measures the same blocks"
        proved = f"; {whom} could below {self.least:.6g}" if self.least > 0 else ""
        yield f"A privacy cost of {self.needed:.6g} meets them exactly{proved}."

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """The targets and how they are met, as JSON can hold them."""
        single, named = _by_name(self.targets)
        asked = [[name, target.to_manifest(arrays)] for name, target in named.items()]
        met = [
            [own.name, own.target.to_manifest(arrays), own.queries, own.ratio, own.share] for own in self.met
        ]
        return {"single": single, "targets": asked, "met": met, "needed": self.needed, "least": self.least}

    @classmethod
    def from_manifest(cls, record: Manifest, arrays: Arrays, work: Workload) -> "Fitness":
        """What `to_manifest` wrote about targets of this workload."""
        named = {
            text(each, "name"): Target.from_manifest(entry(each, "target"), arrays)
            for each in _rows(record, "targets", ("name", "target"))
        }

        def line(each: Manifest) -> MetTarget:
            target = Target.from_manifest(entry(each, "target"), arrays)
            figures = whole(each, "queries", least=1), number(each, "ratio"), number(each, "share")
            return MetTarget(text(each, "name"), target, *figures)

        met = tuple(map(line, _rows(record, "met", ("name", "target", "queries", "ratio", "share"))))
        single = flag(record, "single")
        if single and "" not in named:
            raise FileFormatError("targets that are not there cannot be met")
        targets = named[""] if single else named
        if {line.name for line in met} != set(asked_of(work, targets).keys):
            raise FileFormatError("the targets that are met are not those of its tables")
        return cls(targets, met, number(record, "needed"), number(record, "least"))

    def at(self, work: Workload, strategy: Strategy, cost: float) -> "Fitness":
        """The same targets under a strategy that differs in its noise only, at another privacy cost."""
        asked = asked_of(work, self.targets)
        ratios: dict[str, float] = {}
        for key, ratio in zip(asked.keys, ratios_of(asked, strategy), strict=True):
            ratios[key] = max(ratio, ratios.get(key, 0.0))
        met = tuple(replace(line, ratio=ratios[line.name]) for line in self.met)
        return Fitness(self.targets, met, cost * max(ratios.values()), self.least)


def _by_name(targets: Target | Mapping[str, Target]) -> tuple[bool, Mapping[str, Target]]:
    """Whether there is one target for everything, and the targets by name, that one by none."""
    return (True, {"": targets}) if isinstance(targets, Target) else (False, targets)


def _rows(record: Manifest, key: str, names: Sequence[str]) -> list[Manifest]:
    """The lists that a record has under a key, each with its entries by name."""
    found = listed(record, key)
    if not all(isinstance(row, list) and len(row) == len(names) for row in found):
        raise FileFormatError(f"a saved record has {key!r} that are not lists of {len(names)} entries")
    return [dict(zip(names, row, strict=True)) for row in found]


def fitness_of(
    asked: TargetParts, strategy: Strategy, prices: tuple[Array, ...], cost: float, least: float
) -> Fitness:
    """How a strategy meets targets, from the prices that its method found."""
    lines: dict[str, MetTarget] = {}
    for part, key, target, ratio, price in zip(
        asked.work.parts, asked.keys, asked.targets, ratios_of(asked, strategy), prices, strict=False
    ):  # the last prices are of tables without a target
        before = lines.get(key, MetTarget(key, target, 0, 0.0, 0.0))
        queries, share = before.queries + part.count, before.share + float(price.sum())
        lines[key] = MetTarget(key, target, queries, max(ratio, before.ratio), min(share, 1.0))
    met = tuple(lines.values())
    return Fitness(asked.given, met, cost * max(line.ratio for line in met), least)
