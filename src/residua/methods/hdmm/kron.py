"""Marginals of better strategies than plain cells: one p-Identity strategy per attribute, on many subsets.

Contains OPT_M (plain cells) and, where tables ask one family of each attribute, OPT_plus; its answers use
all measurements at once (claim H-025). Weights of terms and strategies of attributes are improved in turn.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import JOINT_CELLS, JOINT_GRAMS
from residua.answering.blocks import Placed, Shape
from residua.errors import Infeasible
from residua.linalg.matrices import along_axes
from residua.methods.draft import Draft, Progress, best_of
from residua.methods.hdmm.demand import Bound, Kernel, lower_bound, product_draft
from residua.methods.hdmm.marginals import plain_kernels, weighted_terms
from residua.methods.hdmm.p_identity import Found, opt0
from residua.methods.hdmm.products import TOTAL, Around, Axis, Products, better_kernel
from residua.privacy import NoiseLaw
from residua.privacy.budgets import unit_variance
from residua.strategy.build import of_blocks
from residua.strategy.strategy import Strategy
from residua.workload import Queries, Workload
from residua.workload.queries import Identity, Total
from residua.workload.union import common_product, joint_gram

TURNS = 6
TURN_GAIN = 1e-3  # relative; strategies are improved in turn until a turn gains less
TOTALS = 1e-6  # of what is asked of an attribute: its total, which every nested strategy needs


def nested(
    work: Workload,
    law: NoiseLaw,
    progress: Progress | None = None,
    bound: Bound | None = None,
    known: dict[bytes, Found] | None = None,
) -> Draft:
    """The best nested strategy found, at cost 1; `known` has what was found for one attribute."""
    plain = plain_kernels(work)
    best, value = weighted_terms(work, law, plain, progress)
    families = _own_families(work)
    if families:
        kernels = plain | _own_kernels(families, law, {} if known is None else known)
        other, found = weighted_terms(work, law, kernels, progress)
        if law == "laplace":
            other, found = _refined(work, kernels, other, found, progress)
        if found < value:
            best = other
    return Draft(best, *(bound or lower_bound(work, law)))


def _own_families(work: Workload) -> dict[int, dict[Queries, float]]:
    """Families asked of each attribute, with weights; for those that no family ties to others, and of which
    more than cells and totals is asked.
    """
    found: dict[int, dict[Queries, float]] = {}
    tied: set[int] = set()
    for group in work.groups():
        for factor in group.factors:
            if len(factor.attributes) > 1:
                tied.update(factor.attributes)
                continue
            mine = found.setdefault(factor.attributes[0], {})
            mine[factor.queries] = mine.get(factor.queries, 0.0) + group.weight
    plain = (at for at, asked in found.items() if all(isinstance(each, Identity | Total) for each in asked))
    for at in {*tied, *plain}:
        found.pop(at, None)
    return found


def _own_kernels(
    families: Mapping[int, Mapping[Queries, float]], law: NoiseLaw, known: dict[bytes, Found]
) -> dict[int, Kernel]:
    """The best strategy for what is asked of each of these attributes alone."""
    made: dict[object, Kernel] = {}
    kernels = {}
    for at, asked in families.items():
        key = frozenset(asked.items())
        if key not in made:
            gram = np.sum([weight * each.gram() for each, weight in asked.items()], axis=0)
            found = opt0(gram, law, known=known)
            whole = found.weights is not None and found.weights.shape[1] == len(gram)
            if not whole:  # it may not determine the total
                found = opt0(gram + TOTALS * float(np.trace(gram)) / len(gram), law, known=known)
                whole = found.weights is not None and found.weights.shape[1] == len(gram)
            made[key] = Kernel.of(found.matrix, len(made) + 1, found.weights if whole else None)
        kernels[at] = made[key]
    return kernels


def _refined(
    work: Workload,
    kernels: dict[int, Kernel],
    strategy: Strategy,
    value: float,
    progress: Progress | None,
) -> tuple[Strategy, float]:
    """The strategy after improving attributes and weights in turn, and its total weighted variance."""
    number = max(kernel.number for kernel in kernels.values())
    for turn in range(TURNS):
        trial = dict(kernels)
        for at in sorted(trial):
            if trial[at].weights is not None:
                number += 1
                trial[at] = better_kernel(Around.of(work, at, trial, strategy), trial[at], number)
        other, found = weighted_terms(work, "laplace", trial)
        if progress is not None:
            progress("improving nested strategies", (turn + 1) / TURNS)
        gained = found < value * (1 - TURN_GAIN)
        if found < value:
            kernels, strategy, value = trial, other, found
        if not gained:
            break
    return strategy, value


MIXED = (0.0, 0.3, 0.6, 0.9)  # parts of the cost that starts give to totals
ROUNDS = 20
MET = 1e-2  # relative difference of traces of searches that go the same way
ROUND_GAIN = 1e-5  # relative; axes are improved in turn until a round gains less


def kron(
    work: Workload,
    law: NoiseLaw,
    progress: Progress | None = None,
    bound: Bound | None = None,
    known: dict[bytes, Found] | None = None,
) -> Draft:
    """The best product of one strategy per axis that was found, at cost 1; `known` has those of one axis."""
    asked = Products.of(work)
    found = best_product(asked, law, progress, {} if known is None else known)
    spans = class_spans(found) if law == "gaussian" else {}
    return product_draft(work, law, _placed(asked, found), bound, spans)


def class_spans(found: Sequence[Found]) -> dict[int, Integers | None]:
    """For strategies that see only classes of cells, one row of ones and zeros for each class."""
    spans: dict[int, Integers | None] = {}
    for at, each in enumerate(found):
        seen = each.matrix[:, np.abs(each.matrix).max(axis=0) > 0]
        columns = np.unique(seen, axis=1)
        rank = int(np.linalg.matrix_rank(columns))
        if rank < each.matrix.shape[1]:
            rows = np.array(
                [(each.matrix == column[:, None]).all(axis=0) for column in columns.T], dtype=np.int64
            )
            spans[at] = rows if rank == len(rows) else None
    return spans


def _placed(asked: Products, found: Sequence[Found]) -> list[Placed]:
    """These strategies, one per axis, on their attributes."""
    pairs = zip(asked.axes, found, strict=True)
    return [Placed(axis.attributes, Shape.of(axis.sizes, each.matrix)) for axis, each in pairs]


def joint(
    work: Workload, law: NoiseLaw, progress: Progress | None = None, bound: Bound | None = None
) -> Draft | None:
    """One strategy for all joint cells, at cost 1 (claim H-014); none for many cells or plain counts."""
    sizes = work.schema.sizes
    cells = math.prod(sizes[at] for at in work.attributes)
    if cells > JOINT_CELLS or work.tables * cells**2 > JOINT_GRAMS or work.invariant:
        return None
    if progress is not None:
        progress("one strategy for all joint cells", 0.0)
    found = opt0(joint_gram(work), law, times=_by_axes(work))
    shape = Shape.of([sizes[at] for at in work.attributes], found.matrix)
    return product_draft(work, law, [Placed(work.attributes, shape)], bound)


def _by_axes(work: Workload) -> Callable[[Array], Array] | None:
    """What multiplies rows by the gram of all joint cells, where the tables are one product of families."""
    shared = common_product(work)
    if shared is None or [at for factor in shared[1] for at in factor.attributes] != [*work.attributes]:
        return None
    grams = [factor.queries.gram() for factor in shared[1]]
    return lambda rows: shared[0] * along_axes(rows, grams)


def best_product(
    asked: Products, law: NoiseLaw, progress: Progress | None, known: dict[bytes, Found]
) -> list[Found]:
    """One strategy per axis: the best that is found from plain cells, and from cells mixed with totals."""
    if not asked.axes:  # numbers of records only
        return []
    if len(asked.weights) == 1:  # the best for each axis by itself
        pairs = zip(asked.axes, asked.families[0].tolist(), strict=True)
        return [opt0(axis.grams[family], law, known=known) for axis, family in pairs]
    passed: list[Array] = []
    parts = MIXED if len(asked.axes) > 1 else MIXED[:1]
    starts = ([_mixed(axis, part) for axis in asked.axes] for part in parts)
    found = [_improved(asked, law, start, progress, known, passed) for start in starts]
    return min(found, key=partial(value_of, asked))


def _mixed(axis: Axis, part: float) -> Array:
    """`tr(G M)` of every family where this part of the cost goes to the total and the rest to the cells."""
    cells, rest = axis.cells, 1.0 - part
    # (rest^2 I + part^2 11')^-1
    shared = part * part / (rest * rest + cells * part * part)
    sums = [(float(np.trace(gram)), float(gram.sum())) for gram in axis.grams]
    return np.array([(own - shared * whole) / (rest * rest) for own, whole in sums])


def value_of(asked: Products, found: Sequence[Found]) -> float:
    """Total weighted variance of a product of strategies at noise variance 1."""
    traces = [axis.traces(each.inverse) for axis, each in zip(asked.axes, found, strict=True)]
    return float(np.sum(asked.weights * _products(asked, traces)))


def _improved(
    asked: Products,
    law: NoiseLaw,
    traces: list[Array],
    progress: Progress | None,
    known: dict[bytes, Found],
    passed: list[Array],
) -> list[Found]:
    """Where turns from these traces lead; `passed` has those that searches came by, and gets these.

    For Gaussian noise what follows depends on the traces alone, so that a search ends where another passed.
    """
    found: list[Found | None] = [None] * len(asked.axes)
    value = math.inf
    for turn in range(ROUNDS):
        before = value
        for at, axis in enumerate(asked.axes):
            others = asked.weights * _products(asked, traces, without=at)
            shares = np.bincount(asked.families[:, at], others, minlength=len(axis.grams))
            gram = np.asarray(np.tensordot(shares, np.array(axis.grams), axes=1), dtype=np.float64)
            last = found[at]
            new = opt0(gram, law, start=last, known=known)
            if last is None or new.value < float(np.sum(gram * last.inverse)):
                found[at], traces[at] = new, axis.traces(new.inverse)
        value = float(np.sum(asked.weights * _products(asked, traces)))
        if progress is not None:
            progress("improving a product strategy", (turn + 1) / ROUNDS)
        here = np.concatenate(traces)
        met = law == "gaussian" and any(np.all(np.abs(here - each) <= MET * each) for each in passed)
        passed.append(here)
        if met or value > (1 - ROUND_GAIN) * before:
            break
    return [each for each in found if each is not None]


def _products(asked: Products, traces: Sequence[Array], without: int | None = None) -> Array:
    """For each table the product of its traces over all axes, or over all but one, (tables,)."""
    result = np.ones(len(asked.weights))
    for at, each in enumerate(traces):
        if at != without:
            result *= each[asked.families[:, at]]
    return result


MOST_CLUSTERS = 40


def union(
    work: Workload, law: NoiseLaw, progress: Progress | None = None, bound: Bound | None = None
) -> Draft:
    """The best union of products found, at cost 1."""
    asked = Products.of(work)
    if not asked.axes:
        raise Infeasible("all tables ask for the number of records, so that there is nothing to unite")
    clusterings = list(_clusterings(asked))
    if not clusterings:
        raise Infeasible("all tables ask about the same attributes, so that there is nothing to unite")
    proved = bound or lower_bound(work, law)
    known: dict[bytes, Found] = {}  # clusters often ask the same of an axis

    def united(clusters: Sequence[Sequence[int]]) -> Draft:
        """A product for each cluster of tables, with the best split of the cost if none helped another."""
        parts = [asked.take(cluster) for cluster in clusters]
        found = [(part, best_product(part, law, progress, known)) for part in parts]
        # Least sum(error / c^2) for sum(c) = 1; Gaussian noise: least sum(error / c) for sum(c) = 1.
        power = 2 if law == "laplace" else 1
        weights = np.array([value_of(*each) for each in found]) ** (1 / (1 + power))
        noise = (unit_variance(law) / (weights / weights.sum()) ** power).tolist()
        blocks = [(_placed(*each), variance) for each, variance in zip(found, noise, strict=True)]
        return Draft(of_blocks(work.schema.sizes, blocks, law), *proved)

    # Some ways may take too many products for these cells.
    return best_of(work, [partial(united, clusters) for clusters in clusterings])


def _clusterings(asked: Products) -> Iterator[list[list[int]]]:
    """Ways to divide the tables into at least two clusters."""
    signatures: dict[tuple[bool, ...], list[int]] = {}
    for table, row in enumerate(asked.families.tolist()):
        signatures.setdefault(tuple(family != TOTAL for family in row), []).append(table)
    by_signature = list(signatures.values())
    if 2 <= len(by_signature) <= MOST_CLUSTERS:
        yield by_signature
    if len(by_signature) > 2:
        yield _halves(signatures)
    if len(by_signature) == 1 and 2 <= len(asked.weights) <= MOST_CLUSTERS:
        yield [[table] for table in range(len(asked.weights))]


def _halves(signatures: dict[tuple[bool, ...], list[int]]) -> list[list[int]]:
    """Two clusters, grown around the two sets of attributes that share least."""
    keys = np.array(list(signatures), dtype=np.float64)
    sizes = keys.sum(axis=1)
    shared = keys @ keys.T
    likeness = shared / np.maximum(sizes[:, None] + sizes[None, :] - shared, 1.0)
    first, second = divmod(int(np.argmin(likeness)), len(keys))
    halves: list[list[int]] = [[], []]
    for at, tables in enumerate(signatures.values()):
        halves[int(likeness[at, second] > likeness[at, first])] += tables
    return [half for half in halves if half]
