"""Every planning method by name, the choice of the best one, and how to add one.

The published divide-and-conquer methods are ways to solve blocks under uniform centring; those of HDMM and
the strategies it is compared with plan noise of either law.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import Array
from residua._limits import COMPARED_PLACES, DENSE_CELLS, LIGHT_WORK, MANY_TABLES, WIDEST
from residua.bounds import quick_bound
from residua.decompose import decompose
from residua.errors import Infeasible, NotConverged, ResiduaError, WorkloadError
from residua.methods.baselines import BASELINES
from residua.methods.blocks import Fourier, Given, querysmasher, solve_blocks, widened
from residua.methods.brief import brief
from residua.methods.dense import dense, dense_targets, dense_work, quick_for_targets
from residua.methods.draft import Caps, Draft, Method, Progress, Way, best_of
from residua.methods.effort import CLOSE, Account
from residua.methods.hdmm.demand import lower_bound
from residua.methods.hdmm.kron import joint, kron, nested, union
from residua.methods.hdmm.marginals import marginals
from residua.methods.hdmm.p_identity import Found
from residua.methods.laplace_places import laplace_places
from residua.methods.partly import partly
from residua.methods.places import places, places_targets
from residua.methods.scales.loss import block_loss
from residua.methods.scales.loss_rounds import by_rounds
from residua.methods.scales.priced import Loss
from residua.methods.scales.targets import block_targets
from residua.methods.smasher import smasher
from residua.privacy import NoiseLaw
from residua.strategy.words import MEASURED
from residua.workload import Identity, TableRun, Total, Workload
from residua.workload.union import common_product, one_wide_product

TARGET_METHODS = ("auto", "dense", "places", "smasher", "querysmasher", "residualplanner")
"""Those that bound each query's error."""


def auto(
    work: Workload,
    tolerance: float,
    progress: Progress | None = None,
    account: Account | None = None,
    *,
    apart: bool = True,
) -> Draft:
    """The optimum of all mechanisms where the account has the work for it, otherwise the best blocks.

    With `apart`, of blocks whose costs are added up cell by cell too (see `methods.dense`).
    """
    account = Account() if account is None else account
    widest = max((work.schema.sizes[at] for at in work.attributes), default=1)
    if work.invariant and not one_wide_product(work) and widest <= WIDEST:
        return querysmasher(work, tolerance, progress)
    taken, optimum = dense_work(work, apart=apart), partial(dense, work, progress=progress, apart=apart)
    levels = any(work.schema.attributes[at].levels for at in work.attributes)
    many = levels and widest > COMPARED_PLACES and taken > LIGHT_WORK  # their tree is quicker
    if common_product(work) is not None and taken < math.inf:
        gap = max(tolerance, _affordable_gap(taken, account))
        return replace(optimum(tolerance=gap), undone=tuple(account.undone))
    if not many and account.affords(taken, "the optimum over all joint cells"):
        return optimum(tolerance=tolerance)
    if work.tables > MANY_TABLES:
        return querysmasher(work, tolerance, progress)
    blocks = partial(_brief if account.brief else _blocks, work, tolerance, progress, account)
    if not levels or (account.brief and not many):
        return blocks()
    ways: list[Way] = [partial(places, work, tolerance, progress)]
    if not many:
        return best_of(work, [*ways, blocks], proved=tolerance)
    ways += [partial(optimum, tolerance=tolerance)] if taken <= account.left else []
    return best_of(work, ways, [blocks], proved=max(tolerance, NEARLY))


def _affordable_gap(taken: float, account: Account) -> float:
    """The gap that one product, for which there is no other way, is solved to: coarse where it takes long."""
    if taken <= account.left:
        return 0.0
    account.leave("a closer optimum over all joint cells")
    return COARSE_GAP if taken <= MUCH * account.left else COARSEST_GAP


COARSE_GAP, COARSEST_GAP = 2e-3, 1e-2
MUCH = 4.0  # times the work that is left
NEARLY = 1e-3  # gap of a plan for many places at which no other is tried
WORTH = 1e-4  # gain of blocks solved together over independent ones, which are answered many times as fast


def _blocks(work: Workload, tolerance: float, progress: Progress | None, account: Account) -> Draft:
    """The best blocks, and what was left undone."""
    refuse_wide_columns(work)
    found = smasher(work, tolerance, progress, account)
    bound = 0.0 if found.scope == "all mechanisms" else quick_bound(work, *account.for_bound)
    value = math.inf if found.value is None else found.value
    if found.scope == "all mechanisms" or value <= bound * (1 + CLOSE):
        return replace(found, everywhere=bound, undone=tuple(account.undone))
    other = partly(work, found, tolerance, progress, account)
    found = found if other is None or (other.value or math.inf) > value * (1 - WORTH) else other
    return replace(found, everywhere=bound, undone=tuple(account.undone))


def _brief(work: Workload, tolerance: float, progress: Progress | None, account: Account) -> Draft:
    """Blocks without a search, and what was left undone."""
    refuse_wide_columns(work)
    account.leave("a search over the splits of queries")
    return replace(brief(work, tolerance, progress), undone=tuple(account.undone))


def refuse_wide_columns(work: Workload, most: int = DENSE_CELLS) -> None:
    """Infeasible where a column has more cells than a matrix may, and a table asks for more than counts."""
    for part in work.parts:
        for factor in () if isinstance(part, TableRun) and part.joint is not None else part.factors:
            if factor is None or len(factor.attributes) > 1 or factor.queries.cells <= most:
                continue
            if not factor.queries.invariant:
                name = work.schema.names[factor.attributes[0]]
                raise Infeasible(
                    f"bin {name!r}: {factor.queries!r} on {factor.queries.cells:,} cells takes a matrix of "
                    f"that many rows, and {most:,} fit; use rs.Binned, or ask for plain counts"
                )


def targets_draft(
    method: str, work: Workload, caps: Caps, tolerance: float, progress: Progress | None, refine: bool
) -> Draft:
    """The cheapest strategy that a method finds for a variance of every query."""
    if method not in TARGET_METHODS:
        names = ", ".join(TARGET_METHODS)
        raise WorkloadError(f"method {method!r} does not plan for the accuracy of each query; use {names}")
    if method == "residualplanner":
        refuse_all_but_marginals(work)
    # Of marginals with one target a table, blocks are as good as any mechanism.
    plain = work.invariant and not any(np.ndim(cap) for cap in caps)
    if method == "dense" or (method == "auto" and (refine or not plain) and quick_for_targets(work, caps)):
        return dense_targets(work, caps, tolerance, progress, refine)
    if refine:
        raise WorkloadError(
            "refine is for workloads on few cells, where all mechanisms can be compared; leave it out here"
        )
    if method == "places":
        return places_targets(work, caps, tolerance, progress)
    blocks = partial(block_targets, work, caps, tolerance, progress)
    if method != "auto" or not any(work.schema.attributes[at].levels for at in work.attributes):
        return blocks()
    try:
        found = places_targets(work, caps, tolerance, progress)
    except Infeasible:  # they ask for other things than places, or for each query by itself
        return blocks()
    if max(work.schema.sizes[at] for at in work.attributes) > COMPARED_PLACES:
        return found
    return min(found, blocks(), key=lambda draft: draft.strategy.cost())


def loss_draft(
    method: str,
    work: Workload,
    loss: Loss,
    tolerance: float,
    progress: Progress | None,
    cost: float,
    account: Account,
) -> Draft:
    """The strategy of the least loss that a method finds at a privacy cost."""
    if method not in ("auto", "querysmasher", "residualplanner"):
        raise WorkloadError(f"method {method!r} does not plan for a loss of your own; use 'auto'")
    if method == "residualplanner":
        refuse_all_but_marginals(work)
    first: Draft | ResiduaError
    try:
        first = block_loss(work, loss, tolerance, progress, cost=cost)
    except (Infeasible, NotConverged) as refused:  # what blocks cannot do another plan may
        first = refused
    if work.invariant and isinstance(first, Draft):  # no mechanism is better than its blocks
        return first

    def planner(own: Workload) -> Draft | None:
        if method != "auto":
            return None
        share = account.allowed if account.spent == 0 else account.allowed / 4
        dear = dense_work(own, apart=False)
        dear = dear if dear <= share else account.allowed / FEWEST_ROUNDS
        if account.spent and not account.affords(dear, "further rounds of plans for the loss"):
            return None
        account.spent += dear
        return auto(own, tolerance / 4, progress, Account(share), apart=False)

    return by_rounds(work, loss, first, planner, tolerance, cost)


FEWEST_ROUNDS = 10  # of plans for a loss that are blocks


def fourier(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Every block measured in the Fourier basis: weighted Fourier factorisation."""
    return solve_blocks(decompose(work), work.schema.sizes, Fourier(), tolerance, progress)


def residualplanner(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Marginals only: every block measures all centred cells, which is optimal for marginals."""
    refuse_all_but_marginals(work)
    sizes = work.schema.sizes
    numbers = {size: number for number, size in enumerate(dict.fromkeys(sizes))}
    matrices = {number: np.eye(size) for size, number in numbers.items()}
    parts = decompose(work, tags=[numbers[size] for size in sizes])
    return widened(work, solve_blocks(parts, sizes, Given(matrices), tolerance, progress))


def refuse_all_but_marginals(work: Workload) -> None:
    """Raise WorkloadError for a workload with other families than identity and total."""
    for queries in work.families:
        if not isinstance(queries, Identity | Total):
            raise WorkloadError(
                f"method 'residualplanner' plans marginals only, and the workload has {queries!r}; "
                "use method 'querysmasher' or 'auto'"
            )


def residualplanner_plus(
    work: Workload,
    tolerance: float,
    progress: Progress | None = None,
    strategies: Mapping[str, ArrayLike] | None = None,
) -> Draft:
    """One strategy per attribute in all blocks: those given by name, otherwise the best for each block."""
    schema = work.schema
    tags = [0] * len(schema)
    matrices: dict[int, Array] = {}
    for name, matrix in (strategies or {}).items():
        at = schema.position(name)
        rows = np.asarray(matrix, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != schema.sizes[at] or not np.isfinite(rows).all():
            raise WorkloadError(
                f"the strategy for attribute {name!r} must be a finite matrix with "
                f"{schema.sizes[at]} columns, not one of shape {rows.shape}"
            )
        if np.linalg.matrix_rank(rows) < schema.sizes[at]:
            raise WorkloadError(
                f"the strategy for attribute {name!r} does not determine its "
                f"{schema.sizes[at]} cells; add rows"
            )
        tags[at] = at + 1
        matrices[at + 1] = rows
    return solve_blocks(decompose(work, tags=tags), schema.sizes, Given(matrices), tolerance, progress)


def hdmm(work: Workload, law: NoiseLaw, progress: Progress | None = None) -> Draft:
    """OPT_HDMM: the best of single products, unions of products and marginals.

    For Laplace noise also of one strategy for all joint cells, where they are few.
    """
    refuse_wide_columns(work, WIDEST)
    if one_wide_product(work) or len(work.attributes) == 1:
        return kron(work, law, progress)
    known: dict[bytes, Found] = {}
    bound = lower_bound(work, law)  # of all of them
    ways: list[Way] = [partial(way, work, law, progress, bound, known) for way in (kron, nested)]
    others = (union, joint) if law == "laplace" else (union,)
    return best_of(work, [*ways, *(partial(way, work, law, progress, bound) for way in others)])


def auto_laplace(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """The best that HDMM finds, or places measured at several levels where tables ask for such."""
    search = partial(hdmm, work, "laplace", progress)
    if not any(work.schema.attributes[at].levels for at in work.attributes):
        return search()
    widest = max(work.schema.sizes[at] for at in work.attributes)
    ways: list[Way] = [partial(laplace_places, work, tolerance, progress), search]
    return best_of(work, ways[: 2 if widest <= COMPARED_PLACES else 1], ways[1:])


def _hdmm_union(work: Workload, law: NoiseLaw, progress: Progress | None = None) -> Draft:
    return best_of(work, [partial(way, work, law, progress) for way in (nested, union)])


def _of_either_law(law: NoiseLaw) -> dict[str, Method]:
    """The methods of HDMM and the strategies it is compared with, for noise of this law."""
    searches = {"hdmm": hdmm, "hdmm-kron": kron, "hdmm-union": _hdmm_union, "hdmm-marginals": marginals}
    found: dict[str, Method] = {}
    for name, search in searches.items():
        found[name] = lambda work, gap, progress, search=search: search(work, law, progress)
    for name, strategy in BASELINES.items():
        found[name] = lambda work, gap, progress, strategy=strategy: strategy(work, law)
    return found


_METHODS: dict[NoiseLaw, dict[str, Method]] = {
    "gaussian": {
        "auto": auto,
        "smasher": smasher,
        "querysmasher": querysmasher,
        "residualplanner": residualplanner,
        "residualplanner+": residualplanner_plus,
        "fourier": fourier,
        "dense": dense,
        "places": places,
        **_of_either_law("gaussian"),
    },
    "laplace": {"auto": auto_laplace, "places": laplace_places, **_of_either_law("laplace")},
}
BUILT_IN = {law: tuple(sorted(own)) for law, own in _METHODS.items()}
"""The names of those that are there whatever is registered."""


def methods_for(noise: NoiseLaw) -> Mapping[str, Method]:
    """The methods that plan noise of this law, by name."""
    return _METHODS[noise]


def register_method(name: str, method: Method, *, noise: NoiseLaw = "gaussian") -> None:
    """Make a method of your own known as `rs.plan(..., method=name)`.

    `method(work, gap, progress)` returns a `residua.methods.Draft` at privacy cost 1: a strategy, a lower
    bound on the total weighted variance at that cost (0 if nothing is known), and for whom the bound holds.
    What it costs, its errors and its integers are worked out as for any other method.

    >>> import numpy as np
    >>> import residua as rs
    >>> from residua.methods import Draft, strategy_of
    >>> def cells(work, gap, progress):
    ...     return Draft(strategy_of(work.schema, [({"age": np.eye(10)}, 1.0)]), 0.0, "this block structure")
    >>> rs.register_method("cells of age", cells)
    >>> schema = rs.Schema(age=rs.Integer(0, 9))
    >>> rs.plan(rs.table(schema, ["age"]), rs.privacy_cost(1), method="cells of age").rmse.__round__(3)
    1.0
    """
    if not isinstance(name, str) or not name or not callable(method):
        raise WorkloadError(f"a method is registered by a name and a function, not {name!r} and {method!r}")
    if noise not in _METHODS:
        raise WorkloadError(f"noise is one of {', '.join(_METHODS)}, not {noise!r}")
    if name in _METHODS[noise] or name in MEASURED:
        raise WorkloadError(f"there is a method {name!r} already; choose another name")
    _METHODS[noise][name] = method
