"""The layout of a store's file, and how an older one becomes today's.

The number of the layout is SQLite's `user_version`; `application_id` says that the file is ours. A file is brought up
to date in one transaction, so it has either its old layout or today's. A file of a newer layout is refused before
anything is written to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from constraintd.errors import StoreUnavailable

APPLICATION_ID = 0x63737464  # "cstd"

STEPS: Sequence[Sequence[str]] = (
    # 0 -> 1: an empty file gets its tables.
    (
        # One row a batch, `changes` as in `journal`. The newest row is never removed: it keeps seq ascending.
        "CREATE TABLE journal (seq INTEGER PRIMARY KEY, used_at REAL NOT NULL, changes BLOB NOT NULL)",
        # What the journal up to `seq` makes of a session. `chunk` numbers its last chunk, of `chunk_size` bytes.
        "CREATE TABLE sessions (id BLOB PRIMARY KEY, head BLOB NOT NULL, used_at REAL NOT NULL, seq INTEGER NOT NULL,"
        " chunk INTEGER NOT NULL, chunk_size INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE INDEX sessions_by_use ON sessions (used_at)",
        # A session's records, joined pieces as in `journal`, in the order of their chunks.
        "CREATE TABLE chunks (session BLOB NOT NULL, chunk INTEGER NOT NULL, pieces BLOB NOT NULL,"
        " PRIMARY KEY (session, chunk)) WITHOUT ROWID",
        "CREATE TABLE refs (session BLOB NOT NULL, digest BLOB NOT NULL, place INTEGER NOT NULL,"
        " PRIMARY KEY (session, digest)) WITHOUT ROWID",
        "CREATE INDEX refs_by_digest ON refs (digest)",
        # Apart from the contents, since a row is written anew as a whole when its time changes.
        "CREATE TABLE blobs (digest BLOB PRIMARY KEY, put_at REAL NOT NULL) WITHOUT ROWID",
        "CREATE TABLE contents (digest BLOB PRIMARY KEY, bytes BLOB NOT NULL)",
    ),
)
"""STEPS[n] makes layout n + 1 of layout n. Steps are only ever added."""


class Rows(Protocol):
    """What SQLite answers."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """The part of sqlite3.Connection that a store needs; errors are sqlite3.Error."""

    def execute(self, sql: str, parameters: Sequence[object] = ..., /) -> Rows: ...

    def close(self) -> None: ...


def check_layout(path: str, *, application_id: int, version: int, empty: bool) -> None:
    """StoreUnavailable if a file with these marks isn't for this program to open."""
    if not empty and application_id != APPLICATION_ID:
        raise StoreUnavailable(f"{path}: this SQLite file belongs to another program; give the store a file of its own")
    if version > len(STEPS):
        raise StoreUnavailable(
            f"{path}: layout {version} was written by a newer constraintd, this one knows {len(STEPS)} and older; "
            "run the newer one, or give this one another file. The file was not touched"
        )


def migrate(connection: Connection, path: str, steps: Sequence[Sequence[str]] = STEPS) -> bool:
    """Brings the file to the last layout, in one transaction. Whether there was anything to do."""
    connection.execute("BEGIN IMMEDIATE")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application_id = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    check_layout(path, application_id=application_id, version=version, empty=not tables)
    for step in steps[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(steps)}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")
    return version < len(steps)
