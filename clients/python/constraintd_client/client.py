"""The daemon's RPCs, for a runner or any other program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from constraintd.v1 import (
    constraint_service_pb2,
    constraint_service_pb2_grpc,
    grammar_pb2,
    session_pb2,
    vocabulary_pb2,
)

from . import vocabulary
from .access import Access, Tls
from .constraints import ReasoningEnd
from .decode_stream import DecodeStream
from .directive import Directive, directive_of
from .errors import from_rpc_error
from .grammars import CompileLimits, ConstraintLike, Grammar
from .keyword_report import KeywordReport, report_of
from .samplers import SamplerConfig
from .session_changes import (
    Resumed,
    fork_request,
    moved,
    opened_by,
    resumed_of,
    rollback_request,
    update_request,
)
from .session_handle import SessionHandle, handle_of, open_request
from .step_batch import step_message
from .transport import AFFINITY_HEADER, ChannelOptions, Metadata, Targets, channel_options, listed
from .vocabulary import TokenTable, VocabularyInfo

_Answer = TypeVar("_Answer")


class ConstraintClient:
    """A connection to the daemon. Any number of threads may use it.

    Every method raises a `ConstraintdError` of the class that `errors.py` names for the reason that the
    daemon gave, Unavailable if it can't be reached, and DeadlineExceeded after `timeout` seconds.
    """

    def __init__(
        self,
        target: str | Sequence[str],
        *,
        timeout: float = 30.0,
        options: ChannelOptions = (),
        affinity: str | None = None,
        tls: Tls | None = None,
        token: str | Path | None = None,
        allow_plaintext_token: bool = False,
    ) -> None:
        """`target` is "host:port" or "unix:/path", or several, of daemons on the same store: the first is used until
        `leave` goes on to the next. `timeout`, in seconds, is that of each unary call. `affinity` goes with every call
        as the header x-constraintd-affinity; by default a random value, one a client.
        `tls`: for targets that are no Unix sockets. `token`: a bearer token, or the file that holds it; it goes to
        another machine only under TLS, or with `allow_plaintext_token`.
        Raises ValueError for a token that can't be sent so, OSError for a file that can't be read.
        """
        self._timeout = timeout
        self._affinity = affinity or os.urandom(16).hex()
        targets = listed(target)
        access = Access(targets, tls, token, allow_plaintext_token=allow_plaintext_token)
        self._access = access
        self._targets = Targets(targets, lambda address: _Wire.open(address, options, access), version=access.version)

    @property
    def target(self) -> str:
        """The address in use."""
        return self._targets.present

    def leave(self, target: str) -> None:
        """Goes on to the next address (round again after the last), unless another than `target` is in use already."""
        self._targets.leave(target)

    def close(self) -> None:
        """Ends the connection and every call on it."""
        for wire in self._targets.opened():
            wire.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def server_info(self) -> constraint_service_pb2.GetServerInfoResponse:
        """Versions, kinds and limits."""
        return self._ask(self._stub.GetServerInfo, constraint_service_pb2.GetServerInfoRequest())

    def register_vocabulary(
        self,
        format: str | int,  # noqa: A002 - the protocol's word
        tokenizer: bytes | Path,
        *,
        logits_width: int | None = None,
        eog_ids: Sequence[int] = (),
        generation_config: bytes | Path | None = None,
        tokenizer_config: bytes | Path | None = None,
        special: Mapping[int, str] | None = None,
        pattern: str = "",
    ) -> VocabularyInfo:
        """Uploads a vocabulary from file contents or paths. Registering twice is free.

        `format` is "tokenizer_json", "sentencepiece", "token_table", "tiktoken" or "tekken" (or the protocol's enum
        value). `special` and `pattern` are for "tiktoken" alone, whose file has neither.
        Raises InvalidVocabulary, TooLarge, LimitReached; OSError for an unreadable file; ValueError for an
        unknown format name.
        """
        messages = vocabulary.upload(
            format,
            tokenizer,
            logits_width=logits_width,
            eog_ids=eog_ids,
            generation_config=generation_config,
            tokenizer_config=tokenizer_config,
            special=special,
            pattern=pattern,
        )
        return vocabulary.info_of(self._ask(self._stub.RegisterVocabulary, messages).vocabulary)

    def register_token_table(
        self,
        tokens: Sequence[bytes | None],
        *,
        special: Mapping[int, str] | None = None,
        eog_ids: Sequence[int],
        logits_width: int | None = None,
    ) -> VocabularyInfo:
        """Registers a plain table: the bytes of each id from 0 on, None where there is no such token.

        `special` gives special tokens their spelling; it overrides `tokens`. Raises as
        `register_vocabulary` does.
        """
        table = vocabulary.encode_table(tokens, special or {})
        return self.register_vocabulary("token_table", table, logits_width=logits_width, eog_ids=eog_ids)

    def token_table(self, vocabulary_id: str) -> TokenTable:
        """What every token spells. Raises UnknownVocabulary."""
        request = vocabulary_pb2.GetVocabularyRequest(vocabulary_id=vocabulary_id)
        try:
            messages = list(self._stub.GetVocabulary(request, timeout=self._timeout, metadata=self._metadata()))
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        return vocabulary.table_of(messages)

    def compile_grammar(self, vocabulary_id: str, grammar: Grammar, *, limits: CompileLimits | None = None) -> str:
        """Compiles a grammar and gives its id. `limits`: what trying it may take (see `compile_limits`), up to the
        server's caps.

        Raises InvalidGrammar, LimitExceeded, TooLarge, UnknownVocabulary.
        """
        request = grammar_pb2.CompileGrammarRequest(vocabulary_id=vocabulary_id, grammar=grammar, limits=limits)
        return self._ask(self._stub.CompileGrammar, request).grammar_id

    def compile_report(
        self, vocabulary_id: str, grammar: Grammar, *, limits: CompileLimits | None = None
    ) -> tuple[KeywordReport, ...]:
        """Compiles a grammar and gives what is made of each keyword of its JSON Schema; empty for other kinds, which
        are enforced as they stand. Raises as `compile_grammar` does.
        """
        request = grammar_pb2.CompileGrammarRequest(vocabulary_id=vocabulary_id, grammar=grammar, limits=limits)
        return report_of(self._ask(self._stub.CompileGrammar, request).report)

    def open_session(
        self,
        vocabulary_id: str,
        constraint: ConstraintLike,
        *,
        sampler: SamplerConfig | None = None,
        prompt_tokens: Sequence[int] = (),
        session_id: bytes | None = None,
        reasoning_end: ReasoningEnd | None = None,
    ) -> SessionHandle:
        """Opens a session; the handle has its first Directive. Without `session_id`, 16 random bytes are
        taken; without `reasoning_end`, the model does not reason.

        The same request again gives the same session. Raises AlreadyExists, InvalidGrammar, UnknownGrammar,
        UnknownVocabulary, InvalidField, LimitReached.
        """
        request = open_request(vocabulary_id, constraint, sampler, prompt_tokens, session_id, reasoning_end)
        return handle_of(request.session_id, self._ask(self._stub.OpenSession, request))

    def step(
        self,
        session: SessionHandle,
        tokens: Sequence[int],
        surprisals: Sequence[float],
        passes: Sequence[int] = (),
    ) -> Directive:
        """Reports accepted tokens with a call of their own and moves the handle on. Slower than a DecodeStream.

        `passes`: lengths in tokens of the forward passes since the last step, the prompt's first; none: not reported.
        """
        request = session_pb2.StepRequest(step=step_message(session, tokens, surprisals, passes))
        response = self._ask(self._stub.Step, request)
        session.directive = directive_of(response.directive, response.ByteSize())
        return session.directive

    def update_session(
        self,
        session: SessionHandle,
        *,
        constraint: ConstraintLike | None = None,
        sampler: SamplerConfig | None = None,
        reasoning_end: ReasoningEnd | None = None,
        new_turn: Sequence[int] | None = None,
        seed: int | None = None,
        request_id: bytes | None = None,
    ) -> Directive:
        """Changes a session from its present position on, and moves the handle on; what is None stays as it is.

        `new_turn` begins a new turn behind these prompt tokens (perhaps none): constraints begin anew, and a finished
        session goes on. A repeat under the same `request_id` (16 bytes; by default random) gets the first answer.
        Raises StaleEpoch, PositionGap, StalePosition, SessionFinished (after a terminal token, without `new_turn`),
        StepInFlight, and what compiling and opening raise.
        """
        request = update_request(session, constraint, sampler, reasoning_end, new_turn, seed, request_id)
        return moved(session, self._ask(self._stub.UpdateSession, request)).directive

    def rollback_session(
        self, session: SessionHandle, to_position: int, *, seed: int | None = None, request_id: bytes | None = None
    ) -> Directive:
        """Returns a session to an earlier position, and moves the handle there.

        Without `seed`, a session whose caller gave none draws anew, any other as before. Raises as `update_session`.
        """
        request = rollback_request(session, to_position, seed, request_id)
        return moved(session, self._ask(self._stub.RollbackSession, request)).directive

    def fork_session(
        self, session_id: bytes, position: int, *, new_session_id: bytes | None = None, seed: int | None = None
    ) -> SessionHandle:
        """A session of its own that shares the history up to `position`; the parent is left alone.

        Raises UnknownSession, AlreadyExists, InvalidField, LimitReached.
        """
        request = fork_request(session_id, position, new_session_id, seed)
        return opened_by(request.new_session_id, self._ask(self._stub.ForkSession, request))

    def resume_session(self, session_id: bytes) -> Resumed:
        """Takes a session over; whoever held it is fenced off. Raises UnknownSession, StepInFlight."""
        request = session_pb2.ResumeSessionRequest(session_id=session_id)
        return resumed_of(session_id, self._ask(self._stub.ResumeSession, request))

    def export_session(self, session_id: bytes) -> bytes:
        """A session as bytes, for `import_session` at any daemon that knows its vocabulary. Raises UnknownSession."""
        request = session_pb2.ExportSessionRequest(session_id=session_id)
        return self._ask(self._stub.ExportSession, request).envelope

    def import_session(self, envelope: bytes) -> SessionHandle:
        """Opens an exported session under its own id.

        Raises InvalidEnvelope, ReplayDiverged, UnknownVocabulary, AlreadyExists, LimitReached.
        """
        response = self._ask(self._stub.ImportSession, session_pb2.ImportSessionRequest(envelope=envelope))
        return opened_by(response.session_id, response)

    def close_session(self, session_id: bytes) -> bool:
        """Forgets a session. False if there was none."""
        request = session_pb2.CloseSessionRequest(session_id=session_id)
        return self._ask(self._stub.CloseSession, request).closed

    def get_session(self, session_id: bytes) -> session_pb2.GetSessionResponse:
        """What is known of a session, with its tokens. Raises UnknownSession."""
        return self._ask(self._stub.GetSession, session_pb2.GetSessionRequest(session_id=session_id))

    def list_sessions(self, page_size: int = 0) -> Iterator[session_pb2.Session]:
        """All open sessions by ascending id, fetched page by page (0: the server's page size)."""
        page_token = b""
        while True:
            request = session_pb2.ListSessionsRequest(page_size=page_size, page_token=page_token)
            response = self._ask(self._stub.ListSessions, request)
            yield from response.sessions
            page_token = response.next_page_token
            if not page_token:
                return

    def decode_stream(self, vocabulary_id: str, logits_width: int) -> DecodeStream:
        """Opens a stream for the sessions of one vocabulary. The server's own word on it comes with the
        first take.
        """
        batch_steps = self.server_info().limits.max_batch_steps
        return DecodeStream(
            lambda: self._targets.wire().channel,
            vocabulary_id,
            logits_width,
            batch_steps=batch_steps,
            metadata=self._metadata,
        )

    def _metadata(self) -> Metadata:
        return ((AFFINITY_HEADER, self._affinity), *self._access.metadata())

    @property
    def _stub(self) -> constraint_service_pb2_grpc.ConstraintServiceStub:
        return self._targets.wire().stub

    def _ask(self, call: Callable[..., _Answer], request: Any) -> _Answer:
        try:
            return call(request, timeout=self._timeout, metadata=self._metadata())
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error


@dataclass(frozen=True, slots=True)
class _Wire:
    """What is open to one address."""

    channel: grpc.Channel
    stub: constraint_service_pb2_grpc.ConstraintServiceStub

    @classmethod
    def open(cls, address: str, options: ChannelOptions, access: Access) -> _Wire:
        channel: grpc.Channel = access.open(
            grpc.insecure_channel, grpc.secure_channel, address, channel_options(options)
        )
        return cls(channel, constraint_service_pb2_grpc.ConstraintServiceStub(channel))
