"""Public guesses of sizes: targets in relative terms, and what percentages, means and medians will be like.

A guess is what somebody expects of the numbers before any data is touched: last year's release, numbers by
name of table, or one number of records, taken as spread evenly over all cells. It must be public.

| symbol | meaning |
|---|---|
| t, b | guessed numerators and denominators; r = t / b |
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import Array
from residua._text import hint, kind_of, listed_names
from residua.accuracy.targets import Target, TargetLike, Targets
from residua.errors import BudgetError, NotInSpan, WorkloadError
from residua.schema import Schema
from residua.workload import Table, Workload, linear, table
from residua.workload.moments import cell_numbers, quantile_rows

FORESEEN_HEAD = ("statistic", "figures", "middle", "largest")
FORESEEN = "At the guessed sizes (standard error; of percentages in points)"
MOST_FORESEEN = 60  # tables whose percentages, means and medians are looked at
MOST_FIGURES = 2_000  # of one statistic


class Answered(Protocol):
    """A release, or anything else with answers."""

    def values(self, work: Workload) -> Array:
        """Answers of a workload, (count,)."""


Guess = Answered | Mapping[str, ArrayLike] | float


@dataclass(frozen=True, slots=True, repr=False)
class Relative:
    """A target as a part of the number that is guessed; numbers below `least` count as that."""

    part: float
    least: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.part, int | float) or not 0 < self.part < np.inf or self.least < 0:
            raise BudgetError(
                f"a relative target is above zero, such as rs.relative(0.05), not {self.part!r}"
            )

    def __repr__(self) -> str:
        return f"relative({self.part!r}{f', least={self.least!r}' if self.least else ''})"

    def of(self, sizes: Array, who: str) -> Target:
        """The standard deviations that it allows for numbers of these sizes."""
        known = np.maximum(sizes, self.least)
        if not (np.isfinite(known) & (known > 0)).all():
            raise BudgetError(
                f"target of {who!r}: a number is guessed to be {float(known.min()):g}, and no noise is "
                f"{self.part:g} of that; count small ones as larger, rs.relative({self.part:g}, least=100)"
            )
        return Target("stddev", self.part * known)


def relative(part: float, *, least: float = 0.0) -> Relative:
    """A target: the largest standard deviation as a part of each number, whose sizes `guess=` tells.

    >>> relative(0.05).of(np.array([100.0, 400.0]), "T1").amount.tolist()
    [5.0, 20.0]
    """
    return Relative(part, least)


AnyTargets = Targets | Relative | Mapping[str, TargetLike | Relative]


def resolved(work: Workload, targets: AnyTargets, guess: Guess | None) -> Targets:
    """The targets with relative ones in absolute terms."""
    if isinstance(targets, Relative):
        return targets.of(guessed(work, guess), "every table")
    if not isinstance(targets, Mapping):
        return targets
    found: dict[str, TargetLike] = {}
    for name, target in targets.items():
        if isinstance(target, Relative):
            # A name that no table has is refused with the other targets.
            sizes = guessed(work.select(name), guess) if name in work.names else np.ones(1)
            target = target.of(sizes, name)
        found[name] = target
    return found


def guessed(work: Workload, guess: Guess | None) -> Array:
    """The number that is guessed for each query of a workload, (count,)."""
    if guess is None:
        raise WorkloadError(
            "relative errors need a public guess of sizes: guess= last year's release, numbers by name of "
            "table, or the number of records"
        )
    if isinstance(guess, int | float):
        if not (0 < guess < math.inf):
            raise WorkloadError(f"guess: a number of records is above 0, not {guess!r}")
        return np.concatenate([_spread(group, float(guess)) for group in work.groups()])
    if isinstance(guess, Mapping):
        return np.concatenate([_named(group, guess) for group in work.groups()])
    if not hasattr(guess, "values"):
        raise WorkloadError(
            f"guess is a release, numbers by name of table, or the number of records, not {kind_of(guess)}"
        )
    return np.asarray(guess.values(work), dtype=np.float64)


def _spread(group: Table, records: float) -> Array:
    """Answers of records that are spread evenly over all cells."""
    found = np.full(1, records)
    for factor in group.factors:
        found = np.kron(found, factor.queries.matrix().mean(axis=1))
    return found


def _named(group: Table, guess: Mapping[str, ArrayLike]) -> Array:
    if group.name not in guess:
        raise WorkloadError(f"guess: there is nothing for table {group.name!r}{hint(group.name, guess)}")
    found = np.asarray(guess[group.name], dtype=np.float64).reshape(-1)
    if found.size not in (1, group.count):
        raise WorkloadError(
            f"guess: {found.size:,} numbers for table {group.name!r}, which has {group.count:,}"
        )
    return np.broadcast_to(found, group.count)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The standard error that a statistic will have at guessed sizes, of its middle and its worst figure.

    Of percentages in percentage points, otherwise in the unit of the number.
    """

    statistic: str
    figures: int
    typical: float
    largest: float

    @classmethod
    def of(cls, statistic: str, errors: Array) -> "Foreseen":
        """From the errors of all figures."""
        return cls(statistic, errors.size, float(np.median(errors)), float(errors.max()))

    def row(self) -> tuple[str, str, str, str]:
        """What is printed of it."""
        middle, largest = ("-" if np.isinf(each) else f"{each:,.4g}" for each in (self.typical, self.largest))
        return self.statistic, f"{self.figures:,}", middle, largest


class Foresees:
    """What a plan says about percentages and means before any data, at guessed sizes."""

    workload: Workload

    @property
    def schema(self) -> Schema:
        """The schema of its tables."""
        raise NotImplementedError

    def variances(self, work: Workload) -> Array:
        """Variances of answers."""
        raise NotImplementedError

    def covariance(self, left: Workload, right: Workload) -> Array:
        """Covariance of answers."""
        raise NotImplementedError

    def foreseen(self, guess: Guess) -> list[Foreseen]:
        """Errors that percentages, means and medians of the first tables will have, at guessed sizes.

        Those that the plan does not give, and those that nothing is guessed for, are left out.
        """
        found: dict[str, Foreseen] = {}
        for group in islice(self.workload.groups(), MOST_FORESEEN):
            if group.count <= MOST_FIGURES:
                for words, scale, errors in self._foreseen_of(group):
                    try:
                        found.setdefault(words, Foreseen.of(words, scale * errors(guess=guess)))
                    except (NotInSpan, WorkloadError):
                        continue
        return list(found.values())

    def _foreseen_of(self, group: Table) -> Iterator[tuple[str, float, Callable[..., Array]]]:
        """Statistics of a table in words, each with its unit and its errors for a guess."""
        names = [name for factor in group.factors for name in factor.names(self.schema)]
        own = [factor.queries for factor in group.factors]
        for at, name in enumerate(names):
            others = names[:at] + names[at + 1 :]
            by = f" by {', '.join(others)}" if others else ""
            if len(names) != len(own) or not all(each.parts for each in own[:at] + own[at + 1 :]):
                continue
            if at == len(names) - 1 and own[at].parts:
                within = f" within {', '.join(others)}" if others else ""
                yield f"% {name}{within}", 100.0, partial(self.share_error, name, within=others)
            if name in self.schema and self.schema[name].numeric:
                yield f"mean {name}{by}", 1.0, partial(self.mean_error, name, by=others)
                yield f"median {name}{by}", 1.0, partial(self.quantile_error, name, by=others)

    def share_error(
        self, names: str | Sequence[str], *, within: str | Sequence[str] = (), guess: Guess
    ) -> Array:
        """Standard error that each share will have, as parts of 1, at guessed sizes: (within..., names...).

        `guess` is public: last year's release, or the number of records, taken as spread evenly.
        """
        own, others = listed_names(names), listed_names(within)
        top, bottom = table(self.schema, [*others, *own]), table(self.schema, others)
        owners = np.arange(top.count) // (top.count // bottom.count)
        return self._ratio_error(top, bottom, owners, guess).reshape(self._sizes([*others, *own]))

    def mean_error(self, name: str, *, by: str | Sequence[str] = (), guess: Guess) -> Array:
        """Standard error that each mean of a number will have, at guessed sizes: (by...)."""
        others, attribute = listed_names(by), self.schema[name]
        sums, known = (cell_numbers(name, attribute, power=power) for power in (1, 0))
        bottom = table(self.schema, others)
        each, cells = np.eye(bottom.count), (*others, name)
        top = linear(self.schema, cells, np.kron(each, sums))
        if not known.all():  # those without a value have no part in it
            bottom = linear(self.schema, cells, np.kron(each, known))
        return self._ratio_error(top, bottom, np.arange(top.count), guess).reshape(self._sizes(others))

    def quantile_error(
        self, name: str, order: float = 0.5, *, by: str | Sequence[str] = (), guess: Guess
    ) -> Array:
        """Standard error that each quantile will have, at guessed sizes: (by...).

        To first order it is that of the cumulative count there over the number of records per unit.
        """
        others = listed_names(by)
        rows, points, smooth = quantile_rows(name, self.schema[name], [order], smooth=True)
        sizes, groups = self._sizes(others), int(np.prod(self._sizes(others)))
        counts = guessed(table(self.schema, [*others, name]), guess).reshape(groups, -1)
        counts = counts[:, : len(points) - smooth]  # without those that have no value
        reached = np.cumsum(counts, axis=1)
        at = (reached >= order * reached[:, -1:]).argmax(axis=1)
        here, upto = (np.take_along_axis(each, at[:, None], 1)[:, 0] for each in (counts, reached))
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.nan_to_num((order * reached[:, -1] - upto) / here + 1)[:, None]
        asked = np.zeros((groups, groups, rows.shape[1]))
        asked[np.arange(groups), np.arange(groups)] = (
            (1 - part) * rows[at] + part * rows[at + 1] if smooth else rows[at]
        )
        stddev = np.sqrt(self.variances(linear(self.schema, (*others, name), asked.reshape(groups, -1))))
        widths = np.diff(points) if smooth else np.ones(len(points))
        with np.errstate(divide="ignore"):
            return np.asarray(stddev / (here / widths[at])).reshape(sizes)

    def _sizes(self, names: Sequence[str]) -> list[int]:
        """How many cells each of some attributes, levels or numbers with bins is counted by."""
        return [self.schema.counted(name).size for name in names]

    def _ratio_error(self, top: Workload, bottom: Workload, owners: Any, guess: Guess) -> Array:
        """Standard errors of ratios, to first order (claim F-003)."""
        t, b = guessed(top, guess), guessed(bottom, guess)[owners]
        vt, vb = self.variances(top), self.variances(bottom)[owners]
        c = np.take_along_axis(self.covariance(top, bottom), owners[:, None], 1)[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            r = t / b
            found = np.sqrt(np.clip(vt - 2 * r * c + r**2 * vb, 0.0, None)) / np.abs(b)
        return np.where(np.isnan(found), np.inf, found)
