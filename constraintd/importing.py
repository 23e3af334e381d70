"""Sessions as bytes: out of one daemon, and into another that checks everything before it believes any of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from constraintd.config import Limits
from constraintd.envelope import Envelope, pack
from constraintd.errors import InvalidEnvelope, ReplayDiverged
from constraintd.replay import Hold, Replay
from constraintd.session.log import fold_checked
from constraintd.session.records import Origin, events_of, origin_of, record_of
from constraintd.session.session import Identity, Session
from constraintd.vocabulary.vocabulary import Vocabulary


def exported(session: Session) -> bytes:
    """The session's envelope, as bytes. Raises StepInFlight, LimitExceeded."""
    return pack(envelope_of(session))


def envelope_of(session: Session) -> Envelope:
    """The session's envelope: equal sessions have equal ones. Raises StepInFlight, LimitExceeded."""
    log, state = session.snapshot()
    blobs = {digest: blob for mark in log.marks for digest, blob in mark.settings.blobs.items()}
    # Neither where its vocabulary's upload is kept nor which call opened it travels: the same session, the same bytes.
    origin = Origin(session.identity.vocabulary.fingerprint, b"", b"")
    records = tuple(record_of(event, origin) for event in events_of(log))
    return Envelope(session.identity.session_id, blobs, records, state)


class Importer:
    """Makes a session of an envelope."""

    def __init__(self, find: Callable[[str], Awaitable[Vocabulary]], replay: Replay, limits: Limits) -> None:
        """`find` gives a vocabulary by its fingerprint. Raises UnknownVocabulary."""
        self._find = find
        self._replay = replay
        self._limits = limits

    async def prepared(self, envelope: Envelope, digest: bytes, hold: Hold) -> Callable[[], Session]:
        """What makes the session, its log replayed token by token, once everything that it needs is compiled.

        Raises InvalidEnvelope, UnknownVocabulary and what compiling raises. What it gives raises InvalidEnvelope,
        ReplayDiverged where a token is refused now or another state comes out, and LimitExceeded.
        """
        vocabulary = await self._find(origin_of(envelope.records).vocabulary_id)

        async def blob(digest: bytes) -> bytes | None:
            return envelope.blobs.get(digest)

        make_log = await self._replay.prepared(envelope.records, vocabulary, blob, hold)

        def make() -> Session:
            log = make_log()
            if log.position > self._limits.max_session_tokens:
                raise InvalidEnvelope(
                    f"envelope: {log.position} tokens are more than this daemon's {self._limits.max_session_tokens}",
                    location="tokens",
                )
            state = fold_checked(log)
            if state.to_bytes() != envelope.state:
                raise ReplayDiverged(
                    "the log leads to another state here than the one in the envelope: this daemon's engines differ "
                    "from the exporting one's; import it where the versions are the same (GetServerInfo.components)",
                    position=log.position,
                )
            session = Session(Identity(envelope.session_id, vocabulary, digest), log)
            if envelope_of(session) != envelope:
                raise InvalidEnvelope(
                    "envelope: it says the same in another way than ExportSession, or holds more; give what that gave"
                )
            return session

        return make
