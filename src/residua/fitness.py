"""How a plan meets its accuracy targets: which of them bind, and what laxer ones would save."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._manifests import entry, flag, listed, number, text, whole
from residua._text import columns, counted
from residua.accuracy import Asked, Target, Targets, asked_of, normal_targets
from residua.errors import FileFormatError, WorkloadError
from residua.methods.draft import Array, Scope
from residua.strategy.strategy import Strategy
from residua.workload import Table, TableRun, Workload
from residua.workload.queries import spelled

BINDING = 1e-4  # share of the price from which a target is said to bind
LAXER = 0.1  # by how much a target is relaxed where its price is told
MOST_LINES = 40


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
        theirs = normal_targets(targets)
        if isinstance(theirs, Target) or isinstance(self.targets, Target):
            return (
                isinstance(theirs, Target) and isinstance(self.targets, Target) and theirs.same(self.targets)
            )
        return theirs.keys() == self.targets.keys() and all(
            target.same(theirs[name]) for name, target in self.targets.items()
        )

    @property
    def binding(self) -> tuple[MetTarget, ...]:
        """The targets of which a laxer one would save privacy, the dearest first."""
        return tuple(sorted((line for line in self.met if line.binds), key=lambda line: -line.share))

    def describe(self, scope: Scope) -> Iterator[str]:
        """Lines for people; `scope` is the certificate's."""
        head = ("target", "asked", "numbers", "largest / asked", f"{LAXER:.0%} more variance saves")
        rows = [
            (
                line.name,
                line.target.describe(),
                spelled(line.queries),
                f"{line.ratio:.4f}",
                f"up to {line.saving():.2%}" if line.binds else "nothing",
            )
            for line in self.met[:MOST_LINES]
        ]
        yield from columns(head, rows, left=(0, 1), indent="")
        if len(self.met) > MOST_LINES:
            yield f"... and {counted(len(self.met) - MOST_LINES, 'more target', 'more targets')}"
        if self.factor > 1:
            yield f"RELAXED: at this budget variances reach {self.factor:.4g} times their targets."
        elif self.factor < 1 - 1e-3:
            yield f"At this budget every variance is at most {self.factor:.4g} times its target."
        yield f"A privacy cost of {self.needed:.6g} meets them exactly{self._proved(scope)}."

    def _proved(self, scope: Scope) -> str:
        if not self.least > 0:
            return ""
        whom = "no mechanism" if scope == "all mechanisms" else "none that measures the same blocks"
        return f"; {whom} could below {self.least:.6g}"

    def to_manifest(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """The targets and how they are met, as JSON can hold them."""
        single = isinstance(self.targets, Target)
        named = {"": self.targets} if isinstance(self.targets, Target) else self.targets
        return {
            "single": single,
            "targets": [[name, target.to_manifest(arrays)] for name, target in named.items()],
            "met": [
                [line.name, line.target.to_manifest(arrays), line.queries, line.ratio, line.share]
                for line in self.met
            ],
            "needed": self.needed,
            "least": self.least,
        }

    @classmethod
    def from_manifest(
        cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], work: Workload
    ) -> "Fitness":
        """What `to_manifest` wrote about targets of this workload."""
        named = {
            text(each, "name"): Target.from_manifest(entry(each, "target"), arrays)
            for each in _rows(record, "targets", ("name", "target"))
        }
        met = tuple(
            MetTarget(
                text(each, "name"),
                Target.from_manifest(entry(each, "target"), arrays),
                whole(each, "queries", least=1),
                number(each, "ratio"),
                number(each, "share"),
            )
            for each in _rows(record, "met", ("name", "target", "queries", "ratio", "share"))
        )
        single = flag(record, "single")
        if single and "" not in named:
            raise FileFormatError("targets that are not there cannot be met")
        targets = named[""] if single else named
        if {line.name for line in met} != set(asked_of(work, targets).keys):
            raise FileFormatError("the targets that are met are not those of its tables")
        return cls(targets, met, number(record, "needed"), number(record, "least"))

    def at(self, work: Workload, strategy: Strategy, cost: float) -> "Fitness":
        """The same targets under a mechanism that differs in its noise only, at another privacy cost."""
        asked = asked_of(work, self.targets)
        ratios: dict[str, float] = {}
        for key, ratio in zip(asked.keys, ratios_of(asked, strategy), strict=True):
            ratios[key] = max(ratio, ratios.get(key, 0.0))
        met = tuple(
            MetTarget(line.name, line.target, line.queries, ratios[line.name], line.share)
            for line in self.met
        )
        return Fitness(self.targets, met, cost * max(ratios.values()), self.least)


def _rows(record: Mapping[str, Any], key: str, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """The lists that a record has under a key, each with its entries by name."""
    found = listed(record, key)
    if not all(isinstance(row, list) and len(row) == len(names) for row in found):
        raise FileFormatError(f"a saved record has {key!r} that are not lists of {len(names)} entries")
    return [dict(zip(names, row, strict=True)) for row in found]


def fitness_of(
    asked: Asked, strategy: Strategy, prices: tuple[Array, ...], cost: float, least: float
) -> Fitness:
    """How a mechanism meets targets, from the prices that its method found."""
    lines: dict[str, MetTarget] = {}
    for part, key, target, ratio, price in zip(
        asked.work.parts, asked.keys, asked.targets, ratios_of(asked, strategy), prices, strict=True
    ):
        before = lines.get(key, MetTarget(key, target, 0, 0.0, 0.0))
        queries, share = before.queries + part.count, before.share + float(price.sum())
        lines[key] = MetTarget(key, target, queries, max(ratio, before.ratio), min(share, 1.0))
    met = tuple(lines.values())
    return Fitness(asked.given, met, cost * max(line.ratio for line in met), least)


def ratios_of(asked: Asked, strategy: Strategy) -> list[float]:
    """For each part the largest ratio of a variance to what is allowed."""
    return [
        largest_ratio(strategy, part, cap) for part, cap in zip(asked.work.parts, asked.caps, strict=True)
    ]


def largest_ratio(strategy: Strategy, part: Table | TableRun, cap: float | Array) -> float:
    """Largest ratio of a variance of this part to what is allowed."""
    if isinstance(part, Table) and np.ndim(cap):
        return float(np.max(strategy.variances(part) / cap))
    worst = 0.0
    for group in strategy.answerer.least_accurate(part):
        largest = strategy.largest(group)
        if math.isnan(largest):
            raise WorkloadError(
                f"table {group.name!r} has {spelled(group.count)} queries, too many to go through, so no "
                "target can be promised for each of them; ask fewer queries, or plan for total variance"
            )
        worst = max(worst, largest)
    return worst / float(cap)
