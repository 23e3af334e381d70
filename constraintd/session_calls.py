"""The calls that open, change and hand over sessions. Each translates, asks the session, and translates back.

What a call needs compiled is compiled before the session is touched, so a session waits for no compilation.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

from google.protobuf.message import Message

from constraintd.config import Limits
from constraintd.constraint_plan import ConstraintPlan, GrammarRef, plan_constraint
from constraintd.errors import InvalidField, TooLarge
from constraintd.grammar.cache import Lease
from constraintd.importing import Importer, exported
from constraintd.opening import build_session
from constraintd.session.session import Answer, Change, Identity, Session
from constraintd.session.table import SessionTable
from constraintd.settings_source import SettingsSource, checked_prompt, settings_of
from constraintd.translate import directive_message, session_id_of, session_message
from constraintd.translate_sampler import sampler_config_message
from constraintd.v1 import session_pb2
from constraintd.vocabulary.registry import VocabularyRegistry

_DEFAULT_PAGE = 100
_MAX_PAGE = 1000
T = TypeVar("T")

Hold = Callable[[str, GrammarRef], Awaitable[Lease]]
"""Holds a grammar of a vocabulary, compiled if need be, within the call's deadline."""


class SessionCalls:
    """The session calls of one daemon, over its table of sessions. Slow work runs in `threads`."""

    def __init__(
        self, sessions: SessionTable, vocabularies: VocabularyRegistry, limits: Limits, threads: Executor
    ) -> None:
        self._sessions = sessions
        self._vocabularies = vocabularies
        self._limits = limits
        self._threads = threads

    async def open(self, request: session_pb2.OpenSessionRequest, hold: Hold) -> session_pb2.OpenSessionResponse:
        """Opens a session, or finds the one that the same request has opened."""
        session_id = session_id_of(request.session_id)
        digest = digest_of(request)
        session = self._sessions.find(session_id, digest)
        if session is None:
            self._sessions.check_room()
            plan, leases = await self._planned(request.constraint, request.vocabulary_id, hold)
            vocabulary = self._vocabularies.get(request.vocabulary_id)
            opened = await self._in_thread(
                lambda: build_session(request, digest, vocabulary, plan, leases, self._limits)
            )
            session = self._sessions.add(opened)
        return session_pb2.OpenSessionResponse(
            epoch=session.epoch,
            seed=session.log.seed,
            directive=directive_message(session.directive),
            sampler=sampler_config_message(session.config),
        )

    async def update(self, request: session_pb2.UpdateSessionRequest, hold: Hold) -> session_pb2.UpdateSessionResponse:
        """Other settings, or a new turn."""
        session = self._session(request.session_id)
        change = _change_of(request)
        answer = session.first_answer(change.request_id, change.digest)
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
        source = SettingsSource.decode(before.source).changed_by(request)
        turns = list(session.log.turns())
        prompt = turns[-1].prompt or ()
        if request.HasField("new_turn"):
            room = self._limits.max_prompt_tokens - sum(len(turn.prompt or ()) for turn in turns)
            prompt = checked_prompt("new_turn.prompt_tokens", request.new_turn.prompt_tokens, vocabulary, room)
        plan, leases = await self._planned(source.constraint, vocabulary.fingerprint, hold)

        def change_it() -> Answer:
            settings = settings_of(source, plan, leases, prompt, vocabulary, self._limits)
            given = request.seed if request.HasField("seed") else None
            if given is None and request.sampler.HasField("seed"):
                given = request.sampler.seed
            if request.HasField("new_turn"):
                return session.new_turn(change, settings, prompt, session.next_seed(given, session.position))
            return session.update(change, settings, session.log.seed if given is None else given)

        return await self._in_thread(change_it)

    async def rollback(self, request: session_pb2.RollbackSessionRequest) -> session_pb2.RollbackSessionResponse:
        """Back to an earlier position."""
        session = self._session(request.session_id)
        change = _change_of(request)
        seed = request.seed if request.HasField("seed") else None
        answer = await self._in_thread(lambda: session.rollback(change, request.to_position, seed))
        return session_pb2.RollbackSessionResponse(
            epoch=answer.epoch,
            directive=directive_message(answer.directive),
            sampler=sampler_config_message(answer.config),
        )

    async def fork(self, request: session_pb2.ForkSessionRequest) -> session_pb2.ForkSessionResponse:
        """A second session with the same history up to a position."""
        new_id = session_id_of(request.new_session_id, "new_session_id")
        digest = digest_of(request)
        child = self._sessions.find(new_id, digest)
        if child is None:
            parent = self._session(request.session_id)
            self._sessions.check_room()
            identity = Identity(new_id, parent.identity.vocabulary, digest)
            seed = request.seed if request.HasField("seed") else None
            forked = await self._in_thread(lambda: parent.fork(identity, request.position, seed))
            child = self._sessions.add(forked)
        return session_pb2.ForkSessionResponse(
            epoch=child.epoch,
            directive=directive_message(child.directive),
            sampler=sampler_config_message(child.config),
        )

    async def resume(self, request: session_pb2.ResumeSessionRequest) -> session_pb2.ResumeSessionResponse:
        """Takes a session over."""
        session = self._session(request.session_id)
        answer = await self._in_thread(session.take_over)
        log = session.log
        return session_pb2.ResumeSessionResponse(
            epoch=answer.epoch,
            vocabulary_id=session.identity.vocabulary.fingerprint,
            turns=[session_pb2.Turn(position=turn.position, prompt_tokens=turn.prompt) for turn in log.turns()],
            tokens=log.tokens,
            passes=log.passes.lengths,
            sampler=sampler_config_message(answer.config),
            directive=directive_message(answer.directive),
        )

    async def export(self, request: session_pb2.ExportSessionRequest) -> session_pb2.ExportSessionResponse:
        """A session as bytes."""
        session = self._session(request.session_id)
        return session_pb2.ExportSessionResponse(envelope=await self._in_thread(lambda: exported(session)))

    async def import_(self, request: session_pb2.ImportSessionRequest, hold: Hold) -> session_pb2.ImportSessionResponse:
        """A session from such bytes."""
        limit = self._limits.max_message_bytes
        if len(request.envelope) > limit:
            raise TooLarge("envelope", limit=limit, actual=len(request.envelope))
        importer = Importer(self._vocabularies, self._limits, hold)
        digest = digest_of(request)
        envelope = await self._in_thread(lambda: importer.read(request.envelope))
        session = self._sessions.find(envelope.session_id, digest)
        if session is None:
            self._sessions.check_room()
            settings = await importer.settings(envelope)
            imported = await self._in_thread(lambda: importer.session(envelope, settings, digest))
            session = self._sessions.add(imported)
        return session_pb2.ImportSessionResponse(
            session_id=session.identity.session_id,
            epoch=session.epoch,
            directive=directive_message(session.directive),
            sampler=sampler_config_message(session.config),
        )

    def close(self, request: session_pb2.CloseSessionRequest) -> session_pb2.CloseSessionResponse:
        """Forgets a session."""
        return session_pb2.CloseSessionResponse(closed=self._sessions.close(session_id_of(request.session_id)))

    def get(self, request: session_pb2.GetSessionRequest) -> session_pb2.GetSessionResponse:
        """One session, with its tokens."""
        session = self._session(request.session_id)
        return session_pb2.GetSessionResponse(
            session=session_message(session, now=time.monotonic()),
            tokens=session.log.tokens,
            surprisals=session.log.surprisals,
        )

    def page(self, request: session_pb2.ListSessionsRequest) -> session_pb2.ListSessionsResponse:
        """A page of sessions."""
        if request.page_size > _MAX_PAGE:
            raise InvalidField("page_size", f"{request.page_size} is over {_MAX_PAGE}; ask for more pages")
        sessions, after = self._sessions.page(request.page_token, request.page_size or _DEFAULT_PAGE)
        now = time.monotonic()
        return session_pb2.ListSessionsResponse(
            sessions=[session_message(session, now=now) for session in sessions], next_page_token=after
        )

    def _session(self, session_id: bytes) -> Session:
        return self._sessions.get(session_id_of(session_id))

    async def _planned(
        self, constraint: session_pb2.Constraint, vocabulary_id: str, hold: Hold
    ) -> tuple[ConstraintPlan, list[Lease]]:
        plan = plan_constraint(constraint, self._limits)
        return plan, [await hold(vocabulary_id, ref) for ref in plan.refs]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def digest_of(request: Message) -> bytes:
    """Tells a request from others under the same id."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


def _change_of(request: session_pb2.UpdateSessionRequest | session_pb2.RollbackSessionRequest) -> Change:
    request_id = session_id_of(request.request_id, "request_id")
    return Change(request_id, digest_of(request), request.epoch, request.position)
