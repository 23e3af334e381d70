"""A real gRPC server that speaks the daemon's protocol by script, so that tests decide every answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from constraintd.v1 import (
    constraint_service_pb2 as service_pb2,
)
from constraintd.v1 import (
    constraint_service_pb2_grpc as service_pb2_grpc,
)
from constraintd.v1 import (
    grammar_pb2,
    mask_pb2,
    session_pb2,
    vocabulary_pb2,
)

WIDTH = 70
MASK = bytes([0b10101010] * 8 + [0b00101010, 0, 0, 0])

Script = Callable[[int, service_pb2.StepBatch], Iterable[service_pb2.DecodeResponse]]


class EndStream(Exception):
    """Raised by a script: the stream ends, with this reason or, without one, OK."""

    def __init__(self, code: grpc.StatusCode | None = None, reason: str = "", message: str = "") -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


def directive(position: int, **fields: Any) -> session_pb2.Directive:
    """A Directive with a mask, unless `fields` names another outcome."""
    if not {"finish", "no_token_allowed", "mask"} & fields.keys():
        fields["mask"] = mask_pb2.Mask(dense=MASK)
    return session_pb2.Directive(position=position, draw=0.25, settled_bytes=position, **fields)


def applied(step: session_pb2.Step) -> service_pb2.StepAnswer:
    """The answer to a Step that was applied."""
    return service_pb2.StepAnswer(session_id=step.session_id, directive=directive(step.position + len(step.tokens)))


def refused(step: session_pb2.Step, reason: int, **fields: Any) -> service_pb2.StepAnswer:
    """The answer to a Step that was refused."""
    error = session_pb2.StepError(reason=reason, message="scripted", **fields)
    return service_pb2.StepAnswer(session_id=step.session_id, error=error)


def batch(*answers: service_pb2.StepAnswer) -> service_pb2.DecodeResponse:
    """One message of answers."""
    return service_pb2.DecodeResponse(directive_batch=service_pb2.DirectiveBatch(answers=answers))


def apply_all(_stream: int, steps: service_pb2.StepBatch) -> Iterator[service_pb2.DecodeResponse]:
    """Applies every Step and answers in one message."""
    yield batch(*[applied(step) for step in steps.steps])


def status_details(code: grpc.StatusCode, message: str, *details: Any) -> bytes:
    """The grpc-status-details-bin value that carries these details."""
    packed = []
    for detail in details:
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=code.value[0], message=message, details=packed).SerializeToString()


def refuse(
    context: grpc.ServicerContext,
    code: grpc.StatusCode,
    reason: str,
    message: str,
    metadata: dict[str, str] | None = None,
) -> None:
    """Ends a call the way the daemon does."""
    info = error_details_pb2.ErrorInfo(reason=reason, domain="constraintd", metadata=metadata or {})
    context.set_trailing_metadata((("grpc-status-details-bin", status_details(code, message, info)),))
    context.abort(code, message)


class ScriptedDaemon(service_pb2_grpc.ConstraintServiceServicer):
    """Records what it is sent; `script` answers the StepBatches of each stream, numbered from 0."""

    def __init__(self) -> None:
        self.script: Script = apply_all
        self.hellos: list[service_pb2.Hello] = []
        self.batches: list[tuple[int, service_pb2.StepBatch]] = []
        self.streams_ended = threading.Semaphore(0)
        self.max_batch_steps = 256
        self.opened: list[session_pb2.OpenSessionRequest] = []
        self.uploads: list[list[vocabulary_pb2.RegisterVocabularyRequest]] = []
        self.affinities: list[str] = []

    def GetServerInfo(self, _request: Any, context: grpc.ServicerContext) -> service_pb2.GetServerInfoResponse:
        self._note_affinity(context)
        limits = service_pb2.ServerLimits(max_batch_steps=self.max_batch_steps)
        return service_pb2.GetServerInfoResponse(version="scripted", limits=limits)

    def _note_affinity(self, context: grpc.ServicerContext) -> None:
        metadata: Any = dict(context.invocation_metadata())
        self.affinities.append(metadata["x-constraintd-affinity"])

    def RegisterVocabulary(
        self, request_iterator: Iterator[vocabulary_pb2.RegisterVocabularyRequest], _context: Any
    ) -> vocabulary_pb2.RegisterVocabularyResponse:
        messages = list(request_iterator)
        self.uploads.append(messages)
        header = messages[0].header
        vocabulary = vocabulary_pb2.Vocabulary(
            vocabulary_id="v", token_count=3, logits_width=header.logits_width or 3, eog_ids=header.eog_ids
        )
        return vocabulary_pb2.RegisterVocabularyResponse(vocabulary=vocabulary, created=True)

    def GetVocabulary(
        self, request: vocabulary_pb2.GetVocabularyRequest, context: grpc.ServicerContext
    ) -> Iterator[vocabulary_pb2.GetVocabularyResponse]:
        if request.vocabulary_id != "v":
            refuse(context, grpc.StatusCode.NOT_FOUND, "UNKNOWN_VOCABULARY", "no such vocabulary")
        vocabulary = vocabulary_pb2.Vocabulary(vocabulary_id="v", token_count=4, logits_width=WIDTH, eog_ids=[3])
        yield vocabulary_pb2.GetVocabularyResponse(vocabulary=vocabulary)
        table = b"CDTABLE\x01" + b"\0\x02\0\0\0ab" + b"\x02\0\0\0\0" + b"\0\x01\0\0\0\xff"
        table += b"\x01\x03\0\0\0</s"
        yield vocabulary_pb2.GetVocabularyResponse(table=table[:9])
        yield vocabulary_pb2.GetVocabularyResponse(table=table[9:])

    def CompileGrammar(
        self, request: grammar_pb2.CompileGrammarRequest, context: grpc.ServicerContext
    ) -> grammar_pb2.CompileGrammarResponse:
        if request.grammar.regex == b"(":
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_GRAMMAR", "unclosed", {"location": "1:1"})
        report = [
            grammar_pb2.KeywordReport(
                pointer="/title", keyword="title", verdict=grammar_pb2.KEYWORD_VERDICT_ANNOTATION, detail="says nothing"
            )
        ]
        return grammar_pb2.CompileGrammarResponse(grammar_id="g", report=report)

    def OpenSession(self, request: session_pb2.OpenSessionRequest, _context: Any) -> session_pb2.OpenSessionResponse:
        self.opened.append(request)
        return session_pb2.OpenSessionResponse(epoch=7, seed=11, directive=directive(0))

    def Step(self, request: session_pb2.StepRequest, _context: Any) -> session_pb2.StepResponse:
        return session_pb2.StepResponse(directive=applied(request.step).directive)

    def CloseSession(self, request: session_pb2.CloseSessionRequest, _context: Any) -> session_pb2.CloseSessionResponse:
        known = any(opened.session_id == request.session_id for opened in self.opened)
        return session_pb2.CloseSessionResponse(closed=known)

    def ListSessions(self, request: session_pb2.ListSessionsRequest, _context: Any) -> session_pb2.ListSessionsResponse:
        ids = sorted(opened.session_id for opened in self.opened)
        start = ids.index(request.page_token) if request.page_token else 0
        page = ids[start : start + 2]
        following = ids[start + 2] if start + 2 < len(ids) else b""
        return session_pb2.ListSessionsResponse(
            sessions=[session_pb2.Session(session_id=session_id) for session_id in page],
            next_page_token=following,
        )

    def Decode(
        self, request_iterator: Iterator[service_pb2.DecodeRequest], context: grpc.ServicerContext
    ) -> Iterator[service_pb2.DecodeResponse]:
        self._note_affinity(context)
        stream = len(self.hellos)
        context.add_callback(self.streams_ended.release)
        try:
            for request in request_iterator:
                if request.WhichOneof("message") == "hello":
                    self.hellos.append(request.hello)
                    if request.hello.vocabulary_id != "v":
                        raise EndStream(grpc.StatusCode.NOT_FOUND, "UNKNOWN_VOCABULARY", "no such vocabulary")
                    continue
                self.batches.append((stream, request.step_batch))
                yield from self.script(stream, request.step_batch)
        except EndStream as end:
            if end.code is not None:
                refuse(context, end.code, end.reason, end.message)


class RunningDaemon:
    """A ScriptedDaemon behind a port of this machine; it can stop and come back on the same port."""

    def __init__(self) -> None:
        self.daemon = ScriptedDaemon()
        self._port = 0
        self.start()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(8))
        service_pb2_grpc.add_ConstraintServiceServicer_to_server(self.daemon, self._server)
        self._port = self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()
