"""What the page is told: the file as it is, its columns and tables, the budgets to choose from, the plan."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from residua._text import one_line, visible
from residua.errors import ResiduaError, SchemaError
from residua.schema.attribute import Attribute
from residua.schema.files import attributes_from_fields
from residua.spec import unconfirmed
from residua.studio.figures import ladder
from residua.studio.session import GHOSTS, Session

SHOWN_LABELS = 8
DATA = (".csv", ".tsv", ".parquet")
DOCUMENTS = (".json", ".yaml", ".yml")
MOST_FILES = 100


def state_of(session: Session) -> dict[str, Any]:
    """All of it; figures that are older than the file are marked."""
    with session.lock:
        job = session.job
        spec, value = session.spec, session.value if isinstance(session.value, dict) else {}
        budget = None if spec is None else spec.budget
        if budget is None and spec is not None and session.plan is not None:
            budget = session.plan.budget
        return {
            "version": session.version,
            "revision": session.revision,
            "file": None if session.path is None else session.path.name,
            "text": session.text,
            "problem": session.problem,
            "sources": _sources(session.folder) if session.text is None else [],
            "columns": list(_columns(session, value)),
            "schemaFile": value.get("schema") if isinstance(value.get("schema"), str) else None,
            "entries": [_entry(each) for each in _listed(value.get("tables"))],
            "privacy": _mapping(value.get("privacy")),
            "targets": value.get("targets"),
            "ladder": [] if budget is None or spec is None else ladder(budget, spec.unit),
            "unit": None if spec is None else spec.unit.describe(),
            "figures": session.figures,
            "before": _brief(session.before),
            "stale": session.figures is not None and session.stale,
            "planning": None if job is None else {"words": job.words, "fraction": job.fraction},
            "failure": session.failure,
            "ghosts": session.ghosts,
            "methods": GHOSTS,
            "wanted": session.wanted,
            "kept": None if session.kept is None else session.kept.figures,
            "undo": session.at > 0,
            "redo": session.at + 1 < len(session.steps),
            "commands": _commands(session),
        }


def _brief(figures: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a sentence about a change needs to know of the plan before it."""
    return None if figures is None else {"targets": figures["targets"], "rho": figures["privacy"]["rho"]}


def _sources(folder: Path) -> list[dict[str, str]]:
    """Files that a spec can start from: data whose header is read, schemas, and specs."""
    found = sorted(each for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))
    listed = [each for each in found if each.suffix.lower() in (*DATA, *DOCUMENTS)][:MOST_FILES]
    return [
        {"name": each.name, "kind": "data" if each.suffix.lower() in DATA else "document"} for each in listed
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _columns(session: Session, value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each column as the file has it, with its cells or what is wrong with it."""
    schema = value.get("schema")
    if isinstance(schema, dict):
        for field in _listed(schema.get("fields")):
            name = field.get("name") if isinstance(field, dict) else None
            yield {"name": str(name), "field": field} | _cells(field, session.folder)
    elif session.spec is not None:
        for name in session.spec.schema.names:
            yield {"name": name, "field": None} | _described(session.spec.schema[name])


def _cells(field: Any, folder: Path) -> dict[str, Any]:
    if any(unconfirmed(field)):
        return {"cells": None, "problem": None, "missing": True}
    try:
        (attribute,) = attributes_from_fields({"fields": [field]}, folder=folder).values()
    except ResiduaError as error:
        return {"cells": None, "problem": one_line(str(error))}
    return _described(attribute)


def _described(attribute: Attribute) -> dict[str, Any]:
    size = attribute.size
    shown = [visible(attribute.label(cell)) for cell in range(min(size, SHOWN_LABELS))]
    levels = list(getattr(attribute, "levels", ()))
    return {
        "cells": size,
        "labels": shown,
        "numeric": attribute.numeric,
        "counted": attribute.counted is not None,
        "powers": sum(1 for power in (1, 2) if _adds_up(attribute, power)),
        "levels": levels,
        "problem": None,
    }


def _adds_up(attribute: Attribute, power: int) -> bool:
    """Whether powers of its values have sums."""
    try:
        return bool(attribute.moment(power).any())
    except SchemaError:
        return False


def _entry(entry: Any) -> dict[str, Any]:
    """An entry of the list of tables in words."""
    if not isinstance(entry, dict):
        return {"words": str(entry), "name": None}
    words = next((_words(kind, entry[kind]) for kind in entry if kind in _KINDS), "an entry without tables")
    return {"words": words, "name": entry.get("name"), "weight": entry.get("weight", 1)}


_KINDS = ("families", "columns", "all", "marginals", "sql")


def _words(kind: str, value: Any) -> str:
    match kind:
        case "columns":
            return " \u00d7 ".join(map(str, _listed(value))) or "the number of records"
        case "families":
            return " \u00d7 ".join(f"{name} ({_family(each)})" for name, each in _mapping(value).items())
        case "marginals":
            return f"every table on {_ways(value)}"
        case "all":
            return f"all tables on {_ways(value)}"
    return str(value)


def _ways(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace("-way", "") + (" column" if text.strip() in ("1", "1-way", "up to 1") else " columns")


def _family(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_family, value))
    if isinstance(value, dict):
        return ", ".join(f"{word} {each}" for word, each in value.items())
    return str(value)


def _commands(session: Session) -> list[str]:
    """What is typed when everybody agrees: releasing is not done from a page."""
    if session.spec is None or session.path is None:
        return []
    spec = session.spec
    data = "" if spec.data is not None else " --data people.csv"
    ledger = "" if spec.ledger is not None else " --ledger budget.db"
    return [f"residua release {quote(session.path.name)}{data}{ledger}"]
