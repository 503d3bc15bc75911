"""Columns and bounds from a SmartNoise metadata file: collection, schema, table, and under it the columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from residua.cli.drafts import ColumnDraft, Draft, bins_between
from residua.schema.coding import listing
from residua.spec import TO_CONFIRM, Document, read_document


def draft_of(path: Path, data: Path | None) -> Draft:
    """The draft for the one table that a metadata file describes; the key of persons is left out."""
    document = read_document(path)
    table = _table(document)
    columns = [
        _column(document, str(name), entry)
        for name, entry in table.items()
        if isinstance(entry, Mapping) and not entry.get("private_id")
    ]
    if not columns:
        raise document.refusal((), "the table has no columns besides the key of persons")
    most = table.get("max_ids", table.get("max_contrib", 1))
    heading = f"Drafted from the SmartNoise metadata in {path.name}."
    return Draft(columns, heading, data, most if isinstance(most, int) and most > 0 else 1)


def _table(document: Document) -> Mapping[Any, Any]:
    """The mapping three levels down, of which there must be one."""
    found: list[tuple[str, Any]] = [("", document.value)]
    for _ in range(3):
        found = [
            (str(name), inner)
            for _, outer in found
            if isinstance(outer, Mapping)
            for name, inner in outer.items()
            if isinstance(inner, Mapping)
        ]
    if len(found) != 1:
        names = listing([name for name, _ in found]) or "none"
        raise document.refusal((), f"there must be one table under collection and schema; there are {names}")
    table: Mapping[Any, Any] = found[0][1]
    return table


def _column(document: Document, name: str, entry: Mapping[Any, Any]) -> ColumnDraft:
    kind, low, high = entry.get("type"), entry.get("lower"), entry.get("upper")
    match kind:
        case "boolean":
            return ColumnDraft(name, "boolean", "", "true or false")
        case "int":
            low, high = (TO_CONFIRM if end is None else end for end in (low, high))
            cells = f"constraints: {{minimum: {low}, maximum: {high}}}"
            return ColumnDraft(name, "integer", cells, "lower and upper of the metadata")
        case "float":
            bins: object = TO_CONFIRM
            if isinstance(low, int | float) and isinstance(high, int | float) and low < high:
                bins = bins_between(low, high)
            return ColumnDraft(name, "number", f"residua: {{bins: {bins}, above: true}}", "choose the bins")
        case "string" | "datetime":
            cells = f"constraints: {{enum: {TO_CONFIRM}}}"
            return ColumnDraft(name, "string", cells, "all labels that can be, such as [F, M]")
    raise document.refusal(
        (), f"column {name!r} has the type {kind!r}; there are int, float, string, boolean"
    )
