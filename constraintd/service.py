"""The RPC handlers: translate messages to domain values, call the domain, translate back.

Errors are raised, never answered here: `server.error_interceptor` turns them into a status by one table. Work that
takes more than a moment (reading a vocabulary, compiling, opening) runs in threads; steps run as `decode` says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

import grpc

import constraintd
from constraintd import failpoints
from constraintd.config import Limits
from constraintd.constraint_plan import GrammarRef
from constraintd.decode import DecodeStream, StreamGone, check_step, step_kept
from constraintd.errors import (
    HelloExpected,
    LimitReached,
    LogitsWidthMismatch,
    StoreUnavailable,
)
from constraintd.grammar.cache import Lease
from constraintd.grammar.compiler import Compiled, GrammarCompiler, default_limits
from constraintd.grammar.honesty import report_of
from constraintd.grammar.sandbox import HelperSandbox, Sandbox
from constraintd.grammar.sandbox_protocol import CompileLimits
from constraintd.grammar.source import Grammar, GrammarSource
from constraintd.known_sources import Known, KnownSources
from constraintd.metrics import recording
from constraintd.metrics.calls import measured, refused_grammars
from constraintd.metrics.measured_store import MeasuredStore
from constraintd.metrics.sources import OnLoop, Sources
from constraintd.replay import Hold, Replay, SettingsShelf
from constraintd.revival import Revival
from constraintd.session.store.store import SessionStore
from constraintd.session.table import SessionTable, TableLimits
from constraintd.session_calls import SessionCalls
from constraintd.streams import Stopping, Streams
from constraintd.translate import (
    FORMATS,
    compile_limits_of,
    directive_message,
    grammar_source_of,
    report_messages,
    vocabulary_message,
)
from constraintd.upload import read_upload
from constraintd.v1 import (
    constraint_service_pb2,
    constraint_service_pb2_grpc,
    grammar_pb2,
    session_pb2,
    vocabulary_pb2,
)
from constraintd.vocabularies import Vocabularies
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.token_table import pack_vocabulary
from constraintd.vocabulary.vocabulary import Vocabulary

_COMPONENTS = ("grpcio", "llguidance", "numpy", "protobuf", "sentencepiece", "tokenizers")
_TABLE_CHUNK = 1 << 20
_SWEEP_SECONDS = 5.0
_log = logging.getLogger(__name__)
# Keywords whose report is put together in less time than the hop to a thread and back takes.
_SHORT_REPORT = 100

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


@measured
class ConstraintService(constraint_service_pb2_grpc.ConstraintServiceServicer):
    """constraintd.v1.ConstraintService over one daemon's vocabularies, grammars and sessions."""

    def __init__(self, limits: Limits, sandbox: Sandbox, store: SessionStore, *, threads: int = 4) -> None:
        """`threads`: of each of the pools that open and step sessions."""
        self._limits = limits
        self._sandbox = sandbox
        store = MeasuredStore(store)
        self._vocabularies = VocabularyRegistry(limits.max_vocabularies)
        self._compiler = GrammarCompiler(self._vocabularies, sandbox, limits)
        self._known = KnownSources()
        self._streams = 0
        self._decoding = Streams()
        self._uploads = 0
        # Apart, so that slow openings can't hold up a slow step, nor the other way round. Compiling has its own.
        self._open_threads = ThreadPoolExecutor(threads, "open")
        self._step_threads = ThreadPoolExecutor(threads, "step")
        self._uploaded = Vocabularies(self._vocabularies, self._compiler.prepare, store.blob, self._open_threads)
        shelf = SettingsShelf()
        self._revival = Revival(store, self._uploaded, Replay(shelf, limits), self._hold_for_long, self._open_threads)
        self._sessions = SessionTable(
            store,
            TableLimits(
                limits.max_sessions,
                limits.max_hot_session_bytes,
                limits.session_idle_seconds,
                limits.session_passive_seconds,
            ),
            self._revival.session,
            self._open_threads,
            revive_at_once=self._revival.at_once,
        )
        self._calls = SessionCalls(self._sessions, self._uploaded, shelf, limits, self._open_threads)

    def close(self) -> None:
        """Lets go of the threads; running work is not waited for."""
        self._compiler.close()
        self._open_threads.shutdown(wait=False, cancel_futures=True)
        self._step_threads.shutdown(wait=False, cancel_futures=True)

    def end_streams(self) -> None:
        """Says Draining on every Decode stream, and ends it with UNAVAILABLE once what it has read is answered."""
        self._decoding.end()

    async def GetServerInfo(
        self, request: constraint_service_pb2.GetServerInfoRequest, context: Context
    ) -> constraint_service_pb2.GetServerInfoResponse:
        """Versions, kinds and limits."""
        limits = self._limits
        fields = constraint_service_pb2.ServerLimits.DESCRIPTOR.fields_by_name
        return constraint_service_pb2.GetServerInfoResponse(
            version=constraintd.__version__,
            components=[constraint_service_pb2.Component(name=name, version=version(name)) for name in _COMPONENTS],
            grammar_kinds=[kind for kind in grammar_pb2.GrammarKind.values() if kind],
            vocabulary_formats=list(FORMATS),
            limits=constraint_service_pb2.ServerLimits(**{name: getattr(limits, name) for name in fields}),
        )

    async def RegisterVocabulary(
        self, request_iterator: AsyncIterator[vocabulary_pb2.RegisterVocabularyRequest], context: Context
    ) -> vocabulary_pb2.RegisterVocabularyResponse:
        """Reads an upload and registers what it holds."""
        if self._uploads >= self._limits.max_uploads:
            raise LimitReached("vocabulary uploads", limit=self._limits.max_uploads)
        self._uploads += 1
        try:
            upload = await read_upload(request_iterator, self._limits)
            vocabulary, created = await self._uploaded.register(upload)
            if self._sessions.store.shared:  # the daemons beside this one take it from there
                await self._sessions.keep_blobs(self._uploaded.upload(vocabulary.fingerprint)[1])
        finally:
            self._uploads -= 1
        return vocabulary_pb2.RegisterVocabularyResponse(vocabulary=vocabulary_message(vocabulary), created=created)

    async def GetVocabulary(
        self, request: vocabulary_pb2.GetVocabularyRequest, context: Context
    ) -> AsyncIterator[vocabulary_pb2.GetVocabularyResponse]:
        """Streams a vocabulary's token table."""
        vocabulary = await self._uploaded.find(request.vocabulary_id)
        yield vocabulary_pb2.GetVocabularyResponse(vocabulary=vocabulary_message(vocabulary))
        table = await self._in_thread(lambda: pack_vocabulary(vocabulary))
        for begin in range(0, len(table), _TABLE_CHUNK):
            yield vocabulary_pb2.GetVocabularyResponse(table=table[begin : begin + _TABLE_CHUNK])

    async def CompileGrammar(
        self, request: grammar_pb2.CompileGrammarRequest, context: Context
    ) -> grammar_pb2.CompileGrammarResponse:
        """Compiles, or finds, a grammar."""
        limits = compile_limits_of(request.limits, default_limits(self._limits))
        await self._uploaded.find(request.vocabulary_id)
        known = await self._read_or_known(request.grammar)
        compiled = await self._compile(request.vocabulary_id, known.grammar, context, limits)
        if known.answer is None:
            report = report_of(compiled.grammar)
            make = partial(report_messages, report)
            messages = make() if len(report) <= _SHORT_REPORT else await self._in_thread(make)
            known.answer = grammar_pb2.CompileGrammarResponse(
                grammar_id=compiled.grammar.grammar_id, cached=True, report=messages
            )
        if compiled.cached:
            return known.answer
        answer = grammar_pb2.CompileGrammarResponse(compile_us=round(compiled.seconds * 1e6))
        answer.MergeFrom(known.answer)
        answer.cached = False
        return answer

    async def _read_or_known(self, message: grammar_pb2.Grammar) -> Known:
        source = grammar_source_of(message)
        key = self._known.key(message, source)
        return self._known.find(key) or self._known.add(key, await self._read(source))

    async def _read(self, source: GrammarSource | Grammar) -> Grammar:
        with refused_grammars():
            return source if isinstance(source, Grammar) else await self._compiler.read(source)

    async def _compile(
        self, vocabulary_id: str, grammar: Grammar, context: Context | None, limits: CompileLimits | None = None
    ) -> Compiled:
        began = time.monotonic()
        remaining = None if context is None else context.time_remaining()
        deadline = None if remaining is None else began + remaining
        with refused_grammars():
            compiled = await self._compiler.compile(vocabulary_id, grammar, deadline=deadline, limits=limits)
        recorder = recording.active
        if recorder is not None and not compiled.cached:
            recorder.compile_seconds.observe(time.monotonic() - began)
        return compiled

    async def OpenSession(
        self, request: session_pb2.OpenSessionRequest, context: Context
    ) -> session_pb2.OpenSessionResponse:
        """Opens a session, or finds the one that the same request has opened."""
        return await self._calls.open(request, self._hold(context))

    async def UpdateSession(
        self, request: session_pb2.UpdateSessionRequest, context: Context
    ) -> session_pb2.UpdateSessionResponse:
        """Other settings, or a new turn."""
        return await self._calls.update(request, self._hold(context))

    async def RollbackSession(
        self, request: session_pb2.RollbackSessionRequest, context: Context
    ) -> session_pb2.RollbackSessionResponse:
        """Back to an earlier position."""
        return await self._calls.rollback(request)

    async def ForkSession(
        self, request: session_pb2.ForkSessionRequest, context: Context
    ) -> session_pb2.ForkSessionResponse:
        """A second session with the same history up to a position."""
        return await self._calls.fork(request)

    async def ResumeSession(
        self, request: session_pb2.ResumeSessionRequest, context: Context
    ) -> session_pb2.ResumeSessionResponse:
        """Takes a session over."""
        return await self._calls.resume(request)

    async def ExportSession(
        self, request: session_pb2.ExportSessionRequest, context: Context
    ) -> session_pb2.ExportSessionResponse:
        """A session as bytes."""
        return await self._calls.export(request)

    async def ImportSession(
        self, request: session_pb2.ImportSessionRequest, context: Context
    ) -> session_pb2.ImportSessionResponse:
        """A session from such bytes."""
        return await self._calls.import_(request, self._hold(context))

    async def CloseSession(
        self, request: session_pb2.CloseSessionRequest, context: Context
    ) -> session_pb2.CloseSessionResponse:
        """Forgets a session."""
        return await self._calls.close(request)

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: Context
    ) -> session_pb2.GetSessionResponse:
        """One session, with its tokens."""
        return await self._calls.get(request)

    async def ListSessions(
        self, request: session_pb2.ListSessionsRequest, context: Context
    ) -> session_pb2.ListSessionsResponse:
        """A page of sessions."""
        return await self._calls.page(request)

    def _hold(self, context: Context) -> Hold:
        """Holds grammars within the call's deadline."""

        async def hold(vocabulary_id: str, ref: GrammarRef) -> Lease:
            await self._uploaded.find(vocabulary_id)
            if ref.source is None:
                return self._compiler.get(vocabulary_id, ref.grammar_id)
            return (await self._compile(vocabulary_id, await self._read(ref.source), context)).lease

        return hold

    async def _hold_for_long(self, vocabulary_id: str, ref: GrammarRef) -> Lease:
        """The same without a deadline, for a session that is revived: whoever asked for it may ask again."""
        if ref.source is None:
            return self._compiler.get(vocabulary_id, ref.grammar_id)
        return (await self._compile(vocabulary_id, await self._read(ref.source), None)).lease

    async def sweep(self) -> None:
        """Lets go of sessions that nobody steps, for as long as the daemon runs."""
        # Here because it is where a running daemon has its loop.
        with recording.watching(Sources(asyncio.get_running_loop(), self._statistics, self._sessions.statistics)):
            while True:
                await asyncio.sleep(_SWEEP_SECONDS)
                try:
                    await self._sessions.sweep()
                except StoreUnavailable as error:
                    _log.warning("%s; sessions expire later", error.message)

    def _statistics(self) -> OnLoop:
        starts = self._sandbox.statistics().starts if isinstance(self._sandbox, HelperSandbox) else 0
        return OnLoop(self._streams, self._limits.max_streams, starts, self._compiler.statistics())

    async def Decode(  # type: ignore[override]  # writes for itself: answers leave in any order
        self, request_iterator: AsyncIterator[constraint_service_pb2.DecodeRequest], context: Context
    ) -> None:
        """Steps many sessions, from Hello until the client closes its side."""
        if self._streams >= self._limits.max_streams:
            raise LimitReached("Decode streams", limit=self._limits.max_streams)
        self._streams += 1
        stream: DecodeStream | None = None
        try:
            requests = aiter(request_iterator)
            while (request := await self._decoding.next(requests)) is not None:
                kind = request.WhichOneof("message")
                if stream is None:
                    vocabulary = await self._greet(request)
                    stream = DecodeStream(
                        vocabulary.fingerprint,
                        self._sessions,
                        self._limits,
                        self._step_threads,
                        context.write,
                    )
                elif kind == "step_batch":
                    await stream.step_batch(request.step_batch)
                else:
                    raise HelloExpected("Hello comes once, first; after it send only step_batch messages")
            if stream is not None:
                await stream.drain()
        except StreamGone:
            _log.debug("a Decode stream ended before its answers were sent")
        except Stopping:
            if stream is not None:
                with suppress(StreamGone):
                    await stream.say_draining()
                    await stream.drain()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the daemon is stopping; connect again")
        finally:
            self._streams -= 1
            if stream is not None:
                stream.cancel()

    async def _greet(self, request: constraint_service_pb2.DecodeRequest) -> Vocabulary:
        if request.WhichOneof("message") != "hello":
            raise HelloExpected("the first message of a Decode stream is Hello; send it before any step_batch")
        vocabulary = await self._uploaded.find(request.hello.vocabulary_id)
        if request.hello.logits_width != vocabulary.logits_width:
            raise LogitsWidthMismatch(
                f"Hello says {request.hello.logits_width} logits, vocabulary {vocabulary.fingerprint} was registered "
                f"with {vocabulary.logits_width}; register it again with the model's width"
            )
        return vocabulary

    async def Step(self, request: session_pb2.StepRequest, context: Context) -> session_pb2.StepResponse:
        """Steps one session."""
        check_step(request.step, self._limits)
        directive = await step_kept(self._sessions, request.step, self._step_threads)
        failpoints.hit(failpoints.REPLY_BEFORE)
        return session_pb2.StepResponse(directive=directive_message(directive))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._open_threads, work)
