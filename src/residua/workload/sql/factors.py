"""Grouped attributes and restrictions to the factors of a table."""

import math
from collections.abc import Sequence
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from residua.errors import WorkloadError
from residua.schema import Attribute, Binned, Integer, Schema
from residua.schema.attributes import plain
from residua.workload.explicit import Explicit, Sets
from residua.workload.groupings import Partition
from residua.workload.groups import Factor
from residua.workload.intervals import Prefix
from residua.workload.queries import Queries
from residua.workload.symmetric import Identity

Mask = NDArray[np.bool_]

MOST_ENTRIES = 10_000_000  # of queries that are held cell by cell; 80 MB


class Grouping(Protocol):
    """Queries on one attribute."""

    @property
    def attribute(self) -> int: ...
    @property
    def queries(self) -> Queries: ...


class Selection(Protocol):
    """Cells of some attributes, with the words for them."""

    @property
    def attributes(self) -> tuple[int, ...]: ...
    @property
    def mask(self) -> Mask: ...
    @property
    def text(self) -> str: ...


def factors(
    schema: Schema, grouped: Sequence[Grouping], selections: Sequence[Selection]
) -> tuple[Factor, ...]:
    """The factors of a table: those of the groups in order, then of what else is selected."""
    ties = {attribute: selection for selection in selections for attribute in selection.attributes}
    used: list[Selection] = []
    made = []
    for member in grouped:
        tie = ties.get(member.attribute)
        if tie is None:
            made.append(Factor((member.attribute,), member.queries))
        elif len(tie.attributes) == 1:
            made.append(Factor((member.attribute,), _restricted(schema, member, tie.mask)))
        elif tie not in used:
            made.append(_joint(schema, tie, [each for each in grouped if each.attribute in tie.attributes]))
        if tie is not None:
            used.append(tie)
    for selection in selections:
        if selection not in used and len(selection.attributes) == 1:
            made.append(Factor(selection.attributes, Partition(np.where(selection.mask, 0, -1))))
        elif selection not in used:
            made.append(_joint(schema, selection, []))
    return tuple(made)


def compressed(classes: NDArray[np.int64], labels: Sequence[str] | None) -> Partition:
    """The partition without its empty classes."""
    kept, numbers = np.unique(classes[classes >= 0], return_inverse=True)
    dense = np.full(classes.shape, -1, dtype=np.int64)
    dense[classes >= 0] = numbers
    return Partition(dense, None, None if labels is None else tuple(labels[at] for at in kept.tolist()))


def _restricted(schema: Schema, member: Grouping, mask: Mask) -> Queries:
    """The queries on the cells of the mask, without those that have none."""
    queries = member.queries
    if isinstance(queries, Identity):
        return compressed(np.where(mask, np.arange(mask.size), -1), None)
    if isinstance(queries, Partition):
        return _narrowed(schema.attributes[member.attribute], queries, mask)
    if not isinstance(queries, Prefix):
        raise WorkloadError(f"{queries!r} cannot be restricted to some of its cells")
    chosen = np.flatnonzero(mask)
    _refuse_large(chosen.size * mask.size, f"cumulative counts on {mask.size:,} cells with a condition")
    members = np.zeros((chosen.size, mask.size), dtype=np.bool_)
    members[:, chosen] = np.tri(chosen.size, dtype=np.bool_)
    return Sets(members, _run_labels(schema.attributes[member.attribute], chosen))


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


def _joint(schema: Schema, selection: Selection, members: Sequence[Grouping]) -> Factor:
    """Groups within a selection that ties attributes together: one query per product that has a cell."""
    grouped = [member.attribute for member in members]
    attributes = (*grouped, *(at for at in selection.attributes if at not in grouped))
    mask = selection.mask.transpose([selection.attributes.index(at) for at in attributes])
    count = math.prod(member.queries.count for member in members)
    _refuse_large(
        count * mask.size, f"{count:,} groups tied together by one condition on {mask.size:,} cells"
    )
    rows: NDArray[np.float64] = np.ones((1, 1))
    for member in members:
        rows = np.asarray(np.kron(rows, member.queries.matrix()), dtype=np.float64)
    rows = np.repeat(rows, mask.size // rows.shape[1], axis=1) * mask.reshape(-1)
    words = product(*(_words(schema, member) for member in members))
    texts = [" and ".join([*each, selection.text]) for each in words]
    kept = np.flatnonzero(rows.any(axis=1))
    sizes = tuple(mask.shape)
    return Factor(attributes, Explicit(sizes, rows[kept], None, tuple(texts[at] for at in kept.tolist())))


def _words(schema: Schema, member: Grouping) -> list[str]:
    name, attribute = schema.names[member.attribute], schema.attributes[member.attribute]
    return [member.queries.describe(at, [name], [attribute]) for at in range(member.queries.count)]


def _refuse_large(entries: int, what: str) -> None:
    if entries > MOST_ENTRIES:
        raise WorkloadError(
            f"{what} take {entries:,} numbers to hold, more than {MOST_ENTRIES:,}; take coarser groups"
        )
