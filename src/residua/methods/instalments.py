"""Plans that are measured in instalments: each period when it comes, with nothing of later ones.

Every privacy matrix over ordered periods has a lower-triangular root, `X = L'L`: row t of it needs the
periods up to t only, and what looks back is answered by the rows so far (claim Y-001). So the best plan that
waits for the end is measured as it goes. Time is never centred, and every block has it; the other attributes
are split as ever.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from residua._arrays import Array
from residua.answering.blocks import Shape
from residua.decompose import decompose, uniform
from residua.errors import Infeasible, WorkloadError
from residua.linalg.matrices import Measure, independent_rows
from residua.methods.blocks import Optimal, solve_blocks
from residua.methods.dense import dense, dense_work
from residua.methods.draft import Draft, Progress
from residua.methods.effort import Account
from residua.methods.smasher import smasher
from residua.methods.whole import whole_draft
from residua.strategy.integers import FILL
from residua.strategy.strategy import Domain, Strategy
from residua.workload import Workload
from residua.workload.explicit import Explicit
from residua.workload.tables import Factor

ROUNDING = 1e-13  # of the largest entry of a root: what is smaller is what rounding leaves of zero

Renewal = int | str | None
"""After how many cells of time the plan starts anew; "doubling", or never."""


class _Products(Optimal):
    """The optimum of each attribute's part of a block, so that time has a matrix of its own."""

    products_only = True
    asked_only = False


def instalments(
    work: Workload,
    at: int,
    tolerance: float,
    progress: Progress | None = None,
    account: Account | None = None,
    renew: Renewal = None,
) -> Draft:
    """The best draft whose every row looks at the cells of attribute `at` up to one of them.

    The optimum of all mechanisms where the account has the work for it, otherwise blocks that keep the
    attribute whole. With `renew`, time in blocks that know nothing of each other (claim Y-004).
    """
    account = Account() if account is None else account
    asked = with_time(work, at)
    if account.affords(dense_work(asked, apart=False), "the optimum over all joint cells"):
        draft = dense(asked, tolerance, progress, apart=False)
    else:
        draft = _uncentred(asked, at, tolerance, progress, account)
    if renew is None:
        return triangular(draft, at)
    rows = _renewed(_time_queries(asked, at), _ends(asked.schema.sizes[at], renew), tolerance)
    found = whole_draft(asked, at, rows, partial(_others, tolerance=tolerance, progress=progress))
    if found is None:
        raise Infeasible("the other attributes are seen by classes of cells; leave out renew")
    return replace(found, value=None, lower_bound=draft.lower_bound, scope=draft.scope)


def with_time(work: Workload, at: int) -> Workload:
    """The same queries, those that ask for the total of an attribute as queries on its cells."""
    size = work.schema.sizes[at]
    total = Factor((at,), Explicit((size,), np.ones((1, size))))
    tables = (
        table if at in table.attributes else replace(table, factors=(*table.factors, total))
        for table in work.groups()
    )
    return Workload(work.schema, tuple(tables))


def _uncentred(
    work: Workload, at: int, tolerance: float, progress: Progress | None, account: Account
) -> Draft:
    """Blocks over all subsets of the other attributes, each with the attribute whole.

    Weights that are all zero centre nothing and average nothing: what is left of a query without the
    attribute is zero (claim Y-002). The others are centred evenly, or as is best without instalments.
    """
    sizes = work.schema.sizes
    found = []
    for centred in (uniform(work), smasher(work, tolerance, progress, account).strategy.measures):
        measures = list(centred)
        measures[at] = Measure.of(np.zeros(sizes[at]))
        draft = solve_blocks(decompose(work, measures), sizes, _Products(), tolerance, progress)
        measures[at] = Measure(sizes[at])
        domains = (Domain(sizes, tuple(measures)),)
        found.append(replace(draft, strategy=replace(draft.strategy, domains=domains)))
    return min(found, key=lambda draft: math.inf if draft.value is None else draft.value)


def triangular(draft: Draft, at: int) -> Draft:
    """The draft with lower-triangular roots of what it measures of an attribute, in the order of its cells.

    What leaves cells unmeasured is filled first, with very little of the privacy (claim Y-001).
    """
    strategy, spans = draft.strategy, dict(draft.spans)
    shapes = list(strategy.shapes)
    filled = False
    for number, axis in time_shapes(strategy, at):
        filled |= shapes[number].rank < shapes[number].matrix.shape[1]
        shapes[number] = _root(shapes[number], axis)
        spans.pop(number, None)
    whole = replace(strategy, shapes=tuple(shapes), memory=type(strategy.memory)())
    return replace(draft, strategy=whole, spans=spans, value=None if filled else draft.value)


def time_shapes(strategy: Strategy, at: int) -> list[tuple[int, int]]:
    """The numbers of the shapes that see an attribute, each with the axis that it is there."""
    found: set[tuple[int, int]] = set()
    for layer in strategy.layers:
        for column, places in zip(layer.shapes.T, layer.layout, strict=True):
            for axis, place in enumerate(places):
                found |= {(number, axis) for number in column[layer.subsets[:, place] == at].tolist()}
    return sorted(found)


def _root(shape: Shape, axis: int) -> Shape:
    """The shape with the same gram and rows in the order of the last cell of an axis that they look at."""
    matrix = shape.matrix
    cells = matrix.shape[1]
    if shape.rank < cells:
        scale = math.sqrt(FILL * shape.norm)
        matrix = np.concatenate([matrix, scale * np.eye(cells)])
    inner = math.prod(shape.sizes[axis + 1 :])
    order = np.argsort(np.arange(cells) // inner % shape.sizes[axis], kind="stable")[::-1]
    found = np.asarray(np.linalg.qr(matrix[:, order], mode="r"))  # the last cell first
    upper = np.where(np.abs(found) > ROUNDING * np.abs(found).max(), found, 0.0)
    rows = np.zeros_like(upper)
    rows[:, order] = upper
    rows = rows[::-1] * np.sign(np.diagonal(upper))[::-1, None]
    longest = math.sqrt(float(np.max(np.sum(rows * rows, axis=0))) / shape.norm)
    return Shape.independent(shape.sizes, rows / longest)


def _time_queries(work: Workload, at: int) -> Array:
    """The queries of all tables on one attribute, one by one, as heavily as they are asked."""
    found = []
    for table in work.groups():
        queries = next((own.queries for own in table.factors if own.attributes == (at,)), None)
        if queries is None:
            raise WorkloadError(
                f"some queries are on {work.schema.names[at]!r} and another attribute together, and cannot "
                "be planned in blocks of time; leave out renew"
            )
        found.append(np.sqrt(table.weight * queries.every_weight)[:, None] * queries.matrix())
    return np.concatenate(found)


def _ends(size: int, renew: Renewal) -> list[int]:
    """Where the blocks of time end."""
    ends: list[int] = []
    length = renew if isinstance(renew, int) else 1
    while not ends or ends[-1] < size:
        ends.append(min(size, (ends[-1] if ends else 0) + length))
        length = renew if isinstance(renew, int) else 2 * length
    return ends


def _renewed(asked: Array, ends: Sequence[int], tolerance: float) -> Array:
    """Blocks of time, each the best for what is asked while it lasts and in the block after it (Y-004)."""
    size = asked.shape[1]
    rows = np.zeros((size, size))
    last = size - 1 - (asked[:, ::-1] != 0).argmax(axis=1)
    starts = [0, *ends[:-1]]
    for start, end, after in zip(starts, ends, [*ends[1:], size], strict=True):
        own = asked[(last >= start) & (last < after)][:, start:end]
        own = own[own.any(axis=1)]
        root = independent_rows(own) if len(own) else np.eye(end - start)
        found = Optimal().solve(root, (end - start,), (0,), tolerance, "a block of time").strategy
        own_root = _root(Shape.independent((end - start,), found), 0).matrix
        rows[start:end, start:end] = own_root / math.sqrt(float(np.max(np.sum(own_root**2, axis=0))))
    return rows


def _others(work: Workload, tolerance: float, progress: Progress | None) -> Draft:
    quick = Account().affords(dense_work(work), "the optimum over all joint cells")
    return (dense if quick else smasher)(work, tolerance, progress)
