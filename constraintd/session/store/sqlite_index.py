"""Moves the journal into the tables, a little at a time.

An append writes one journal row for its whole batch, since a row a session would cost 10 to 20 times as much. What was
appended is gathered by session in memory (the tail), and moved from there: so a session that grew by 100 records in
the meantime costs one write. A round moves every session that has something pending, then trims the journal to where
the round began. It is cut into steps of half a millisecond, between which appends go on; each row in the tables
says up to which journal row it is, so a crash between two steps neither loses nor doubles a record.

SQLite's write-ahead log is moved into the file at the end of a round, which bounds what a power loss takes, and
whenever it has grown by about a megabyte, 4 to 6 ms measured: left to the round's end it would be 40 ms for a thousand
sessions.
"""

from __future__ import annotations

from constraintd import failpoints
from constraintd.session.store.sqlite_schema import Connection
from constraintd.session.store.sqlite_tables import trim_journal, write_pending
from constraintd.session.store.sqlite_tail import Tail

_SESSIONS_A_STEP = 8  # some 30 to 80 us each; whoever appends or reads waits as long
_BYTES_A_STEP = 256 * 1024
_LOG_PAGES = 256
_PAGE_BYTES = 4096
_PAGES_A_SESSION = 3  # its row, the index by use, its chunk


class Index:
    """One round after the other. Owned by one store, used under its lock, as `connection` is."""

    def __init__(self, connection: Connection, tail: Tail) -> None:
        self._connection = connection
        self._tail = tail
        self._waiting: list[bytes] = []
        self._trim_before = 0
        self._log_pages = 0

    def log_grew(self, size: int) -> None:
        """A transaction wrote about `size` bytes."""
        self._log_pages += 2 + size // _PAGE_BYTES

    @property
    def log_is_long(self) -> bool:
        """Whether it is time for shorten_log."""
        return self._log_pages >= _LOG_PAGES

    def shorten_log(self) -> bool:
        """Moves the write-ahead log into the file if it is long. Whether it was."""
        if not self.log_is_long:
            return False
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._log_pages = 0
        return True

    def step(self, newest: int) -> bool:
        """The next step; `newest` is the journal's last row. Whether the round goes on."""
        if self.shorten_log():
            return True
        if self._waiting:
            self._move()
            return True
        if self._trim_before:
            if trim_journal(self._connection, self._trim_before, _BYTES_A_STEP):
                return True
            self._trim_before, self._log_pages = 0, _LOG_PAGES
            return not self.shorten_log()
        self._waiting = list(self._tail.sessions)
        self._trim_before = newest if self._waiting else 0
        return bool(self._waiting)

    def _move(self) -> None:
        self._connection.execute("BEGIN")
        moved: list[bytes] = []
        size = 0
        while len(moved) < min(len(self._waiting), _SESSIONS_A_STEP) and size < _BYTES_A_STEP:
            session_id = self._waiting[-1 - len(moved)]
            pending = self._tail.sessions.get(session_id)
            if pending is not None:
                size += write_pending(self._connection, session_id, pending)
            moved.append(session_id)
        failpoints.hit(failpoints.COMMIT_MIDDLE)
        self._connection.execute("COMMIT")
        del self._waiting[-len(moved) :]
        self._tail.moved(moved)
        self.log_grew(size + _PAGES_A_SESSION * _PAGE_BYTES * len(moved))
