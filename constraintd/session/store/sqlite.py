"""Sessions in one SQLite file, owned by one daemon: the default.

An append is a look at heads in memory, then one INSERT of one row for the whole batch (see `sqlite_index` for what
happens to it later). Measured against a row a session: 20 us instead of 400 for 32 sessions.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from constraintd.errors import StoreUnavailable
from constraintd.session.store import journal, sqlite_tables
from constraintd.session.store.clock import BLOB_GRACE_SECONDS, StoreClock
from constraintd.session.store.sqlite_file import Connect, Durability, connect, open_file, unavailable
from constraintd.session.store.sqlite_index import Index
from constraintd.session.store.sqlite_schema import Connection
from constraintd.session.store.sqlite_tail import Tail
from constraintd.session.store.store import Append, Behind, Head, Statistics, Stored

_log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

_INDEX_SECONDS = 2.0
_TAIL_BYTES_WAKE = 8 << 20  # past this the index is written at once; replaying it takes under a second
_TAIL_BYTES_LIMIT = 64 << 20  # past this an append helps with it
_READ_AT_ONCE = 256  # SQLite takes at least 999 parameters a statement
_DELETIONS_A_STEP = 16  # some 200 us each: their rows lie scattered


class SqliteStore:
    """A SessionStore in one file, made if missing.

    `relaxed`: what was answered survives the death of the process; a power loss takes the last moments. `strict`: it
    survives both. In either case the file stays sound. StoreUnavailable from the constructor if the file is another
    daemon's, another program's, or a newer constraintd's. After a failed call the next one tries again, opening the
    file anew if need be. Any thread may call; one call runs at a time.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: Durability = "relaxed",
        clock: Callable[[], float] = time.time,
        *,
        connect: Connect = connect,
        index_seconds: float = _INDEX_SECONDS,
    ) -> None:
        self._path = os.fspath(path)
        self._durability = durability
        self._connect = connect
        self._clock = StoreClock(clock)
        self._lock = threading.Lock()
        self._closed = False
        self._connection: Connection | None = None
        self._index_seconds = index_seconds
        self._wake = threading.Event()
        self._call(lambda: None)  # opens
        self._indexer = threading.Thread(target=self._keep_indexed, name="store index", daemon=True)
        self._indexer.start()

    @property
    def shared(self) -> bool:
        """The file has one owner."""
        return False

    @property
    def quick(self) -> bool:
        """Unless every append waits for the disk."""
        return self._durability == "relaxed"

    # --- opening, failing, healing ---

    def _call(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs one call on an open file; every SQLite error becomes StoreUnavailable here."""
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"{self._path}: the store is closed", path=self._path)
            try:
                if self._connection is None:
                    self._open()
                return work(*args, **kwargs)
            except sqlite3.Error as error:
                self._let_go()
                raise unavailable(self._path, error) from error

    def _open(self) -> None:
        connection = open_file(self._path, self._durability, self._connect)
        try:
            self._tail = Tail()
            self._seq, latest = sqlite_tables.replay_journal(connection, self._tail)
        except BaseException:
            connection.close()
            raise
        self._clock.seen(latest)
        self._index = Index(connection, self._tail)
        self._connection = connection

    def _let_go(self) -> None:
        """After an error: the next call opens the file anew and learns from it what was written.

        Rolling back would do for this process, but a commit that failed half-way may stand complete in the log, and
        would come back to life if this process died next.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except sqlite3.Error as second:
            _log.warning("%s: closing failed too: %s", self._path, second)

    @property
    def _open_connection(self) -> Connection:
        assert self._connection is not None  # _call opened it
        return self._connection

    # --- sessions ---

    def create(self, session_id: bytes, head: Head, records: Sequence[bytes], blobs: Sequence[bytes]) -> Stored | None:
        return self._call(self._create, session_id, head, tuple(records), tuple(dict.fromkeys(blobs)))

    def _create(
        self, session_id: bytes, head: Head, records: tuple[bytes, ...], blobs: tuple[bytes, ...]
    ) -> Stored | None:
        if self._head(session_id) is not None:
            return self._load(session_id)
        used = self._clock.mark()
        self._write(journal.encode_entry(journal.CREATED, session_id, head, records, blobs), used)
        self._tail.put(journal.Entry(journal.CREATED, session_id, head, records, blobs), self._seq, used)
        return None

    def append(self, appends: Sequence[Append]) -> list[Behind | None]:
        return self._call(self._append, appends)

    def _append(self, appends: Sequence[Append]) -> list[Behind | None]:
        results: list[Behind | None] = []
        fitting: list[Append] = []
        for append in appends:
            head = self._head(append.session_id)
            if head is append.expected or head == append.expected:
                fitting.append(append)
                results.append(None)
            else:
                results.append(Behind(head))
        if fitting:
            used = self._clock.mark()
            self._write(journal.encode_appends(fitting), used)
            for each in fitting:
                self._tail.extend(each.session_id, each.head, each.records, each.blobs, self._seq, used)
        return results

    def _write(self, changes: bytes, used: float) -> None:
        """One journal row, committed. Only then may memory change."""
        while self._tail.size > _TAIL_BYTES_LIMIT:
            self._index.step(self._seq)
        sqlite_tables.append_journal(self._open_connection, self._seq + 1, used, changes)
        self._seq += 1
        self._tail.size += len(changes)
        self._index.log_grew(len(changes))
        if self._tail.size > _TAIL_BYTES_WAKE or self._index.log_is_long:
            self._wake.set()

    def load(self, session_id: bytes) -> Stored | None:
        return self._call(self._load, session_id)

    def _load(self, session_id: bytes) -> Stored | None:
        pending = self._tail.sessions.get(session_id)
        head = self._head(session_id)
        if head is None:
            return None
        if pending is not None and pending.created:
            records, blobs, used = pending.records, pending.blobs, pending.used
        else:
            connection = self._open_connection
            records = sqlite_tables.read_records(connection, session_id)
            blobs = sqlite_tables.read_blobs(connection, session_id)
            if pending is None:
                used = self._used(session_id) or 0.0
            else:
                records, blobs, used = records + pending.records, blobs + pending.blobs, pending.used
        return Stored(head, tuple(records), tuple(dict.fromkeys(blobs)), self._clock.idle(used))

    def load_short(self, session_ids: Sequence[bytes], most_records: int) -> dict[bytes, Stored]:
        return self._call(self._load_short, session_ids, most_records)

    def _load_short(self, session_ids: Sequence[bytes], most_records: int) -> dict[bytes, Stored]:
        found: dict[bytes, Stored] = {}
        in_tables = [each for each in session_ids if each not in self._tail.sessions]
        for at in range(0, len(in_tables), _READ_AT_ONCE):
            for short in sqlite_tables.read_short(self._open_connection, in_tables[at : at + _READ_AT_ONCE]):
                self._tail.keep_head(short.session_id, short.head)
                if short.head.version <= most_records:
                    records = tuple(journal.decode_pieces(short.pieces))
                    idle = self._clock.idle(short.used)
                    found[short.session_id] = Stored(short.head, records, tuple(short.blobs), idle)
        for session_id in session_ids:  # in the tail, in several chunks, or too long
            head = None if session_id in found else self._head(session_id)
            if head is not None and head.version <= most_records and (stored := self._load(session_id)) is not None:
                found[session_id] = stored
        return found

    def head(self, session_id: bytes) -> Head | None:
        return self._call(self._head, session_id)

    def _head(self, session_id: bytes) -> Head | None:
        pending = self._tail.sessions.get(session_id)
        if pending is not None:
            return pending.head
        head = self._tail.heads.get(session_id) or sqlite_tables.read_head(self._open_connection, session_id)
        if head is not None:
            self._tail.keep_head(session_id, head)
        return head

    def _used(self, session_id: bytes) -> float | None:
        pending = self._tail.sessions.get(session_id)
        return pending.used if pending else sqlite_tables.read_used(self._open_connection, session_id)

    def delete(self, session_id: bytes) -> bool:
        return self._call(self._delete, session_id)

    def _delete(self, session_id: bytes) -> bool:
        if self._head(session_id) is None:
            return False
        self._forget([session_id])
        return True

    def _forget(self, session_ids: list[bytes]) -> None:
        connection, changes = self._open_connection, journal.encode_deletions(session_ids)
        connection.execute("BEGIN")
        sqlite_tables.append_journal(connection, self._seq + 1, self._clock.mark(), changes)
        for session_id in session_ids:
            sqlite_tables.delete_rows(connection, session_id)
        connection.execute("COMMIT")
        self._seq += 1
        self._tail.forget(session_ids)

    def page(self, after: bytes, size: int) -> list[bytes]:
        return self._call(self._page, after, size)

    def _page(self, after: bytes, size: int) -> list[bytes]:
        sql = "SELECT id FROM sessions WHERE id > ? ORDER BY id LIMIT ?"
        found = {row[0] for row in self._open_connection.execute(sql, (after, size)).fetchall()}
        found.update(session_id for session_id in self._tail.sessions if session_id > after)
        return sorted(found)[:size]

    def expire(self, idle_seconds: float) -> list[bytes]:
        before = self._clock.before(idle_seconds)
        idle = self._call(self._idle, before)
        expired: list[bytes] = []
        for at in range(0, len(idle), _DELETIONS_A_STEP):  # appends go on in between
            expired += self._call(self._expire, idle[at : at + _DELETIONS_A_STEP], before)
        self._call(self._forget_blobs)
        return expired

    def _idle(self, before: float) -> list[bytes]:
        sql = "SELECT id FROM sessions WHERE used_at < ?"
        idle = [row[0] for row in self._open_connection.execute(sql, (before,)).fetchall()]
        return idle + [session_id for session_id, pending in self._tail.sessions.items() if pending.created]

    def _expire(self, session_ids: list[bytes], before: float) -> list[bytes]:
        still = [each for each in session_ids if (used := self._used(each)) is not None and used < before]
        if still:
            self._forget(still)
        return still

    # --- blobs ---

    def put_blobs(self, blobs: Mapping[bytes, bytes]) -> None:
        self._call(self._put_blobs, blobs)

    def _put_blobs(self, blobs: Mapping[bytes, bytes]) -> None:
        connection, put = self._open_connection, self._clock.mark()
        connection.execute("BEGIN")
        for digest, contents in blobs.items():
            sqlite_tables.write_blob(connection, digest, contents, put)
        connection.execute("COMMIT")

    def blob(self, digest: bytes) -> bytes | None:
        return self._call(self._blob, digest)

    def _blob(self, digest: bytes) -> bytes | None:
        row = self._open_connection.execute("SELECT bytes FROM contents WHERE digest = ?", (digest,)).fetchone()
        return row[0] if row else None

    def _forget_blobs(self) -> None:
        connection = self._open_connection
        unnamed = set(sqlite_tables.read_unnamed_blobs(connection, self._clock.before(BLOB_GRACE_SECONDS)))
        for pending in self._tail.sessions.values():
            unnamed.difference_update(pending.blobs)
        if unnamed:
            connection.execute("BEGIN")
            sqlite_tables.delete_blobs(connection, sorted(unnamed))
            connection.execute("COMMIT")

    # --- the whole ---

    def statistics(self) -> Statistics:
        return self._call(self._statistics)

    def _statistics(self) -> Statistics:
        count = self._open_connection.execute("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM blobs)")
        sessions, blobs = count.fetchone()
        sessions += sum(pending.created for pending in self._tail.sessions.values())
        return Statistics(sessions=sessions, blobs=blobs)

    def _keep_indexed(self) -> None:
        due = time.monotonic() + self._index_seconds
        while not self._closed:
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            step = self._shorten_log
            if time.monotonic() >= due or self._tail.size > _TAIL_BYTES_WAKE:
                due, step = time.monotonic() + self._index_seconds, self._index_step
            try:
                while not self._closed and self._call(step):
                    time.sleep(0.0005)  # a lock that is taken again at once would starve the appends
            except StoreUnavailable as error:
                if not self._closed:
                    _log.warning("the index waits: %s", error.message)

    def _index_step(self) -> bool:
        return self._index.step(self._seq)

    def _shorten_log(self) -> bool:
        return self._index.shorten_log()

    def close(self) -> None:
        """Writes the index and the write-ahead log into the file, durably, and unlocks it."""
        with self._lock:
            self._closed = True
        self._wake.set()
        self._indexer.join()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            while self._index.step(self._seq):
                pass
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise unavailable(self._path, error) from error
        finally:
            connection.close()
