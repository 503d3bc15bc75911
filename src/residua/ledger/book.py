"""The book of a ledger: its events in order, each hashed with all before it, and the file that holds them.

One rule reads and writes: `Book.add` takes the events of a file in turn, and a new one before it is written.
Amounts are exact fractions of the ledger's currency, whose sum may not exceed the total (L-001):

    definition of the budget          currency        total
    zcdp                              rho             rho
    pure_dp                           pure epsilon    epsilon
    privacy_cost, gdp, approx_dp      privacy cost    the Gaussian cost that the budget allows

The file is one SQLite database with one table of events, in which nothing is ever changed. A rollback
journal, not a write-ahead log, so that a committed debit is in the one file that people copy.
`synchronous=EXTRA`, so that the debit is on disk, and the journal that could undo it is gone from there,
before COMMIT returns (L-010). Every question opens the file anew: nothing is stale or crosses a fork.
"""

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from residua.errors import BudgetError, BudgetExceeded, LedgerError
from residua.privacy import Budget, Privacy, Unit, budget_from_manifest
from residua.privacy.conversions import text_above

_CURRENCIES: dict[str, Literal["rho", "pure_epsilon", "cost"]] = {
    "zcdp": "rho",
    "pure_dp": "pure_epsilon",
    "privacy_cost": "cost",
    "gdp": "cost",
    "approx_dp": "cost",
}
_WORDS = {"rho": "rho", "pure_epsilon": "epsilon", "cost": "privacy cost"}
FORMAT_VERSION = 1
_APPLICATION = int.from_bytes(b"RSDL")
_TABLE = "CREATE TABLE event (number INTEGER PRIMARY KEY, text TEXT NOT NULL, hash TEXT NOT NULL)"
_PATIENCE = 60.0  # seconds that one process waits for another
_SETTINGS = ("PRAGMA synchronous=EXTRA", "PRAGMA fullfsync=ON")  # the second matters on macOS only

_REASONS = {
    sqlite3.SQLITE_BUSY: "is kept locked by another process; try again when that has ended",
    sqlite3.SQLITE_READONLY: "is read-only, so nothing was spent; make the file and its folder writable",
    sqlite3.SQLITE_FULL: "cannot grow because the disk is full, so nothing was spent; free some space",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder exists and that both are writable",
    sqlite3.SQLITE_NOTADB: "is not a ledger, or is damaged from its first byte on",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore no copy older than the last release",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One debit: what a release may use, from the moment before its noise was drawn.

    `amount` is in the ledger's currency, `time` is UTC in ISO form. `hash` covers this entry and all before
    it: kept beside a release, it shows later whether the ledger still holds them. `release_hash` is None
    until the release was noted; an entry stays spent either way.
    """

    id: int
    time: str
    plan_hash: str
    privacy: Privacy
    amount: Fraction
    note: str
    hash: str
    release_hash: str | None = None

    @property
    def state(self) -> Literal["spent", "released"]:
        """Whether the release that this entry paid for was noted."""
        return "spent" if self.release_hash is None else "released"


class Book:
    """The events of one ledger so far; grows by `add`, which refuses whatever may not follow."""

    def __init__(self, path: Path, text: str) -> None:
        match json.loads(text):
            case {
                "kind": "created",
                "time": str(created),
                "dataset": str(dataset),
                "budget": dict(budget),
                "unit": dict(unit),
            }:
                self.path = path
                self.created = created
                self.dataset = dataset
                self.budget = budget_from_manifest(budget)
                self.unit = Unit.from_manifest(unit)
            case _:
                raise LedgerError(f"the ledger {path} does not begin as a ledger does")
        self.total = _total(self.budget)
        self.spent = Fraction(0)
        self.entries: dict[int, Entry] = {}
        self.length = 1
        self.hash = chained("", text)

    @property
    def left(self) -> Fraction:
        """What may still be spent, in the ledger's currency."""
        return self.total - self.spent

    @property
    def currency(self) -> str:
        """What the ledger counts, in words."""
        return _WORDS[_CURRENCIES[self.budget.definition]]

    def charge(self, privacy: Privacy) -> Fraction:
        """What a release would cost in the ledger's currency, if it may be spent (L-005, L-006).

        A BudgetError where no such cost is proved, BudgetExceeded where it is more than is left.
        """
        if privacy.unit != self.unit:
            raise BudgetError(
                f"the release protects against {privacy.unit.describe()}, but the ledger {self.path} counts "
                f"{self.unit.describe()}; plan with unit={self.unit!r}, or keep a ledger for the other unit"
            )
        amount: Fraction | None = getattr(privacy, _CURRENCIES[self.budget.definition])
        if amount is None:
            raise BudgetError(
                f"the ledger {self.path} keeps {self.budget!r} and counts {self.currency}, which {privacy!r} "
                "does not prove; use other noise, or keep a ledger of zcdp(rho), which counts any"
            )
        if amount > self.left:
            raise BudgetExceeded(
                f"the release asks for {self.currency} {text_above(amount)}, but the ledger {self.path} has "
                f"only {text_below(self.left)} left; plan for that much, or do not release"
            )
        return amount

    def add(self, text: str) -> Entry:
        """The entry that an event makes or changes; an event that may not follow is refused.

        The refusal is a BudgetError or BudgetExceeded (see `charge`), a LedgerError, or a ValueError where
        the event is not even well-formed; it leaves the book as it was.
        """
        number, hash, spent = self.length + 1, chained(self.hash, text), self.spent
        match json.loads(text):
            case {
                "kind": "spent",
                "time": str(time),
                "plan_hash": str(plan_hash),
                "privacy": dict(record),
                "note": str(note),
            }:
                privacy = Privacy.from_manifest(record)
                entry = Entry(number, time, plan_hash, privacy, self.charge(privacy), note, hash)
                spent += entry.amount
            case {
                "kind": "released",
                "entry": int(id),
                "entry_hash": str(paid),
                "release_hash": str(release),
            }:
                known = self.entries.get(id)
                if known is None or known.hash != paid or known.release_hash is not None:
                    raise LedgerError(
                        f"the ledger {self.path} has no entry {id} of this hash that waits for its release"
                    )
                entry = replace(known, release_hash=release)
            case _:
                raise LedgerError(f"the ledger {self.path} cannot hold the event {text}")
        self.entries[entry.id] = entry
        self.spent, self.length, self.hash = spent, number, hash
        return entry


def read_book(path: Path, rows: Iterable[tuple[Any, Any, Any]]) -> Book:
    """The book that rows of (number, text, hash) tell, checked against the chain and the rules (L-013)."""
    book: Book | None = None
    for place, (number, text, hash) in enumerate(rows, start=1):
        expected = chained(book.hash if book else "", text)
        if (number, hash) != (place, expected):
            raise LedgerError(f"the ledger {path} was edited: its event {place} does not match its hash")
        try:
            if book is None:
                book = Book(path, text)
            else:
                book.add(text)
        except (ValueError, RecursionError, BudgetExceeded) as error:  # BudgetError is a ValueError
            raise LedgerError(
                f"the ledger {path} was edited: its event {place} cannot be ({error})"
            ) from error
    if book is None:
        raise LedgerError(f"the ledger {path} was edited: it has lost all its events")
    return book


def chained(previous: str, text: str) -> str:
    """The hash of an event and, through the hash before it, of all earlier events."""
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def text_below(number: Fraction) -> str:
    """A decimal of six significant digits, rounded down: what is left is never overstated."""
    return text_above(-number).removeprefix("-")


def _total(budget: Budget) -> Fraction:
    """The most that may be spent under a budget, in its currency; exact, or rounded down (P-040)."""
    currency = _CURRENCIES[budget.definition]
    if currency == "pure_epsilon":
        return budget.laplace_epsilon()
    return budget.gaussian_cost() / (2 if currency == "rho" else 1)


def create(path: Path, event: Mapping[str, object]) -> None:
    """Write a new ledger with its first event: it is whole and on disk, or it is not there (L-014)."""
    for occupied in (path, Path(f"{path}-journal"), Path(f"{path}-wal")):
        if os.path.lexists(occupied):
            raise LedgerError(
                f"{occupied} exists, and a ledger is never replaced; "
                "go on with it as it is, or choose another name"
            )
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    text = _text(event)
    book = Book(path, text)
    try:
        with _connection(scratch, "rwc", path) as connection:
            connection.execute("BEGIN")
            connection.execute(f"PRAGMA application_id={_APPLICATION}")
            connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            connection.execute(_TABLE)
            _insert(connection, book, text)
            connection.execute("COMMIT")
        os.link(scratch, path)  # unlike a renaming, never replaces a file that came in between
        _sync_folder(path.parent)
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be created: {error}") from error
    finally:
        scratch.unlink(missing_ok=True)


def read(path: Path) -> Book:
    """The book of a ledger as it is now, every event checked."""
    with _transaction(path, "DEFERRED") as connection:
        return _load(connection, path)


def append(path: Path, event: Mapping[str, object]) -> Entry:
    """The entry that one more event makes or changes; it is on disk when this returns (L-010, L-011)."""
    with _transaction(path, "IMMEDIATE") as connection:
        book = _load(connection, path)
        text = _text(event)
        entry = book.add(text)
        _insert(connection, book, text)
    return entry


def _load(connection: sqlite3.Connection, path: Path) -> Book:
    """The book that a database holds; refused unless it is a whole ledger and nothing else."""
    if _value(connection, "PRAGMA application_id") != _APPLICATION:
        raise LedgerError(f"{path} is not a ledger: it is empty or another program's database")
    version = _value(connection, "PRAGMA user_version")
    if version != FORMAT_VERSION:
        raise LedgerError(
            f"the ledger {path} has format version {version}; this Residua reads version {FORMAT_VERSION}. "
            "Use the version that wrote it, or a later one"
        )
    if connection.execute("SELECT sql FROM sqlite_master").fetchall() != [(_TABLE,)]:
        raise LedgerError(f"the ledger {path} was edited: its tables are not those of a ledger")
    damage = _value(connection, "PRAGMA quick_check(1)")
    if damage != "ok":
        raise LedgerError(f"the ledger {path} {_REASONS[sqlite3.SQLITE_CORRUPT]} ({damage})")
    return read_book(path, connection.execute("SELECT number, text, hash FROM event ORDER BY number"))


def _insert(connection: sqlite3.Connection, book: Book, text: str) -> None:
    """Insert the event that a book was made of, or that was added to it last."""
    connection.execute("INSERT INTO event VALUES (?, ?, ?)", (book.length, text, book.hash))


def _text(event: Mapping[str, object]) -> str:
    """An event as it is stored and hashed, with the time and random digits: no two are the same."""
    return json.dumps({**event, "time": _now(), "nonce": secrets.token_hex(8)}, allow_nan=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _value(connection: sqlite3.Connection, query: str) -> object:
    """The one value that a query returns."""
    [value] = connection.execute(query).fetchone()
    return value


@contextmanager
def _transaction(path: Path, kind: str) -> Iterator[sqlite3.Connection]:
    """A transaction that is committed at the end of the block; an error inside it rolls back."""
    if not path.is_file():
        raise LedgerError(f"there is no ledger {path}; make it with Ledger.create(path, budget, dataset=...)")
    with _connection(path, "rw", path) as connection:
        connection.execute(f"BEGIN {kind}")
        yield connection
        connection.execute("COMMIT")


@contextmanager
def _connection(file: Path, mode: str, path: Path) -> Iterator[sqlite3.Connection]:
    """A connection with durable settings, closed (and so rolled back) at the end; errors speak of `path`."""
    address = f"{file.as_uri()}?mode={mode}"  # rw: a missing file is never created silently
    try:
        opened = sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)
        with closing(opened) as connection:
            for setting in _SETTINGS:
                connection.execute(setting)
            journal = _value(connection, "PRAGMA journal_mode")
            if journal != "delete":
                raise LedgerError(
                    f"the ledger {path} was set to journal mode {journal!r} by another program; "
                    "set it back with PRAGMA journal_mode=DELETE"
                )
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # Only text that cannot be decoded, be it of an event or of SQLite's message, comes without a code.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        reason = _REASONS.get(code, "could not be read or written")
        raise LedgerError(f"the ledger {path} {reason} ({error})") from error


def _sync_folder(folder: Path) -> None:
    """Put a folder's list of names on disk, where folders can be opened; elsewhere the system does it."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
