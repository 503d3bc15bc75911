"""What strangers and auditors ask for: `residua verify`, `audit`, `evidence`."""

import json
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from residua._files import write_text
from residua._text import counted
from residua.audit import Audit, audit
from residua.audit.invented import invented_plans
from residua.cli import options
from residua.cli.budgets import open_ledger
from residua.cli.output import progress_bar, refuse_to_replace, tell, write_answers
from residua.errors import BudgetError, FileFormatError
from residua.evidence import HUMAN, Facts, described, entry_text, statement
from residua.plans import Plan
from residua.release import Release
from residua.verify import Check, Verdict, verify


def verify_release(
    file: options.ReleaseFile,
    ledger: Annotated[
        str | None, typer.Option(help="Also look for the entry that paid, in this ledger.")
    ] = None,
    as_json: options.AsJson = False,
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
    listed = [{"statement": c.subject, "verdict": c.verdict, "why": c.words} for c in checks]
    document = {"release": file, "holds": not false, "checks": listed}
    tell(document, type(found)(tuple(checks)).describe(), as_json)
    if false:
        raise FileFormatError(
            f"{file}: {counted(false, 'statement is', 'statements are')} not so; do not rely on this release"
        )


def _paid(file: Path, path: str) -> Check:
    """Whether a ledger holds the entry that paid for a release."""
    [finding] = open_ledger(path).check([Release.load(file)])
    verdict: Verdict = "false" if finding.bad else "holds" if finding.state == "paid" else "unchecked"
    return Check("ledger", verdict, f"{finding.state}: {finding.words}")


def audit_plans(
    file: Annotated[
        Path | None, typer.Argument(help="A plan (.plan) or a release; invented plans if not given.")
    ] = None,
    output: Annotated[Path | None, options.output("Write the page to this file, in Markdown.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Times with other data and other noise.")] = 3,
    invented: Annotated[int, typer.Option(min=1, help="Without a file: how many plans of every kind.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="For the invented data and plans.")] = 0,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Replay measuring on neighbouring data, and compare everything.

    Invented records and people are added, removed, replaced and put outside the schema; with the same noise,
    every step, number, debit, file and message must be what one person may change, and no more. No data and
    no ledger of yours are touched. Fails if anything alarms.

    \b
    Examples:
      residua audit people.plan -o audit.md
      residua audit --invented 200
    """
    if output is not None:
        refuse_to_replace([output], force)
    found, about = Audit(), ["Plans of every kind, invented."]
    with progress_bar() as progress:
        if file is not None:
            plan = Plan.load(file) if file.suffix.lower() == ".plan" else Release.load(file).plan
            about = [f"The plan {plan.hash} of {plan.budget!r}, protecting against {plan.unit.describe()}."]
            found += audit(plan, rounds=rounds, seed=seed)
        else:
            for number, plan in enumerate(islice(invented_plans(seed), invented)):
                found += audit(plan, rounds=rounds, seed=number)
                progress("replaying", (number + 1) / invented)
    again = f"Rounds of other data and other noise: {rounds}. Seed of what is invented: {seed}."
    page = found.page([*about, "", again])
    if output is not None:
        write_text(output, page)
    document = {"plans": found.plans, "tried": dict(found.tried), "neighbours": dict(found.neighbours)}
    document |= {"alarms": found.alarms, "page": output}
    tell(document, page.splitlines() if output is None else [f"Wrote {output}"], as_json)
    if found.alarms:
        raise BudgetError(f"{counted(len(found.alarms), 'alarm', 'alarms')}, the first: {found.alarms[0]}")


def write_evidence(
    file: options.ReleaseFile,
    output: Annotated[Path, options.output("A folder for the statements; made if need be.")],
    ledger: Annotated[str | None, typer.Option(help="Say what this ledger has spent in all.")] = None,
    level: options.Level = 0.95,
    formulas: options.Formulas = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write statements about a release for officers, registries and readers.

    An entry for the registry of differential privacy deployments, a statement along NIST SP 800-226, and the
    answers as CSV with a description of every column, all from the release and its ledger. What only a human
    knows is marked HUMAN.

    \b
    Example:
      residua evidence people.release -o evidence --ledger budget.db
    """
    release = Release.load(file)
    facts = Facts(release, None if ledger is None else open_ledger(ledger))
    output.mkdir(exist_ok=True)
    names = ("registry.yaml", "statement.md", "answers.csv", "answers.csv-metadata.json")
    registry, words, answers, columns = paths = [output / name for name in names]
    refuse_to_replace(paths, force)
    write_text(registry, entry_text(facts))
    write_text(words, statement(facts))
    write_answers(release, answers, release.plan.workload, formulas=formulas, level=level)
    write_text(
        columns, json.dumps(described(facts, answers.name, level), indent=1, ensure_ascii=False) + "\n"
    )
    left = registry.read_text(encoding="utf-8").count(HUMAN) + words.read_text(encoding="utf-8").count(HUMAN)
    places = counted(left, "place is", "places are")
    marked = f"{places} marked {HUMAN.rstrip(':')}: fill them in before publishing."
    document = {path.stem: path for path in paths} | {"left_for_humans": left}
    tell(document, [*(f"Wrote {path}" for path in paths), marked], as_json)
