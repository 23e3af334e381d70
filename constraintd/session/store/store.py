"""What every store of sessions promises.

A session is a list of records (its events, as bytes that only the session layer reads) and a head. An append names
the head that it goes on from; if the session has another one meanwhile, nothing is written and the append is `Behind`.
So of two daemons that hold the same session, one is told that its copy is stale.

Blobs are what many sessions share: vocabularies as they were uploaded, and grammar sources. A session names those that
it needs; a blob is kept as long as a session names it.

Calls block and may come from many threads. What a store can't do for now (the disk is full, the file locked, the
connection lost) raises StoreUnavailable, and the call may be made again: whether it took effect is then visible in the
head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Head:
    """Where a session stands. `version` counts its records; `epoch` (64 bits) names its present owner's view."""

    epoch: int
    version: int
    position: int


@dataclass(frozen=True, slots=True)
class Append:
    """Records (perhaps none: another epoch only) behind `expected`, after which the session stands at `head`.

    `blobs` are hashes of blobs that the session names from now on, besides those that it names already.
    """

    session_id: bytes
    expected: Head
    head: Head
    records: tuple[bytes, ...]
    blobs: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Behind:
    """An append that was not written: the session's head is another one. None: there is no such session any more."""

    head: Head | None


@dataclass(frozen=True, slots=True)
class Stored:
    """A session as it is kept. `idle_seconds` since its last append, by the store's clock."""

    head: Head
    records: tuple[bytes, ...]
    blobs: tuple[bytes, ...]
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """At this instant."""

    sessions: int
    blobs: int


class SessionStore(Protocol):
    """Keeps sessions. All methods raise StoreUnavailable."""

    @property
    def shared(self) -> bool:
        """Whether other daemons may change the same sessions: then a copy in memory may be stale at any time."""

    @property
    def quick(self) -> bool:
        """Whether an append takes microseconds, so that it needs no thread of its own."""

    def create(self, session_id: bytes, head: Head, records: Sequence[bytes], blobs: Sequence[bytes]) -> Stored | None:
        """Keeps a new session, durably. If the id is taken nothing is written, and what is kept there is given."""

    def append(self, appends: Sequence[Append]) -> list[Behind | None]:
        """Writes all that are not behind, each whole, as one batch; when this returns they are durable as configured.

        One result an append, in order; None: written. No two of a batch are of the same session.
        """

    def load(self, session_id: bytes) -> Stored | None:
        """A session with all its records, or None."""

    def load_short(self, session_ids: Sequence[bytes], most_records: int) -> dict[bytes, Stored]:
        """Those of these sessions that are kept and have at most so many records: one look for all, where it can be."""

    def head(self, session_id: bytes) -> Head | None:
        """Its head alone: cheap."""

    def delete(self, session_id: bytes) -> bool:
        """Forgets a session. False if there was none."""

    def page(self, after: bytes, size: int) -> list[bytes]:
        """At most `size` ids past `after` (b"": from the first), ascending."""

    def expire(self, idle_seconds: float) -> list[bytes]:
        """Forgets sessions whose last append is longer ago than that, by the store's clock; their ids.

        A clock that jumps backward expires nothing early.
        """

    def put_blobs(self, blobs: Mapping[bytes, bytes]) -> None:
        """Keeps blobs by their sha256. One that no session names may go after an hour."""

    def blob(self, digest: bytes) -> bytes | None:
        """A blob's contents."""

    def statistics(self) -> Statistics:
        """How much is kept."""

    def close(self) -> None:
        """Makes everything durable and lets go."""
