"""Where a ledger is kept: a table of events, in which nothing is ever changed (`sqlite`, `postgres`)."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

FORMAT_VERSION = 1

Row = tuple[Any, Any, Any]
"""An event as it is stored: its number, its text, and its hash."""


class Rows(Protocol):
    """The table of events inside a transaction."""

    def every(self) -> Iterable[Row]:
        """All events in order; LedgerError where they are not those of a ledger."""

    def add(self, row: Row) -> None:
        """Add one event at the end."""


class Store(Protocol):
    """Where a ledger is kept: durable when a transaction ends, and one writer at a time (L-010, L-011)."""

    @property
    def name(self) -> str:
        """How errors call it."""

    def create(self, row: Row) -> None:
        """Make the store with its first event: whole, or not there, and never in place of another (L-014)."""

    def transaction(self, *, write: bool) -> AbstractContextManager[Rows]:
        """A transaction that is committed at the end of the block; an error inside it undoes it."""
