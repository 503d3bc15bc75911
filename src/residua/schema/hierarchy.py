"""An attribute whose cells are the leaves of a tree: tracts in counties in states.

Names are held as Arrow arrays, one a level, and the tree as numbers: millions of places are no objects.
"""

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np

from residua._arrays import AnyArray, Arrays, Integers, settle
from residua._manifests import checked_array, fetch, listed, stash, text, texts
from residua._text import hint, listing, short
from residua.errors import FileFormatError, SchemaError, retold
from residua.schema.attribute import OUTSIDE, Attribute, Cells, Policy
from residua.schema.attributes import cells_of_numbers_as_words, check_labels, check_policy, policy_text
from residua.schema.columns import is_unicode, letters_of

ROWS_AT_ONCE = 100_000  # of a file that are text before they become numbers
SPELT_OUT = 10_000  # leaves that a manifest lists as paths; more are arrays


@dataclass(frozen=True, slots=True, repr=False, init=False, eq=False)
class Hierarchy(Attribute):
    """Leaves of a tree in the order given, with their ancestors, coarsest level first; each leaf is a cell.

    A node is known by its name at its level, so a name may not appear under two parents: use codes that carry
    their parents, such as FIPS codes. Data give the leaf's name ('36047') or its path ('NY/Kings/36047').

    >>> place = Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")])
    >>> place.size, place.label(0), place.level_sizes
    (3, 'NY/Kings', (2, 3))
    >>> place.level_of("state").tolist(), place.level_labels("state")
    ([0, 0, 1], ('NY', 'NJ'))
    >>> place.encode(["Essex", "NY/Kings"]).tolist()
    [2, 0]
    """

    numeric: ClassVar[bool] = False

    levels: tuple[str, ...]
    outside: Policy
    _nodes: tuple[Integers, ...]  # per level: (leaves,) node of each leaf
    _names: tuple[Any, ...]  # per level: Arrow array of the names of its nodes, as they first appear
    _known: dict[str, Any] = field(default_factory=dict)  # what was worked out once

    def __init__(
        self, levels: Sequence[str], paths: Sequence[Sequence[str | int]], *, outside: Policy = "error"
    ) -> None:
        who = f"Hierarchy({listing(_levels(levels))})"
        check_policy(who, outside, numeric=False)
        rows = [_path(who, _levels(levels), path) for path in paths]
        if not rows:
            raise SchemaError(f"{who}: no leaves; give at least one path")
        for path in rows:
            check_labels(who, [name for name in path if not is_unicode(name)])
        self._make(who, _levels(levels), outside, [_encoded(column) for column in zip(*rows, strict=True)])
        if len(self._names[-1]) < len(rows):
            twice = np.bincount(self._nodes[-1]).argmax()
            path = rows[int(np.flatnonzero(self._nodes[-1] == twice)[0])]
            raise SchemaError(f"{who}: the leaf {short('/'.join(path))} is there twice")

    def _make(self, who: str, levels: tuple[str, ...], outside: Policy, columns: Sequence[Any]) -> None:
        """Set everything, from a dictionary-encoded Arrow column a level; refused where they are no tree."""
        nodes = [np.asarray(column.indices.to_numpy(), dtype=np.int64) for column in columns]
        names = [column.dictionary for column in columns]
        _check_tree(who, levels, nodes, names)
        settle(self, levels=levels, outside=outside, _known={}, _nodes=tuple(nodes), _names=tuple(names))
        self._check_labels(who)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, levels: Sequence[str], outside: Policy = "error") -> Self:
        """The hierarchy in a CSV file whose header names the levels.

        Other columns and repeated rows are passed over. Names are kept as text: '01' stays '01'.
        """
        import pyarrow as pa

        who = f"hierarchy file {os.fspath(path)!r}"
        check_policy(who, outside, numeric=False)
        with open(path, encoding="utf-8-sig", newline="") as file:
            columns = _read_columns(who, csv.reader(file), _levels(levels))
        made = cls.__new__(cls)
        with retold(SchemaError, SchemaError, f"{who}: "):
            made._make(f"Hierarchy({listing(_levels(levels))})", _levels(levels), outside, columns)
        first = _first(made._nodes[-1], len(made._names[-1]))
        if len(first) < len(made._nodes[-1]):  # rows that are there again
            settle(made, _nodes=tuple(own[first] for own in made._nodes))
        del columns
        pa.default_memory_pool().release_unused()  # else Arrow keeps what reading took: 0.7 GB of 8 million
        return made

    @classmethod
    def from_arrays(cls, manifest: Any, arrays: Arrays) -> Self:
        """The hierarchy that a manifest describes whose nodes and names are arrays."""
        import pyarrow as pa

        levels = texts(manifest, "levels")
        outside: Any = text(manifest, "outside")  # refused below if it is no policy
        columns = []
        for level in range(len(levels)):
            parts = texts({"level": listed(manifest, "nodes")[level]}, "level")
            kinds = zip(parts, ("i", "iu", "i"), strict=True)
            nodes, letters, ends = (
                checked_array(fetch({"part": name}, "part", arrays), "of places", kind, (None,))
                for name, kind in kinds
            )
            buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(letters.astype(np.uint8))]
            try:
                names = pa.LargeStringArray.from_buffers(len(ends) - 1, *buffers[1:])
                names.validate(full=True)
                columns.append(pa.DictionaryArray.from_arrays(pa.array(nodes, pa.int64()), names))
                columns[-1].validate(full=True)
            except (pa.ArrowInvalid, IndexError) as error:
                raise FileFormatError("the names of places are not whole") from error
        made = cls.__new__(cls)
        check_policy("Hierarchy", outside, numeric=False)
        made._make(f"Hierarchy({listing(levels)})", _levels(levels), outside, columns)
        return made

    def __repr__(self) -> str:
        return f"Hierarchy({listing(self.levels)}; {self.inner_size} leaves{policy_text(self)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hierarchy):
            return NotImplemented
        return (
            (self.levels, self.outside, self.level_sizes) == (other.levels, other.outside, other.level_sizes)
            and all(map(np.array_equal, self._nodes, other._nodes))
            and all(mine.equals(theirs) for mine, theirs in zip(self._names, other._names, strict=True))
        )

    def __hash__(self) -> int:
        return hash((self.levels, self.outside, self.level_sizes, self._names[0][0].as_py()))

    @property
    def inner_size(self) -> int:
        return len(self._nodes[-1])

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The names of each leaf and its ancestors, coarsest first."""
        columns = (
            np.array(names.to_pylist(), dtype=object)[own]
            for names, own in zip(self._names, self._nodes, strict=True)
        )
        return tuple(zip(*columns, strict=True))

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """Number of nodes at each level; `(other)`, if there is one, is a node of every level."""
        return tuple(len(names) + (self.other is not None) for names in self._names)

    def at(self, level: str) -> "Hierarchy":
        """The hierarchy that ends at a level."""
        depth = self._depth(level)
        if level not in self._known:
            made = Hierarchy.__new__(Hierarchy)
            first = _first(self._nodes[depth], len(self._names[depth]))
            nodes = tuple(own[first] for own in self._nodes[: depth + 1])
            settle(made, levels=self.levels[: depth + 1], outside=self.outside, _known={})
            settle(made, _nodes=nodes, _names=self._names[: depth + 1])
            self._known[level] = made
        found: Hierarchy = self._known[level]
        return found

    def level_of(self, level: str) -> Integers:
        """The node of each leaf cell at a level, shape (size,); nodes are numbered as they first appear."""
        nodes = self._nodes[self._depth(level)]
        return nodes.copy() if self.other is None else np.append(nodes, nodes.max() + 1)

    def labels(self) -> tuple[str, ...]:
        """The paths of the leaves, such as 'NY/Kings'; all different."""
        if "labels" not in self._known:
            self._known["labels"] = tuple(self._paths().to_pylist())
        inner: tuple[str, ...] = self._known["labels"]
        return inner if self.other is None else (*inner, self.other_label)

    def to_manifest(self, arrays: dict[str, AnyArray] | None = None) -> dict[str, Any]:
        """The attribute as a dict for JSON; very many leaves go into `arrays`, where there are some."""
        found = {"kind": "hierarchy", "levels": list(self.levels), "outside": self.outside}
        if arrays is None or self.inner_size <= SPELT_OUT:
            return {**found, "paths": [list(path) for path in self.paths]}
        nodes = []
        for own, names in zip(self._nodes, self._names, strict=True):
            ends, letters = letters_of(names)
            nodes.append([stash(arrays, part) for part in (own.astype(np.int32), letters, ends)])
        return {**found, "nodes": nodes}

    def _depth(self, level: str) -> int:
        if level not in self.levels:
            raise SchemaError(f"{self!r} has no level {level!r}{hint(level, self.levels)}")
        return self.levels.index(level)

    def _inner_label(self, cell: int) -> str:
        pairs = zip(self._names, self._nodes, strict=True)
        return "/".join(names[int(own[cell])].as_py() for names, own in pairs)

    def _inner_labels_to_suggest(self) -> tuple[str, ...]:
        return (*self._names[-1].to_pylist(), *self._paths().to_pylist())

    def _paths(self) -> Any:
        """The path of each leaf as an Arrow array."""
        import pyarrow as pa
        import pyarrow.compute as pc

        parts = [names.take(pa.array(own)) for names, own in zip(self._names, self._nodes, strict=True)]
        slash = pa.scalar("/", pa.large_string())
        return pc.binary_join_element_wise(*parts, slash) if len(parts) > 1 else parts[0]

    def _leaves(self) -> Any:
        """The name of each leaf as an Arrow array."""
        import pyarrow as pa

        return self._names[-1].take(pa.array(self._nodes[-1]))

    def _cells_of_numbers(self, values: AnyArray, *, nearest: bool) -> Cells:
        return cells_of_numbers_as_words(values, self._leaves().to_pylist())

    def _cells_of_text(self, distinct: Any, *, nearest: bool) -> Cells:
        import pyarrow.compute as pc

        found = pc.index_in(distinct, value_set=self._leaves())
        if found.null_count and len(self.levels) > 1:
            found = pc.coalesce(found, pc.index_in(distinct, value_set=self._paths()))
        return np.asarray(found.fill_null(OUTSIDE).to_numpy(zero_copy_only=False), dtype=np.int32).copy()

    def _check_labels(self, who: str) -> None:
        """Nothing, or the SchemaError for nodes that share a text: names with a /, or one like `(other)`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        ends = {0, len(self.levels) - 1}
        taken = self.other is not None and any(
            pc.index(self._names[at], pa.scalar(self.other_label, pa.large_string())).as_py() >= 0
            for at in ends
        )
        if not taken and not any(pc.any(pc.match_substring(names, "/")).as_py() for names in self._names):
            return
        for level in self.levels:
            check_labels(who, self.level_labels(level))
        keys = {name: cell for cell, name in enumerate(self._leaves().to_pylist())}
        for cell, label in enumerate(self._paths().to_pylist()):
            if keys.setdefault(label, cell) != cell:
                raise SchemaError(f"{self!r}: {label!r} is the path of one leaf and the name of another")
        if self.other is not None and self.other_label in keys:
            taken_by = f"outside={self.outside!r} takes the name {self.other_label!r}"
            raise SchemaError(f"{self!r}: {taken_by}; rename the leaf")


def _encoded(column: Sequence[str]) -> Any:
    """Names as a dictionary-encoded Arrow array."""
    import pyarrow as pa

    return pa.array(column, pa.large_string()).dictionary_encode()


def _read_columns(who: str, reader: Any, levels: tuple[str, ...]) -> list[Any]:
    """The columns of the levels, dictionary-encoded, some rows at a time."""
    import pyarrow as pa

    header: list[str] = next(reader, [])
    for level in levels:
        if header.count(level) != 1:
            wrong = ("two columns" if level in header else "no column") + f" {level!r}"
            raise SchemaError(f"{who}: {wrong}{hint(level, header)}; it has {listing(header)}")
    positions = [header.index(level) for level in levels]
    parts: list[list[Any]] = [[] for _ in levels]
    while rows := list(islice(_rows(who, reader, max(positions)), ROWS_AT_ONCE)):
        for part, position in zip(parts, positions, strict=True):
            part.append(_encoded([row[position] for row in rows]))
    if not parts[0]:
        raise SchemaError(f"{who}: no leaves; give at least one path")
    return [pa.chunked_array(part).unify_dictionaries().combine_chunks() for part in parts]


def _rows(who: str, reader: Any, last: int) -> Iterator[list[str]]:
    for row in filter(None, reader):
        if len(row) <= last:
            raise SchemaError(f"{who}, line {reader.line_num}: the row ends before its last level")
        yield row


def _first(nodes: Integers, count: int) -> Integers:
    """The first leaf of each node."""
    found = np.zeros(count, dtype=np.int64)
    found[nodes[::-1]] = np.arange(len(nodes))[::-1]
    return found


def _levels(levels: Sequence[object]) -> tuple[str, ...]:
    if isinstance(levels, str) or not levels or not all(isinstance(level, str) and level for level in levels):
        raise SchemaError(
            f"Hierarchy: levels={levels!r} should be names, coarsest first, as in ('state', 'county')"
        )
    if len(set(levels)) < len(levels):
        raise SchemaError(f"Hierarchy: levels={levels!r} names a level twice")
    return tuple(map(str, levels))


def _path(who: str, levels: tuple[str, ...], path: Sequence[str | int]) -> tuple[str, ...]:
    if isinstance(path, str) or len(path) != len(levels):
        raise SchemaError(
            f"{who}: the path {short(path)} should have {len(levels)} names, one for each level"
        )
    for level, name in zip(levels, path, strict=True):
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise SchemaError(f"{who}: {short(name)} in the path {short(path)} is not a name; use text")
        if name == "":
            raise SchemaError(f"{who}: the path {short(path)} has no name at level {level!r}")
    return tuple(map(str, path))


def _check_tree(who: str, levels: Sequence[str], nodes: Sequence[Integers], names: Sequence[Any]) -> None:
    """Nothing, or the SchemaError for a node without a name, or with two parents."""
    import pyarrow.compute as pc

    for level, own in zip(levels, names, strict=True):
        if pc.min(pc.binary_length(own)).as_py() == 0:
            raise SchemaError(f"{who}: a path has no name at level {level!r}")
    for depth in range(1, len(levels)):
        parents = nodes[depth - 1][_first(nodes[depth], len(names[depth]))]
        wrong = np.flatnonzero(parents[nodes[depth]] != nodes[depth - 1])
        if len(wrong):
            node = int(nodes[depth][wrong[0]])
            name, above = names[depth][node].as_py(), (parents[node], nodes[depth - 1][wrong[0]])
            one, other = (names[depth - 1][int(at)].as_py() for at in above)
            raise SchemaError(
                f"{who}: {levels[depth]} {name!r} has two parents, {levels[depth - 1]} {one!r} "
                f"and {other!r}; give every {levels[depth]} a code of its own, such as FIPS"
            )
