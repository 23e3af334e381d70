"""The calls that open, change and hand over sessions. Each translates, asks the session, and translates back.

What a call needs compiled is compiled before the session is touched, so a session waits for no compilation.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from google.protobuf.message import Message

from constraintd import failpoints
from constraintd.config import Limits
from constraintd.constraint_plan import ConstraintPlan, plan_constraint
from constraintd.envelope import unpack
from constraintd.errors import InvalidField, TooLarge
from constraintd.grammar.cache import Lease
from constraintd.importing import Importer, exported
from constraintd.opening import build_session
from constraintd.replay import Hold, Replay, SettingsShelf
from constraintd.session.records import Origin
from constraintd.session.session import Answer, Change, Identity, Pending, Session, SupersededAnswer
from constraintd.session.table import SessionTable
from constraintd.settings_source import SettingsSource, checked_prompt, settings_of
from constraintd.translate import directive_message, session_id_of, session_message
from constraintd.translate_sampler import sampler_config_message
from constraintd.v1 import session_pb2
from constraintd.vocabularies import Vocabularies

_DEFAULT_PAGE = 100
_MAX_PAGE = 1000
T = TypeVar("T")


class SessionCalls:
    """The session calls of one daemon, over its table of sessions. Slow work runs in `threads`."""

    def __init__(
        self,
        sessions: SessionTable,
        vocabularies: Vocabularies,
        shelf: SettingsShelf,
        limits: Limits,
        threads: Executor,
    ) -> None:
        self._sessions = sessions
        self._vocabularies = vocabularies
        self._shelf = shelf
        self._limits = limits
        self._threads = threads
        self._importer = Importer(vocabularies.find, Replay(shelf, limits), limits)

    async def open(self, request: session_pb2.OpenSessionRequest, hold: Hold) -> session_pb2.OpenSessionResponse:
        """Opens a session, or finds the one that the same request has opened."""
        session_id = session_id_of(request.session_id)
        digest = digest_of(request)
        session = await self._sessions.find(session_id, digest)
        if session is None:
            await self._sessions.check_room()
            vocabulary = await self._vocabularies.find(request.vocabulary_id)
            plan, leases = await self._planned(request.constraint, request.vocabulary_id, hold)
            opened = await self._in_thread(
                lambda: build_session(request, digest, vocabulary, plan, leases, self._limits, self._shelf)
            )
            session = await self._add(opened)
        return session_pb2.OpenSessionResponse(
            epoch=session.epoch,
            seed=session.log.seed,
            directive=directive_message(session.directive),
            sampler=sampler_config_message(session.config),
        )

    async def _add(self, session: Session) -> Session:
        fingerprint = session.identity.vocabulary.fingerprint
        digest, blobs = self._vocabularies.upload(fingerprint)
        return await self._sessions.add(session, Origin(fingerprint, digest, session.identity.request_digest), blobs)

    async def update(self, request: session_pb2.UpdateSessionRequest, hold: Hold) -> session_pb2.UpdateSessionResponse:
        """Other settings, or a new turn."""
        change = _change_of(request)
        session = await self._sessions.fresh(session_id_of(request.session_id))
        answer = await self._answered(session, change)
        if answer is None:
            answer = await self._updated(session, change, request, hold)
        return session_pb2.UpdateSessionResponse(
            epoch=answer.epoch,
            directive=directive_message(answer.directive),
            sampler=sampler_config_message(answer.config),
        )

    async def _updated(
        self, session: Session, change: Change, request: session_pb2.UpdateSessionRequest, hold: Hold
    ) -> Answer:
        vocabulary = session.identity.vocabulary
        before = session.log.settings
        source, given = await self._in_thread(
            lambda: SettingsSource.decode(before.blobs[before.ref.source]).changed_by(request)
        )
        turns = list(session.log.turns())
        prompt = turns[-1].prompt or ()
        if request.HasField("new_turn"):
            room = self._limits.max_prompt_tokens - sum(len(turn.prompt or ()) for turn in turns)
            prompt = checked_prompt("new_turn.prompt_tokens", request.new_turn.prompt_tokens, vocabulary, room)
        plan, leases = await self._planned(source.constraint, vocabulary.fingerprint, hold)

        def prepare(on: Session) -> Pending | Answer:
            made = settings_of(source, plan, leases, prompt, vocabulary, self._limits)
            settings = self._shelf.shared(made, source)
            if request.HasField("new_turn"):
                return on.prepare_turn(change, settings, prompt, on.next_seed(given, on.position))
            return on.prepare_update(change, settings, on.log.seed if given is None else given)

        return await self._changed(request.session_id, prepare)

    async def _changed(self, session_id: bytes, prepare: Callable[[Session], Pending | Answer]) -> Answer:
        try:
            session, answer = await self._sessions.change(session_id, prepare)
        except SupersededAnswer as superseded:
            return await self._answer_then(session_id, superseded)
        return session.answer() if answer is None else answer

    async def rollback(self, request: session_pb2.RollbackSessionRequest) -> session_pb2.RollbackSessionResponse:
        """Back to an earlier position."""
        change = _change_of(request)
        seed = request.seed if request.HasField("seed") else None
        answer = await self._changed(
            session_id_of(request.session_id), lambda on: on.prepare_rollback(change, request.to_position, seed)
        )
        return session_pb2.RollbackSessionResponse(
            epoch=answer.epoch,
            directive=directive_message(answer.directive),
            sampler=sampler_config_message(answer.config),
        )

    async def _answered(self, session: Session, change: Change) -> Answer | None:
        """The first answer to this very change, if it was answered; None if it is new."""
        try:
            return session.first_answer(change.request_id, change.digest)
        except SupersededAnswer as superseded:
            return await self._answer_then(session.identity.session_id, superseded)

    async def _answer_then(self, session_id: bytes, superseded: SupersededAnswer) -> Answer:
        """More has happened since: the session as it stood then is made once more, from its first records."""
        then = await self._sessions.as_of(session_id, superseded.version)
        return Answer(superseded.epoch, then.directive, then.config)

    async def fork(self, request: session_pb2.ForkSessionRequest) -> session_pb2.ForkSessionResponse:
        """A second session with the same history up to a position."""
        new_id = session_id_of(request.new_session_id, "new_session_id")
        digest = digest_of(request)
        child = await self._sessions.find(new_id, digest)
        if child is None:
            parent = await self._sessions.fresh(session_id_of(request.session_id))
            await self._sessions.check_room()
            identity = Identity(new_id, parent.identity.vocabulary, digest)
            seed = request.seed if request.HasField("seed") else None
            child = await self._add(
                await self._in_thread(lambda: Session(identity, parent.forked(request.position, seed)))
            )
        return session_pb2.ForkSessionResponse(
            epoch=child.epoch,
            directive=directive_message(child.directive),
            sampler=sampler_config_message(child.config),
        )

    async def resume(self, request: session_pb2.ResumeSessionRequest) -> session_pb2.ResumeSessionResponse:
        """Takes a session over."""
        session, _ = await self._sessions.change(session_id_of(request.session_id), lambda on: on.prepare_takeover())
        failpoints.hit(failpoints.TAKEOVER_AFTER)
        answer = session.answer()
        log = session.log
        source = SettingsSource.decode(log.settings.blobs[log.settings.ref.source])
        return session_pb2.ResumeSessionResponse(
            epoch=answer.epoch,
            vocabulary_id=session.identity.vocabulary.fingerprint,
            turns=[session_pb2.Turn(position=turn.position, prompt_tokens=turn.prompt) for turn in log.turns()],
            tokens=log.tokens,
            passes=log.passes.lengths,
            sampler=sampler_config_message(answer.config),
            directive=directive_message(answer.directive),
            constraint=source.constraint,
            reasoning_end=source.reasoning_end,
        )

    async def export(self, request: session_pb2.ExportSessionRequest) -> session_pb2.ExportSessionResponse:
        """A session as bytes."""
        session = await self._sessions.fresh(session_id_of(request.session_id))
        return session_pb2.ExportSessionResponse(envelope=await self._in_thread(lambda: exported(session)))

    async def import_(self, request: session_pb2.ImportSessionRequest, hold: Hold) -> session_pb2.ImportSessionResponse:
        """A session from such bytes."""
        limit = self._limits.max_message_bytes
        if len(request.envelope) > limit:
            raise TooLarge("envelope", limit=limit, actual=len(request.envelope))
        digest = digest_of(request)
        envelope = await self._in_thread(lambda: unpack(request.envelope))
        session = await self._sessions.find(envelope.session_id, digest)
        if session is None:
            await self._sessions.check_room()
            session = await self._add(await self._in_thread(await self._importer.prepared(envelope, digest, hold)))
        return session_pb2.ImportSessionResponse(
            session_id=session.identity.session_id,
            epoch=session.epoch,
            directive=directive_message(session.directive),
            sampler=sampler_config_message(session.config),
        )

    async def close(self, request: session_pb2.CloseSessionRequest) -> session_pb2.CloseSessionResponse:
        """Forgets a session."""
        closed = await self._sessions.close(session_id_of(request.session_id))
        return session_pb2.CloseSessionResponse(closed=closed)

    async def get(self, request: session_pb2.GetSessionRequest) -> session_pb2.GetSessionResponse:
        """One session, with its tokens."""
        session = await self._sessions.fresh(session_id_of(request.session_id))
        return session_pb2.GetSessionResponse(
            session=session_message(session, now=time.monotonic()),
            tokens=session.log.tokens,
            surprisals=session.log.surprisals,
        )

    async def page(self, request: session_pb2.ListSessionsRequest) -> session_pb2.ListSessionsResponse:
        """A page of sessions."""
        if request.page_size > _MAX_PAGE:
            raise InvalidField("page_size", f"{request.page_size} is over {_MAX_PAGE}; ask for more pages")
        found, after = await self._sessions.page(request.page_token, request.page_size or _DEFAULT_PAGE)
        now = time.monotonic()
        return session_pb2.ListSessionsResponse(
            sessions=[
                session_message(known, now=now)
                if isinstance(known, Session)
                else session_pb2.Session(session_id=session_id, position=known.position, passive=True)
                for session_id, known in found
            ],
            next_page_token=after,
        )

    async def _planned(
        self, constraint: session_pb2.Constraint, vocabulary_id: str, hold: Hold
    ) -> tuple[ConstraintPlan, list[Lease]]:
        plan = plan_constraint(constraint)
        return plan, [await hold(vocabulary_id, ref) for ref in plan.refs]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def digest_of(request: Message) -> bytes:
    """Tells a request from others under the same id."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


def _change_of(request: session_pb2.UpdateSessionRequest | session_pb2.RollbackSessionRequest) -> Change:
    request_id = session_id_of(request.request_id, "request_id")
    return Change(request_id, digest_of(request), request.epoch, request.position)
