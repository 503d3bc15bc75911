"""What can be carried away from the page: Python code and a notebook that do what the spec says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from residua.schema import Schema
from residua.spec import Spec
from residua.spec.language import ways_of

KINDS = ("family", "numeric", "categorical")
BEGINNING = "Planned in the Residua studio. Nothing here touches data before the last step."


def python_code(spec: Spec) -> str:
    """A program that plans what the spec asks for, and says how to release it."""
    parts = [code for kind, code in _cells(spec) if kind == "code"]
    return f'"""{BEGINNING}"""\n\n' + "\n\n".join(parts) + "\n"


def notebook(spec: Spec) -> str:
    """The same as a Jupyter notebook."""
    cells: list[dict[str, Any]] = [
        {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for number, (kind, text) in enumerate(_cells(spec))
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _cells(spec: Spec) -> Iterator[tuple[str, str]]:
    name = spec.path.stem
    yield "markdown", f"# {name}\n\n{BEGINNING}"
    yield "code", "import residua as rs"
    yield "markdown", "The columns and their cells, which are public knowledge:"
    yield "code", f"schema = rs.Schema.from_fields({_written(spec.schema.fields())})"
    yield "markdown", "The tables to publish:"
    yield "code", "\n".join(_tables(spec))
    yield "markdown", "Every error, before any data is touched:"
    yield "code", "\n".join(_plan(spec))
    yield "markdown", "Once, when everybody agrees; this spends privacy:"
    data = "people.csv" if spec.data is None else str(spec.data.name)
    ledger = spec.ledger or "budget.db"
    ledger = ledger if "://" in ledger else Path(ledger).name
    yield (
        "code",
        f"# release = rs.measure(plan, {data!r}, ledger={ledger!r})\n# release.save({name + '.release'!r})",
    )


def _written(fields: dict[str, Any]) -> str:
    """A schema document as Python code, a line for each field."""
    lines = ",\n".join(f"        {field!r}" for field in fields["fields"])
    return f'{{\n    "fields": [\n{lines},\n    ]\n}}'


def _tables(spec: Spec) -> Iterator[str]:
    value: Any = spec.document.value
    for number, entry in enumerate(value["tables"]):
        weight = f"{entry['weight']!r} * " if entry.get("weight", 1) != 1 else ""
        yield f"{'work =' if number == 0 else 'work +='} {weight}{_entry(entry, spec.schema)}"


def _entry(entry: dict[str, Any], schema: Schema) -> str:
    name = [f"name={entry['name']!r}"] if "name" in entry else []
    some = [f"attributes={entry['attributes']!r}"] if "attributes" in entry else []
    families = [f"{word}={_family(entry[word])}" for word in KINDS if word in entry]
    if "sql" in entry:
        return _call("sql", [repr(entry["sql"]), *name])
    if "marginals" in entry:
        return _call("marginals", [_ways(entry["marginals"], entry, schema), *some, *name])
    if "all" in entry:
        return _call("all_tables", [_ways(entry["all"], entry, schema), *families, *some, *name])
    if "levels" in entry:
        return _call("levels", [repr(entry["levels"]), _asked(entry), *name])
    return _call("table", [_asked(entry), *name])


def _asked(entry: dict[str, Any]) -> str:
    """The families of a table, or its columns."""
    if "families" in entry:
        pairs = ", ".join(f"{column!r}: {_family(each)}" for column, each in entry["families"].items())
        return f"{{{pairs}}}"
    if "family" in entry and len(entry["columns"]) == 2 and entry["family"] in ("affine", "abs_diff"):
        return f"{{{tuple(entry['columns'])!r}: {_family(entry['family'])}}}"
    return _columns(entry)


def _columns(entry: dict[str, Any]) -> str:
    if not {*KINDS} & entry.keys():
        return repr(entry["columns"])
    plain = _family(entry.get("family", "identity"))
    kinds = [_family(entry[word]) if word in entry else plain for word in ("numeric", "categorical")]
    return f"{{name: {kinds[0]} if schema[name].numeric else {kinds[1]} for name in {entry['columns']!r}}}"


def _call(function: str, arguments: list[str]) -> str:
    return f"rs.{function}(schema, {', '.join(arguments)})"


def _ways(written: Any, entry: dict[str, Any], schema: Schema) -> str:
    return repr(ways_of(written).numbers(len(entry.get("attributes", schema.names))))


def _family(written: Any) -> str:
    if isinstance(written, str):
        return f"rs.{written}"
    if isinstance(written, list):
        return f"[{', '.join(map(_family, written))}]"
    ((word, value),) = written.items()
    inside = ", ".join(map(repr, value)) if isinstance(value, list) else repr(value)
    return f"rs.{word}({inside})"


def _plan(spec: Spec) -> Iterator[str]:
    arguments, value = ["work"], spec.document.value
    written = value.get("guess") if isinstance(value, dict) else None
    guess = f"guess=rs.Release.load({written!r})" if isinstance(written, str) else f"guess={written!r}"
    if spec.budget is not None:
        arguments.append(f"rs.{spec.budget!r}")
    if spec.targets is not None:
        arguments += [f"targets={_targets(spec.targets)}", *([] if written is None else [guess])]
    if spec.unit != type(spec.unit)():
        arguments.append(f"unit=rs.{spec.unit!r}")
    for name, usual in (
        ("method", "auto"),
        ("objective", "total_variance"),
        ("relax", False),
        ("effort", "normal"),
    ):
        if getattr(spec, name) != usual:
            arguments.append(f"{name}={getattr(spec, name)!r}")
    yield f"plan = rs.plan({', '.join(arguments)})"
    yield f"print(plan.explain({'' if written is None else guess}))"


def _targets(targets: Any) -> str:
    if isinstance(targets, dict):
        return "{" + ", ".join(f"{name!r}: rs.{each!r}" for name, each in targets.items()) + "}"
    return f"rs.{targets!r}"
