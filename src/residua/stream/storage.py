"""The two files of a stream: what was measured, and apart from it the exact counts, which are secret.

Each is one SQLite database, changed in transactions that are on disk when they end. The instalments that the
first one holds decide what was measured; counts of any other are left over from an attempt that was cut off,
and are written anew (claim Y-003).
"""

import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from residua._arrays import Integers
from residua.errors import FileFormatError

VERSION = 1
_APPLICATION = int.from_bytes(b"RSDS")
_SETTINGS = ("PRAGMA synchronous=EXTRA", "PRAGMA fullfsync=ON", "PRAGMA secure_delete=ON")
_PATIENCE = 60.0  # seconds that one process waits for another
_TABLES = (
    "CREATE TABLE fact (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE part (instalment INTEGER, batch INTEGER, content BLOB, PRIMARY KEY (instalment, batch))",
)


@dataclass(frozen=True, slots=True)
class Store:
    """Facts by name, and for each instalment an array of whole numbers a batch."""

    path: Path

    def create(self, facts: Mapping[str, bytes], *, secret: bool = False) -> None:
        """Write a new file: it is whole and on disk, or it is not there; one that exists is not replaced."""
        scratch = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.part")
        mode = 0o600 if secret else 0o666  # the second is what the system's mask leaves of it
        try:
            os.close(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
            with _connection(scratch) as connection:
                connection.execute(f"PRAGMA application_id={_APPLICATION}")
                connection.execute(f"PRAGMA user_version={VERSION}")
                connection.execute("BEGIN")
                for table in _TABLES:
                    connection.execute(table)
                connection.executemany("INSERT INTO fact VALUES (?, ?)", facts.items())
                connection.execute("COMMIT")
            os.link(scratch, self.path)  # unlike a renaming, never replaces a file that came in between
        except FileExistsError as error:
            raise FileFormatError(f"{self.path} exists, and a stream is never replaced; open it") from error
        finally:
            scratch.unlink(missing_ok=True)

    def facts(self) -> dict[str, bytes]:
        """All facts by name."""
        with self.transaction() as connection:
            return dict(connection.execute("SELECT name, content FROM fact"))

    def parts(self, instalment: int, shapes: Sequence[tuple[int, int]]) -> list[Integers]:
        """The arrays of one instalment, of these shapes."""
        with self.transaction() as connection:
            rows = connection.execute(
                "SELECT content FROM part WHERE instalment = ? ORDER BY batch", (instalment,)
            ).fetchall()
        if [len(content) for (content,) in rows] != [8 * one * two for one, two in shapes]:
            raise FileFormatError(f"{self.path} does not hold instalment {instalment + 1} of this stream")
        pairs = zip(rows, shapes, strict=True)
        return [np.frombuffer(content, dtype="<i8").reshape(shape) for (content,), shape in pairs]

    def write(
        self,
        instalment: int | None = None,
        parts: Sequence[Integers] = (),
        *,
        facts: Mapping[str, bytes] | None = None,
    ) -> None:
        """Put down facts, and the arrays of one instalment, which must be new."""
        with self.transaction(write=True) as connection:
            rows = facts or {}
            connection.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?)", rows.items())
            blobs = ((instalment, batch, own.astype("<i8").tobytes()) for batch, own in enumerate(parts))
            connection.executemany("INSERT INTO part VALUES (?, ?, ?)", blobs)

    def forget(self, instalment: int) -> None:
        """Overwrite the arrays of all instalments but one."""
        with self.transaction(write=True) as connection:
            connection.execute("DELETE FROM part WHERE instalment <> ?", (instalment,))

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction that is committed at the end of the block; an error inside it rolls back."""
        if not self.path.is_file():
            raise FileFormatError(f"there is no file {self.path}")
        with _connection(self.path) as connection:
            connection.execute(f"BEGIN {'IMMEDIATE' if write else 'DEFERRED'}")
            for name, wanted in (("application_id", _APPLICATION), ("user_version", VERSION)):
                if connection.execute(f"PRAGMA {name}").fetchone() != (wanted,):
                    raise FileFormatError(f"{self.path} is no file of a stream that this Residua reads")
            yield connection
            connection.execute("COMMIT")

    def delete(self) -> None:
        """Overwrite what it holds, and take the file away."""
        if self.path.exists():
            with _connection(self.path) as connection:
                connection.execute("DELETE FROM part")
            self.path.unlink(missing_ok=True)


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        opened = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None
        )
        with closing(opened) as connection:
            for setting in _SETTINGS:
                connection.execute(setting)
            yield connection
    except sqlite3.Error as error:
        raise FileFormatError(f"{path} could not be read or written ({error})") from error
