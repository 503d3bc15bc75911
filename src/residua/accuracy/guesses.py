"""Public guesses of sizes: targets in relative terms, and what percentages, means and medians will be like.

A guess is what somebody expects of the numbers before any data is touched: last year's release, numbers by
name of table, or one number of records, taken as spread evenly over all cells. It must be public.

| symbol | meaning |
|---|---|
| t, b | guessed numerators and denominators; r = t / b |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import Array
from residua.accuracy.targets import Target, TargetLike, Targets
from residua.errors import BudgetError, WorkloadError
from residua.schema import Schema
from residua.schema.coding import hint
from residua.workload import Table, Workload, linear, table
from residua.workload.moments import cell_numbers


class Answered(Protocol):
    """A release, or anything else with answers."""

    def values(self, work: Workload) -> Array:
        """Answers of a workload, (count,)."""


Guess = Answered | Mapping[str, ArrayLike] | float


@dataclass(frozen=True, slots=True)
class Relative:
    """A target as a part of the number that is guessed; numbers below `least` count as that."""

    part: float
    least: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.part, int | float) or not 0 < self.part < np.inf or self.least < 0:
            raise BudgetError(
                f"a relative target is above zero, such as rs.relative(0.05), not {self.part!r}"
            )

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
        return np.concatenate([_spread(group, float(guess)) for group in work.groups()])
    if isinstance(guess, Mapping):
        return np.concatenate([_named(group, guess) for group in work.groups()])
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


class Foresees:
    """What a plan says about percentages and means before any data, at guessed sizes."""

    @property
    def schema(self) -> Schema:
        """The schema of its tables."""
        raise NotImplementedError

    def covariance(self, left: Workload, right: Workload) -> Array:
        """Covariance of answers."""
        raise NotImplementedError

    def share_error(
        self, names: str | Sequence[str], *, within: str | Sequence[str] = (), guess: Guess
    ) -> Array:
        """Standard error that each share will have, as parts of 1, at guessed sizes: (within..., names...).

        `guess` is public: last year's release, or the number of records, taken as spread evenly.
        """
        own, others = ([each] if isinstance(each, str) else list(each) for each in (names, within))
        sizes = [self.schema[name].size for name in (*others, *own)]
        top, bottom = table(self.schema, [*others, *own]), table(self.schema, others)
        owners = np.arange(top.count) // (top.count // bottom.count)
        return self._ratio_error(top, bottom, owners, guess).reshape(sizes)

    def mean_error(self, name: str, *, by: str | Sequence[str] = (), guess: Guess) -> Array:
        """Standard error that each mean of a number will have, at guessed sizes: (by...)."""
        others = [by] if isinstance(by, str) else list(by)
        sizes = [self.schema[each].size for each in others]
        numbers = cell_numbers(name, self.schema[name])
        rows = np.kron(np.eye(int(np.prod(sizes))), numbers)
        top, bottom = linear(self.schema, (*others, name), rows), table(self.schema, others)
        return self._ratio_error(top, bottom, np.arange(bottom.count), guess).reshape(sizes)

    def quantile_error(
        self, name: str, order: float = 0.5, *, by: str | Sequence[str] = (), guess: Guess
    ) -> Array:
        """Standard error that each quantile will have, at guessed sizes: (by...).

        To first order it is that of the cumulative count there over the number of records per unit.
        """
        others = [by] if isinstance(by, str) else list(by)
        sizes, cells = [self.schema[each].size for each in others], self.schema[name].size
        numbers, groups = cell_numbers(name, self.schema[name], ends=True), int(np.prod(sizes))
        counts = guessed(table(self.schema, [*others, name]), guess).reshape(groups, cells)
        reached = np.cumsum(counts, axis=1) >= order * counts.sum(axis=1, keepdims=True)
        at = reached.argmax(axis=1)
        rows = np.zeros((groups, groups, cells))
        rows[np.arange(groups), np.arange(groups)] = (np.arange(cells) <= at[:, None]) - order
        asked = linear(self.schema, (*others, name), rows.reshape(groups, -1))
        stddev = np.sqrt(np.diag(self.covariance(asked, asked)))
        density = counts[np.arange(groups), at] / np.gradient(numbers)[at]
        with np.errstate(divide="ignore"):
            return np.asarray(stddev / density).reshape(sizes)

    def _ratio_error(self, top: Workload, bottom: Workload, owners: Any, guess: Guess) -> Array:
        """Standard errors of ratios, to first order (claim F-003)."""
        t, b = guessed(top, guess), guessed(bottom, guess)[owners]
        vt, vb = np.diag(self.covariance(top, top)), np.diag(self.covariance(bottom, bottom))[owners]
        c = np.take_along_axis(self.covariance(top, bottom), owners[:, None], 1)[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            r = t / b
            return np.asarray(np.sqrt(np.clip(vt - 2 * r * c + r**2 * vb, 0.0, None)) / np.abs(b))
