"""Sessions in dicts: for tests, trials and daemons whose sessions may die with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from constraintd.session.store.clock import BLOB_GRACE_SECONDS, StoreClock
from constraintd.session.store.store import Append, Behind, Head, Statistics, Stored


@dataclass(slots=True)
class _Kept:
    """One session. Its blobs are a dict's keys, which keep the order in which they were named."""

    head: Head
    used: float
    records: list[bytes] = field(default_factory=list)
    blobs: dict[bytes, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Blob:
    contents: bytes
    put: float


class MemoryStore:
    """A SessionStore that keeps nothing past its process. Never raises StoreUnavailable."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._lock = threading.Lock()
        self._clock = StoreClock(clock)
        self._sessions: dict[bytes, _Kept] = {}
        self._blobs: dict[bytes, _Blob] = {}

    @property
    def shared(self) -> bool:
        """No other daemon sees these sessions."""
        return False

    @property
    def quick(self) -> bool:
        """Dicts are."""
        return True

    def create(self, session_id: bytes, head: Head, records: Sequence[bytes], blobs: Sequence[bytes]) -> Stored | None:
        with self._lock:
            taken = self._sessions.get(session_id)
            if taken is not None:
                return self._stored(taken)
            kept = _Kept(head, self._clock.mark(), list(records), dict.fromkeys(blobs))
            self._sessions[session_id] = kept
            return None

    def append(self, appends: Sequence[Append]) -> list[Behind | None]:
        with self._lock:
            used = self._clock.mark()
            return [self._append(append, used) for append in appends]

    def _append(self, append: Append, used: float) -> Behind | None:
        kept = self._sessions.get(append.session_id)
        if kept is None or kept.head != append.expected:
            return Behind(kept.head if kept else None)
        kept.head, kept.used = append.head, used
        kept.records.extend(append.records)
        kept.blobs.update(dict.fromkeys(append.blobs))
        return None

    def load(self, session_id: bytes) -> Stored | None:
        with self._lock:
            kept = self._sessions.get(session_id)
            return None if kept is None else self._stored(kept)

    def load_short(self, session_ids: Sequence[bytes], most_records: int) -> dict[bytes, Stored]:
        with self._lock:
            kept = {each: self._sessions[each] for each in session_ids if each in self._sessions}
            return {each: self._stored(one) for each, one in kept.items() if one.head.version <= most_records}

    def _stored(self, kept: _Kept) -> Stored:
        return Stored(kept.head, tuple(kept.records), tuple(kept.blobs), self._clock.idle(kept.used))

    def head(self, session_id: bytes) -> Head | None:
        with self._lock:
            kept = self._sessions.get(session_id)
            return kept.head if kept else None

    def delete(self, session_id: bytes) -> bool:
        with self._lock:
            return self._sessions.pop(session_id, None) is not None

    def page(self, after: bytes, size: int) -> list[bytes]:
        with self._lock:
            return sorted(session_id for session_id in self._sessions if session_id > after)[:size]

    def expire(self, idle_seconds: float) -> list[bytes]:
        with self._lock:
            before = self._clock.before(idle_seconds)
            expired = [session_id for session_id, kept in self._sessions.items() if kept.used < before]
            for session_id in expired:
                del self._sessions[session_id]
            self._forget_blobs()
            return expired

    def _forget_blobs(self) -> None:
        before = self._clock.before(BLOB_GRACE_SECONDS)
        old = {digest for digest, blob in self._blobs.items() if blob.put < before}
        for digest in old.difference(*_named(self._sessions.values())):
            del self._blobs[digest]

    def put_blobs(self, blobs: Mapping[bytes, bytes]) -> None:
        with self._lock:
            put = self._clock.mark()
            for digest, contents in blobs.items():
                self._blobs[digest] = _Blob(contents, put)

    def blob(self, digest: bytes) -> bytes | None:
        with self._lock:
            blob = self._blobs.get(digest)
            return blob.contents if blob else None

    def statistics(self) -> Statistics:
        with self._lock:
            return Statistics(sessions=len(self._sessions), blobs=len(self._blobs))

    def close(self) -> None:
        """Nothing to let go of."""


def _named(sessions: Iterable[_Kept]) -> Iterable[Iterable[bytes]]:
    return (kept.blobs for kept in sessions)
