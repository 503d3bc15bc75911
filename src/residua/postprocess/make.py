"""From a release's estimates to post-processed tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from residua._plan import Plan
from residua.answering.estimator import Estimator
from residua.errors import DataError, NotInSpan
from residua.postprocess.covariances import PieceErrors
from residua.postprocess.facts import Fact, Facts
from residua.postprocess.nonnegative import nonnegative_tables
from residua.postprocess.processed import Processed
from residua.postprocess.rounding import rounded_tables
from residua.postprocess.simulation import noise_of, noisy
from residua.postprocess.stacks import Stack, TableSet, shaped, subsets_of
from residua.postprocess.whole_table import nonnegative_whole, tied_attributes
from residua.workload import Table, Workload

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Unbiased:
    """What post-processing starts from: a plan and its least-squares estimates. `seed` is for simulations."""

    plan: Plan
    estimator: Estimator
    release_hash: str
    simulated: bool
    seed: int

    def tables(self, work: Workload | None = None) -> TableSet:
        """Unbiased estimates of marginals on a workload's (by default the plan's) largest attribute sets."""
        work = self.plan.workload if work is None else work
        tied = tied_attributes(self.plan.strategy)
        if tied is not None:
            subsets, sizes = subsets_of([tied]), [self.plan.schema.sizes[at] for at in tied]
            return TableSet((Stack(subsets, self.estimator.marginals(subsets, sizes)),))
        return TableSet(
            tuple(Stack(subsets, self.estimator.marginals(subsets, sizes)) for subsets, sizes in shaped(work))
        )

    def noise(self, number: int) -> Estimator:
        """Least squares of noise alone, the same for the same measurements and number."""
        strategy = self.plan.strategy
        measured = noise_of(strategy, np.random.default_rng([self.seed, number]))
        return Estimator(strategy.answerer, strategy.estimates(measured))


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
    errors = PieceErrors(plan.strategy, plan.schema)

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
    if tied_attributes(plan.strategy) is not None:
        return nonnegative_whole(tables, plan.strategy, facts)
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
        plan.strategy.total(Table("total", ()), weighted=False)
    except NotInSpan as error:
        raise NotInSpan(
            "the plan does not measure the number of records, which non-negative tables add up to; publish "
            "it too, or give it as a public fact: rs.known(rs.marginals(schema, ways=0), 1000)"
        ) from error
