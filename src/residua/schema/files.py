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
      residua: {bins: [0, 10000, 25000], above: true}
    - name: place
      type: string
      residua:
        hierarchy: {levels: [state, county], path: places.csv}     # or rows: [[NY, Kings], [NY, Bronx]]

Keys of Table Schema that say nothing about cells (title, format, missingValues, ...) are passed over; keys
under `residua:` must be known.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from residua._files import write_text
from residua._yaml import Unreadable, parse
from residua.errors import SchemaError
from residua.schema.attribute import Attribute
from residua.schema.attributes import Binned, Categorical, Integer, plain
from residua.schema.coding import hint, listing, short
from residua.schema.hierarchy import Hierarchy

_TYPES = ("integer", "string", "number", "boolean")
_ADDITIONS = ("above", "bins", "hierarchy", "outside")
_LABEL_TYPES: dict[str, type] = {"integer": int, "string": str, "boolean": bool}


def load_attributes(path: str | os.PathLike[str]) -> dict[str, Attribute]:
    """The attributes in a YAML or JSON file, by name; an error names the file, the line and the field."""
    where = os.fspath(path)
    document, lines = _read_yaml(Path(path), where)
    return attributes_from_fields(document, folder=Path(path).parent, where=where, lines=lines)


def save_attributes(path: str | os.PathLike[str], attributes: Mapping[str, Attribute]) -> None:
    """Write the attributes to a YAML file, whole or not at all."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(
        fields_from_attributes(attributes),
        Dumper=dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )
    write_text(path, text)


def fields_from_attributes(attributes: Mapping[str, Attribute]) -> dict[str, Any]:
    """The attributes as a Table Schema document, hierarchies written out."""
    return {"fields": [_write_field(name, attribute) for name, attribute in attributes.items()]}


def _write_field(name: str, attribute: Attribute) -> dict[str, Any]:
    kind, constraints, additions = _describe(attribute)
    if attribute.outside != "error":
        additions["outside"] = attribute.outside
    written: dict[str, Any] = {"name": name, "type": kind}
    if constraints:
        written["constraints"] = constraints
    if additions:
        written["residua"] = additions
    return written


def _describe(attribute: Attribute) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The Table Schema type, the constraints and the additions that give the attribute back."""
    match attribute:
        case Integer(low=low, high=high):
            return "integer", {"minimum": low, "maximum": high}, {}
        case Categorical(values=(False, True), type="boolean"):
            return "boolean", {}, {}
        case Categorical(values=values, type=kind):
            return {"text": "string"}.get(kind, kind), {"enum": list(values)}, {}
        case Binned(edges=edges, above=above):
            return (
                "number",
                {},
                {"bins": [plain(edge) for edge in edges]} | ({"above": True} if above else {}),
            )
        case Hierarchy(levels=levels, paths=paths):
            rows = [list(path) for path in paths]
            return "string", {}, {"hierarchy": {"levels": list(levels), "rows": rows}}
    raise SchemaError(f"{attribute!r} cannot be written to a schema file")


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
            wrong = (
                "it has no name"
                if name in (None, "")
                else f"its name {short(name)} is not text, put it in quotes"
            )
            raise SchemaError(f"{where}{line}, field {number + 1}: {wrong}")
        try:
            if name in attributes:
                raise SchemaError("two fields have this name")
            attributes[name] = _read_field(entry, folder)
        except (SchemaError, OSError) as problem:
            raise SchemaError(f"{where}{line}, field {name!r}: {problem}") from problem
    return attributes


def _read_field(entry: Mapping[str, Any], folder: Path) -> Attribute:
    constraints = _section(entry, "constraints")
    additions = _section(entry, "residua")
    _check_keys("residua", additions, _ADDITIONS)
    kind = entry.get("type", "number" if "bins" in additions else "string")
    if kind not in _TYPES:
        raise SchemaError(
            f"the type {short(kind)} has no cells{hint(kind, _TYPES)}; use one of {listing(_TYPES)}"
        )
    chosen = [key for key in ("bins", "hierarchy") if key in additions] + ["enum"] * ("enum" in constraints)
    if len(chosen) > 1:
        raise SchemaError(f"{' and '.join(chosen)} exclude each other; keep one")
    if "above" in additions and "bins" not in additions:
        raise SchemaError("residua.above needs residua.bins")
    outside = additions.get("outside", "error")
    if "bins" in additions:
        return _read_bins(kind, additions, outside)
    if "hierarchy" in additions:
        return _read_hierarchy(kind, additions["hierarchy"], folder, outside)
    if kind == "number":
        raise SchemaError("a number needs bins; add residua: {bins: [0, 10, 20]}, or use type: integer")
    if "enum" in constraints:
        return Categorical(*_read_enum(kind, constraints["enum"]), outside=outside)
    if kind == "boolean":
        return Categorical(False, True, outside=outside)
    if kind == "string":
        raise SchemaError(
            "a string needs its labels; add constraints: {enum: [...]} or residua: {hierarchy: ...}"
        )
    missing = [key for key in ("minimum", "maximum") if key not in constraints]
    if missing:
        raise SchemaError(f"an integer needs its range; add constraints.{' and constraints.'.join(missing)}")
    return Integer(constraints["minimum"], constraints["maximum"], outside=outside)


def _read_bins(kind: str, additions: Mapping[str, Any], outside: Any) -> Binned:
    edges, above = additions["bins"], additions.get("above", False)
    if kind not in ("number", "integer"):
        raise SchemaError(f"bins need type: number or type: integer, not {kind}")
    if not isinstance(edges, list):
        raise SchemaError(f"residua.bins should be a list of edges, not {short(edges)}")
    for edge in edges:
        if isinstance(edge, str):
            raise SchemaError(f"the edge {short(edge)} is text to YAML; write numbers like 100000 or 1.0e+5")
    if not isinstance(above, bool):
        raise SchemaError(f"residua.above should be true or false, not {short(above)}")
    return Binned(*edges, above=above, outside=outside)


def _read_enum(kind: str, labels: object) -> list[Any]:
    if not isinstance(labels, list):
        raise SchemaError(f"constraints.enum should be a list of labels, not {short(labels)}")
    for label in labels:
        if type(label) is not _LABEL_TYPES[kind]:
            remedy = (
                "put it in quotes (YAML reads no, yes and 01 as other types)"
                if kind == "string"
                else "mend it"
            )
            raise SchemaError(f"the label {short(label)} in constraints.enum is not of type {kind}; {remedy}")
    return labels


def _read_hierarchy(kind: str, tree: object, folder: Path, outside: Any) -> Hierarchy:
    if kind not in ("string", "integer"):
        raise SchemaError(f"a hierarchy needs type: string or type: integer, not {kind}")
    if not isinstance(tree, Mapping):
        raise SchemaError(f"residua.hierarchy should have levels, and path or rows, not {short(tree)}")
    _check_keys("residua.hierarchy", tree, ("levels", "path", "rows"))
    if not isinstance(tree.get("levels"), list):
        raise SchemaError("residua.hierarchy needs levels, a list of names with the coarsest first")
    if ("path" in tree) == ("rows" in tree):
        raise SchemaError("residua.hierarchy needs either path, a CSV file, or rows, a list of paths")
    if "path" in tree:
        return Hierarchy.load(beside(folder, str(tree["path"])), levels=tree["levels"], outside=outside)
    rows = tree["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise SchemaError("residua.hierarchy.rows should be a list of lists, one for each leaf")
    for row in rows:
        for name in row:
            if not isinstance(name, str):
                raise SchemaError(
                    f"the name {short(name)} in the row {short(row)} is not text; put it in quotes"
                )
    return Hierarchy(tree["levels"], rows, outside=outside)


def _section(entry: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = entry.get(key, {})
    if not isinstance(section, Mapping):
        raise SchemaError(f"{key} should be a mapping, not {short(section)}")
    return section


def _check_keys(where: str, section: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in section:
        if key not in known:
            raise SchemaError(f"{where} has no key {short(key)}{hint(key, known)}; it takes {listing(known)}")


def beside(folder: Path, name: str) -> Path:
    """The file of this name, seen from a folder; the SchemaError for what no file is called."""
    if "\0" in name:
        raise SchemaError(f"{name!r} is not the name of a file")
    return folder / name


def _read_yaml(path: Path, where: str) -> tuple[object, list[int]]:
    """The document in the file, and the line on which each of its fields starts."""
    try:
        document, root = parse(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as problem:
        raise SchemaError(f"{where}: not a YAML file: {problem}") from problem
    except Unreadable as problem:
        raise SchemaError(problem.at(where)) from problem
    return document, _field_lines(root)


def _field_lines(root: Any) -> list[int]:
    import yaml

    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "fields" and isinstance(value, yaml.SequenceNode):
                return [item.start_mark.line + 1 for item in value.value]
    return []
