"""What strangers and auditors ask of a release: `residua verify`."""

from pathlib import Path
from typing import Annotated

import typer

from residua._text import counted
from residua.cli.budgets import open_ledger
from residua.cli.output import AsJson, show, show_json
from residua.cli.reading import ReleaseFile
from residua.errors import FileFormatError
from residua.release import Release
from residua.verify import Check, Verdict, verify


def verify_release(
    file: ReleaseFile,
    ledger: Annotated[
        Path | None, typer.Option(help="Also look for the entry that paid, in this ledger.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute what a release states, from its file alone.

    Cost, spans, errors of every table and the certificate are found again by code that planning does not
    share; what could not be checked is listed as such. Fails if anything stated is false.

    \b
    Examples:
      residua verify people.release
      residua verify people.release --ledger budget.db
    """
    found = verify(file)
    checks = [*found.checks, *([] if ledger is None or not found.holds else [_paid(file, ledger)])]
    false = sum(check.verdict == "false" for check in checks)
    if as_json:
        listed = [{"statement": c.subject, "verdict": c.verdict, "why": c.words} for c in checks]
        show_json({"release": file, "holds": not false, "checks": listed})
    else:
        show(type(found)(tuple(checks)).describe())
    if false:
        raise FileFormatError(
            f"{file}: {counted(false, 'statement is', 'statements are')} not so; do not rely on this release"
        )


def _paid(file: Path, path: Path) -> Check:
    """Whether a ledger holds the entry that paid for a release."""
    [finding] = open_ledger(path).check([Release.load(file)])
    verdict: Verdict = "false" if finding.bad else "holds" if finding.state == "paid" else "unchecked"
    return Check("ledger", verdict, f"{finding.state}: {finding.words}")
