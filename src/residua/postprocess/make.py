"""From a release's estimates to post-processed tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from residua._plan import Plan
from residua.errors import DataError, Infeasible, NotInSpan
from residua.postprocess.covariances import PieceErrors
from residua.postprocess.facts import Fact, Facts
from residua.postprocess.nonnegative import nonnegative_tables
from residua.postprocess.processed import Processed
from residua.postprocess.rounding import rounded_tables
from residua.postprocess.simulation import (
    Redo,
    estimated_noise,
    joint_noise,
    measured_noise,
    noisy,
    overlap_noise,
)
from residua.postprocess.stacks import Stack, TableSet, shaped, subsets_of
from residua.postprocess.whole_table import nonnegative_whole, tied_attributes
from residua.reconstruct import Estimator
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.overlap import OverlapStrategy
from residua.strategy.product import ProductStrategy
from residua.workload import Group, Workload

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Unbiased:
    """What post-processing starts from: a plan, its least-squares estimates, and how to make others.

    `measured` is False for a release that is a combination of others. `seed` is for simulations.
    """

    plan: Plan
    estimator: Estimator
    redo: Redo
    measured: bool
    release_hash: str
    simulated: bool
    seed: int

    def tables(self, work: Workload | None = None) -> TableSet:
        """Unbiased estimates of marginals on a workload's (by default the plan's) largest attribute sets."""
        work = self.plan.workload if work is None else work
        tied = tied_attributes(self.plan.mechanism)
        if tied is not None:
            subsets, sizes = subsets_of([tied]), [self.plan.schema.sizes[at] for at in tied]
            return TableSet((Stack(subsets, self.estimator.marginals(subsets, sizes)),))
        return TableSet(
            tuple(Stack(subsets, self.estimator.marginals(subsets, sizes)) for subsets, sizes in shaped(work))
        )

    def noise(self, number: int) -> Estimator:
        """Least squares of noise alone, the same for the same measurements and number."""
        generator = np.random.default_rng([self.seed, number])
        if self.measured:
            return self.redo(measured_noise(self.plan.batches, generator))
        mechanism = self.plan.mechanism
        if isinstance(mechanism, BlockStrategy):
            return self.redo(estimated_noise(mechanism, generator))
        if isinstance(mechanism, OverlapStrategy):
            return self.redo(overlap_noise(mechanism, generator))
        if isinstance(mechanism, ProductStrategy):
            return self.redo(joint_noise(mechanism, generator))
        raise Infeasible(
            f"the errors of combined releases of kind {mechanism.kind!r} cannot be simulated; pass "
            "replicates=0, or process each release alone"
        )


def seed_of(cells: Iterable[Array]) -> int:
    """A seed that depends on the measurements only, so that simulations can be repeated."""
    digest = sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in cells)).digest()
    return int.from_bytes(digest[:8], "little")


def nonnegative(source: Unbiased, given: Fact | Iterable[Fact], replicates: int) -> Processed:
    """The nearest non-negative tables that agree with each other."""
    return _processed("non-negative", source, given, replicates, whole=False)


def rounded(source: Unbiased, given: Fact | Iterable[Fact], replicates: int) -> Processed:
    """Whole numbers near the non-negative tables."""
    return _processed("whole", source, given, replicates, whole=True)


def _processed(
    kind: str, source: Unbiased, given: Fact | Iterable[Fact], replicates: int, *, whole: bool
) -> Processed:
    plan = source.plan
    checked_replicates(replicates)
    facts = Facts.of(given, plan.schema)
    refuse_without_total(plan, facts)
    errors = PieceErrors(plan.mechanism, plan.schema)

    def made(tables: TableSet) -> TableSet:
        found = nearest(tables, plan, errors, facts)
        return rounded_tables(found, facts) if whole else found

    tables = made(source.tables())

    def again(number: int) -> TableSet:
        return made(noisy(tables, source.noise(number)))

    return Processed(
        kind, plan, tables, source.release_hash, source.simulated, facts.words, replicates, again
    )


def nearest(tables: TableSet, plan: Plan, errors: PieceErrors, facts: Facts) -> TableSet:
    """The nearest non-negative tables, in the way that suits the plan's measurements."""
    mechanism = plan.mechanism
    if isinstance(mechanism, ProductStrategy) and tied_attributes(mechanism) is not None:
        return nonnegative_whole(tables, mechanism, facts)
    return nonnegative_tables(tables, errors, facts)


def checked_replicates(replicates: object) -> int:
    """The number of simulations, refused unless it is one."""
    if not isinstance(replicates, int) or isinstance(replicates, bool) or replicates < 0:
        raise DataError(f"replicates is a number of simulations, such as 20, not {replicates!r}")
    return replicates


def refuse_without_total(plan: Plan, facts: Facts) -> None:
    """Stop if nobody knows how many records there are."""
    if facts.margin(()) is not None:
        return
    try:
        plan.mechanism.total(Group("total", ()), weighted=False)
    except NotInSpan as error:
        raise NotInSpan(
            "the plan does not measure the number of records, which non-negative tables add up to; publish "
            "it too, or give it as a public fact: rs.known(rs.marginals(schema, ways=0), 1000)"
        ) from error
