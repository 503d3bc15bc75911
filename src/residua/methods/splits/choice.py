"""Which tables are split freely: those with joint families as far as they fit, in small schemas all."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from residua.decompose import Attributes
from residua.workload import Table, TableRun, Workload

Part = Table | TableRun

FEW_ATTRIBUTES = 5  # up to this many, pieces may also sit on blocks of other tables
MOST_BLOCK = 4_096  # cells of a block that free tables touch
MOST_SHARED = 4_000  # dimensions that several blocks see
STEP_WORK = 4e8  # rank^2 * cells of all distinct blocks that are solved at each step
HEAVY_STEP = 4e7  # the same in small schemas, where more steps are taken
ALL_FREE = 200  # rank of a product table that is split freely, in a small schema


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Tables that are split freely, and the parts of the workload that are centred.

    With `beyond`, pieces may also sit on blocks of other tables. `work` is that of one step of the search.
    """

    free: tuple[Table, ...]
    centred: tuple[Part, ...]
    beyond: bool
    work: float


def divide(work: Workload) -> Division:
    """The division of a workload; without joint families nothing is free."""
    listed = [(at, group) for at, part in enumerate(work.parts) for group in _groups(part)]
    joint = [group for _, group in listed if is_joint(group)]
    widest = max((_ways(part) for part in work.parts), default=0)
    light = [group for _, group in listed if is_joint(group) or _rank(group) <= ALL_FREE]
    beyond = bool(joint) and len(work.attributes) <= FEW_ATTRIBUTES and _fits(light, work, widest)
    chosen = light if beyond else _lightest(joint, widest)
    taken = {id(group) for group in chosen}
    parts: list[Part] = []
    for at, part in enumerate(work.parts):
        own = [group for number, group in listed if number == at]
        rest = [group for group in own if id(group) not in taken]
        parts += [part] if len(rest) == len(own) else rest
    return Division(tuple(chosen), tuple(parts), beyond, _work(chosen, widest))


def is_joint(part: Part) -> bool:
    """Whether a table, or a run of tables, has a family on several attributes."""
    if isinstance(part, TableRun):
        return part.joint is not None
    return any(len(factor.attributes) > 1 for factor in part.factors)


def family_of(groups: Iterable[Table]) -> set[Attributes]:
    """Every subset of the attributes of a table."""
    return {
        tuple(sorted(block))
        for group in groups
        for size in range(len(group.attributes) + 1)
        for block in combinations(group.attributes, size)
    }


def _groups(part: Part) -> list[Table]:
    """The tables of a part, where it has joint families or is small."""
    if isinstance(part, Table):
        return [part]
    return list(part) if part.joint is not None or len(part) <= 2**FEW_ATTRIBUTES else []


def _ways(part: Part) -> int:
    """Number of attributes of the tables of a part, none if they have joint families."""
    if is_joint(part):
        return 0
    return part.ways if isinstance(part, TableRun) else len(part.attributes)


def _cells(group: Table) -> int:
    return math.prod(factor.queries.cells for factor in group.factors)


def _rank(group: Table) -> int:
    return math.prod(min(factor.queries.count, factor.queries.cells) for factor in group.factors)


def _effort(group: Table, widest: int) -> float:
    """`rank^2 * cells` of the block of a table: all its cells, where product tables may reach them too."""
    cells = _cells(group)
    if len(group.attributes) <= widest:
        return float(cells) ** 3
    sizes = [size for factor in group.factors for size in factor.queries.sizes]
    return float(min(cells, _rank(group) + sum(cells // size for size in sizes))) ** 2 * cells


def _work(groups: Iterable[Table], widest: int) -> float:
    """Work of one step: every distinct table once."""
    distinct = {tuple(factor.queries for factor in group.factors): group for group in groups}
    return math.fsum(_effort(group, widest) for group in distinct.values())


def _shared(blocks: Iterable[Attributes], sizes: Mapping[int, int]) -> int:
    """Dimensions of the residuals on these blocks."""
    return sum(math.prod(sizes[at] - 1 for at in block) for block in blocks)


def _fits(groups: Sequence[Table], work: Workload, widest: int) -> bool:
    """Whether all these tables can be split freely over all blocks."""
    family = family_of(work.groups())
    inner = [block for block in family if any(set(block) < set(other) for other in family)]
    # Pieces may also sit on the blocks of tables that stay centred, which then are solved at every step.
    centred = [_cells(group) for group in work.groups() if group not in groups]
    return (
        max([*centred, *map(_cells, groups)]) <= MOST_BLOCK
        and _work(groups, widest) + sum(float(cells) ** 3 for cells in centred) <= HEAVY_STEP
        and _shared(inner, dict(enumerate(work.schema.sizes))) <= MOST_SHARED
    )


def _lightest(joint: Sequence[Table], widest: int) -> list[Table]:
    """Tables with joint families, lightest first, as long as a step stays affordable."""
    by_queries: dict[object, list[Table]] = {}
    for group in joint:
        by_queries.setdefault(tuple(factor.queries for factor in group.factors), []).append(group)
    spent = 0.0
    chosen: list[Table] = []
    sizes: dict[int, int] = {}
    inner: set[Attributes] = set()
    for alike in sorted(by_queries.values(), key=lambda groups: _work(groups, widest)):
        for group in alike:
            for factor in group.factors:
                sizes.update(zip(factor.attributes, factor.queries.sizes, strict=True))
        more = inner | {block for block in family_of(alike) if len(block) < len(alike[0].attributes)}
        heavy = spent + _work(alike, widest) > STEP_WORK or _cells(alike[0]) > MOST_BLOCK
        if not heavy and _shared(more, sizes) <= MOST_SHARED:
            chosen += alike
            inner = more
            spent += _work(alike, widest)
    return chosen
