"""The schema: which columns there are, and the cells of each."""

import keyword
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from residua._arrays import AnyArray, Arrays, Integers, settle
from residua._manifests import flag, listed, submanifests, text, texts, whole
from residua._notebook import MOST, shown
from residua._text import hint, listing, short
from residua.errors import DataError, FileFormatError, SchemaError, retold
from residua.schema import files
from residua.schema.attribute import Attribute
from residua.schema.attributes import Binned, Categorical, Integer
from residua.schema.columns import columns_of, is_unicode, shape_of
from residua.schema.dates import Date
from residua.schema.hierarchy import Hierarchy
from residua.schema.numbers import Number

KINDS = (Integer, Categorical, Binned, Hierarchy, Date, Number)
_LINE = 88


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Schema:
    """The attributes of a data set in order: what every record looks like, public and free of data.

    Give the attributes as keywords, or as a mapping when a name is no Python word. Equal by value, hashable.

    >>> from residua.schema import Categorical
    >>> schema = Schema(age=Integer(0, 99), sex=Categorical("F", "M"))
    >>> schema.names, schema.sizes, schema.cells
    (('age', 'sex'), (100, 2), 200)
    >>> schema["sex"].label(1)
    'M'
    >>> schema.encode({"sex": ["M", "F"], "age": [37, 8]}).tolist()
    [[37, 1], [8, 0]]
    """

    names: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    sizes: tuple[int, ...] = field(compare=False)
    """Number of cells of each attribute."""

    units: tuple[int, ...] = field(compare=False)
    """What the whole numbers add up to by which a record counts in the cells of each attribute."""

    _positions: dict[str, int] = field(compare=False)

    def __init__(self, attributes: Mapping[str, Attribute] | None = None, /, **named: Attribute) -> None:
        if attributes is not None and not isinstance(attributes, Mapping):
            raise SchemaError(f"a schema is made of a mapping of names to attributes: {short(attributes)}")
        given = dict(attributes or {})
        for name in named:
            if name in given:
                raise SchemaError(f"attribute {name!r} is given twice, in the mapping and as a keyword")
        given |= named
        if not given:
            raise SchemaError("the schema has no attributes; give at least one")
        for name, attribute in given.items():
            _check_attribute(name, attribute)
        settle(self, names=tuple(given), attributes=tuple(given.values()))
        settle(self, sizes=tuple(attribute.size for attribute in self.attributes))
        settle(self, units=tuple(attribute.unit for attribute in self.attributes))
        settle(self, _positions={name: number for number, name in enumerate(given)})

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Self:
        """The schema of attributes a0, a1, ... that take the integers from 0 to size - 1.

        >>> Schema.of_sizes([10, 2])
        Schema(a0=Integer(0, 9), a1=Integer(0, 1))
        """
        attributes: dict[str, Attribute] = {}
        for number, size in enumerate(sizes):
            if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
                raise SchemaError(
                    f"attribute 'a{number}': the size {short(size)} is not a positive whole number"
                )
            attributes[f"a{number}"] = Integer(0, int(size) - 1)
        return cls(attributes)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The schema in a YAML (or JSON) file, a Table Schema with Residua's additions under `residua:`.

        See `residua.schema.files` for the layout.
        """
        return cls(files.load_attributes(path))

    @classmethod
    def from_fields(cls, document: object, *, folder: str | os.PathLike[str] = ".") -> Self:
        """The schema that a Table Schema document (parsed YAML or JSON) describes; see `Schema.load`.

        Paths of hierarchies are relative to `folder`.
        """
        return cls(files.attributes_from_fields(document, folder=Path(folder)))

    def fields(self) -> dict[str, Any]:
        """The schema as a Table Schema document, which `Schema.from_fields` reads."""
        return files.fields_from_attributes(dict(zip(self.names, self.attributes, strict=True)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema to a YAML file that `Schema.load` and readers of Table Schema understand."""
        files.save_attributes(path, dict(zip(self.names, self.attributes, strict=True)))

    @property
    def codes(self) -> tuple[int, ...]:
        """Number of codes that the values of each attribute are told apart by."""
        return tuple(attribute.codes for attribute in self.attributes)

    @property
    def cells(self) -> int:
        """Number of cells of the whole product, exactly: a Python integer of any length."""
        return math.prod(self.sizes)

    def position(self, name: str) -> int:
        """The place of an attribute in the schema, counting from 0."""
        if name in self:
            return self._positions[name]
        raise SchemaError(
            f"attribute {short(name)} is not in the schema{hint(name, self.names)}; "
            f"it has {listing(self.names)}"
        )

    def resolve(self, name: str) -> tuple[int, str | None]:
        """The place of what a name means: of an attribute, or with a level of one, as in 'place.county'.

        The level is None for the attribute itself, and for its finest level, which is the same. An attribute
        whose own name has a dot comes first.

        >>> Schema(day=Date("2024-01-01", "2024-12-31", by="month")).resolve("day.quarter")
        (0, 'quarter')
        """
        if name in self or not isinstance(name, str):
            return self.position(name), None
        dots = [at for at, letter in enumerate(name) if letter == "."]
        found = [(self.position(name[:dot]), name[dot + 1 :]) for dot in dots if name[:dot] in self]
        for at, level in found:
            levels = self.attributes[at].levels
            if level in levels:
                return at, None if level == levels[-1] else level
        for at, level in found:
            if levels := self.attributes[at].levels:
                near = f"{hint(level, levels)}; it has {listing(levels)}"
                raise SchemaError(f"attribute {self.names[at]!r} has no level {level!r}{near}")
        return self.position(name), None

    def counted(self, name: str) -> Attribute:
        """The attribute that a name means, by the cells that its records are counted by: of numbers, bins."""
        if (found := self[name].counted) is None:
            raise SchemaError(
                f"attribute {name!r} is {self[name]!r}, which has sums but no cells to count by; give it "
                "bins=[...], or ask for rs.total, rs.sum or rs.moment(k) of it"
            )
        return found

    def classes(self, name: str) -> Integers:
        """For each cell of the attribute that a name means, its cell of `counted(name)`, shape (size,)."""
        at, level = self.resolve(name)
        return self.attributes[at].counted_by if level is None else self.attributes[at].level_of(level)

    def encode(self, data: object, *, first_row: int = 0) -> NDArray[np.int32]:
        """The cells of the records that are kept, int32 of shape (records, attributes) in Fortran order.

        `data` is a mapping of names to arrays, a numpy structured array, a pandas or polars DataFrame, an
        Arrow table (anything with the Arrow PyCapsule interface), or a plain integer array of codes (records
        x attributes). Columns that are not in the schema are passed over. A DataError quotes values and rows,
        the first of which is number `first_row`, and is for the curator only.
        """
        cells = self.encode_columns(data, first_row=first_row)
        if not any(attribute.outside == "drop" for attribute in self.attributes):
            return cells
        kept = (cells >= 0).all(axis=1)
        return cells if kept.all() else np.asfortranarray(cells[kept])

    def encode_columns(self, data: object, *, first_row: int = 0) -> NDArray[np.int32]:
        """As `encode`, with a row for every record: -1 marks the values whose record is to be dropped."""
        if isinstance(data, np.ndarray) and data.dtype.names is None:
            return self._encode_codes(data, first_row)
        given = zip(self.names, self.attributes, columns_of(data, self.names), strict=True)
        columns = [own.encode(values, column=name, first_row=first_row) for name, own, values in given]
        for name, column in zip(self.names, columns, strict=True):
            if len(column) != len(columns[0]):
                raise DataError(
                    f"columns {self.names[0]!r} and {name!r} have different numbers of values; give every "
                    "column one value for each record"
                )
        return np.array(columns, dtype=np.int32).T  # in Fortran order: counting reads whole columns

    def refuse_unreadable(self) -> None:
        """Nothing, or the SchemaError for an attribute of a class that no file could bring back."""
        for name, attribute in zip(self.names, self.attributes, strict=True):
            if type(attribute) not in KINDS:
                raise SchemaError(
                    f"attribute {name!r}: the class {type(attribute).__name__!r} is not residua's own, so it "
                    f"could be saved but never loaded; use {listing([kind.__name__ for kind in KINDS])}"
                )

    def to_manifest(self, arrays: dict[str, AnyArray] | None = None) -> dict[str, Any]:
        """The schema as a dict for JSON, which `Schema.from_manifest` reads; millions of places as arrays."""
        pairs = zip(self.names, self.attributes, strict=True)
        return {"attributes": [{"name": name, **own.to_manifest(arrays)} for name, own in pairs]}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any], arrays: Arrays | None = None) -> Self:
        """The schema that a manifest describes."""
        attributes: dict[str, Attribute] = {}
        for entry in submanifests(manifest, "attributes"):
            name = text(entry, "name")
            if name in attributes:
                raise SchemaError(f"attribute {name!r} is recorded twice")
            attributes[name] = attribute_from_manifest(entry, arrays or {})
        return cls(attributes)

    def __getitem__(self, name: str) -> Attribute:
        """The attribute of a name; by 'place.county' the coarser one whose cells are the counties."""
        at, level = self.resolve(name)
        return self.attributes[at] if level is None else self.attributes[at].at(level)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._positions

    def __len__(self) -> int:
        return len(self.names)

    def _repr_html_(self) -> str:
        pairs = zip(self.names, self.attributes, strict=True)
        rows = ((name, short(own), f"{own.size:,}", own.outside) for name, own in pairs)
        head = ("attribute", "values", "cells", "outside")
        more = len(self.names) - MOST
        return shown(f"Schema of {len(self.names)} attributes", head, rows, left=2, more=more)

    def __repr__(self) -> str:
        words = all(name.isidentifier() and not keyword.iskeyword(name) for name in self.names)
        pairs = zip(self.names, self.attributes, strict=True)
        parts = [f"{name}={kind!r}" if words else f"{name!r}: {kind!r}" for name, kind in pairs]
        start, end = ("Schema(", ")") if words else ("Schema({", "})")
        line = start + ", ".join(parts) + end
        if len(line) <= _LINE:
            return line
        return start + "\n" + "".join(f"    {part},\n" for part in parts) + end

    def _encode_codes(self, codes: AnyArray, first_row: int) -> NDArray[np.int32]:
        if codes.ndim != 2 or codes.shape[1] != len(self):
            raise DataError(
                f"codes for this schema are an array of shape (records, {len(self)}), not {shape_of(codes)}; "
                "a table of values needs column names"
            )
        if codes.dtype.kind not in "biu":
            raise DataError(
                f"an array of codes holds integers, not {codes.dtype}; a table of values needs column names"
            )
        given = zip(self.names, self.attributes, codes.T, strict=True)
        columns = [own.encode_codes(column, column=name, first_row=first_row) for name, own, column in given]
        return np.array(columns, dtype=np.int32).T


def _check_attribute(name: object, attribute: object) -> None:
    if not isinstance(name, str):
        raise SchemaError(f"attribute name {short(name)} is not text; put it in quotes")
    if not name or not is_unicode(name):
        raise SchemaError(f"attribute name {short(name)} is {'not valid Unicode text' if name else 'empty'}")
    if not isinstance(attribute, Attribute):
        raise SchemaError(
            f"attribute {name!r} is {short(attribute)}, not an attribute; "
            "use Integer(0, 9), Categorical('F', 'M'), Binned(0, 10, 20), Hierarchy.load(...) or "
            "Date('2024-01-01', '2024-12-31')"
        )
    attribute.check_size(f"attribute {name!r}")


def attribute_from_manifest(manifest: Mapping[str, Any], arrays: Arrays | None = None) -> Attribute:
    """The attribute that a manifest describes."""
    outside: Any = text(manifest, "outside")  # the attribute refuses what is no policy
    match text(manifest, "kind"):
        case "integer":
            return Integer(whole(manifest, "low"), whole(manifest, "high"), outside=outside)
        case "categorical":
            return Categorical(*listed(manifest, "labels"), outside=outside)
        case "binned":
            edges = listed(manifest, "edges")
            if not all(isinstance(edge, int | float) for edge in edges):
                raise FileFormatError("the record of an attribute has edges that are no numbers")
            values = listed(manifest, "values") if "values" in manifest else None
            return Binned(*edges, above=flag(manifest, "above"), outside=outside, values=values)
        case "date":
            by: Any = text(manifest, "by")
            return Date(text(manifest, "low"), text(manifest, "high"), by=by, outside=outside)
        case "number":
            with retold(InvalidOperation, FileFormatError, "the record of a number has other edges: "):
                edges = [Decimal(edge) for edge in texts(manifest, "edges")]
            if len(edges) < 2:
                raise FileFormatError("the record of a number lacks its bounds")
            own: dict[str, Any] = {"missing": flag(manifest, "missing"), "outside": outside}
            own |= {"step": Decimal(text(manifest, "step")), "degree": whole(manifest, "degree")}
            return Number(edges[0], edges[-1], bins=edges[1:-1] or None, **own)
        case "hierarchy" if "nodes" in manifest:
            return Hierarchy.from_arrays(manifest, arrays or {})
        case "hierarchy":
            paths = [texts({"paths": path}, "paths") for path in listed(manifest, "paths")]
            return Hierarchy(texts(manifest, "levels"), paths, outside=outside)
    raise SchemaError(f"there is no attribute kind {manifest['kind']!r}; the file may be of a later version")
