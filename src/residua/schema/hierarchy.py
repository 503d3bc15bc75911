"""An attribute whose cells are the leaves of a tree: tracts in counties in states."""

import csv
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from residua._arrays import AnyArray, Integers
from residua.errors import SchemaError
from residua.schema.attribute import OTHER, Attribute, Policy, check_policy
from residua.schema.attributes import cells_of_numbers_as_words, check_labels, policy_text
from residua.schema.coding import Cells, cells_of_words, hint, listing, short


@dataclass(frozen=True, slots=True, repr=False, init=False)
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
    paths: tuple[tuple[str, ...], ...]
    outside: Policy
    _nodes: tuple[Integers, ...] = field(compare=False)  # per level: (leaves,) node of each leaf
    _node_labels: tuple[tuple[str, ...], ...] = field(compare=False)

    def __init__(
        self, levels: Sequence[str], paths: Sequence[Sequence[str | int]], *, outside: Policy = "error"
    ) -> None:
        who = f"Hierarchy({listing(_levels(levels))})"
        object.__setattr__(self, "levels", _levels(levels))
        object.__setattr__(self, "paths", tuple(_path(who, self.levels, path) for path in paths))
        object.__setattr__(self, "outside", outside)
        check_policy(who, outside, numeric=False)
        if not self.paths:
            raise SchemaError(f"{who}: no leaves; give at least one path")
        _check_tree(who, self.levels, self.paths)
        nodes = [_number([path[: depth + 1] for path in self.paths]) for depth in range(len(self.levels))]
        object.__setattr__(self, "_nodes", tuple(index for index, _ in nodes))
        object.__setattr__(self, "_node_labels", tuple(labels for _, labels in nodes))
        for level in self.levels:
            check_labels(who, self.level_labels(level))
        self._keys()

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, levels: Sequence[str], outside: Policy = "error") -> Self:
        """The hierarchy in a CSV file whose header names the levels.

        Other columns and repeated rows are passed over. Names are kept as text: '01' stays '01'.
        """
        who = f"hierarchy file {os.fspath(path)!r}"
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            for level in _levels(levels):
                if header.count(level) != 1:
                    wrong = ("two columns" if level in header else "no column") + f" {level!r}"
                    raise SchemaError(f"{who}: {wrong}{hint(level, header)}; it has {listing(header)}")
            positions = [header.index(level) for level in levels]
            paths: dict[tuple[str, ...], None] = {}
            for row in filter(None, reader):
                if len(row) <= max(positions):
                    raise SchemaError(f"{who}, line {reader.line_num}: the row ends before its last level")
                paths[tuple(row[position] for position in positions)] = None
        try:
            return cls(levels, list(paths), outside=outside)
        except SchemaError as problem:
            raise SchemaError(f"{who}: {problem}") from problem

    def __repr__(self) -> str:
        return f"Hierarchy({listing(self.levels)}; {len(self.paths)} leaves{policy_text(self)})"

    @property
    def inner_size(self) -> int:
        return len(self.paths)

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """Number of nodes at each level; `(other)`, if there is one, is a node of every level."""
        return tuple(len(labels) + (self.other is not None) for labels in self._node_labels)

    def at(self, level: str) -> "Hierarchy":
        """The hierarchy that ends at a level."""
        depth = self._depth(level) + 1
        paths = dict.fromkeys(path[:depth] for path in self.paths)
        return Hierarchy(self.levels[:depth], list(paths), outside=self.outside)

    def level_of(self, level: str) -> Integers:
        """The node of each leaf cell at a level, shape (size,); nodes are numbered as they first appear."""
        nodes = self._nodes[self._depth(level)]
        return nodes.copy() if self.other is None else np.append(nodes, nodes.max() + 1)

    def level_labels(self, level: str) -> tuple[str, ...]:
        """The paths of the nodes at a level, such as 'NY/Kings'; all different."""
        labels = self._node_labels[self._depth(level)]
        return labels if self.other is None else (*labels, OTHER)

    def to_manifest(self) -> dict[str, Any]:
        paths = [list(path) for path in self.paths]
        return {"kind": "hierarchy", "levels": list(self.levels), "paths": paths, "outside": self.outside}

    def _depth(self, level: str) -> int:
        if level not in self.levels:
            raise SchemaError(f"{self!r} has no level {level!r}{hint(level, self.levels)}")
        return self.levels.index(level)

    def _inner_label(self, cell: int) -> str:
        return "/".join(self.paths[cell])

    def _inner_labels_to_suggest(self) -> tuple[str, ...]:
        return (*(path[-1] for path in self.paths), *("/".join(path) for path in self.paths))

    def _cells_of_numbers(self, values: AnyArray, *, nearest: bool) -> Cells:
        return cells_of_numbers_as_words(values, [path[-1] for path in self.paths])

    def _cells_of_text(self, distinct: Any, *, nearest: bool) -> Cells:
        keys = self._keys()
        return cells_of_words(distinct, list(keys), list(keys.values()))

    def _keys(self) -> dict[str, int]:
        """Cell of each text that means a leaf: its name and its path."""
        keys = {path[-1]: cell for cell, path in enumerate(self.paths)}
        for cell, path in enumerate(self.paths):
            if keys.setdefault("/".join(path), cell) != cell:
                raise SchemaError(
                    f"{self!r}: {'/'.join(path)!r} is the path of one leaf and the name of another"
                )
        if self.other is not None and OTHER in keys:
            raise SchemaError(f"{self!r}: outside='other' takes the name {OTHER!r}; rename the leaf")
        return keys


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


def _check_tree(who: str, levels: tuple[str, ...], paths: tuple[tuple[str, ...], ...]) -> None:
    path, times = Counter(paths).most_common(1)[0]
    if times > 1:
        raise SchemaError(f"{who}: the leaf {short('/'.join(path))} is there twice")
    for depth in range(1, len(levels)):
        parents: dict[str, str] = {}
        for path in paths:
            parent = parents.setdefault(path[depth], path[depth - 1])
            if parent != path[depth - 1]:
                raise SchemaError(
                    f"{who}: {levels[depth]} {path[depth]!r} has two parents, {levels[depth - 1]} {parent!r} "
                    f"and {path[depth - 1]!r}; give every {levels[depth]} a code of its own, such as FIPS"
                )


def _number(nodes: list[tuple[str, ...]]) -> tuple[Integers, tuple[str, ...]]:
    """The number of each node by first appearance, and the path text of each distinct node."""
    numbers: dict[tuple[str, ...], int] = {}
    index = np.array([numbers.setdefault(node, len(numbers)) for node in nodes], dtype=np.int64)
    return index, tuple("/".join(node) for node in numbers)
