"""The copies of sessions that a daemon holds in memory, within a budget."""

from __future__ import annotations

import threading

from constraintd import failpoints
from constraintd.session.session import Session


class HotSessions:
    """Hot sessions by id. Any thread may call any method; the budget counts by estimate (`byte_size`)."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._sessions: dict[bytes, Session] = {}
        self._bytes: dict[bytes, int] = {}
        self._spent = 0  # their sum
        self._doubtful: set[bytes] = set()
        self.passivated = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._sessions

    def find(self, session_id: bytes) -> Session | None:
        """The copy, whether doubtful or not."""
        return self._sessions.get(session_id)

    def is_doubtful(self, session_id: bytes) -> bool:
        """Whether nobody knows if the store has more of it, or less."""
        return session_id in self._doubtful

    def doubt(self, session_id: bytes) -> None:
        """An append of it may have been written, or not."""
        self._doubtful.add(session_id)

    def trust(self, session_id: bytes) -> None:
        """The store has been asked, and has the same."""
        self._doubtful.discard(session_id)

    def add(self, session: Session) -> None:
        """Holds a session, as the store has it."""
        session_id = session.identity.session_id
        size = byte_size(session)
        with self._lock:
            self._sessions[session_id] = session
            self._spent += size - self._bytes.get(session_id, 0)
            self._bytes[session_id] = size
            self._doubtful.discard(session_id)

    def drop(self, session_id: bytes) -> None:
        """Forgets the copy."""
        with self._lock:
            self._sessions.pop(session_id, None)
            self._spent -= self._bytes.pop(session_id, 0)
            self._doubtful.discard(session_id)

    def make_room(self) -> bool:
        """Drops the copies that were stepped longest ago until the budget holds; whether it does."""
        if self._spent < self._budget:
            return True
        for session_id, session in sorted(self._sessions.items(), key=lambda entry: entry[1].last_step):
            if not session.is_busy:
                self._passivate(session_id)
            if self._spent < self._budget * 0.9:
                break
        return self._spent < self._budget

    def passivate_idle(self, since: float) -> None:
        """Drops the copies that were not stepped since then, by the clock of `Session.last_step`."""
        for session_id, session in list(self._sessions.items()):
            if session.last_step < since and not session.is_busy:
                self._passivate(session_id)

    def _passivate(self, session_id: bytes) -> None:
        failpoints.hit(failpoints.PASSIVATE_MIDDLE)
        self.drop(session_id)
        self.passivated += 1


def byte_size(session: Session) -> int:
    """About how many bytes a hot session takes: a matcher some 210 KB, full n-gram statistics a megabyte."""
    sampling = session.log.settings.sampling
    statistics = 1_000_000 if sampling.config.ngram_penalty is not None else 0
    prompt = sum(len(mark.prompt or ()) for mark in session.log.turns())
    return 20_000 + 210_000 * len(sampling.parts) + statistics + 16 * session.position + 36 * prompt
