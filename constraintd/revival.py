"""A session of the store becomes one in memory: its vocabulary and grammars made known again, its log folded.

A short log is folded in 0.1 to 0.2 ms, less than two hops between threads take under load. So where sessions under the
same settings have been quick, that happens on the event loop; the first one under its settings, and whoever may take
longer, goes to a thread.
"""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor
from typing import cast

from constraintd.errors import UnknownVocabulary
from constraintd.replay import Hold, Replay
from constraintd.session.events import SessionSettings
from constraintd.session.log import Log
from constraintd.session.records import log_of, origin_of
from constraintd.session.session import Identity, Session
from constraintd.session.store.store import SessionStore, Stored
from constraintd.vocabularies import Vocabularies

_QUICK_SECONDS = 0.001
_QUICK_BYTES = 4096  # of records


class Revival:
    """Revives sessions. Used from one event loop; reading blobs and folding run in `threads`."""

    def __init__(
        self, store: SessionStore, vocabularies: Vocabularies, replay: Replay, hold: Hold, threads: Executor
    ) -> None:
        self._store = store
        self._vocabularies = vocabularies
        self._replay = replay
        self._hold = hold
        self._threads = threads
        # Seconds a record that the last two revivals under these settings took, their fixed parts shared out.
        self._paces: weakref.WeakKeyDictionary[SessionSettings, tuple[float, float]] = weakref.WeakKeyDictionary()

    def at_once(self, session_id: bytes, stored: Stored) -> Session | None:
        """The same session, without waiting for anything; None if that could take more than a moment.

        Raises ReplayDiverged, InvalidEnvelope, LimitExceeded.
        """
        records = stored.records
        if sum(map(len, records)) > _QUICK_BYTES:
            return None
        origin = origin_of(records)
        try:
            vocabulary = self._vocabularies.registry.get(origin.vocabulary_id)
        except UnknownVocabulary:
            return None
        known = self._replay.known(records, vocabulary)
        if any(one is None or self._pace(one) * len(records) > _QUICK_SECONDS for one in known.values()):
            return None
        identity = Identity(session_id, vocabulary, origin.request_digest)
        return self._folded(identity, lambda: log_of(records, lambda ref, _: cast(SessionSettings, known[ref])), stored)

    async def session(self, session_id: bytes, stored: Stored) -> Session:
        """The session as it was kept.

        Raises ReplayDiverged, InvalidEnvelope (for records that can't be read), UnknownVocabulary, LimitExceeded, and
        what compiling raises.
        """
        session = self.at_once(session_id, stored)
        if session is not None:
            return session
        origin = origin_of(stored.records)
        vocabulary = await self._vocabularies.revive(origin.vocabulary_id, origin.vocabulary_blob)
        make_log = await self._replay.prepared(stored.records, vocabulary, self._blob, self._hold)
        identity = Identity(session_id, vocabulary, origin.request_digest)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._folded, identity, make_log, stored)

    def _folded(self, identity: Identity, make_log: Callable[[], Log], stored: Stored) -> Session:
        began = time.thread_time()
        session = Session(identity, make_log(), stored.head.epoch)
        settings, pace = session.log.settings, (time.thread_time() - began) / len(stored.records)
        _, last = self._paces.get(settings, (pace, pace))
        self._paces[settings] = last, pace
        return session

    def _pace(self, settings: SessionSettings) -> float:
        """The better of the last two: now and then one is slow by chance, such as the first in its thread."""
        return min(self._paces.get(settings, (math.inf,)))

    async def _blob(self, digest: bytes) -> bytes | None:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._store.blob, digest)
