"""Opening a store's file, and what SQLite's errors mean for who runs the daemon.

The file is opened in SQLite's exclusive locking mode and locked at once: it has one owner, for as long as that one
lives. So a second daemon is refused instead of working on heads that the first one changes, the owner may keep heads in
memory, and SQLite needs no memory shared between processes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal

from constraintd.errors import StoreUnavailable
from constraintd.session.store.sqlite_schema import Connection, check_layout, migrate

Durability = Literal["relaxed", "strict"]
Connect = Callable[[str], Connection]

# NORMAL: the write-ahead log is synced before its pages go to the file proper, not at each commit: a power loss takes
# the last commits but never tears. FULL: it is synced at each commit.
_SYNCHRONOUS: dict[Durability, str] = {"relaxed": "NORMAL", "strict": "FULL"}

_LOCK_WAIT_SECONDS = 3.0  # a daemon that restarts meets the one before it on its way out

# The indexer moves the write-ahead log into the file; SQLite itself does so only if the indexer can't: 64 MiB.
_LOG_PAGES_AT_MOST = 16_384

_CACHE_KIB = 8192

_REMEDIES: dict[int, str] = {
    sqlite3.SQLITE_FULL: "free some space on that disk",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable",
    sqlite3.SQLITE_BUSY: "another process has it open: stop that one, or give each daemon a file of its own",
    sqlite3.SQLITE_IOERR: "see the system's log about that disk",
    sqlite3.SQLITE_CANTOPEN: "check that its folder exists and may be written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: put a backup in its place",
    sqlite3.SQLITE_NOTADB: "this is no SQLite file: give the store a file of its own",
}


def connect(path: str) -> sqlite3.Connection:
    """A connection that commits each statement unless BEGIN was said, for use by any thread, one at a time.

    A missing file is made for its owner's eyes only: sessions hold what users wrote.
    """
    with suppress(OSError):  # it is there, or SQLite says why it can't be
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    return sqlite3.connect(path, timeout=_LOCK_WAIT_SECONDS, isolation_level=None, check_same_thread=False)


def open_file(path: str, durability: Durability, connect: Connect) -> Connection:
    """The file's only connection, at today's layout; a missing file is made. StoreUnavailable, or sqlite3.Error."""
    _refuse_foreign(path)
    connection = connect(path)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES_AT_MOST}")
        if migrate(connection, path):
            # The layout's number must stand in the file proper, where _refuse_foreign looks for it.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_foreign(path: str) -> None:
    """Looks at a file's marks without locking, recovering or changing it."""
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return
    # Not by reading the file directly: closing it would drop the locks that this process's SQLite holds on it.
    with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?immutable=1", uri=True)) as peek:
        try:
            version = peek.execute("PRAGMA user_version").fetchone()[0]
            application_id = peek.execute("PRAGMA application_id").fetchone()[0]
            tables = peek.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        except sqlite3.DatabaseError:
            if os.path.exists(f"{path}-wal"):
                return  # a power loss tore the file while the log was moved into it: opening mends it from the log
            raise
    check_layout(path, application_id=application_id, version=version, empty=not tables)


def unavailable(path: str, error: sqlite3.Error) -> StoreUnavailable:
    """What to tell the caller."""
    code = _code(error)
    if code == sqlite3.SQLITE_IOERR and os.path.exists(path) and not os.access(path, os.W_OK, effective_ids=True):
        code = sqlite3.SQLITE_READONLY  # locking a file that can't be written fails before any write does
    remedy = _REMEDIES.get(code, "see the message")
    return StoreUnavailable(f"{path}: {error}; {remedy}, then try again", path=path)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
