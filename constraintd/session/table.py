"""The sessions of one daemon: hot ones in memory, all of them in the store.

A hot session is a copy that saves folding. It may be dropped at any time, and is: when it has not been stepped for a
while, when room is needed, when the store says that another daemon has gone on with it, and when nobody knows whether
its last append was written. The next call revives it from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TypeVar

from constraintd import failpoints
from constraintd.errors import (
    AlreadyExists,
    ConstraintdError,
    LimitReached,
    StoreUnavailable,
    UnknownSession,
)
from constraintd.session.hot import HotSessions
from constraintd.session.records import Origin, events_of, is_finish, origin_of, record_of
from constraintd.session.session import Pending, Session
from constraintd.session.store.store import Append, Head, SessionStore, Stored

T = TypeVar("T")
Revive = Callable[[bytes, Stored], Awaitable[Session]]
ReviveAtOnce = Callable[[bytes, Stored], Session | None]
"""The same without waiting for anything; None for a session that may take longer than a moment."""
_KEPT_SECONDS = 1800.0
"""For so long a blob need not be put again: a store keeps one that no session names for an hour."""
_SHORT_LOG = 64  # records
_DAEMONS = 16
"""Each daemon on a shared store takes so much of the room that is left before it counts again."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """At this instant."""

    open: int
    hot: int
    limit: int
    revived: int
    passivated: int


@dataclass(frozen=True, slots=True)
class TableLimits:
    """How much the table holds. `passive_seconds`: a hot session that was not stepped for so long is dropped."""

    sessions: int
    hot_bytes: int
    idle_seconds: float
    passive_seconds: float


class StaleCopy(Exception):
    """The hot copy was not the session any more; it has been dropped, and the call may be made again on a new one."""


class SessionTable:
    """Sessions by id. Owns the hot ones. Lookups run on the event loop, `keep` and what it calls in any thread."""

    def __init__(
        self,
        store: SessionStore,
        limits: TableLimits,
        revive: Revive,
        threads: Executor,
        *,
        revive_at_once: ReviveAtOnce = lambda _id, _stored: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self._revive_at_once = revive_at_once
        self._limits = limits
        self._revive = revive
        self._threads = threads
        self._clock = clock
        self._hot = HotSessions(limits.hot_bytes)
        self._reviving: dict[bytes, asyncio.Task[Session]] = {}
        self._read: dict[bytes, Stored | None] = {}  # ahead: none of these has been in memory since
        self._blobs: dict[bytes, float] = {}
        self._room = 0  # sessions that may be opened before they are counted again
        self._revived = 0

    # --- finding ---

    def hot(self, session_id: bytes) -> Session | None:
        """The copy in memory, if there is one that may be used."""
        return None if self._hot.is_doubtful(session_id) else self._hot.find(session_id)

    def at_hand(self, session_id: bytes) -> Session | None:
        """The copy in memory; if there is none, one that is revived right here, where that takes a moment only.

        Raises StoreUnavailable, and what folding raises.
        """
        session = self.hot(session_id)
        if session is not None or not self._may_be_read(session_id):
            return session
        if session_id not in self._read:
            self._read |= self._look_at([session_id])
        stored = self._read.pop(session_id)
        if stored is None:
            return None
        failpoints.hit(failpoints.REVIVE_MIDDLE)
        session = self._revive_at_once(session_id, stored)
        if session is not None:
            self._revived_as(session)
        return session

    def read_ahead(self, session_ids: Iterable[bytes]) -> None:
        """Reads in one go what `at_hand` will need of these, as long as nothing else is done with them before."""
        cold = [each for each in session_ids if each not in self._hot and self._may_be_read(each)]
        with contextlib.suppress(StoreUnavailable):  # whoever asks for one of them is told
            self._read = self._look_at(cold) if cold else {}

    def _look_at(self, session_ids: Sequence[bytes]) -> dict[bytes, Stored | None]:
        """What the store has of each; None: nothing, or a long log."""
        return dict.fromkeys(session_ids) | self.store.load_short(session_ids, _SHORT_LOG)

    def _may_be_read(self, session_id: bytes) -> bool:
        return self.store.quick and not self._hot.is_doubtful(session_id) and session_id not in self._reviving

    async def get(self, session_id: bytes) -> Session:
        """The session, revived if need be.

        Raises UnknownSession, StoreUnavailable, and what folding raises.
        """
        session = self.hot(session_id)
        if session is not None:
            return session
        if self._hot.is_doubtful(session_id):
            await self.revalidate(session_id)
            return await self.get(session_id)
        task = self._reviving.get(session_id)
        if task is None:
            task = asyncio.create_task(self._load(session_id))
            self._reviving[session_id] = task
            task.add_done_callback(lambda _: self._reviving.pop(session_id, None))
        return await asyncio.shield(task)

    async def fresh(self, session_id: bytes) -> Session:
        """The session as the store has it: what is to be read, rather than changed, must not come from a stale copy."""
        if self.store.shared and session_id in self._hot:
            await self.revalidate(session_id)
        return await self.get(session_id)

    async def revalidate(self, session_id: bytes) -> bool:
        """Whether the hot copy is what the store has; if not, it is dropped."""
        session = self._hot.find(session_id)
        head = await self._store_call(lambda: self.store.head(session_id))
        if session is not None and head == session.head:
            self._hot.trust(session_id)
            return True
        self.drop(session_id)
        return False

    async def find(self, session_id: bytes, request_digest: bytes) -> Session | None:
        """The session that this very request opened, if any. Raises AlreadyExists if another one did."""
        try:
            session = await self.fresh(session_id)
        except UnknownSession:
            return None
        return _same(session, request_digest)

    async def as_of(self, session_id: bytes, version: int) -> Session:
        """The session as it stood at an earlier version, as a copy that nobody keeps. Raises UnknownSession."""
        stored = await self._store_call(lambda: self.store.load(session_id))
        if stored is None:
            raise UnknownSession(session_id)
        records = stored.records[:version]
        more = stored.records[version : version + 1]
        if more and is_finish(more[0]):
            records += more
        return await self._revive(session_id, replace(stored, records=records))

    async def _load(self, session_id: bytes) -> Session:
        stored = await self._store_call(lambda: self.store.load(session_id))
        if stored is None:
            raise UnknownSession(session_id)
        failpoints.hit(failpoints.REVIVE_MIDDLE)
        session = await self._revive(session_id, stored)
        self._revived_as(session)
        return session

    def _revived_as(self, session: Session) -> None:
        self._read.pop(session.identity.session_id, None)
        self._hot.make_room()
        self._hot.add(session)
        self._revived += 1

    # --- keeping ---

    async def add(self, session: Session, origin: Origin, blobs: Mapping[bytes, bytes]) -> Session:
        """Keeps a new session, or gives the one that the same request has opened meanwhile.

        `blobs` are those of its vocabulary. Raises AlreadyExists, LimitReached, StoreUnavailable.
        """
        identity = session.identity
        events = list(events_of(session.log))
        records = tuple(record_of(event, origin) for event in events)
        session.log.version = len(records)
        settings = list({id(mark.settings): mark.settings for mark in session.log.marks}.values())
        named = [digest for one in settings for digest in one.blobs]
        named += blobs

        def create() -> Stored | None:
            self._put_blobs(blobs)
            for one in settings:
                self._put_blobs(one.blobs)
            failpoints.hit(failpoints.CREATE_BEFORE)
            taken = self.store.create(identity.session_id, session.head, records, tuple(dict.fromkeys(named)))
            failpoints.hit(failpoints.CREATE_AFTER)
            return taken

        taken = await self._store_call(create)
        if taken is None:
            self._hot.add(session)
            return session
        if origin_of(taken.records).request_digest != identity.request_digest:
            raise _taken(identity.session_id)
        return _same(await self.get(identity.session_id), identity.request_digest)

    def keep(self, pendings: Sequence[Pending]) -> list[StaleCopy | ConstraintdError | None]:
        """Writes what is pending and makes it so; one result each, in order, None: it has happened.

        Blocks as long as the store takes. No two are of the same session.
        """
        appends = [_append_of(pending) for pending in pendings]
        try:
            for pending in pendings:
                if pending.settings is not None:
                    self._put_blobs(pending.settings.blobs)
            failpoints.hit(failpoints.APPEND_BEFORE)
            results = [None] * len(appends) if failpoints.bug(failpoints.BUG_APPEND) else self.store.append(appends)
            failpoints.hit(failpoints.APPEND_AFTER)
        except BaseException as error:
            for pending in pendings:
                # It may have been written all the same: the copy is asked about before it is used again.
                self._hot.doubt(pending.session.identity.session_id)
                pending.abort()
            if isinstance(error, StoreUnavailable):
                return [error] * len(pendings)
            raise
        kept: list[StaleCopy | ConstraintdError | None] = []
        for pending, behind in zip(pendings, results, strict=True):
            if behind is None:
                pending.commit()
                kept.append(None)
            else:
                pending.abort()
                self.drop(pending.session.identity.session_id)
                kept.append(StaleCopy())
        return kept

    async def change(self, session_id: bytes, prepare: Callable[[Session], Pending | T]) -> tuple[Session, T | None]:
        """Prepares a change in a thread and keeps it; the session, and what `prepare` gave instead of a Pending.

        A stale copy is replaced, and the change prepared once more on the session as it is. Raises what `prepare` does.
        """
        for last in (False, True):
            session = await self.fresh(session_id)

            def both(on: Session = session) -> T | StaleCopy | ConstraintdError | None:
                pending = prepare(on)
                if not isinstance(pending, Pending):
                    return pending
                failpoints.hit(failpoints.CHANGE_BEFORE)
                result = self.keep([pending])[0]
                failpoints.hit(failpoints.CHANGE_AFTER)
                return result

            result = await asyncio.get_running_loop().run_in_executor(self._threads, both)
            if isinstance(result, ConstraintdError):
                raise result
            if not isinstance(result, StaleCopy):
                return session, result
            if last:
                break
        raise StoreUnavailable(f"session {session_id.hex()} is being changed by several daemons; send the same again")

    async def close(self, session_id: bytes) -> bool:
        """Forgets it; false if there was none."""
        self.drop(session_id)
        return await self._store_call(lambda: self.store.delete(session_id))

    async def keep_blobs(self, blobs: Mapping[bytes, bytes]) -> None:
        """Keeps blobs for an hour, or for as long as a session names them. Raises StoreUnavailable."""
        await self._store_call(lambda: self._put_blobs(blobs))

    def _put_blobs(self, blobs: Mapping[bytes, bytes]) -> None:
        now = self._clock()
        fresh = {d: blob for d, blob in blobs.items() if now - self._blobs.get(d, -1e18) > _KEPT_SECONDS}
        if fresh:
            self.store.put_blobs(fresh)
            self._blobs.update(dict.fromkeys(fresh, now))

    # --- room ---

    def drop(self, session_id: bytes) -> None:
        """Forgets the copy in memory."""
        self._read.pop(session_id, None)
        self._hot.drop(session_id)

    async def check_room(self) -> None:
        """Raises LimitReached if a new session would not fit, before work is spent on it."""
        if not self._room:
            await self._count_room()
        self._room -= 1
        if not self._hot.make_room():
            raise LimitReached(
                "bytes of memory for sessions", limit=self._limits.hot_bytes, remedy="try again in a moment"
            )

    async def _count_room(self) -> None:
        """How many may be opened before the store is asked again: it takes milliseconds to count 100,000."""
        kept = (await self._store_call(self.store.statistics)).sessions
        if kept >= self._limits.sessions:
            await self.sweep()
            kept = (await self._store_call(self.store.statistics)).sessions
        if kept >= self._limits.sessions:
            raise LimitReached("sessions", limit=self._limits.sessions, remedy="close finished ones or try again later")
        room = self._limits.sessions - kept
        self._room = -(-room // _DAEMONS) if self.store.shared else room

    async def sweep(self) -> None:
        """Forgets expired sessions, and drops the copies of those that have not been stepped for a while."""
        loop = asyncio.get_running_loop()
        # Never on the loop: thousands may expire at once.
        for session_id in await loop.run_in_executor(self._threads, self.store.expire, self._limits.idle_seconds):
            self.drop(session_id)
        self._hot.passivate_idle(self._clock() - self._limits.passive_seconds)

    async def page(self, after: bytes, size: int) -> tuple[list[tuple[bytes, Session | Head]], bytes]:
        """At most `size` sessions by ascending id, past `after`, and where the next page begins (b"": the end).

        Of a session that is not hot, or not any more as the store has it, its head.
        """

        def read() -> list[tuple[bytes, Session | Head]]:
            ids = self.store.page(after, size + 1)
            known = ((each, self._listed(each)) for each in ids)
            return [(each, found) for each, found in known if found is not None]

        found = await self._store_call(read)
        chosen = found[:size]
        return chosen, chosen[-1][0] if len(found) > size else b""

    def _listed(self, session_id: bytes) -> Session | Head | None:
        session = self.hot(session_id)
        if session is not None and not self.store.shared:
            return session
        head = self.store.head(session_id)
        return session if session is not None and session.head == head else head

    def statistics(self) -> Statistics:
        """How full it is."""
        kept = self.store.statistics().sessions
        return Statistics(kept, len(self._hot), self._limits.sessions, self._revived, self._hot.passivated)

    async def _store_call(self, call: Callable[[], T]) -> T:
        if self.store.quick:
            return call()
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _append_of(pending: Pending) -> Append:
    session = pending.session
    settings = pending.settings
    return Append(
        session.identity.session_id,
        session.head,
        pending.head,
        tuple(record_of(event) for event in pending.events),
        () if settings is None else tuple(settings.blobs),
    )


def _same(session: Session, request_digest: bytes) -> Session:
    if session.identity.request_digest != request_digest:
        raise _taken(session.identity.session_id)
    return session


def _taken(session_id: bytes) -> AlreadyExists:
    return AlreadyExists(f"session {session_id.hex()} was opened by a different request; choose 16 fresh random bytes")
