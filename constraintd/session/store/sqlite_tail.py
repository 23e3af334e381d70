"""What a store keeps in memory: the newest part of each session, which the tables don't have yet, and recent heads."""

from __future__ import annotations

from dataclasses import dataclass, field

from constraintd.session.store.journal import CREATED, DELETED, Entry
from constraintd.session.store.store import Head


@dataclass(slots=True)
class Pending:
    """The newest part of one session. `created`: all of it, the tables know nothing of the session."""

    head: Head
    used: float
    seq: int
    created: bool
    records: list[bytes] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)


_HEADS_IN_MEMORY = 16_384  # about 300 bytes each; another head costs a look into the file, some 10 us


class Tail:
    """Owned by one store, used under its lock. `size` is in bytes of journal, roughly.

    `sessions` are those with something pending; `heads` are of others, the least recently used first.
    """

    def __init__(self) -> None:
        self.sessions: dict[bytes, Pending] = {}
        self.heads: dict[bytes, Head] = {}
        self.size = 0

    def put(self, entry: Entry, seq: int, used: float) -> None:
        """Takes in one journalled change, in the journal's order."""
        if entry.kind == DELETED:
            self.forget([entry.session_id])
        else:
            if entry.kind == CREATED:
                self.sessions[entry.session_id] = Pending(entry.head, used, seq, created=True)
            self.extend(entry.session_id, entry.head, entry.records, entry.blobs, seq, used)

    def extend(
        self,
        session_id: bytes,
        head: Head,
        records: tuple[bytes, ...],
        blobs: tuple[bytes, ...],
        seq: int,
        used: float,
    ) -> None:
        """An append."""
        pending = self.sessions.get(session_id)
        if pending is None:
            self.heads.pop(session_id, None)
            self.sessions[session_id] = Pending(head, used, seq, False, list(records), list(blobs))
            return
        pending.head, pending.used, pending.seq = head, used, seq
        pending.records += records
        if blobs:
            pending.blobs += blobs

    def keep_head(self, session_id: bytes, head: Head) -> None:
        """Remembers the head of a session that has nothing pending, as the most recently used one."""
        self.heads.pop(session_id, None)
        self.heads[session_id] = head
        if len(self.heads) > _HEADS_IN_MEMORY:
            del self.heads[next(iter(self.heads))]

    def moved(self, session_ids: list[bytes]) -> None:
        """All of these is in the tables now."""
        for session_id in session_ids:
            pending = self.sessions.pop(session_id, None)
            if pending is not None:
                self.keep_head(session_id, pending.head)
        if not self.sessions:
            self.size = 0

    def forget(self, session_ids: list[bytes]) -> None:
        """These are deleted."""
        for session_id in session_ids:
            self.sessions.pop(session_id, None)
            self.heads.pop(session_id, None)
