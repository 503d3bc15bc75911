"""`residua stream`: publish tables over periods as they come, by one spec."""

import re
from pathlib import Path
from typing import Annotated

import typer

from residua._measure import note_release
from residua._text import counted
from residua.cli import options
from residua.cli.budgets import open_ledger
from residua.cli.output import check_table_file, progress_bar, refuse_to_replace, tell, write_answers
from residua.cli.releasing import data_of, noise_of, payer_of
from residua.errors import FileFormatError, WorkloadError
from residua.release import Release
from residua.release.printing import SIMULATED
from residua.spec import Spec, load_spec
from residua.stream import Stream

SPEC = "The release spec, a YAML file with 'over:', the attribute of periods."
SpecFile = Annotated[Path, typer.Argument(help=SPEC)]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Publish tables over periods as they come: one plan, measured in instalments.

\b
Examples:
  residua stream create births.yaml --ledger budget.db
  residua stream measure births.yaml 2026-01 --data january.csv
  residua stream release births.yaml
  residua stream show births.yaml""",
)


@app.command()
def create(
    spec: SpecFile,
    ledger: options.Payer = None,
    simulate: Annotated[
        bool, typer.Option(help="Simulated noise only: spends and protects nothing.")
    ] = False,
    again: Annotated[
        bool, typer.Option(help="Keep no exact counts: every instalment is given all data so far.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Plan all periods and begin the stream; nothing is spent yet.

    \b
    Example:
      residua stream create births.yaml --ledger budget.db
    """
    asked = _spec(spec)
    payer = None if simulate else payer_of(asked, ledger)
    if asked.stream_file.exists():
        raise FileFormatError(
            f"{asked.stream_file} exists, and a stream is never replaced; go on with it, or name another in "
            "the spec, as in 'output: {stream: births-2027.stream}'"
        )
    with progress_bar() as progress:
        plan = asked.plan(progress)
    stream = Stream.create(asked.stream_file, plan, over=str(asked.over), ledger=payer, keep=not again)
    _show(asked, stream, as_json)


@app.command()
def measure(
    spec: SpecFile,
    period: Annotated[str, typer.Argument(help="The period, the next one; 'residua stream show' names it.")],
    data: options.Data = None,
    simulate: Annotated[
        int | None, typer.Option(metavar="SEED", help="The seed, for a stream that is simulated.")
    ] = None,
    note: options.Note = "",
    memory_limit: options.MemoryLimit = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure one period. Records of other periods in the data, late ones too, do not count.

    Cut off at any moment, it can be given again: nothing is measured or paid for twice.

    \b
    Example:
      residua stream measure births.yaml 2026-01 --data january.csv
    """
    asked = _spec(spec)
    records, engine = data_of(asked, data, memory_limit)
    stream = Stream.open(asked.stream_file)
    with progress_bar() as progress:
        stream.measure(period, records, noise=noise_of(simulate), note=note, progress=progress, engine=engine)
    _show(asked, stream, as_json)


@app.command()
def release(
    spec: SpecFile,
    through: Annotated[str | None, typer.Option(help="The last period to publish; all so far.")] = None,
    formulas: options.Formulas = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write all periods so far: a release, and its answers as a table, with the last period in their names.

    \b
    Example:
      residua stream release births.yaml
    """
    asked = _spec(spec)
    stream = Stream.open(asked.stream_file)
    made = stream.release(through)
    last = stream.periods[int(made.audit["stream"]["instalments"]) - 1]
    files = [_named(path, last) for path in (asked.release_file, asked.answers_file)]
    check_table_file(files[1])
    refuse_to_replace(files, force, [asked.path, asked.stream_file])
    made.save(files[0])
    write_answers(made, files[1], made.plan.workload, formulas=formulas, level=asked.level)
    _note(made, stream)
    numbers = counted(made.plan.workload.count, "number", "numbers")
    lines = [f"{numbers} about {made.audit['period']}, as a release {files[0]} and a table {files[1]}."]
    lines = [*[SIMULATED] * made.simulated, *lines, "", f"Next: residua answer {files[0]}"]
    document = {"release": files[0], "answers": files[1], "hash": made.hash, "audit": dict(made.audit)}
    tell(document, lines, as_json)


@app.command("show")
def show_stream(spec: SpecFile, as_json: options.AsJson = False) -> None:
    """Show which periods were measured, and which one is next."""
    asked = _spec(spec)
    _show(asked, Stream.open(asked.stream_file), as_json)


@app.command()
def close(spec: SpecFile, as_json: options.AsJson = False) -> None:
    """End a stream early: its exact counts are deleted, and nothing more is measured."""
    asked = _spec(spec)
    stream = Stream.open(asked.stream_file)
    stream.close()
    _show(asked, stream, as_json)


def _spec(path: Path) -> Spec:
    """The spec of a publication that continues."""
    asked = load_spec(path)
    if asked.over is None:
        raise WorkloadError(f"{path} names no periods; add 'over: month', the attribute of periods, to it")
    return asked


def _named(path: Path, period: str) -> Path:
    """The file of one period beside those of others."""
    plain = re.sub(r"[^\w.-]", "_", period)
    return path.with_name(f"{path.stem}-{plain}{path.suffix}")


def _note(made: Release, stream: Stream) -> None:
    """Note the release in the ledger; one that was noted before for the same period stays."""
    if stream.ledger:
        payer, number = open_ledger(stream.ledger), made.audit["ledger"]["entry"]
        waiting = {str(entry.id) for entry in payer.entries() if entry.release_hash is None}
        if number in waiting:
            note_release(payer, made)


def _show(asked: Spec, stream: Stream, as_json: bool) -> None:
    done, every = stream.measured, stream.periods
    facts = {"path": stream.path, "over": stream.over, "ledger": stream.ledger or None, "periods": every}
    lines = [f"Stream {asked.stream_file} over {stream.over}: {len(done)} of {len(every)} periods measured."]
    if done:
        lines.append(f"Measured: {done[0]} to {done[-1]}." if len(done) > 1 else f"Measured: {done[0]}.")
    following = f"Next: residua stream measure {asked.path} {stream.next}"
    lines.append("Finished." if stream.next is None else following)
    lines = lines if stream.ledger else [SIMULATED, *lines]
    tell({**facts, "measured": done, "next": stream.next, "plan": stream.plan.hash}, lines, as_json)
