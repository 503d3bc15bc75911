"""Schemas in files: a Table Schema (`fields`, `type`, `constraints`) with additions under `residua:`.

    fields:
    - name: age
      type: integer
      constraints: {minimum: 0, maximum: 99}        # each integer is a cell
      residua: {outside: clip}                      # error (default), drop, clip, other
    - name: sex
      type: string                                  # or integer, or boolean (which needs no enum)
      constraints: {enum: [F, M]}
    - name: income
      type: number                                  # or integer
      residua: {bins: [0, 10000, 25000], above: true}     # values: [..] says what each counts as in sums
    - name: earnings
      type: number                                  # with a step, a quantity whose sums are published
      constraints: {minimum: 0, maximum: 200000}
      residua: {step: 100, missing: true}           # also bins and degree; outside is clip unless told
    - name: place
      type: string
      residua:
        hierarchy: {levels: [state, county], path: places.csv}     # or rows: [[NY, Kings], [NY, Bronx]]
    - name: born
      type: date
      constraints: {minimum: 2020-01-01, maximum: 2026-12-31}
      residua: {by: month}                          # day (default), month, quarter, year

Keys of Table Schema that say nothing about cells (title, format, missingValues, ...) are passed over; keys
under `residua:` must be known.
"""

import os
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

from residua._files import write_text
from residua._text import hint, listing, short
from residua._yaml import Unreadable, parse
from residua.errors import SchemaError, retold
from residua.schema.attribute import Attribute
from residua.schema.attributes import Binned, Categorical, Integer, plain
from residua.schema.dates import Date
from residua.schema.hierarchy import Hierarchy
from residua.schema.numbers import Number, decimal

_TYPES = ("integer", "string", "number", "boolean", "date")
_ADDITIONS = ("above", "bins", "by", "degree", "hierarchy", "missing", "outside", "step", "values")
_OF_NUMBERS = ("degree", "missing")
_LABEL_TYPES: dict[str, type] = {"integer": int, "string": str, "boolean": bool}


def load_attributes(path: str | os.PathLike[str]) -> dict[str, Attribute]:
    """The attributes in a YAML or JSON file, by name; an error names the file, the line and the field."""
    where = os.fspath(path)
    try:
        document, root = parse(Path(path).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as problem:
        raise SchemaError(f"{where}: not a YAML file: {problem}") from problem
    except Unreadable as problem:
        raise SchemaError(problem.at(where)) from problem
    return attributes_from_fields(document, folder=Path(path).parent, where=where, lines=_field_lines(root))


def save_attributes(path: str | os.PathLike[str], attributes: Mapping[str, Attribute]) -> None:
    """Write the attributes to a YAML file, whole or not at all."""
    import yaml

    style: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "default_flow_style": None}
    style["Dumper"] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    write_text(path, yaml.dump(fields_from_attributes(attributes), width=100, **style))


def fields_from_attributes(attributes: Mapping[str, Attribute]) -> dict[str, Any]:
    """The attributes as a Table Schema document, hierarchies written out."""
    return {"fields": [_write_field(name, attribute) for name, attribute in attributes.items()]}


def _write_field(name: str, attribute: Attribute) -> dict[str, Any]:
    kind, constraints, additions = _describe(attribute)
    if attribute.outside != ("clip" if isinstance(attribute, Number) else "error"):
        additions["outside"] = attribute.outside
    parts = {"constraints": constraints, "residua": additions}
    return {"name": name, "type": kind} | {key: part for key, part in parts.items() if part}


def _describe(attribute: Attribute) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The Table Schema type, the constraints and the additions that give the attribute back."""
    match attribute:
        case Integer(low=low, high=high):
            return "integer", {"minimum": low, "maximum": high}, {}
        case Categorical(values=(False, True), type="boolean"):
            return "boolean", {}, {}
        case Categorical(values=values, type=kind):
            return {"text": "string"}.get(kind, kind), {"enum": list(values)}, {}
        case Binned(edges=edges, above=above, values=values):
            bins: dict[str, Any] = {"bins": [plain(edge) for edge in edges]}
            bins |= {"above": True} if above else {}
            bins |= {} if values is None else {"values": [plain(each) for each in values]}
            return "number", {}, bins
        case Number():
            return _describe_number(attribute)
        case Date(low=low, high=high, by=by):
            return "date", {"minimum": str(low), "maximum": str(high)}, {"by": by}
        case Hierarchy(levels=levels, paths=paths):
            tree = {"levels": list(levels), "rows": [list(path) for path in paths]}
            return "string", {}, {"hierarchy": tree}
    raise SchemaError(f"{attribute!r} cannot be written to a schema file")


def _describe_number(number: Number) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Decimals are written as numbers where those are short, else as text, which is exact."""
    low, *inner, high = map(_written, number.edges)
    additions: dict[str, Any] = {"step": _written(number.step)}
    additions |= {"bins": inner} if number.binned else {}
    additions |= {"missing": True} if number.missing else {}
    additions |= {"degree": number.degree} if number.degree > 1 else {}
    return "number", {"minimum": low, "maximum": high}, additions


def _written(value: Fraction) -> int | float | str:
    if value.denominator == 1:
        return int(value)
    text = decimal(value)
    return float(text) if Fraction(repr(float(text))) == value else text


def attributes_from_fields(
    document: object, *, folder: Path, where: str = "schema", lines: Sequence[int] = ()
) -> dict[str, Attribute]:
    """The attributes that a Table Schema document describes, by name.

    Paths of hierarchies are relative to `folder`. `where` and `lines` (one per field) go into messages.
    """
    fields = document.get("fields") if isinstance(document, Mapping) else None
    if not isinstance(fields, list) or not fields:
        raise SchemaError(
            f"{where}: there is no list of fields; write 'fields:' and under it one '- name: ...' each"
        )
    attributes: dict[str, Attribute] = {}
    for number, entry in enumerate(fields):
        line = f", line {lines[number]}" if lines else ""
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or not name:
            unnamed = name in (None, "")
            wrong = "it has no name" if unnamed else f"its name {short(name)} is not text, put it in quotes"
            raise SchemaError(f"{where}{line}, field {number + 1}: {wrong}")
        with retold((SchemaError, OSError), SchemaError, f"{where}{line}, field {name!r}: "):
            _require(name not in attributes, "two fields have this name")
            attributes[name] = _read_field(entry, folder)
    return attributes


def _read_field(entry: Mapping[str, Any], folder: Path) -> Attribute:
    constraints = _section(entry, "constraints")
    additions = _section(entry, "residua")
    _check_keys("residua", additions, _ADDITIONS)
    kind = entry.get("type", "number" if "bins" in additions else "string")
    near = f"{hint(kind, _TYPES)}; use one of {listing(_TYPES)}"
    _require(kind in _TYPES, f"the type {short(kind)} has no cells{near}")
    chosen = [key for key in ("bins", "hierarchy") if key in additions] + ["enum"] * ("enum" in constraints)
    _require(len(chosen) < 2, f"{' and '.join(chosen)} exclude each other; keep one")
    _require("above" not in additions or "bins" in additions, "residua.above needs residua.bins")
    _require("values" not in additions or "bins" in additions, "residua.values needs residua.bins")
    if "step" in additions:
        return _read_number(kind, constraints, additions)
    for key in _OF_NUMBERS:
        _require(key not in additions, f"residua.{key} needs residua.step, which makes it a quantity to sum")
    _require("by" not in additions or kind == "date", "residua.by needs type: date")
    outside = additions.get("outside", "error")
    if "bins" in additions:
        return _read_bins(kind, additions, outside)
    if "hierarchy" in additions:
        return _read_hierarchy(kind, additions["hierarchy"], folder, outside)
    bins = "add residua: {bins: [0, 10, 20]} to count it, residua: {step: 1} to sum it, or use type: integer"
    _require(kind != "number", f"a number needs bins or a step; {bins}")
    if "enum" in constraints:
        return Categorical(*_read_enum(kind, constraints["enum"]), outside=outside)
    if kind == "boolean":
        return Categorical(False, True, outside=outside)
    labels = "add constraints: {enum: [...]} or residua: {hierarchy: ...}"
    _require(kind != "string", f"a string needs its labels; {labels}")
    low, high = _range(constraints, "a date" if kind == "date" else "an integer")
    if kind == "date":
        return Date(low, high, by=additions.get("by", "day"), outside=outside)
    return Integer(low, high, outside=outside)


def _read_bins(kind: str, additions: Mapping[str, Any], outside: Any) -> Binned:
    edges, above = additions["bins"], additions.get("above", False)
    _require(kind in ("number", "integer"), f"bins need type: number or type: integer, not {kind}")
    _require(isinstance(edges, list), f"residua.bins should be a list of edges, not {short(edges)}")
    for edge in edges:
        written = f"the edge {short(edge)} is text to YAML; write numbers like 100000 or 1.0e+5"
        _require(not isinstance(edge, str), written)
    _require(isinstance(above, bool), f"residua.above should be true or false, not {short(above)}")
    values = additions.get("values")
    _require(values is None or isinstance(values, list), "residua.values should be a list, one for each bin")
    return Binned(*edges, above=above, outside=outside, values=values)


def _read_number(kind: str, constraints: Mapping[str, Any], additions: Mapping[str, Any]) -> Number:
    _require(kind in ("number", "integer"), f"a step needs type: number or type: integer, not {kind}")
    for key in ("above", "hierarchy", "values"):
        _require(key not in additions, f"residua.{key} does not go with residua.step")
    low, high = _range(constraints, "a quantity with a step")
    bins = additions.get("bins")
    _require(bins is None or isinstance(bins, list), f"residua.bins should be a list, not {short(bins)}")
    own = {key: additions[key] for key in ("degree", "outside") if key in additions}
    edges = None if bins is None else [_number(edge) for edge in bins]
    missing, step = additions.get("missing") is True, _number(additions["step"])
    return Number(_number(low), _number(high), step=step, bins=edges, missing=missing, **own)


def _range(constraints: Mapping[str, Any], what: str) -> tuple[Any, Any]:
    missing = [f"constraints.{key}" for key in ("minimum", "maximum") if key not in constraints]
    _require(not missing, f"{what} needs its range; add {' and '.join(missing)}")
    return constraints["minimum"], constraints["maximum"]


def _number(written: Any) -> Any:
    """A number, which text may hold with all its digits."""
    try:
        return Decimal(written) if isinstance(written, str) else written
    except InvalidOperation as error:
        raise SchemaError(f"{short(written)} is not a number") from error


def _read_enum(kind: str, labels: Any) -> list[Any]:
    _require(isinstance(labels, list), f"constraints.enum should be a list of labels, not {short(labels)}")
    quote = "put it in quotes (YAML reads no, yes and 01 as other types)"
    for label in labels:
        remedy = f"is not of type {kind}; {quote if kind == 'string' else 'mend it'}"
        _require(type(label) is _LABEL_TYPES[kind], f"the label {short(label)} in constraints.enum {remedy}")
    return list(labels)


def _read_hierarchy(kind: str, tree: Any, folder: Path, outside: Any) -> Hierarchy:
    what = "residua.hierarchy"
    _require(kind in ("string", "integer"), f"a hierarchy needs type: string or type: integer, not {kind}")
    _require(isinstance(tree, Mapping), f"{what} should have levels, and path or rows, not {short(tree)}")
    _check_keys(what, tree, ("levels", "path", "rows"))
    listed = isinstance(tree.get("levels"), list)
    _require(listed, f"{what} needs levels, a list of names with the coarsest first")
    one = ("path" in tree) != ("rows" in tree)
    _require(one, f"{what} needs either path, a CSV file, or rows, a list of paths")
    if "path" in tree:
        return Hierarchy.load(beside(folder, str(tree["path"])), levels=tree["levels"], outside=outside)
    rows = tree["rows"]
    paths = isinstance(rows, list) and all(isinstance(row, list) for row in rows)
    _require(paths, f"{what}.rows should be a list of lists, one for each leaf")
    for row in rows:
        for name in row:
            if not isinstance(name, str):
                place = f"the name {short(name)} in the row {short(row)}"
                raise SchemaError(f"{place} is not text; put it in quotes")
    return Hierarchy(tree["levels"], rows, outside=outside)


def _require(good: bool, problem: str) -> None:
    if not good:
        raise SchemaError(problem)


def _section(entry: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section: Mapping[str, Any] = entry.get(key, {})
    _require(isinstance(section, Mapping), f"{key} should be a mapping, not {short(section)}")
    return section


def _check_keys(where: str, section: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in section:
        near = f"{hint(key, known)}; it takes {listing(known)}"
        _require(key in known, f"{where} has no key {short(key)}{near}")


def beside(folder: Path, name: str) -> Path:
    """The file of this name, seen from a folder; the SchemaError for what no file is called."""
    if "\0" in name:
        raise SchemaError(f"{name!r} is not the name of a file")
    return folder / name


def _field_lines(root: Any) -> list[int]:
    """The line on which each field of a document starts."""
    import yaml

    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "fields" and isinstance(value, yaml.SequenceNode):
                return [item.start_mark.line + 1 for item in value.value]
    return []
