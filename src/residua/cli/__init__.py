"""The command line: parsing and wiring only; `residua --help` lists the commands."""

from residua.cli.app import app, main

__all__ = ["app", "main"]
