"""GROUP BY and conditions to the factors of a table: columns, CASE buckets and grouping sets, restricted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from sqlglot import exp

from residua._arrays import Array, Flags, Indices, Integers
from residua._limits import GROUPING_SETS, SQL_ENTRIES
from residua._text import short
from residua.errors import WorkloadError
from residua.linalg.classes import Classes, common_refinement, spread_over
from residua.linalg.matrices import join
from residua.schema import Attribute, Binned, Integer, Schema
from residua.schema.attributes import plain
from residua.workload import wording
from residua.workload.explicit import Combined, Explicit, Sets
from residua.workload.groupings import Partition
from residua.workload.intervals import Prefix
from residua.workload.queries import Identity, Queries, Total, identity
from residua.workload.sql.cells import Values, cellwise
from residua.workload.sql.conditions import Region, constant, region_of
from residua.workload.sql.reading import Columns, Source, aliases_of, bare, items_of, shown, table_in
from residua.workload.tables import Factor, bound, times_words
from residua.workload.views import cells_of_classes, classes_of, coarsened

UNGROUPED = "is selected but not in GROUP BY; add it there or leave it out"
SUPPORTED = "groups are columns, expressions of one column, and CASE .. END on one column"


@dataclass(frozen=True, slots=True)
class Grouper:
    """What the expressions of one statement mean; it may name the items of SELECT by alias or number."""

    columns: Columns
    items: tuple[exp.Expression, ...]
    aliases: Mapping[str, exp.Expression]  # by case-folded name

    @classmethod
    def of(cls, schema: Schema, source: Source, tree: exp.Expression) -> "Grouper":
        """That of a statement about the one table that the schema describes."""
        return cls(Columns(schema, source, table_in(source, tree)), items_of(tree), aliases_of(tree))

    def grouped(self, node: exp.Expression) -> Factor:
        """What an expression of GROUP BY, PARTITION BY or ORDER BY groups by."""
        node = bare(node)
        plain = isinstance(node, exp.Column) and not node.table
        meant = self.aliases.get(node.name.casefold(), node) if plain else node
        if meant is not node and self.columns.find(node.name) and shown(meant) != shown(node):
            twice = "is a column and also the alias of something else; rename the alias"
            raise self.columns.refusal(node, f"{short(node.name)} {twice}")
        return self.expression(meant)

    def expression(self, node: exp.Expression) -> Factor:
        """What a column or a CASE groups by."""
        node = bare(node)
        if isinstance(node, exp.Case | exp.If):
            return _case(self.columns, node)
        computed = node.find(exp.Column) and not node.find(exp.AggFunc, exp.Predicate)
        if computed and not isinstance(node, exp.Column):
            return _computed(self.columns.schema, *cellwise(self.columns, node))
        name, schema = self.columns.named(node, SUPPORTED), self.columns.schema
        with self.columns.source.placing(node, WorkloadError):
            return Factor((schema.resolve(name)[0],), bound(identity, schema, [name]))

    def sets(self, group: exp.Expression) -> list[tuple[Factor, ...]]:
        """The grouping sets of a GROUP BY, each without repetitions."""
        self.columns.source.allow_only(group, ("expressions",), "in GROUP BY; write ROLLUP (a, b) and such")
        if group.args.get("all") is not None:
            raise self.columns.refusal(group, "GROUP BY DISTINCT is not supported; list each set once")
        parts = [self._alternatives(node) for node in group.expressions]
        total = 1
        for part in parts:
            total *= len(part)
            self._refuse_many(group, total)
        found = []
        for chosen in product(*parts):
            members = tuple(dict.fromkeys(member for part in chosen for member in part))
            attributes = [member.attributes[0] for member in finest(members)]
            for attribute in attributes:
                if attributes.count(attribute) > 1:
                    name = self.columns.schema.names[attribute]
                    raise self.columns.refusal(group, f"column {name!r} is grouped in two ways at once")
            found.append(members)
        return found

    def _alternatives(self, node: exp.Expression) -> list[tuple[Factor, ...]]:
        """The grouping sets of one part of GROUP BY."""
        # Only here does a number mean an item of SELECT; in grouping sets and windows databases differ.
        if isinstance(node, exp.Literal) and not node.is_string and isinstance(node.parent, exp.Group):
            return [(self.expression(self._numbered(node)),)]
        if not isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
            return [self._members(node)]
        if not node.expressions:
            raise self.columns.refusal(node, "this needs columns, such as ROLLUP (a, b)")
        if isinstance(node, exp.GroupingSets):
            return [each for part in node.expressions for each in self._alternatives(part)]
        parts = [self._members(part) for part in node.expressions]
        if isinstance(node, exp.Rollup):
            kept = [range(size) for size in range(len(parts), -1, -1)]
            return [tuple(member for at in places for member in parts[at]) for places in kept]
        self._refuse_many(node, 2 ** len(parts))
        chosen = [each for size in range(len(parts), -1, -1) for each in combinations(parts, size)]
        return [tuple(member for part in each for member in part) for each in chosen]

    def _members(self, node: exp.Expression) -> tuple[Factor, ...]:
        if isinstance(node, exp.Tuple):
            return tuple(self.grouped(each) for each in node.expressions)
        return (self.grouped(node),)

    def _numbered(self, node: exp.Literal) -> exp.Expression:
        text = str(node.this)
        if not text.isdecimal() or not 1 <= len(text) <= 9 or not 1 <= int(text) <= len(self.items):
            raise self.columns.refusal(node, f"there is no item {text} in SELECT; it has {len(self.items)}")
        return self.items[int(text) - 1]

    def _refuse_many(self, node: exp.Expression, sets: int) -> None:
        many = f"this makes {sets:,} grouping sets, more than {GROUPING_SETS:,} in one statement"
        self.columns.source.require(sets <= GROUPING_SETS, node, many)


def finest(members: Sequence[Factor]) -> tuple[Factor, ...]:
    """The groups without the levels of an attribute that a finer one of its levels tells."""
    most: dict[int, int] = {}
    for each in filter(_by_level, members):
        most[each.attributes[0]] = max(each.queries.count, most.get(each.attributes[0], 0))
    return tuple(
        each for each in members if not _by_level(each) or each.queries.count == most[each.attributes[0]]
    )


def _by_level(member: Factor) -> bool:
    return member.queries.level is not None or isinstance(member.queries, Identity)


def _computed(schema: Schema, name: str, values: Values) -> Factor:
    """The groups of an expression of a column: its values, in the order of the cells that first have them."""
    numbers: dict[str, int] = {}
    texts = ["NULL" if value is None else str(value) for value in values]
    classes = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
    position, level = schema.resolve(name)
    own = classes if level is None else classes[schema.classes(name)]
    return Factor((position,), Partition(own, None, tuple(numbers)))


def _case(columns: Columns, node: exp.Expression) -> Factor:
    """The groups of a CASE: its results, each once, in the order written; cells without one are 'NULL'."""
    node = as_case(node)
    columns.source.allow_only(node, ("this", "ifs", "default"), "in CASE")
    attribute: int | None = None
    numbers: dict[str, int] = {}
    classes = np.empty(0, dtype=np.int64)
    for branch in node.args["ifs"]:
        condition = branch.this
        if node.this is not None:
            condition = exp.EQ(this=node.this.copy(), expression=condition.copy())
        region = region_of(columns, condition)
        if len(region.attributes) != 1 or attribute not in (None, region.attributes[0]):
            raise columns.refusal(branch, "CASE groups by one column; this condition looks at another")
        if attribute is None:
            attribute = region.attributes[0]
            classes = np.full(columns.schema.sizes[attribute], -1, dtype=np.int64)
        number = numbers.setdefault(_result_label(columns, branch.args.get("true")), len(numbers))
        classes[(classes < 0) & region.cells] = number
    if attribute is None:
        raise columns.refusal(node, "CASE needs a WHEN")
    classes[classes < 0] = numbers.setdefault(_result_label(columns, node.args.get("default")), len(numbers))
    return Factor((attribute,), compressed(classes, tuple(numbers)))


def as_case(node: exp.Expression) -> exp.Expression:
    """An IF as the CASE that it stands for."""
    return exp.Case(ifs=[node], default=node.args.get("false")) if isinstance(node, exp.If) else node


def _result_label(columns: Columns, node: exp.Expression | None) -> str:
    return "NULL" if node is None or isinstance(bare(node), exp.Null) else str(constant(columns, node))


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A factor of a table, the groups (by place) that it holds, and which products of theirs are kept."""

    factor: Factor
    members: tuple[int, ...]
    kept: Indices


def factors(schema: Schema, grouped: Sequence[Factor], selections: Sequence[Region]) -> tuple[Factor, ...]:
    """The factors of a table: those of the groups in order, then of what else is selected."""
    return tuple(piece.factor for piece in pieces(schema, grouped, selections))


def pieces(schema: Schema, grouped: Sequence[Factor], selections: Sequence[Region]) -> list[Piece]:
    """The same, with the groups that each factor holds."""
    ties = {attribute: selection for selection in selections for attribute in selection.attributes}
    used: list[Region] = []
    made = []
    for place, member in enumerate(grouped):
        mine = [ties[at] for at in member.attributes if at in ties]
        if not mine:
            made.append(Piece(member, (place,), np.arange(member.queries.count)))
            continue
        tie = mine[0]
        if len(member.attributes) > 1:
            raise WorkloadError(f"{member.queries!r} cannot be restricted to some of its cells")
        if len(tie.attributes) == 1:
            queries, kept = _restricted(schema, member, tie.cells)
            made.append(Piece(Factor(member.attributes, queries), (place,), kept))
        elif tie not in used:
            tied = tuple(at for at, each in enumerate(grouped) if each.attributes[0] in tie.attributes)
            factor, kept = _joint(schema, tie, [grouped[at] for at in tied])
            made.append(Piece(factor, tied, kept))
        used.append(tie)
    for selection in selections:
        if selection not in used and len(selection.attributes) == 1:
            factor = Factor(selection.attributes, Partition(np.where(selection.cells, 0, -1)))
            made.append(Piece(factor, (), np.zeros(1, dtype=np.intp)))
        elif selection not in used:
            made.append(Piece(_joint(schema, selection, [])[0], (), np.zeros(1, dtype=np.intp)))
    return made


def compressed(classes: Integers, labels: Sequence[str] | None, level: str | None = None) -> Partition:
    """The partition without its empty classes."""
    kept, numbers = np.unique(classes[classes >= 0], return_inverse=True)
    dense = np.full(classes.shape, -1, dtype=np.int64)
    dense[classes >= 0] = numbers
    return Partition(dense, level, None if labels is None else tuple(labels[at] for at in kept.tolist()))


def _restricted(schema: Schema, member: Factor, mask: Flags) -> tuple[Queries, Indices]:
    """The queries on the cells of the mask without those that have none, and which of them are left."""
    queries, attribute = member.queries, schema.attributes[member.attributes[0]]
    chosen = np.flatnonzero(mask)
    if isinstance(queries, Total):
        return Partition(np.where(mask, 0, -1)), np.zeros(1, dtype=np.intp)
    if isinstance(queries, Identity):
        return compressed(np.where(mask, np.arange(mask.size), -1), None), chosen
    if isinstance(queries, Partition):
        return _narrowed(attribute, queries, mask), np.unique(queries.classes[mask & (queries.classes >= 0)])
    _refuse_large(queries.count * mask.size, f"{queries!r} with a condition")
    if isinstance(queries, Prefix):
        members = np.zeros((chosen.size, mask.size), dtype=np.bool_)
        members[:, chosen] = np.tri(chosen.size, dtype=np.bool_)
        return Sets(members, _run_labels(attribute, chosen)), chosen
    rows = queries.matrix() * mask
    kept = np.flatnonzero(rows.any(axis=1))
    within = wording.cells(schema.names[member.attributes[0]], attribute, chosen.tolist())
    words = member.descriptions(schema)
    labels = tuple(f"{words[at]} and {within}" for at in kept.tolist())
    weights = None if queries.weights is None else queries.weights[kept]
    adds = None if queries.adds is None else tuple(queries.adds[at] for at in kept.tolist())
    return Explicit(queries.sizes, rows[kept], weights, labels, queries.title, adds), kept


def _narrowed(attribute: Attribute, queries: Partition, mask: Flags) -> Partition:
    """The classes within the mask; a label says which cells it is about where it has lost some."""
    level, labels = queries.level, queries.labels_on(attribute)
    if labels is not None:
        inside = np.where(mask, queries.classes, -1)
        left, all_of = (
            np.bincount(each[each >= 0], minlength=len(labels)) for each in (inside, queries.classes)
        )
        cut = (left > 0) & (left < all_of)
        level = None if cut.any() else level
        labels = tuple(
            _narrowed_label(attribute, queries, mask, at, label) if cut[at] else label
            for at, label in enumerate(labels)
        )
    return compressed(np.where(mask, queries.classes, -1), labels, level)


def _narrowed_label(attribute: Attribute, queries: Partition, mask: Flags, at: int, label: str) -> str:
    left = np.flatnonzero(mask & (queries.classes == at))
    runs = _run_labels(attribute, left)
    cells = runs[-1] if runs else f"{{{', '.join(attribute.label(cell) for cell in left.tolist())}}}"
    return f"{cells} ({label})"


def _run_labels(attribute: Attribute, chosen: Indices) -> tuple[str, ...] | None:
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


def _joint(schema: Schema, selection: Region, members: Sequence[Factor]) -> tuple[Factor, Indices]:
    """Groups within a selection that ties attributes together: one query per product that has a cell."""
    grouped = [member.attributes[0] for member in members]
    attributes = (*grouped, *(at for at in selection.attributes if at not in grouped))
    own = [selection.partitions[selection.attributes.index(at)] for at in attributes]
    pairs = zip(own, members, strict=False)
    asked = [common_refinement([each, classes_of(member.queries, 0)]) for each, member in pairs]
    partitions = [*asked, *own[len(asked) :]]
    cells, count = cells_of_classes(partitions), math.prod(member.queries.count for member in members)
    _refuse_large(
        count * cells, f"{count:,} groups tied together by one condition on {cells:,} classes of cells"
    )
    rows = join(_over(member.queries, each) for member, each in zip(members, asked, strict=True))
    mask = selection.mask.transpose([selection.attributes.index(at) for at in attributes])
    inner = [each.over(finer) for each, finer in zip(own, partitions, strict=True)]
    rows = np.repeat(rows, cells // rows.shape[1], axis=1) * spread_over(mask, inner).reshape(-1)
    words = product(*(member.descriptions(schema) for member in members))
    texts = [" and ".join([*each, selection.text]) for each in words]
    kept = np.flatnonzero(rows.any(axis=1))
    labels = tuple(texts[at] for at in kept.tolist())
    weights = join(each.queries.every_weight for each in members).reshape(-1)[kept]
    sums = list(map(times_words, product(*(m.queries.adds or ("",) * m.queries.count for m in members))))
    adds = tuple(sums[at] for at in kept.tolist()) if any(sums) else None
    return Factor(attributes, Combined.of(partitions, rows[kept], weights, labels, adds)), kept


def _over(queries: Queries, partitions: Classes) -> Array:
    """Rows of queries over classes that they do not separate."""
    found = coarsened(queries, [partitions])
    assert found is not None
    return found.matrix()


def _refuse_large(entries: int, what: str) -> None:
    if entries > SQL_ENTRIES:
        raise WorkloadError(
            f"{what} take {entries:,} numbers to hold, more than {SQL_ENTRIES:,}; take coarser groups"
        )
