"""A ledger for several machines: one table of a PostgreSQL database. Needs the extra `postgres`.

A debit locks the table against other writers, and is on the server's disk when COMMIT returns: a server that
does not sync is refused. Where the connection is lost before COMMIT was confirmed, the debit may or may not
stand; nothing is released then, so at worst budget is wasted (L-016).
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from residua.errors import LedgerError
from residua.ledger.store import FORMAT_VERSION, Row

if TYPE_CHECKING:
    import psycopg

PREFIXES = ("postgresql://", "postgres://")
_MARK = f"residua ledger {FORMAT_VERSION}"
_PATIENCE = 60  # seconds that one process waits for another, or for the server
_COLUMNS = [("number", "bigint"), ("text", "text"), ("hash", "text")]
# An ordinary, logged table without triggers, rules, policies or children, and our mark on it.
_FOUND = """SELECT relkind = 'r' AND relpersistence = 'p' AND NOT (relhastriggers OR relhasrules OR
    relrowsecurity OR relhassubclass), obj_description(oid, 'pg_class') FROM pg_class
    WHERE oid = to_regclass(%s)"""
_NAMES = """SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""


@dataclass(frozen=True, slots=True)
class Server:
    """The store of a ledger in a database, by its address; `#name` at its end chooses among several."""

    address: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9_]{0,40}", urlsplit(self.address).fragment):
            raise LedgerError(
                f"the ledger {self.name}: after # stands a name of small letters, digits and underscores"
            )

    @property
    def name(self) -> str:
        """The address without its password."""
        hidden = re.sub(r"(?<=//)([^/@:]*):[^/@]*@", r"\1@", self.address)
        return re.sub(r"(?<=password=)[^&#]*", "...", hidden)

    @property
    def table(self) -> str:
        """The table of events."""
        return f"residua_{urlsplit(self.address).fragment or 'ledger'}"

    def create(self, row: Row) -> None:
        """Make the table with its first event, in one transaction: whole, or not there (L-014)."""
        import psycopg

        with self._connection() as connection:
            try:
                connection.execute(
                    f"CREATE TABLE {self.table} "
                    "(number bigint PRIMARY KEY, text text NOT NULL, hash text NOT NULL)"
                )
            except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation) as error:
                raise LedgerError(
                    f"the ledger {self.name} exists, and a ledger is never replaced; go on with it as it is, "
                    "or choose another name after #"
                ) from error
            connection.execute(f"COMMENT ON TABLE {self.table} IS '{_MARK}'")
            _Events(connection, self).add(row)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator["_Events"]:
        """A transaction that is committed at the end of the block; an error inside it rolls back."""
        with self._connection() as connection:
            events = _Events(connection, self)
            events.check()
            if write:  # before the book is read, and until COMMIT: nobody comes between (L-011)
                connection.execute(f"LOCK TABLE {self.table} IN EXCLUSIVE MODE")
            yield events

    @contextmanager
    def _connection(self) -> Iterator["psycopg.Connection"]:
        """A connection of its own, committed at the end or rolled back; errors speak of the ledger."""
        try:
            import psycopg
        except ImportError as error:
            raise LedgerError(
                f"the ledger {self.name} needs psycopg; install it with: pip install 'residua[postgres]'"
            ) from error
        try:
            address, _, _ = self.address.partition("#")
            opened = psycopg.connect(address, connect_timeout=_PATIENCE)
            with closing(opened), opened as connection:  # the inner one commits or rolls back
                self._require_durable(connection)
                connection.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}s'")
                yield connection
        except psycopg.errors.LockNotAvailable as error:
            raise LedgerError(
                f"the ledger {self.name} is kept locked by another process; try again when that has ended"
            ) from error
        except psycopg.Error as error:
            raise LedgerError(
                f"the ledger {self.name} could not be read or written ({_first_line(error)}); nothing was "
                "released, and what was being spent counts as spent if the ledger shows it"
            ) from error

    def _require_durable(self, connection: "psycopg.Connection") -> None:
        """LedgerError for a server that confirms what is not on disk."""
        connection.execute("SET LOCAL synchronous_commit = on")
        for setting in ("fsync", "full_page_writes"):
            if connection.execute(f"SHOW {setting}").fetchone() != ("on",):
                raise LedgerError(
                    f"the ledger {self.name}: its server has {setting} off and may lose debits; set it on"
                )


@dataclass(frozen=True, slots=True)
class _Events:
    """The table of events inside a transaction."""

    connection: "psycopg.Connection"
    store: Server

    def check(self) -> None:
        """LedgerError unless the table is that of a ledger, and nothing stands between it and us (L-013)."""
        name, table = self.store.name, self.store.table
        found = self.connection.execute(_FOUND, (table,)).fetchone()
        if found is None:
            raise LedgerError(
                f"there is no ledger {name}; make it with Ledger.create(address, budget, dataset=...)"
            )
        plain, mark = found
        if not str(mark).startswith("residua ledger "):
            raise LedgerError(f"the ledger {name} is another program's table")
        if mark != _MARK:
            raise LedgerError(
                f"the ledger {name} has another format, {mark!r}; use the version that wrote it"
            )
        if not plain or self.connection.execute(_NAMES, (table,)).fetchall() != _COLUMNS:
            raise LedgerError(f"the ledger {name} was edited: its table is not that of a ledger")

    def every(self) -> Iterable[Row]:
        """All events in order."""
        found: Iterable[Row] = self.connection.execute(
            f"SELECT number, text, hash FROM {self.store.table} ORDER BY number"
        )
        return found

    def add(self, row: Row) -> None:
        """Insert one event."""
        self.connection.execute(f"INSERT INTO {self.store.table} VALUES (%s, %s, %s)", row)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no reason given"])[0]
