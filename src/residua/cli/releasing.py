"""`residua release`: spend the privacy, measure once, write what was measured and the tables."""

from pathlib import Path
from typing import Annotated, Any

import typer

from residua._files import ByteCount, whole_file
from residua._measure import measured_into, note_release
from residua._text import columns, counted
from residua.cli import options
from residua.cli.budgets import REMEDY, open_ledger
from residua.cli.output import check_table_file, progress_bar, refuse_to_replace, tell, write_answers
from residua.engines import DuckDB, Reading, find_files
from residua.errors import DataError, LedgerError
from residua.ledger import Ledger
from residua.plans import Plan
from residua.release import Release, rehearsal
from residua.release.printing import SIMULATED
from residua.spec import Spec, load_spec
from residua.strategy.parts import parts_of

ROOM_FOR_FIGURES = 3 * 24  # bytes: value, lower and upper are no longer than this in any form


def release(
    spec: options.SpecFile,
    data: options.Data = None,
    ledger: options.Payer = None,
    plan: Annotated[Path | None, typer.Option(help="Measure this saved plan of the spec.")] = None,
    simulate: Annotated[
        int | None, typer.Option(metavar="SEED", help="Simulated noise: spends and protects nothing.")
    ] = None,
    note: options.Note = "",
    period: Annotated[
        str | None, typer.Option(help="The period of the data: 2026-01, 2026-Q1, 2026, 2026-01/2026-06.")
    ] = None,
    memory_limit: options.MemoryLimit = None,
    formulas: options.Formulas = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Spend privacy, measure the data once, write the tables.

    \b
    Examples:
      residua release people.yaml --data people.csv --ledger budget.db
      residua release people.yaml --simulate 1      (a rehearsal that spends nothing)
    """
    asked = load_spec(spec)
    records, engine = data_of(asked, data, memory_limit)
    payer = None if simulate is not None else payer_of(asked, ledger)
    kept = plan or (asked.plan_file if asked.plan_file is not None and asked.plan_file.exists() else None)
    new_plan = asked.plan_file if kept is None else None
    check_table_file(asked.answers_file)
    targets = [asked.release_file, asked.answers_file, *([] if new_plan is None else [new_plan])]
    refuse_to_replace(targets, force, _inputs(asked, records, payer, kept))
    with progress_bar() as progress:
        chosen = asked.plan(progress) if kept is None else saved_plan(asked, kept)
        if new_plan is not None:
            chosen.save(new_plan)
        # The release gets its name before the answers are written: it stays whatever becomes of them.
        with whole_file(asked.answers_file, _room(asked, chosen, note)) as answers:
            made = measured_into(
                asked.release_file,
                chosen,
                records,
                ledger=payer,
                noise=noise_of(simulate),
                note=note,
                period=period,
                progress=progress,
                engine=engine,
            )
            own: Any = {"formulas": formulas, "stream": answers, "level": asked.level}
            write_answers(made, asked.answers_file, chosen.workload, **own)
        note_release(payer, made)
    tell(_document(asked, made, payer), _screen(asked, made, payer), as_json)


def _inputs(asked: Spec, records: Path, payer: Ledger | None, kept: Path | None) -> list[Path]:
    """The files that are read, which no output may replace."""
    others = [None if payer is None else payer.path, kept, *find_files(records, asked.reading.get("table"))]
    return [asked.path, *(path for path in others if isinstance(path, Path))]


def _room(asked: Spec, plan: Plan, note: str) -> int:
    """Bytes that the file of answers may take, found by writing it once, to nowhere.

    So memory that is lacking for it is found out too, before anything is spent. Those of a release in parts
    are written with memory for one part, and can be written again.
    """
    if parts_of(plan.strategy) is not None:
        return 0
    trial, answers = rehearsal(plan, note), ByteCount()
    write_answers(trial, asked.answers_file, plan.workload, formulas=False, stream=answers, level=asked.level)
    return answers.size + ROOM_FOR_FIGURES * plan.workload.count


def saved_plan(asked: Spec, path: Path) -> Plan:
    """The plan in a file, refused unless it is a plan of this spec."""
    found = Plan.load(path)
    for what, same in (
        ("schema", found.schema == asked.schema),
        ("tables", asked.asks_what(found.workload)),
        ("budget", asked.budget in (None, found.budget)),
        ("set of targets", asked.asks_targets(found)),
        ("objective", asked.targets is not None or found.objective == asked.objective),
        ("unit of privacy", found.unit == asked.unit),
    ):
        if not same:
            raise DataError(
                f"{path} is a plan for another {what} than {asked.path} has; "
                f"make it anew with 'residua plan {asked.path} -o {path} --force'"
            )
    return found


def data_of(asked: Spec, given: Path | None, memory_limit: str | None) -> tuple[Path, DuckDB]:
    """The file of records, or the pattern of several, and what counts them; refused unless they are there."""
    records, reading = given or asked.data, Reading(**asked.reading)
    if records is None:
        raise DataError(
            f"{asked.path} names no data; add 'data: people.csv' to it, or give --data people.csv"
        )
    find_files(records, reading.table)
    return records, DuckDB(memory_limit=memory_limit, reading=reading)


def payer_of(asked: Spec, given: str | None) -> Ledger:
    """The ledger that pays for a release."""
    path = given or asked.ledger
    if path is None:
        raise LedgerError(
            f"{asked.path} names no ledger; add 'ledger: budget.db' to it or give --ledger budget.db "
            f"({REMEDY.format(path='budget.db')}), or rehearse with --simulate 1"
        )
    return open_ledger(path)


def noise_of(seed: int | None) -> Any:
    from residua import simulated

    return None if seed is None else simulated(seed=seed)


def _screen(asked: Spec, made: Release, payer: Ledger | None) -> list[str]:
    plan = made.plan
    tables = counted(plan.workload.tables, "table", "tables")
    numbers = counted(plan.workload.count, "number", "numbers")
    lines = [f"Measured {tables} with {numbers} once."]
    if made.simulated:
        lines = [SIMULATED, *lines]
    files = [
        ("release", str(asked.release_file), "answers any query that the measurements support"),
        ("answers", str(asked.answers_file), f"value, stddev, and {100 * asked.level:.4g}% intervals"),
    ]
    files += [] if asked.plan_file is None else [("plan", str(asked.plan_file), "what was measured")]
    lines += columns(files[0], files[1:], left=(0, 1, 2))
    lines += [] if payer is None else ["", *payer.describe().splitlines()]
    return [*lines, "", f"Next: residua answer {asked.release_file}"]


def _document(asked: Spec, made: Release, payer: Ledger | None) -> dict[str, Any]:
    spent = ("path", "currency", "total", "spent", "remaining")
    return {
        "release": asked.release_file,
        "answers": asked.answers_file,
        "plan": asked.plan_file,
        "hash": made.hash,
        "audit": dict(made.audit),
        "ledger": None if payer is None else {name: getattr(payer, name) for name in spent},
    }
