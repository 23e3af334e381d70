"""A session of the store becomes one in memory: its vocabulary and grammars made known again, its log folded."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from constraintd.replay import Hold, Replay
from constraintd.session.records import origin_of
from constraintd.session.session import Identity, Session
from constraintd.session.store.store import SessionStore, Stored
from constraintd.vocabularies import Vocabularies


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

    async def session(self, session_id: bytes, stored: Stored) -> Session:
        """The session as it was kept.

        Raises ReplayDiverged, InvalidEnvelope (for records that can't be read), UnknownVocabulary, LimitExceeded, and
        what compiling raises.
        """
        origin = origin_of(stored.records)
        vocabulary = await self._vocabularies.revive(origin.vocabulary_id, origin.vocabulary_blob, self._store.blob)
        make_log = await self._replay.prepared(stored.records, vocabulary, self._store.blob, self._hold)
        identity = Identity(session_id, vocabulary, origin.request_digest)
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: Session(identity, make_log(), stored.head.epoch)
        )
