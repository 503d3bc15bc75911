"""The commands under one name, and what becomes of errors: one line, and an exit code.

Exit codes: 0 all went well; 1 something in the files or the budget is not as it must be; 2 the command was
not written as it must be; 130 it was stopped by Ctrl-C.
"""

import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from residua._text import visible
from residua.cli import budgets, drafting, evidence, planning, reading, releasing, streams
from residua.errors import ResiduaError
from residua.version import __version__


class OneLineErrors(TyperGroup):
    """A group of commands whose users never see a traceback for a mistake of their own."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ResiduaError as error:
            message = str(error)
        except BrokenPipeError:
            raise  # the reader of our output has left, which is no mistake
        except OSError as error:
            message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            raise typer.Exit(130) from None  # what shells say of a program that Ctrl-C ended
        except MemoryError:
            message = "there is not enough memory for this; ask for fewer or smaller tables"
        typer.echo("error: " + visible(" ".join(message.split())), err=True)
        raise typer.Exit(1)


app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""Publish tables about people with the least noise that privacy allows.

\b
From a file of records to tables with error bars:
  residua init people.csv -o people.yaml       draft a release spec; then edit it
  residua plan people.yaml                     see every error before any data is touched
  residua budget create budget.db --zcdp 1 --dataset people-2024
  residua release people.yaml                  spend the privacy, measure once, write the tables
  residua answer people.release --table age,sex

'residua studio' is a page for planning together.
'residua demo' does all of it on invented people.""",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"residua {__version__}")
        raise typer.Exit


@app.callback()
def residua(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass


app.command("init")(drafting.init)
app.command("plan")(planning.plan)
app.command("studio")(planning.studio)
app.command("release")(releasing.release)
app.command("answer")(reading.answer)
app.command("tables")(reading.tables)
app.command("synthetic")(reading.synthetic)
app.command("report")(reading.report)
app.command("verify")(evidence.verify_release)
app.command("audit")(evidence.audit_plans)
app.command("evidence")(evidence.write_evidence)
app.add_typer(budgets.app, name="budget")
app.add_typer(streams.app, name="stream")
app.command("demo")(reading.demo)


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal need not have every letter
    app()
