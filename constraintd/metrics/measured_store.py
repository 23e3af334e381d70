"""A session store as the daemon uses it, measured: how long appends take, and which operations fail."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from constraintd.errors import StoreUnavailable
from constraintd.metrics import recording
from constraintd.metrics.histogram import OTHER
from constraintd.session.store.store import Append, Behind, Head, SessionStore, Statistics, Stored

_BACKENDS: Final = {"MemoryStore": "memory", "SqliteStore": "sqlite", "RedisStore": "redis"}


class MeasuredStore:
    """Another store, with the same promises. Its owner closes it."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self.backend = _BACKENDS.get(type(store).__name__, OTHER)

    @property
    def shared(self) -> bool:
        """See SessionStore."""
        return self._store.shared

    @property
    def quick(self) -> bool:
        """See SessionStore."""
        return self._store.quick

    def append(self, appends: Sequence[Append]) -> list[Behind | None]:
        """See SessionStore."""
        recorder = recording.active
        if recorder is None:
            return self._store.append(appends)
        began = time.perf_counter()
        try:
            results = self._store.append(appends)
        except StoreUnavailable:
            recorder.store_errors.add(self.backend, "append")
            raise
        seconds = recorder.store_append_seconds.get(self.backend)
        if seconds is not None:
            seconds.observe(time.perf_counter() - began)
        return results

    def create(self, session_id: bytes, head: Head, records: Sequence[bytes], blobs: Sequence[bytes]) -> Stored | None:
        """See SessionStore."""
        with self._failures("create"):
            return self._store.create(session_id, head, records, blobs)

    def load(self, session_id: bytes) -> Stored | None:
        """See SessionStore."""
        with self._failures("load"):
            return self._store.load(session_id)

    def load_short(self, session_ids: Sequence[bytes], most_records: int) -> dict[bytes, Stored]:
        """See SessionStore."""
        with self._failures("load_short"):
            return self._store.load_short(session_ids, most_records)

    def head(self, session_id: bytes) -> Head | None:
        """See SessionStore."""
        with self._failures("head"):
            return self._store.head(session_id)

    def delete(self, session_id: bytes) -> bool:
        """See SessionStore."""
        with self._failures("delete"):
            return self._store.delete(session_id)

    def page(self, after: bytes, size: int) -> list[bytes]:
        """See SessionStore."""
        with self._failures("page"):
            return self._store.page(after, size)

    def expire(self, idle_seconds: float) -> list[bytes]:
        """See SessionStore."""
        with self._failures("expire"):
            return self._store.expire(idle_seconds)

    def put_blobs(self, blobs: Mapping[bytes, bytes]) -> None:
        """See SessionStore."""
        with self._failures("put_blobs"):
            self._store.put_blobs(blobs)

    def blob(self, digest: bytes) -> bytes | None:
        """See SessionStore."""
        with self._failures("blob"):
            return self._store.blob(digest)

    def statistics(self) -> Statistics:
        """See SessionStore."""
        with self._failures("statistics"):
            return self._store.statistics()

    def close(self) -> None:
        """See SessionStore."""
        self._store.close()

    @contextmanager
    def _failures(self, operation: str) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable:
            recorder = recording.active
            if recorder is not None:
                recorder.store_errors.add(self.backend, operation)
            raise
