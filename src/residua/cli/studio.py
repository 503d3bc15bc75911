"""`residua studio`: plan in the browser, with others in the room."""

from pathlib import Path
from typing import Annotated

import typer


def studio(
    spec: Annotated[
        Path | None, typer.Argument(help="The release spec; written there if there is none yet.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; any free one by default.")
    ] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the address.")] = False,
) -> None:
    """Plan in the browser: tables, budget and errors on one page, written to one spec file.

    The page is served to this machine alone and needs no data. Without a spec it starts from a file of the
    folder: the header of a CSV or Parquet file, or a Table Schema. Releasing stays a command.

    \b
    Examples:
      residua studio people.yaml
      residua studio
    """
    from residua.studio.server import serve  # seldom needed, and not quick to load

    def say(address: str) -> None:
        typer.echo(f"The studio is at {address}")
        typer.echo("Whoever has this address can change the spec. Ctrl-C ends it.")

    serve(spec, port=port, opened=not no_open, say=say)
