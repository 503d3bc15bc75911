"""`residua report` and `residua demo`: things to read."""

from pathlib import Path
from typing import Annotated

import typer

from residua._plan import Plan
from residua.cli.planning import plan_document
from residua.cli.screens import AsJson, columns, show, show_json
from residua.release import Release


def report(
    file: Annotated[Path, typer.Argument(help="A plan (.plan) or a release.")], as_json: AsJson = False
) -> None:
    """Explain a plan or a release in words.

    \b
    Examples:
      residua report people.plan
      residua report people.release
    """
    if file.suffix.lower() == ".plan":
        plan, audit = Plan.load(file), None
    else:
        found = Release.load(file)
        plan, audit = found.plan, dict(found.audit)
    if as_json:
        show_json({"plan": plan_document(plan), "audit": audit})
        return
    show(plan.explain().splitlines())
    if audit is not None:
        rows = [(name, _words(value)) for name, value in audit.items() if name != "privacy" and value != ""]
        show(["", "How it came to be", *columns(rows[0], rows[1:], left=(0, 1))])


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {inner}" for key, inner in value.items())
    return "none" if value is None else str(value)


def demo(
    folder: Annotated[
        Path | None, typer.Argument(help="Where to leave the files; a temporary folder if not given.")
    ] = None,
) -> None:
    """Do all of it on 100,000 invented people.

    \b
    Example:
      residua demo demo-files
    """
    from residua.demo import main

    main(folder)
