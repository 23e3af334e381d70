"""The open sessions, in memory."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from constraintd.errors import AlreadyExists, LimitReached, UnknownSession
from constraintd.session.session import Session


@dataclass(frozen=True, slots=True)
class Statistics:
    """How full the table is."""

    open: int
    limit: int


class SessionTable:
    """Sessions by id. Owns them; safe to use from many threads."""

    def __init__(self, *, limit: int, idle_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        self._lock = threading.Lock()

    def find(self, session_id: bytes, request_digest: bytes) -> Session | None:
        """The session that this very request opened, if any. Raises AlreadyExists if another one did."""
        session = self._sessions.get(session_id)
        if session is not None and session.identity.request_digest != request_digest:
            raise AlreadyExists(
                f"session {session_id.hex()} was opened by a different request; choose 16 fresh random bytes"
            )
        return session

    def add(self, session: Session) -> Session:
        """Adds it, or gives the one that the same request has opened meanwhile. Raises AlreadyExists, LimitReached."""
        identity = session.identity
        with self._lock:
            present = self.find(identity.session_id, identity.request_digest)
            if present is not None:
                return present
            self._check_room_locked()
            self._sessions[identity.session_id] = session
        return session

    def check_room(self) -> None:
        """Raises LimitReached if a new session would not fit, before work is spent on it."""
        with self._lock:
            self._check_room_locked()

    def get(self, session_id: bytes) -> Session:
        """Raises UnknownSession."""
        session = self._sessions.get(session_id)
        if session is None:
            raise UnknownSession(session_id)
        return session

    def close(self, session_id: bytes) -> bool:
        """Forgets it; false if there was none."""
        with self._lock:
            return self._sessions.pop(session_id, None) is not None

    def page(self, after: bytes, size: int) -> tuple[list[Session], bytes]:
        """At most `size` sessions by ascending id, past `after`, and where the next page begins (b"": the end)."""
        with self._lock:
            ids = sorted(self._sessions)
            begin = bisect_right(ids, after) if after else 0
            chosen = ids[begin : begin + size]
            more = begin + size < len(ids)
            return [self._sessions[i] for i in chosen], chosen[-1] if more else b""

    def statistics(self) -> Statistics:
        """How full it is."""
        return Statistics(len(self._sessions), self._limit)

    def _check_room_locked(self) -> None:
        if len(self._sessions) < self._limit:
            return
        # Only a full table looks for abandoned sessions: until then they cost nothing but memory that is granted.
        oldest = self._clock() - self._idle_seconds
        for session_id in [i for i, s in self._sessions.items() if s.last_step < oldest]:
            del self._sessions[session_id]
        if len(self._sessions) >= self._limit:
            raise LimitReached("sessions", limit=self._limit, remedy="close finished ones or try again later")
