"""`residua report` and `residua demo`: things to read."""

from pathlib import Path
from typing import Annotated

import typer

from residua._plan import Plan
from residua._text import columns
from residua.cli.files import refuse_to_replace
from residua.cli.planning import plan_document
from residua.cli.screens import AsJson, Force, show, show_json
from residua.release import Release


def report(
    file: Annotated[Path, typer.Argument(help="A plan (.plan) or a release.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one HTML page with tables and pictures.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="With -o: a folder for the pictures as SVG files too.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="With -o: the title of the page.")] = None,
    level: Annotated[float, typer.Option(help="With -o: confidence level of the intervals.")] = 0.95,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Explain a plan or a release in words, or on a page.

    \b
    Examples:
      residua report people.plan
      residua report people.release -o people.html
    """
    if output is not None:
        refuse_to_replace([output], force)
    elif plots is not None or title is not None:
        raise typer.BadParameter("--plots and --title are for a page; give -o report.html too")
    found = Plan.load(file) if file.suffix.lower() == ".plan" else Release.load(file)
    if output is not None:
        found.report(output, level=level, title=title, plots=plots)
        show_json({"report": output}) if as_json else show([f"Wrote {output}"])
        return
    plan, audit = (found, None) if isinstance(found, Plan) else (found.plan, dict(found.audit))
    if as_json:
        show_json({"plan": plan_document(plan), "audit": audit})
        return
    show(plan.explain().splitlines())
    if audit is not None:
        rows = [(name, _words(value)) for name, value in audit.items() if name != "privacy" and value != ""]
        show(["", "How it came to be", *columns(rows[0], rows[1:], left=(0, 1))])
    show(["", f"Next: residua report {file} -o {file.stem}.html   (a page with tables and pictures)"])


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
