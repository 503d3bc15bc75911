"""A progress bar for a person who watches; nothing for a file or a pipe."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from residua.methods.draft import Progress


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A callback that draws on standard error where that is a terminal, otherwise None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    parts = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def draw(words: str, fraction: float) -> None:
            bar.update(task, description=words, completed=fraction)

        yield draw
