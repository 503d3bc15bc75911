"""Accuracy targets: how wrong a number may be, in the words of a statistician, as a variance.

rs.variance(25)   rs.stddev(5)   rs.half_width(10, level=0.95)   25.0, which is a variance
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import AnyArray, Array, Arrays, Manifest
from residua._limits import LISTED_TABLES
from residua._manifests import checked_array, entry, fetch, number, text
from residua._text import hint, short
from residua.errors import BudgetError, FileFormatError, WorkloadError
from residua.linalg.matrices import join
from residua.methods.draft import Caps
from residua.strategy.strategy import Strategy
from residua.workload import Table, TableRun, Workload
from residua.workload.queries import spelled

Kind = Literal["variance", "stddev", "half_width"]

SMALLEST, LARGEST = 1e-100, 1e100  # variances beyond which floats could not hold what is made of them
SUGGESTED = 2_000  # names looked through for one that was meant
FREE = 1e4  # a table without a target may have this times the largest variance that others may have
FEW_TABLES = 40  # up to which one target for everything is told of each table

_WORDS: dict[Kind, str] = {
    "variance": "a variance",
    "stddev": "a standard deviation",
    "half_width": "a half-width",
}


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The largest error that numbers may have: one figure for all, or an array of one per query.

    Built by `variance`, `stddev` or `half_width`; wherever a target is asked for, a bare number or array is
    a variance.
    """

    kind: Kind
    amount: Array  # () or (queries,)
    level: float | None = None

    def __post_init__(self) -> None:
        amount = self.amount
        if amount.ndim > 1 or not amount.size:
            raise BudgetError(
                f"a target is one number, or an array of one per query, not one of shape {amount.shape}"
            )
        good = np.isfinite(amount) & (amount > 0)
        if not good.all():
            at = int(np.argmin(good.reshape(-1)))
            which = f" (query {at})" if amount.ndim else ""
            raise BudgetError(
                f"a target is above zero: no noise would be left at {_WORDS[self.kind]} of "
                f"{float(amount.reshape(-1)[at])!r}{which}; give {_WORDS[self.kind]} such as 5"
            )
        amount.setflags(write=False)
        with np.errstate(over="ignore"):  # an infinite one is refused like any other that is too large
            allowed = self.variances
        if float(allowed.max()) > LARGEST or float(allowed.min()) < SMALLEST:
            raise BudgetError("a target's variance must lie between 1e-100 and 1e100")

    @property
    def variances(self) -> Array:
        """The variance that it allows: of shape (), or (queries,)."""
        if self.kind == "variance":
            return self.amount
        if self.kind == "stddev":
            return np.asarray(self.amount**2)
        return np.asarray((self.amount / NormalDist().inv_cdf(0.5 + (self.level or 0.95) / 2)) ** 2)

    def same(self, other: "Target") -> bool:
        """Whether both ask for the same in the same words."""
        alike = self.kind == other.kind and self.level == other.level
        return alike and np.array_equal(self.amount, other.amount)

    def describe(self) -> str:
        """A few words.

        >>> half_width(20).describe()
        'half-width 20 at 95%'
        """
        low, high = float(self.amount.min()), float(self.amount.max())
        figure = f"{low:.6g}" if low == high else f"{low:.4g} to {high:.4g}"
        if self.kind == "half_width":
            return f"half-width {figure} at {100 * (self.level or 0.95):.4g}%"
        return f"{self.kind} {figure}"

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """The target as JSON can hold it; an array goes into `arrays`."""
        if not self.amount.ndim:
            return {"kind": self.kind, "amount": float(self.amount), "level": self.level}
        key = f"targets.{len(arrays)}"
        arrays[key] = self.amount
        return {"kind": self.kind, "amount": key, "level": self.level}

    @classmethod
    def from_manifest(cls, record: Manifest, arrays: Arrays) -> "Target":
        """The target that `record` wrote."""
        kind = text(record, "kind")
        if kind not in _WORDS:
            raise FileFormatError(f"this version knows no target of the kind {kind!r}")
        if isinstance(entry(record, "amount"), str):
            amount = checked_array(fetch(record, "amount", arrays), "of targets", "f", (None,)).copy()
        else:
            amount = np.array(number(record, "amount"))
        level = None if entry(record, "level") is None else number(record, "level")
        if level is not None and not 0 < level < 1:
            raise FileFormatError("the level of a target lies between 0 and 1")
        return cls(kind, amount, level)

    def __repr__(self) -> str:
        amount = f"{float(self.amount):g}" if not self.amount.ndim else f"array of {self.amount.size}"
        return f"{self.kind}({amount}{'' if self.level is None else f', level={self.level:g}'})"


TargetLike = Target | ArrayLike
Targets = TargetLike | Mapping[str, TargetLike]
"""One target for everything, or one for each name of a table or of a run of tables."""


def variance(amount: ArrayLike) -> Target:
    """A target: the largest variance that numbers may have.

    >>> variance(25)
    variance(25)
    """
    return Target("variance", _numbers(amount, "a variance"))


def stddev(amount: ArrayLike) -> Target:
    """A target: the largest standard deviation that numbers may have.

    >>> float(stddev(5).variances)
    25.0
    """
    return Target("stddev", _numbers(amount, "a standard deviation"))


def half_width(amount: ArrayLike, level: float = 0.95) -> Target:
    """A target: the largest half-width of numbers' confidence intervals at this level.

    >>> round(float(half_width(1.96).variances), 4)
    1.0
    """
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise BudgetError(f"the level of an interval is between 0 and 1, such as 0.95, not {level!r}")
    return Target("half_width", _numbers(amount, "a half-width"), float(level))


def target_of(given: Any, who: str) -> Target:
    """The target that was given: itself, or a bare number or array of variances."""
    try:
        return given if isinstance(given, Target) else variance(given)
    except BudgetError as error:
        raise BudgetError(f"{who}: {error}") from None


def _numbers(given: Any, what: str) -> Array:
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise BudgetError(f"a target is {what}, not {short(given)}: {error}") from error
    if array.dtype.kind not in "iuf":
        raise BudgetError(
            f"a target is {what} such as 25, rs.stddev(5) or rs.half_width(10), not {short(given)}"
        )
    return array.astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class TargetParts:
    """A workload cut so that each part has one target: the parts, what each allows, and who asked.

    `given` is what was asked for, every bare number as a variance. `keys` are names as the user gave them, or
    those of the tables where one target is for everything. `free` are tables without a target.
    """

    given: Target | Mapping[str, Target]
    work: Workload
    caps: Caps
    keys: tuple[str, ...]
    targets: tuple[Target, ...]
    free: tuple[Table | TableRun, ...] = ()

    def with_free(self) -> tuple[Workload, Caps]:
        """Everything that is planned: tables without a target get caps that are far above all others."""
        cap = FREE * max(float(np.max(each)) for each in self.caps)
        work = Workload(self.work.schema, (*self.work.parts, *self.free))
        return work, (*self.caps, *[cap] * len(self.free))


def asked_of(work: Workload, targets: Targets) -> TargetParts:
    """What targets ask of a workload; names that it lacks are refused."""
    given = normal_targets(targets)
    entries = list(_for_all(work, given) if isinstance(given, Target) else _named(work, given))
    asked = [(part, key, target) for part, key, target in entries if target is not None]
    if not asked:
        raise WorkloadError("targets: no table has one; name some, or give one target for everything")
    caps = tuple(_cap(part, target) for part, _, target in asked)
    parts, keys, chosen = zip(*asked, strict=True)
    free = tuple(part for part, _, target in entries if target is None)
    return TargetParts(given, Workload(work.schema, tuple(parts)), caps, tuple(keys), tuple(chosen), free)


def normal_targets(targets: Targets) -> Target | Mapping[str, Target]:
    """The targets with every bare number as a variance."""
    if isinstance(targets, Mapping):
        return {name: target_of(each, f"target of {name!r}") for name, each in targets.items()}
    return target_of(targets, "targets")


Entry = tuple[Table | TableRun, str, Target]
AnyEntry = Entry | tuple[Table | TableRun, str, None]


def _named(work: Workload, targets: Mapping[str, Target]) -> Iterator[AnyEntry]:
    """Parts with the targets of their names, or none, runs cut where their tables are named differently."""
    for name in targets:
        _refuse_unknown(name, work)
    for part in work.parts:
        if part.name is not None:
            if part.name in targets:
                yield from _listed(part, part.name, targets[part.name])
            else:
                yield part, part.name, None
            continue
        left = np.ones(len(part), dtype=np.bool_)
        for name, target in targets.items():
            chosen = part.named(name)
            if len(chosen):
                left[chosen] = False
                yield from _listed(part.take(chosen), name, target)
        if left.any():
            yield part.take(np.flatnonzero(left)), "", None


def _refuse_unknown(name: str, work: Workload) -> None:
    """Raise WorkloadError for a name that no table has: a slip of the pen explains a missing target too."""
    if any(name == part.name if part.name is not None else len(part.named(name)) for part in work.parts):
        return
    names = [*islice(work.names, SUGGESTED)]
    raise WorkloadError(
        f"targets: the workload has no table named {name!r}{hint(name, names)}; "
        f"it has {', '.join(map(repr, names[:3]))}{', ...' if len(names) > 3 else ''}"
    )


def _for_all(work: Workload, target: Target) -> Iterator[Entry]:
    """Parts with one target for everything, or with a piece each of one figure per query."""
    if not target.amount.ndim:
        few = work.tables <= FEW_TABLES
        for part in work.parts:
            if few and isinstance(part, TableRun) and part.name is None:
                yield from ((part.take(np.array([at])), part[at].name, target) for at in range(len(part)))
            else:
                yield part, _title(part), target
        return
    if len(target.amount) != work.count:
        raise WorkloadError(
            f"targets: {len(target.amount):,} figures for {spelled(work.count)} queries; give one per query, "
            "in the order of the answers, or targets by name of table"
        )
    start = 0
    for group in work.groups():
        stop = start + group.count
        yield group, group.name, Target(target.kind, target.amount[start:stop].copy(), target.level)
        start = stop


def _title(part: Table | TableRun) -> str:
    if part.name is not None:
        return part.name
    if len(part) == 1:
        return part[0].name
    return f"{len(part):,} tables on {part.ways} attribute{'s' * (part.ways != 1)}"


def _listed(part: Table | TableRun, name: str, target: Target) -> Iterator[Entry]:
    """A part with its target; a run of tables with a figure per query becomes single tables."""
    if not target.amount.ndim:
        yield part, name, target
        return
    if len(part) > LISTED_TABLES:
        raise WorkloadError(
            f"target of {name!r}: one figure per query is for single tables, and these are {len(part):,}; "
            "give one figure"
        )
    whole = len(target.amount) == part.count and len(part) > 1  # a figure for each query of all of them
    for at, group in enumerate(part):
        own = target.amount[at * group.count : (at + 1) * group.count] if whole else target.amount
        yield group, name, Target(target.kind, own.copy(), target.level)


def _cap(part: Table | TableRun, target: Target) -> float | Array:
    """What each query of a part may have for a variance."""
    if not target.amount.ndim:
        return float(target.variances)
    if len(target.amount) != part.count:
        raise WorkloadError(
            f"target of {part.name!r}: {len(target.amount):,} figures for {spelled(part.count)} queries; "
            "give one number, or one per query in the order of the answers"
        )
    return target.variances


def weighted_caps(work: Workload) -> Caps:
    """What a largest weighted variance of 1 allows each query: one over its weight."""

    def cap(part: Table | TableRun) -> float | Array:
        if isinstance(part, TableRun) or all(factor.queries.weights is None for factor in part.factors):
            return 1.0 / part.weight
        return np.asarray(1.0 / (part.weight * join(each.every_weight[None] for each in part.families)[0]))

    return tuple(map(cap, work.parts))


def ratios_of(asked: TargetParts, strategy: Strategy) -> list[float]:
    """For each part the largest ratio of a variance to what is allowed."""
    pairs = zip(asked.work.parts, asked.caps, strict=True)
    return [largest_ratio(strategy, part, cap) for part, cap in pairs]


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
