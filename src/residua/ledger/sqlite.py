"""A ledger in a file: one SQLite database with one table of events.

A rollback journal, not a write-ahead log, so that a committed debit is in the one file that people copy.
`synchronous=EXTRA`, so that the debit is on disk, and the journal that could undo it is gone from there,
before COMMIT returns (L-010).
"""

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from residua.errors import LedgerError
from residua.ledger.store import FORMAT_VERSION, Row

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
class File:
    """The store of a ledger in a file."""

    path: Path

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def create(self, row: Row) -> None:
        """Write a new file with its first event: it is whole and on disk, or it is not there (L-014)."""
        path = self.path
        for occupied in (path, Path(f"{path}-journal"), Path(f"{path}-wal")):
            if os.path.lexists(occupied):
                raise LedgerError(
                    f"{occupied} exists, and a ledger is never replaced; "
                    "go on with it as it is, or choose another name"
                )
        scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        try:
            with _connection(scratch, "rwc", path) as connection:
                connection.execute("BEGIN")
                connection.execute(f"PRAGMA application_id={_APPLICATION}")
                connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
                connection.execute(_TABLE)
                _Events(connection, path).add(row)
                connection.execute("COMMIT")
            os.link(scratch, path)  # unlike a renaming, never replaces a file that came in between
            _sync_folder(path.parent)
        except OSError as error:
            raise LedgerError(f"the ledger {path} cannot be created: {error}") from error
        finally:
            scratch.unlink(missing_ok=True)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator["_Events"]:
        """A transaction that is committed at the end of the block; an error inside it rolls back."""
        if not self.path.is_file():
            raise LedgerError(
                f"there is no ledger {self.path}; make it with Ledger.create(path, budget, dataset=...)"
            )
        with _connection(self.path, "rw", self.path) as connection:
            connection.execute(f"BEGIN {'IMMEDIATE' if write else 'DEFERRED'}")
            yield _Events(connection, self.path)
            connection.execute("COMMIT")


@dataclass(frozen=True, slots=True)
class _Events:
    """The table of events inside a transaction."""

    connection: sqlite3.Connection
    path: Path

    def every(self) -> Iterable[Row]:
        """All events; refused unless the database is a whole ledger and nothing else (L-013)."""
        path, connection = self.path, self.connection
        if _value(connection, "PRAGMA application_id") != _APPLICATION:
            raise LedgerError(f"{path} is not a ledger: it is empty or another program's database")
        version = _value(connection, "PRAGMA user_version")
        if version != FORMAT_VERSION:
            raise LedgerError(
                f"the ledger {path} has format version {version}; this Residua reads version "
                f"{FORMAT_VERSION}. Use the version that wrote it, or a later one"
            )
        if connection.execute("SELECT sql FROM sqlite_master").fetchall() != [(_TABLE,)]:
            raise LedgerError(f"the ledger {path} was edited: its tables are not those of a ledger")
        damage = _value(connection, "PRAGMA quick_check(1)")
        if damage != "ok":
            raise LedgerError(f"the ledger {path} {_REASONS[sqlite3.SQLITE_CORRUPT]} ({damage})")
        return connection.execute("SELECT number, text, hash FROM event ORDER BY number")

    def add(self, row: Row) -> None:
        """Insert one event."""
        self.connection.execute("INSERT INTO event VALUES (?, ?, ?)", row)


def _value(connection: sqlite3.Connection, query: str) -> object:
    """The one value that a query returns."""
    [value] = connection.execute(query).fetchone()
    return value


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
