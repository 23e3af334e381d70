"""The service's session calls in this process, without gRPC: the same code from message to message."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from constraintd.config import Limits
from constraintd.constraint import PartKind, PartSpec
from constraintd.constraint_plan import GrammarRef
from constraintd.decode import DecodeStream, Write, step_kept
from constraintd.engine.matcher import CompiledGrammar
from constraintd.grammar.cache import Lease
from constraintd.grammar.compiler import GrammarCompiler
from constraintd.grammar.sandbox import NoSandbox
from constraintd.grammar.source import GrammarSource
from constraintd.part_identity import grammar_identity
from constraintd.replay import Replay, SettingsShelf
from constraintd.revival import Revival
from constraintd.sampler.config import SamplerConfig
from constraintd.sampler.settings import Settings
from constraintd.session.directive import Directive
from constraintd.session.events import SessionSettings
from constraintd.session.session import Identity, Session
from constraintd.session.store.memory import MemoryStore
from constraintd.session.store.store import SessionStore
from constraintd.session.table import SessionTable, TableLimits
from constraintd.session_calls import SessionCalls
from constraintd.v1 import session_pb2
from constraintd.vocabularies import Vocabularies
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.vocabulary import Vocabulary
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH

T = TypeVar("T")
BYTES = load_vocabulary(VocabularyFormat.TOKEN_TABLE, BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG])


def grammar_part(name: str, compiled: CompiledGrammar) -> PartSpec:
    """A grammar that is awake from the first token on."""
    identity = grammar_identity(compiled.grammar_id, BYTES)
    return PartSpec(name, PartKind.GRAMMAR, identity, compiled.start, compiled.at)


def plain_session(
    parts: Sequence[PartSpec] = (),
    vocabulary: Vocabulary = BYTES,
    *,
    prompt: tuple[int, ...] = (),
    seed: int = 0,
    max_tokens: int = 1_000_000,
    min_tokens: int = 0,
    **config: Any,
) -> Session:
    """A session under these parts and this sampler config."""
    sampling = Settings(vocabulary, SamplerConfig(**config), tuple(parts), min_tokens=min_tokens, max_tokens=max_tokens)
    return Session.open(Identity(bytes(16), vocabulary, b""), SessionSettings(sampling), prompt, seed)


class PlainDaemon:
    """One daemon's sessions over one vocabulary. Close it after use."""

    def __init__(
        self, vocabulary: Vocabulary = BYTES, limits: Limits | None = None, store: SessionStore | None = None
    ) -> None:
        limits = limits or Limits()
        store = store or MemoryStore()
        self.vocabulary = vocabulary
        self._loop = asyncio.new_event_loop()
        registry = VocabularyRegistry(1)
        registry.add(vocabulary)
        self._compiler = GrammarCompiler(registry, NoSandbox(), limits)
        self._threads = ThreadPoolExecutor(1)
        vocabularies = Vocabularies(registry, self._compiler.prepare, store.blob, self._threads)
        shelf = SettingsShelf()
        revival = Revival(store, vocabularies, Replay(shelf, limits), self.hold, self._threads)
        bounds = TableLimits(limits.max_sessions, limits.max_hot_session_bytes, limits.session_idle_seconds, 60.0)
        self.table = SessionTable(store, bounds, revival.session, self._threads, revive_at_once=revival.at_once)
        self._limits = limits
        self.calls = SessionCalls(self.table, vocabularies, shelf, limits, self._threads)

    def session(self, session_id: bytes) -> Session:
        """The session as it stands, revived if need be."""
        return self.run(self.table.get(session_id))

    def close_session(self, session: Session) -> None:
        """CloseSession."""
        request = session_pb2.CloseSessionRequest(session_id=session.identity.session_id)
        self.run(self.calls.close(request))

    def step(
        self, session: Session, tokens: Sequence[int], surprisals: Sequence[float], passes: Sequence[int] = ()
    ) -> Directive:
        """Step, from the session's present place."""
        step = session_pb2.Step(
            session_id=session.identity.session_id,
            epoch=session.epoch,
            position=session.position,
            tokens=tokens,
            surprisals=surprisals,
            passes=passes,
        )
        return self.send(step)

    def send(self, step: session_pb2.Step) -> Directive:
        """A Step as it is."""
        return self.run(step_kept(self.table, step, self._threads))

    def stream(self, write: Write) -> DecodeStream:
        """The server's side of a Decode stream, which answers by `write`."""
        return DecodeStream(self.vocabulary.fingerprint, self.table, self._limits, self._threads, write)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The call's answer. Raises what it raises."""
        return self._loop.run_until_complete(call)

    async def hold(self, vocabulary_id: str, ref: GrammarRef) -> Lease:
        """As the service holds grammars."""
        if not isinstance(ref.source, GrammarSource):
            return self._compiler.get(vocabulary_id, ref.grammar_id)
        return (await self._compiler.compile(vocabulary_id, await self._compiler.read(ref.source))).lease

    def open(self, constraint: session_pb2.Constraint, **fields: Any) -> Session:
        """A session under this constraint; `fields` of OpenSessionRequest."""
        request = session_pb2.OpenSessionRequest(
            session_id=fields.pop("session_id", None) or secrets.token_bytes(16),
            vocabulary_id=self.vocabulary.fingerprint,
            constraint=constraint,
            **fields,
        )
        self.run(self.calls.open(request, self.hold))
        return self.session(request.session_id)

    def update(self, session: Session, **fields: Any) -> session_pb2.UpdateSessionResponse:
        """UpdateSession from the session's present place."""
        request = session_pb2.UpdateSessionRequest(
            session_id=session.identity.session_id,
            epoch=session.epoch,
            position=session.position,
            request_id=secrets.token_bytes(16),
            **fields,
        )
        return self.run(self.calls.update(request, self.hold))

    def rollback(self, session: Session, to_position: int, **fields: Any) -> session_pb2.RollbackSessionResponse:
        """RollbackSession from the session's present place."""
        request = session_pb2.RollbackSessionRequest(
            session_id=session.identity.session_id,
            epoch=session.epoch,
            position=session.position,
            request_id=secrets.token_bytes(16),
            to_position=to_position,
            **fields,
        )
        return self.run(self.calls.rollback(request))

    def fork(self, session: Session, position: int, **fields: Any) -> Session:
        """A fork at a position."""
        request = session_pb2.ForkSessionRequest(
            session_id=session.identity.session_id,
            position=position,
            new_session_id=secrets.token_bytes(16),
            **fields,
        )
        self.run(self.calls.fork(request))
        return self.session(request.new_session_id)

    def export(self, session: Session) -> bytes:
        """Its envelope."""
        request = session_pb2.ExportSessionRequest(session_id=session.identity.session_id)
        return self.run(self.calls.export(request)).envelope

    def import_(self, envelope: bytes) -> Session:
        """The session in an envelope."""
        answer = self.run(self.calls.import_(session_pb2.ImportSessionRequest(envelope=envelope), self.hold))
        return self.session(answer.session_id)

    def close(self) -> None:
        """Ends threads and loop."""
        self._threads.shutdown()
        self._compiler.close()
        self._loop.close()
