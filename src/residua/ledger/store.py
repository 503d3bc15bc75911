"""Where a ledger is kept, and how its book is read from there and gets one more event.

A store keeps the events: one table, in which nothing is ever changed (`sqlite`, `postgres`). Every question
opens it anew and hashes all of it: nothing is stale or crosses a fork.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

from residua.errors import BudgetExceeded, LedgerError
from residua.ledger.book import Book, Entry, chained

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


def create(store: Store, event: Mapping[str, object]) -> None:
    """Make a new ledger with its first event."""
    text = _text(event)
    store.create((1, text, Book(store.name, text).hash))


def read(store: Store) -> Book:
    """The book of a ledger as it is now, every event checked."""
    with store.transaction(write=False) as rows:
        return read_book(store.name, rows.every())


def append(store: Store, event: Mapping[str, object]) -> Entry:
    """The entry that one more event makes or changes; it is durable when this returns (L-010, L-011).

    An instalment that was begun before by the same stream is not paid for again (L-021).
    """
    with store.transaction(write=True) as rows:
        book = read_book(store.name, rows.every())
        begun = book.begun(event)
        if begun is not None:
            return begun
        text = _text(book.stated(event))
        entry = book.add(text)
        rows.add((book.length, text, book.hash))
    return entry


def read_book(name: str, rows: Iterable[Row]) -> Book:
    """The book that rows of (number, text, hash) tell, checked against the chain and the rules (L-013).

    A hash tells all events up to its own, so those that this process has read before are hashed again, but
    not worked through again.
    """
    texts, hashes = [], [""]
    for place, (number, text, hash) in enumerate(rows, start=1):
        hashes.append(chained(hashes[-1], text))
        if (number, hash) != (place, hashes[-1]):
            raise LedgerError(f"the ledger {name} was edited: its event {place} does not match its hash")
        texts.append(text)
    if not texts:
        raise LedgerError(f"the ledger {name} was edited: it has lost all its events")
    known = _known(name)
    book = known[0].copy() if known and known[0].hash in hashes else None
    for place in range(book.length if book else 0, len(texts)):
        try:
            if book is None:
                book = Book(name, texts[place])
            else:
                book.add(texts[place])
        except (ValueError, RecursionError, BudgetExceeded) as error:  # BudgetError is a ValueError
            raise LedgerError(
                f"the ledger {name} was edited: its event {place + 1} cannot be ({error})"
            ) from error
    assert book is not None
    known[:] = [book.copy()]
    return book


@lru_cache(maxsize=8)
def _known(name: str) -> list[Book]:
    """The book of a ledger as this process read it last, if it did."""
    return []


def _text(event: Mapping[str, object]) -> str:
    """An event as it is stored and hashed, with the time and random digits: no two are the same."""
    return json.dumps({**event, "time": _now(), "nonce": secrets.token_hex(8)}, allow_nan=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
