"""Grouped attributes and restrictions to the factors of a table."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from residua._limits import SQL_ENTRIES
from residua.errors import WorkloadError
from residua.linalg.classes import Classes, common_refinement, spread_over
from residua.linalg.matrices import join
from residua.schema import Attribute, Binned, Integer, Schema
from residua.schema.attributes import plain
from residua.workload import wording
from residua.workload.combined import Combined
from residua.workload.explicit import Explicit, Sets
from residua.workload.groupings import Partition
from residua.workload.intervals import Prefix
from residua.workload.queries import Identity, Queries, Total
from residua.workload.sql.conditions import Region
from residua.workload.tables import Factor
from residua.workload.views import cells_of_classes, coarsened, kinds_of

Mask = NDArray[np.bool_]


def factors(schema: Schema, grouped: Sequence[Factor], selections: Sequence[Region]) -> tuple[Factor, ...]:
    """The factors of a table: those of the groups in order, then of what else is selected."""
    ties = {attribute: selection for selection in selections for attribute in selection.attributes}
    used: list[Region] = []
    made = []
    for member in grouped:
        mine = [ties[at] for at in member.attributes if at in ties]
        if not mine:
            made.append(member)
            continue
        tie = mine[0]
        if len(member.attributes) > 1:
            raise WorkloadError(f"{member.queries!r} cannot be restricted to some of its cells")
        if len(tie.attributes) == 1:
            made.append(Factor(member.attributes, _restricted(schema, member, tie.cells)))
        elif tie not in used:
            made.append(
                _joint(schema, tie, [each for each in grouped if each.attributes[0] in tie.attributes])
            )
        used.append(tie)
    for selection in selections:
        if selection not in used and len(selection.attributes) == 1:
            made.append(Factor(selection.attributes, Partition(np.where(selection.cells, 0, -1))))
        elif selection not in used:
            made.append(_joint(schema, selection, []))
    return tuple(made)


def compressed(classes: NDArray[np.int64], labels: Sequence[str] | None) -> Partition:
    """The partition without its empty classes."""
    kept, numbers = np.unique(classes[classes >= 0], return_inverse=True)
    dense = np.full(classes.shape, -1, dtype=np.int64)
    dense[classes >= 0] = numbers
    return Partition(dense, None, None if labels is None else tuple(labels[at] for at in kept.tolist()))


def _restricted(schema: Schema, member: Factor, mask: Mask) -> Queries:
    """The queries on the cells of the mask, without those that have none."""
    queries, attribute = member.queries, schema.attributes[member.attributes[0]]
    if isinstance(queries, Total):
        return Partition(np.where(mask, 0, -1))
    if isinstance(queries, Identity):
        return compressed(np.where(mask, np.arange(mask.size), -1), None)
    if isinstance(queries, Partition):
        return _narrowed(attribute, queries, mask)
    _refuse_large(queries.count * mask.size, f"{queries!r} with a condition")
    chosen = np.flatnonzero(mask)
    if isinstance(queries, Prefix):
        members = np.zeros((chosen.size, mask.size), dtype=np.bool_)
        members[:, chosen] = np.tri(chosen.size, dtype=np.bool_)
        return Sets(members, _run_labels(attribute, chosen))
    rows = queries.matrix() * mask
    kept = np.flatnonzero(rows.any(axis=1))
    within = wording.cells(schema.names[member.attributes[0]], attribute, chosen.tolist())
    words = _words(schema, member)
    labels = tuple(f"{words[at]} and {within}" for at in kept.tolist())
    weights = None if queries.weights is None else queries.weights[kept]
    return Explicit(queries.sizes, rows[kept], weights, labels)


def _narrowed(attribute: Attribute, queries: Partition, mask: Mask) -> Partition:
    """The classes within the mask; a label says which cells it is about where it has lost some."""
    labels = queries.labels
    if labels is not None:
        labels = tuple(
            label if mask[queries.classes == at].all() else _narrowed_label(attribute, queries, mask, at)
            for at, label in enumerate(labels)
        )
    return compressed(np.where(mask, queries.classes, -1), labels)


def _narrowed_label(attribute: Attribute, queries: Partition, mask: Mask, at: int) -> str:
    left = np.flatnonzero(mask & (queries.classes == at))
    label = "" if queries.labels is None else f" ({queries.labels[at]})"
    runs = _run_labels(attribute, left) if left.size else None
    if runs is not None:
        return runs[-1] + label
    return f"{{{', '.join(attribute.label(cell) for cell in left.tolist())}}}{label}"


def _run_labels(attribute: Attribute, chosen: NDArray[np.intp]) -> tuple[str, ...] | None:
    """Words for the first cell chosen up to each, if they are neighbours: `18..30` or `[10, 50)`."""
    first, last = int(chosen[0]), int(chosen[-1])
    if last - first + 1 != chosen.size or last == attribute.other:
        return None
    if isinstance(attribute, Integer):
        return tuple(f"{attribute.label(first)}..{attribute.label(at)}" for at in range(first, last + 1))
    if isinstance(attribute, Binned):
        ends = [*(str(plain(edge)) for edge in attribute.edges[1:]), "..."]
        return tuple(f"[{plain(attribute.edges[first])}, {ends[at]})" for at in range(first, last + 1))
    return None


def _joint(schema: Schema, selection: Region, members: Sequence[Factor]) -> Factor:
    """Groups within a selection that ties attributes together: one query per product that has a cell."""
    grouped = [member.attributes[0] for member in members]
    attributes = (*grouped, *(at for at in selection.attributes if at not in grouped))
    own = [selection.kinds[selection.attributes.index(at)] for at in attributes]
    asked = [
        common_refinement([kinds, kinds_of(m.queries, 0)]) for kinds, m in zip(own, members, strict=False)
    ]
    kinds = [*asked, *own[len(asked) :]]
    cells, count = cells_of_classes(kinds), math.prod(member.queries.count for member in members)
    _refuse_large(
        count * cells, f"{count:,} groups tied together by one condition on {cells:,} kinds of cells"
    )
    rows = join(_over(member.queries, each) for member, each in zip(members, asked, strict=True))
    mask = selection.mask.transpose([selection.attributes.index(at) for at in attributes])
    inner = [each.over(finer) for each, finer in zip(own, kinds, strict=True)]
    rows = np.repeat(rows, cells // rows.shape[1], axis=1) * spread_over(mask, inner).reshape(-1)
    words = product(*(_words(schema, member) for member in members))
    texts = [" and ".join([*each, selection.text]) for each in words]
    kept = np.flatnonzero(rows.any(axis=1))
    labels = tuple(texts[at] for at in kept.tolist())
    return Factor(attributes, Combined.of(kinds, rows[kept], None, labels))


def _over(queries: Queries, kinds: Classes) -> NDArray[np.float64]:
    """Rows over kinds that the queries do not tell apart."""
    found = coarsened(queries, [kinds])
    assert found is not None
    return found.matrix()


def _words(schema: Schema, member: Factor) -> list[str]:
    return [member.describe(at, schema) for at in range(member.queries.count)]


def _refuse_large(entries: int, what: str) -> None:
    if entries > SQL_ENTRIES:
        raise WorkloadError(
            f"{what} take {entries:,} numbers to hold, more than {SQL_ENTRIES:,}; take coarser groups"
        )
