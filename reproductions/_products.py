"""What the reproductions of HDMM's tables share: the multi-dimensional workloads and figures of methods."""

import math
from collections.abc import Callable, Iterable
from itertools import combinations, pairwise

import numpy as np
from _census import sf1
from _figures import CATEGORICAL, NUMERIC
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf
from threadpoolctl import threadpool_limits

import residua as rs
from residua.methods.registry import methods_for
from residua.privacy import NoiseLaw
from residua.workload import Identity, Table, Workload
from residua.workload.explicit import Explicit
from residua.workload.intervals import Prefix
from residua.workload.tables import Factor

Array = NDArray[np.float64]

ALLOWED = 0.01  # above the printed figure: searches may end in different places
SMALL = 5_000
# The paper's standard deviation is above the exact one, by a part in two thousand million: its figures of 12
# digits show it. Ours are computed at the same.
THEIR_SIGMA = 1 + 4.85e-10
GAUSSIAN_VARIANCE = THEIR_SIGMA**2 / float(rs.approx_dp(1, 1e-6).gaussian_cost())
DEPENDENT = 1e-8  # of a query's squared length: what rounding leaves beside a combination of others


def schema_of(name: str) -> rs.Schema:
    return rs.Schema.of_sizes([*NUMERIC[name], *CATEGORICAL[name]])


def marginals_on(name: str, subsets: Iterable[tuple[int, ...]], *, prefix: bool) -> Workload:
    """Marginals on these attributes; with `prefix`, cumulative along numeric ones."""
    schema = schema_of(name)
    numeric = len(NUMERIC[name]) if prefix else 0
    groups = []
    for number, subset in enumerate(subsets):
        factors = tuple(
            Factor((at,), Prefix(schema.sizes[at]) if at < numeric else Identity(schema.sizes[at]))
            for at in subset
        )
        groups.append(Table(f"table {number}", factors))
    return Workload(schema, tuple(groups))


def up_to(name: str, ways: Iterable[int]) -> list[tuple[int, ...]]:
    axes = range(len(NUMERIC[name]) + len(CATEGORICAL[name]))
    return [subset for way in ways for subset in combinations(axes, way)]


def small(name: str) -> list[tuple[int, ...]]:
    """Attributes of every marginal with fewer than 5,000 cells."""
    sizes = schema_of(name).sizes
    return [s for s in up_to(name, range(len(sizes) + 1)) if math.prod(sizes[at] for at in s) < SMALL]


def cps_prefix_marginals() -> Workload:
    """One product: prefixes of numeric attributes, which include totals, times cells and totals of others."""
    schema = schema_of("CPS")
    factors = []
    for at, size in enumerate(schema.sizes):
        both = Explicit((size,), np.concatenate([np.ones((1, size)), np.eye(size)]), None, None)
        factors.append(Factor((at,), Prefix(size) if at < len(NUMERIC["CPS"]) else both))
    return Workload(schema, (Table("all", tuple(factors)),))


WORKLOADS: dict[tuple[str, str], Callable[[], Workload]] = {
    ("Census", "SF1"): sf1,
    ("Census", "SF1+"): lambda: sf1(by_state=True),
    ("CPS", "All Marginals"): lambda: marginals_on("CPS", up_to("CPS", range(6)), prefix=False),
    ("CPS", "All Prefix-Marginals"): cps_prefix_marginals,
    ("Adult", "<=3D Marginals"): lambda: marginals_on("Adult", up_to("Adult", range(4)), prefix=False),
    ("Adult", "2D Prefix-Marginals"): lambda: marginals_on("Adult", up_to("Adult", [2]), prefix=True),
    ("Loans", "Small Marginals"): lambda: marginals_on("Loans", small("Loans"), prefix=False),
    ("Loans", "Small Prefix-Marginals"): lambda: marginals_on("Loans", small("Loans"), prefix=True),
}


def rmse(work: Workload, law: NoiseLaw, method: str) -> float:
    """Root mean square error at epsilon 1 (and delta 1e-6, Gaussian noise), before rounding to integers."""
    with threadpool_limits(limits=1, user_api="blas"):
        strategy = methods_for(law)[method](work, 1e-3, None).strategy
    total = sum(strategy.totals(part)[1] for part in work.parts)
    return math.sqrt(total / work.count * (1.0 if law == "laplace" else GAUSSIAN_VARIANCE))


def identity(work: Workload, law: NoiseLaw) -> float:
    """The error of measuring every cell of the attributes in use."""
    unit = 2.0 if law == "laplace" else GAUSSIAN_VARIANCE
    total = 0.0
    for group in work.groups():
        rest = math.prod(work.schema.sizes[at] for at in work.attributes if at not in group.attributes)
        total += rest * math.prod(float(np.trace(f.queries.gram())) for f in group.factors)
    return math.sqrt(unit * total / work.count)


def noise_on_answers(work: Workload, law: NoiseLaw) -> float:
    """The error of noise added to every answer, without least squares: the paper's Laplace and Gaussian."""
    longest = 0.0
    for group in work.groups():
        longest += math.prod(float(f.queries.matrix().sum(axis=0).max()) for f in group.factors)
    return math.sqrt(2.0) * longest if law == "laplace" else math.sqrt(GAUSSIAN_VARIANCE * longest)


def workload_itself(work: Workload, law: NoiseLaw) -> float:
    """The error of the same noise, answered by least squares: `tr(W (W'W)^+ W')` is the rank of W."""
    return noise_on_answers(work, law) * math.sqrt(rank(work) / work.count)


def rank(work: Workload) -> int:
    """Rank of all queries over all cells; families that every table asks of an attribute are factored out."""
    tables = [{f.attributes[0]: f.queries for f in group.factors} for group in work.groups()]
    shared = {at: each for at, each in tables[0].items() if all(table.get(at) == each for table in tables)}
    rows = [{at: each.matrix() for at, each in table.items() if at not in shared} for table in tables]
    starts = np.cumsum([0, *(math.prod(len(each) for each in table.values()) for table in rows)])
    gram, sizes = np.empty((starts[-1], starts[-1])), work.schema.sizes
    for (a, b), one in zip(pairwise(starts), rows, strict=True):
        for (c, d), two in zip(pairwise(starts), rows, strict=True):
            gram[a:b, c:d] = _inner_products(one, two, {at: sizes[at] for at in work.attributes})
    lengths = np.sqrt(np.diagonal(gram))
    own = int(dpstrf(gram / lengths / lengths[:, None], tol=DEPENDENT)[2])  # Cholesky with pivots
    return own * math.prod(int(np.linalg.matrix_rank(each.matrix())) for each in shared.values())


def _inner_products(one: dict[int, Array], two: dict[int, Array], sizes: dict[int, int]) -> Array:
    """Inner products of the rows of two tables, each a product of its matrices and totals elsewhere."""
    result: Array = np.ones((1, 1))
    for at, size in sizes.items():
        ones = np.ones((1, size))
        result = np.asarray(np.kron(result, one.get(at, ones) @ two.get(at, ones).T))
    return result
