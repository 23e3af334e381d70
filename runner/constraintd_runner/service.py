"""The generation service: translates requests and events; the decode loop does the work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

import grpc
import numpy as np
from constraintd_client import SessionHandle, TokenTable
from constraintd_client.errors import ConstraintdError
from numpy.typing import NDArray

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd.runner.v1 import generation_service_pb2_grpc
from constraintd.v1 import sampler_pb2, session_pb2
from constraintd_runner import metrics_recording
from constraintd_runner.decode import DecodeLoop
from constraintd_runner.directives import DaemonDirectives
from constraintd_runner.errors import (
    DETAILS_KEY,
    ContextExceeded,
    DeadEnd,
    InvalidRequest,
    QueueFull,
    RunnerError,
    status_of,
)
from constraintd_runner.generation import Accepted, Generation, PromptIn
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.responses import delta_of, finished_of, nothing_done
from constraintd_runner.resume import check_fits, exact_passes, model_input, token_limit, unseen_by
from constraintd_runner.sampler_config import chain_of
from constraintd_runner.special import SpecialTokens
from constraintd_runner.text import SettledText
from constraintd_runner.tool_answer import AnswerReader, answer_reader

_log = logging.getLogger(__name__)

_MAX_LOGPROBS: Final = 20


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What callers may know of the model, and what bounds their requests."""

    name: str
    context_length: int
    """Tokens that prompt and output may have together."""
    slots: int
    execution_provider: str
    version: str
    """The runner's."""


class GenerationService(generation_service_pb2_grpc.GenerationServiceServicer):
    """Serves the RPCs. Owns nothing but the count of running calls; each call runs on a thread of its own."""

    def __init__(
        self,
        model: ServedModel,
        *,
        encode_prompt: Callable[[pb.GenerateRequest], NDArray[np.int64]],
        table: TokenTable,
        directives: DaemonDirectives,
        loop: DecodeLoop,
        max_calls: int,
    ) -> None:
        """`max_calls`: generations that may run or wait at once. `table`: the daemon's own."""
        self._model = model
        self._encode_prompt = encode_prompt
        self._table = table
        self._special = SpecialTokens.of({spelling: token for token, spelling in table.special.items()})
        self._directives = directives
        self._loop = loop
        self._max_calls = max_calls
        self._places = threading.BoundedSemaphore(max_calls)

    def GetModelInfo(
        self,
        request: pb.GetModelInfoRequest,  # noqa: ARG002 - gRPC's signature
        context: grpc.ServicerContext,  # noqa: ARG002
    ) -> pb.GetModelInfoResponse:
        """See generation_service.proto."""
        return pb.GetModelInfoResponse(
            model=self._model.name,
            vocabulary_id=self._directives.vocabulary.vocabulary_id,
            logits_width=self._directives.vocabulary.logits_width,
            context_length=self._model.context_length,
            slots=self._model.slots,
            execution_provider=self._model.execution_provider,
            version=self._model.version,
        )

    def Generate(self, request: pb.GenerateRequest, context: grpc.ServicerContext) -> Iterator[pb.GenerateResponse]:
        """See generation_service.proto."""
        yield from self._in_place("Generate", self._generate(request, context), context)

    def ResumeGeneration(
        self, request: pb.ResumeGenerationRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.GenerateResponse]:
        """See generation_service.proto."""
        yield from self._in_place("ResumeGeneration", self._resume(request, context, resumable=True), context)

    def CloseGeneration(
        self, request: pb.CloseGenerationRequest, context: grpc.ServicerContext
    ) -> pb.CloseGenerationResponse:
        """See generation_service.proto."""
        try:
            closed = self._directives.close_now(request.session_id, wanted=context.is_active)
        except (RunnerError, ConstraintdError) as error:
            _abort("CloseGeneration", context, error)
        return pb.CloseGenerationResponse(closed=closed)

    def _in_place(
        self, method: str, responses: Iterator[pb.GenerateResponse], context: grpc.ServicerContext
    ) -> Iterator[pb.GenerateResponse]:
        """The responses, as one of the calls that may run at once; errors become the call's status."""
        if not self._places.acquire(blocking=False):
            limit = self._max_calls
            _abort(
                method,
                context,
                QueueFull(
                    f"{limit} generations run or wait already; try again later",
                    what="generations",
                    limit=str(limit),
                ),
            )
        try:
            yield from responses
        except (RunnerError, ConstraintdError) as error:
            _abort(method, context, error)
        except Exception as error:
            if not context.is_active():
                return  # the caller went away, or `_abort` itself raised
            _log.exception("a call failed")
            _abort(method, context, error)
        finally:
            self._places.release()

    def _generate(self, request: pb.GenerateRequest, context: grpc.ServicerContext) -> Iterator[pb.GenerateResponse]:
        if request.constraint.WhichOneof("kind") is None:
            raise InvalidRequest("say what the text must satisfy; `unconstrained` is a kind too", field="constraint")
        logprobs = _logprobs_of(request)
        prompt = self._encode_prompt(request)
        reasoning_end = request.reasoning_end if request.HasField("reasoning_end") else None
        session, sampler = self._open_session(request, prompt, reasoning_end, context)
        if session.position > 0:  # the request came before, and what it began is on its way
            again = pb.ResumeGenerationRequest(session_id=session.session_id, logprobs=logprobs)
            yield from self._resume(again, context, resumable=request.resumable)
            return
        try:
            chain = chain_of(sampler)
        except InvalidRequest:
            self._directives.close_session(session)
            raise
        reader = answer_reader(request.constraint, reasoning_end, prompt.tolist(), self._table, self._special)
        first = session.directive
        started = pb.GenerateResponse(
            started=pb.Started(session_id=session.session_id, seed=session.seed, prompt_tokens=len(prompt))
        )
        if first.mask is None:
            if not request.resumable:
                self._directives.close_session(session)
            if first.finish is None:
                raise DeadEnd(first.no_token_allowed or "the constraint allows no token at all")
            yield started
            answer = reader.read((), first.finish) if reader else None
            yield finished_of(first.finish, nothing_done(len(prompt), first.wire_bytes), answer)
            return
        generation = Generation(
            session,
            prompt,
            MaskedPicker(chain, logprobs),
            token_limit=sampler.max_tokens,
            terminal_ids=self._terminal_ids(sampler),
            resumable=request.resumable,
        )
        yield from self._follow(generation, SettledText(self._table.tokens), [], started, reader, context)

    def _resume(
        self, request: pb.ResumeGenerationRequest, context: grpc.ServicerContext, *, resumable: bool
    ) -> Iterator[pb.GenerateResponse]:
        logprobs = _logprobs_of(request)
        resumed = self._directives.resume_session(request.session_id, wanted=context.is_active)
        check_fits(resumed, self._directives.vocabulary.vocabulary_id, self._model.context_length)
        metrics_recording.active.resumed()
        session, directive = resumed.session, resumed.session.directive
        text = SettledText(self._table.tokens)
        unseen = unseen_by(request, resumed, text)
        passes = exact_passes(resumed) if request.exact and directive.mask is not None else ()
        sampler = session.sampler or sampler_pb2.SamplerConfig()
        chain = chain_of(sampler)
        prompt = resumed.turns[0].prompt_tokens
        reader = None
        if resumed.constraint is not None:
            reader = answer_reader(resumed.constraint, resumed.reasoning_end, prompt, self._table, self._special)
        prompt_tokens = sum(len(turn.prompt_tokens) for turn in resumed.turns)
        yield pb.GenerateResponse(
            started=pb.Started(session_id=session.session_id, seed=session.seed, prompt_tokens=prompt_tokens)
        )
        if unseen.tokens or unseen.text:
            yield delta_of(unseen.tokens, unseen.text)
        if directive.mask is None:
            if directive.finish is None:
                raise DeadEnd(directive.no_token_allowed or "the constraint allows no token at all")
            answer = reader.read(resumed.tokens, directive.finish) if reader else None
            usage = nothing_done(prompt_tokens, directive.wire_bytes, len(resumed.tokens))
            yield finished_of(directive.finish, usage, answer)
            return
        generation = Generation(
            session,
            model_input(resumed),
            MaskedPicker(chain, logprobs),
            token_limit=token_limit(resumed),
            terminal_ids=self._terminal_ids(sampler),
            resumable=resumable,
            resumed=True,
            accepted=len(resumed.tokens),
            passes=passes,
        )
        yield from self._follow(generation, text, list(resumed.tokens), None, reader, context)

    def _terminal_ids(self, sampler: sampler_pb2.SamplerConfig) -> frozenset[int]:
        return frozenset(self._directives.vocabulary.eog_ids) | frozenset(sampler.stop_ids)

    def _follow(
        self,
        generation: Generation,
        text: SettledText,
        tokens: list[int],
        started: pb.GenerateResponse | None,
        reader: AnswerReader | None,
        context: grpc.ServicerContext,
    ) -> Iterator[pb.GenerateResponse]:
        """Runs the generation and tells what happens behind `text` and `tokens`, `started` first where it is given;
        whatever ends this iterator frees its slot.
        """
        try:
            self._loop.submit(generation)
        except RunnerError:
            if not generation.resumable:
                self._directives.close_session(generation.session)
            raise
        try:
            if not context.add_callback(generation.cancel):
                return  # the caller has gone already
            for event in generation.events():
                if isinstance(event, PromptIn):
                    if started is not None:
                        yield started
                elif isinstance(event, Accepted):
                    tokens.append(event.token)
                    text.accept(event.token)
                    yield delta_of([event.token], text.settle(event.settled_bytes), event.logprobs)
                else:
                    if rest := text.finish(event.finish.cut_offset):
                        yield delta_of([], rest)
                    answer = reader.read(tokens, event.finish) if reader else None
                    yield finished_of(event.finish, event.statistics, answer)
        finally:
            generation.cancel()

    def _open_session(
        self,
        request: pb.GenerateRequest,
        prompt: NDArray[np.int64],
        reasoning_end: session_pb2.ReasoningEnd | None,
        context: grpc.ServicerContext,
    ) -> tuple[SessionHandle, sampler_pb2.SamplerConfig]:
        """A session that ends within the model's context, and its config in force.

        max_tokens stands beside a preset too, where the daemon lets the smaller of both hold.
        """
        asked = self._within_context(request.sampler, len(prompt))
        session = self._directives.open_session(
            request.constraint,
            asked,
            prompt.tolist(),
            reasoning_end,
            session_id=request.session_id if request.HasField("session_id") else None,
            wanted=context.is_active,
        )
        return session, _in_force(session, asked)

    def _within_context(self, sampler: sampler_pb2.SamplerConfig, prompt: int) -> sampler_pb2.SamplerConfig:
        """The config with max_tokens cut to what the context leaves. Raises ContextExceeded."""
        room = self._model.context_length - prompt
        asked = sampler.max_tokens if sampler.HasField("max_tokens") else None
        if room < 0 or (room == 0 and asked != 0):
            raise ContextExceeded(
                f"the prompt has {prompt} tokens, and the context of {self._model.context_length} must hold the output "
                "too; shorten the prompt",
                limit=str(self._model.context_length),
                actual=str(prompt),
            )
        bounded = sampler_pb2.SamplerConfig()
        bounded.CopyFrom(sampler)
        bounded.max_tokens = room if asked is None else min(asked, room)
        return bounded


def _abort(method: str, context: grpc.ServicerContext, error: Exception) -> NoReturn:
    status = status_of(error)
    metrics_recording.active.refused(method, status)
    context.set_trailing_metadata(((DETAILS_KEY, status.details()),))
    context.abort(status.code, status.text())


def _logprobs_of(request: pb.GenerateRequest | pb.ResumeGenerationRequest) -> int | None:
    if not request.HasField("logprobs"):
        return None
    if request.logprobs > _MAX_LOGPROBS:
        raise InvalidRequest(
            f"{request.logprobs} log probabilities a token are too many; ask for at most {_MAX_LOGPROBS}",
            field="logprobs",
        )
    return request.logprobs


def _in_force(session: SessionHandle, asked: sampler_pb2.SamplerConfig) -> sampler_pb2.SamplerConfig:
    """The session's config as the daemon tells it; what was asked for, where it tells none."""
    return asked if session.sampler is None else session.sampler
