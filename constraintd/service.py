"""The RPC handlers: translate messages to domain values, call the domain, translate back.

Errors are raised, never answered here: `server.error_interceptor` turns them into a status by one table. Work that
takes more than a moment (reading a vocabulary, compiling, opening) runs in threads; steps run as `decode` says.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

import grpc

import constraintd
from constraintd.config import Limits
from constraintd.constraint_plan import GrammarRef, plan_constraint, source_ref
from constraintd.decode import DecodeStream, check_step, step_session
from constraintd.errors import (
    HelloExpected,
    InvalidField,
    LimitReached,
    LogitsWidthMismatch,
)
from constraintd.grammar.cache import Lease
from constraintd.grammar.compiler import Compiled, GrammarCompiler, default_limits
from constraintd.grammar.honesty import report_of
from constraintd.grammar.sandbox import Sandbox
from constraintd.grammar.sandbox_protocol import CompileLimits
from constraintd.grammar.source import Grammar
from constraintd.known_sources import KnownSources
from constraintd.opening import build_session
from constraintd.session.table import SessionTable
from constraintd.translate import (
    FORMATS,
    compile_limits_of,
    directive_message,
    report_messages,
    session_id_of,
    session_message,
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
from constraintd.vocabulary.load import load_vocabulary
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.token_table import pack_vocabulary
from constraintd.vocabulary.vocabulary import Vocabulary

_COMPONENTS = ("grpcio", "llguidance", "numpy", "protobuf", "sentencepiece", "tokenizers")
_TABLE_CHUNK = 1 << 20
_DEFAULT_PAGE = 100
_MAX_PAGE = 1000
# Up to here, reading a grammar takes less than the hop to a thread and back.
_SMALL_SOURCE_BYTES = 2048

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


class ConstraintService(constraint_service_pb2_grpc.ConstraintServiceServicer):
    """constraintd.v1.ConstraintService over one daemon's vocabularies, grammars and sessions."""

    def __init__(self, limits: Limits, sandbox: Sandbox) -> None:
        self._limits = limits
        self._vocabularies = VocabularyRegistry(limits.max_vocabularies)
        self._compiler = GrammarCompiler(self._vocabularies, sandbox, limits)
        self._sessions = SessionTable(limit=limits.max_sessions, idle_seconds=limits.session_idle_seconds)
        self._known = KnownSources()
        self._streams = 0
        self._uploads = 0
        # Apart, so that slow openings can't hold up a slow step, nor the other way round. Compiling has its own.
        self._open_threads = ThreadPoolExecutor(4, "open")
        self._step_threads = ThreadPoolExecutor(4, "step")

    def close(self) -> None:
        """Lets go of the threads; running work is not waited for."""
        self._compiler.close()
        self._open_threads.shutdown(wait=False, cancel_futures=True)
        self._step_threads.shutdown(wait=False, cancel_futures=True)

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
            load = partial(
                load_vocabulary,
                upload.format,
                upload.tokenizer,
                logits_width=upload.logits_width,
                eog_ids=upload.eog_ids,
                generation_config=upload.generation_config,
                tokenizer_config=upload.tokenizer_config,
                special=upload.special or None,
                pattern=upload.pattern,
            )
            vocabulary, created = self._vocabularies.add(await self._in_thread(load))
            if created:
                await self._compiler.prepare(vocabulary)
        finally:
            self._uploads -= 1
        return vocabulary_pb2.RegisterVocabularyResponse(vocabulary=vocabulary_message(vocabulary), created=created)

    async def GetVocabulary(
        self, request: vocabulary_pb2.GetVocabularyRequest, context: Context
    ) -> AsyncIterator[vocabulary_pb2.GetVocabularyResponse]:
        """Streams a vocabulary's token table."""
        vocabulary = self._vocabularies.get(request.vocabulary_id)
        yield vocabulary_pb2.GetVocabularyResponse(vocabulary=vocabulary_message(vocabulary))
        table = await self._in_thread(lambda: pack_vocabulary(vocabulary))
        for begin in range(0, len(table), _TABLE_CHUNK):
            yield vocabulary_pb2.GetVocabularyResponse(table=table[begin : begin + _TABLE_CHUNK])

    async def CompileGrammar(
        self, request: grammar_pb2.CompileGrammarRequest, context: Context
    ) -> grammar_pb2.CompileGrammarResponse:
        """Compiles, or finds, a grammar."""
        limits = compile_limits_of(request.limits, default_limits(self._limits))
        raw = request.grammar.SerializeToString(deterministic=True)
        known = self._known.find(raw)
        if known is None:
            self._vocabularies.get(request.vocabulary_id)
            known = self._known.add(raw, await self._read(source_ref(request.grammar, self._limits)))
        compiled = await self._compile(request.vocabulary_id, known.grammar, context, limits)
        if known.report is None:
            known.report = report_messages(report_of(compiled.grammar))
        return grammar_pb2.CompileGrammarResponse(
            grammar_id=compiled.grammar.grammar_id,
            cached=compiled.cached,
            compile_us=round(compiled.seconds * 1e6),
            report=known.report,
        )

    async def _read(self, ref: GrammarRef) -> Grammar:
        assert ref.read is not None
        return ref.read() if ref.size <= _SMALL_SOURCE_BYTES else await self._in_thread(ref.read)

    async def _compile(
        self, vocabulary_id: str, grammar: Grammar, context: Context, limits: CompileLimits | None = None
    ) -> Compiled:
        remaining = context.time_remaining()
        deadline = None if remaining is None else time.monotonic() + remaining
        return await self._compiler.compile(vocabulary_id, grammar, deadline=deadline, limits=limits)

    async def OpenSession(
        self, request: session_pb2.OpenSessionRequest, context: Context
    ) -> session_pb2.OpenSessionResponse:
        """Opens a session, or finds the one that the same request has opened."""
        session_id = session_id_of(request.session_id)
        digest = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        session = self._sessions.find(session_id, digest)
        if session is None:
            self._sessions.check_room()
            plan = plan_constraint(request.constraint, self._limits)
            leases = [await self._lease(request.vocabulary_id, ref, context) for ref in plan.refs]
            vocabulary = self._vocabularies.get(request.vocabulary_id)
            opened = await self._in_thread(
                lambda: build_session(request, digest, vocabulary, plan, leases, self._limits)
            )
            session = self._sessions.add(opened)
        return session_pb2.OpenSessionResponse(
            epoch=session.epoch,
            seed=session.identity.config.seed,
            directive=directive_message(session.directive),
        )

    async def _lease(self, vocabulary_id: str, ref: GrammarRef, context: Context) -> Lease:
        """A hold on a grammar of a session that is about to open."""
        if ref.read is None:
            return self._compiler.get(vocabulary_id, ref.grammar_id)
        self._vocabularies.get(vocabulary_id)
        return (await self._compile(vocabulary_id, await self._read(ref), context)).lease

    async def Decode(  # type: ignore[override]  # writes for itself: answers leave in any order
        self, request_iterator: AsyncIterator[constraint_service_pb2.DecodeRequest], context: Context
    ) -> None:
        """Steps many sessions, from Hello until the client closes its side."""
        if self._streams >= self._limits.max_streams:
            raise LimitReached("Decode streams", limit=self._limits.max_streams)
        self._streams += 1
        stream: DecodeStream | None = None
        try:
            async for request in request_iterator:
                kind = request.WhichOneof("message")
                if stream is None:
                    vocabulary = self._greet(request)
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
        finally:
            self._streams -= 1
            if stream is not None:
                stream.cancel()

    def _greet(self, request: constraint_service_pb2.DecodeRequest) -> Vocabulary:
        if request.WhichOneof("message") != "hello":
            raise HelloExpected("the first message of a Decode stream is Hello; send it before any step_batch")
        vocabulary = self._vocabularies.get(request.hello.vocabulary_id)
        if request.hello.logits_width != vocabulary.logits_width:
            raise LogitsWidthMismatch(
                f"Hello says {request.hello.logits_width} logits, vocabulary {vocabulary.fingerprint} was registered "
                f"with {vocabulary.logits_width}; register it again with the model's width"
            )
        return vocabulary

    async def Step(self, request: session_pb2.StepRequest, context: Context) -> session_pb2.StepResponse:
        """Steps one session."""
        check_step(request.step, self._limits)
        session = self._sessions.get(request.step.session_id)
        loop = asyncio.get_running_loop()
        directive = await loop.run_in_executor(self._step_threads, step_session, session, request.step)
        return session_pb2.StepResponse(directive=directive)

    async def CloseSession(
        self, request: session_pb2.CloseSessionRequest, context: Context
    ) -> session_pb2.CloseSessionResponse:
        """Forgets a session."""
        closed = self._sessions.close(session_id_of(request.session_id))
        return session_pb2.CloseSessionResponse(closed=closed)

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: Context
    ) -> session_pb2.GetSessionResponse:
        """One session, with its tokens."""
        session = self._sessions.get(session_id_of(request.session_id))
        return session_pb2.GetSessionResponse(
            session=session_message(session, now=time.monotonic()),
            tokens=session.tokens,
            surprisals=session.surprisals,
        )

    async def ListSessions(
        self, request: session_pb2.ListSessionsRequest, context: Context
    ) -> session_pb2.ListSessionsResponse:
        """A page of sessions."""
        if request.page_size > _MAX_PAGE:
            raise InvalidField("page_size", f"{request.page_size} is over {_MAX_PAGE}; ask for more pages")
        sessions, after = self._sessions.page(request.page_token, request.page_size or _DEFAULT_PAGE)
        now = time.monotonic()
        return session_pb2.ListSessionsResponse(
            sessions=[session_message(session, now=now) for session in sessions], next_page_token=after
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._open_threads, work)
