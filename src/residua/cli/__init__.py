"""The command line: parsing and wiring only; `residua --help` lists the commands."""

import sys

try:
    from residua.cli.app import app, main
except KeyboardInterrupt:  # loading the commands takes a moment
    print("stopped", file=sys.stderr)
    sys.exit(130)

__all__ = ["app", "main"]
