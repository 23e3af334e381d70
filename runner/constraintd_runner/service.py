"""The generation service: translates requests and events; the decode loop does the work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import grpc
import numpy as np
from constraintd_client import Finish, SessionHandle, TokenTable
from constraintd_client.errors import ConstraintdError
from numpy.typing import NDArray

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd.runner.v1 import generation_service_pb2_grpc
from constraintd.v1 import sampler_pb2, session_pb2
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
from constraintd_runner.generation import Accepted, Generation, GenerationStatistics, PromptIn
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.sampler_config import chain_of
from constraintd_runner.sampling import PositionLogprobs
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
        if not self._places.acquire(blocking=False):
            limit = self._max_calls
            _abort(
                context,
                QueueFull(
                    f"{limit} generations run or wait already; try again later",
                    what="generations",
                    limit=str(limit),
                ),
            )
        try:
            yield from self._generate(request, context)
        except (RunnerError, ConstraintdError) as error:
            _abort(context, error)
        except Exception as error:
            if not context.is_active():
                return  # the caller went away, or `_abort` itself raised
            _log.exception("a call failed")
            _abort(context, error)
        finally:
            self._places.release()

    def _generate(self, request: pb.GenerateRequest, context: grpc.ServicerContext) -> Iterator[pb.GenerateResponse]:
        if request.constraint.WhichOneof("kind") is None:
            raise InvalidRequest("say what the text must satisfy; `unconstrained` is a kind too", field="constraint")
        logprobs = _logprobs_of(request)
        prompt = self._encode_prompt(request)
        reasoning_end = request.reasoning_end if request.HasField("reasoning_end") else None
        session, sampler = self._open_session(request, prompt, reasoning_end)
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
            self._directives.close_session(session)
            if first.finish is None:
                raise DeadEnd(first.no_token_allowed or "the constraint allows no token at all")
            yield started
            answer = reader.read((), first.finish) if reader else None
            yield _finished(first.finish, _nothing_done(len(prompt), first.wire_bytes), answer)
            return
        generation = Generation(
            session,
            prompt,
            MaskedPicker(chain, logprobs),
            token_limit=sampler.max_tokens,
            terminal_ids=frozenset(self._directives.vocabulary.eog_ids) | frozenset(sampler.stop_ids),
        )
        yield from self._follow(generation, session, started, reader, context)

    def _follow(
        self,
        generation: Generation,
        session: SessionHandle,
        started: pb.GenerateResponse,
        reader: AnswerReader | None,
        context: grpc.ServicerContext,
    ) -> Iterator[pb.GenerateResponse]:
        """Runs the generation and tells what happens; whatever ends this iterator frees its slot."""
        try:
            self._loop.submit(generation)
        except RunnerError:
            self._directives.close_session(session)
            raise
        try:
            if not context.add_callback(generation.cancel):
                return  # the caller has gone already
            text = SettledText(self._table.tokens)
            tokens: list[int] = []
            for event in generation.events():
                if isinstance(event, PromptIn):
                    yield started
                elif isinstance(event, Accepted):
                    tokens.append(event.token)
                    text.accept(event.token)
                    yield _delta([event.token], text.settle(event.settled_bytes), event.logprobs)
                else:
                    if rest := text.finish(event.finish.cut_offset):
                        yield _delta([], rest)
                    answer = reader.read(tokens, event.finish) if reader else None
                    yield _finished(event.finish, event.statistics, answer)
        finally:
            generation.cancel()

    def _open_session(
        self, request: pb.GenerateRequest, prompt: NDArray[np.int64], reasoning_end: session_pb2.ReasoningEnd | None
    ) -> tuple[SessionHandle, sampler_pb2.SamplerConfig]:
        """A session that ends within the model's context, and its config in force."""
        asked = request.sampler
        if asked.HasField("preset"):
            # How many tokens a preset asks for shows only when the daemon has spelled it out.
            session = self._directives.open_session(request.constraint, asked, prompt.tolist(), reasoning_end)
            try:
                spelled = self._within_context(_in_force(session, asked), len(prompt))
            except ContextExceeded:
                self._directives.close_session(session)
                raise
            if spelled == _in_force(session, asked):
                return session, spelled
            # A preset goes alone, so its number of tokens can't be cut: its other name, the config, is opened instead.
            self._directives.close_session(session)
            if not asked.HasField("seed"):
                spelled.ClearField("seed")
            asked = spelled
        asked = self._within_context(asked, len(prompt))
        session = self._directives.open_session(request.constraint, asked, prompt.tolist(), reasoning_end)
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


def _abort(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    status = status_of(error)
    context.set_trailing_metadata(((DETAILS_KEY, status.details()),))
    context.abort(status.code, status.text())


def _logprobs_of(request: pb.GenerateRequest) -> int | None:
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


def _delta(tokens: Sequence[int], text: str, logprobs: PositionLogprobs | None = None) -> pb.GenerateResponse:
    positions = () if logprobs is None else (_position_message(logprobs),)
    return pb.GenerateResponse(delta=pb.Delta(token_ids=tokens, text=text, logprobs=positions))


def _position_message(logprobs: PositionLogprobs) -> pb.PositionLogprobs:
    return pb.PositionLogprobs(
        taken=pb.TokenLogprob(token_id=logprobs.taken.token, logprob=logprobs.taken.logprob),
        top=[pb.TokenLogprob(token_id=each.token, logprob=each.logprob) for each in logprobs.top],
    )


def _nothing_done(prompt_tokens: int, wire_bytes: int) -> GenerationStatistics:
    return GenerationStatistics(prompt_tokens, 0, 0, 0, (), wire_bytes)


def _finished(finish: Finish, statistics: GenerationStatistics, answer: pb.ToolAnswer | None) -> pb.GenerateResponse:
    message = session_pb2.Finish(
        reason=session_pb2.FinishReason.Value(f"FINISH_REASON_{finish.reason}"),
        stop_string=finish.stop_string,
        stop_id=finish.stop_id,
        cut_offset=finish.cut_offset,
        constraint_incomplete=finish.constraint_incomplete,
        schema_satisfied=finish.schema_satisfied,
        schema_violation=finish.schema_violation,
    )
    usage = pb.Usage(
        prompt_tokens=statistics.prompt_tokens,
        completion_tokens=statistics.completion_tokens,
        prefill_us=statistics.prefill_us,
        decode_us=statistics.decode_us,
        mask_wait_us=statistics.mask_wait_us,
        mask_wait_us_p50=statistics.mask_wait_percentile(50),
        mask_wait_us_p99=statistics.mask_wait_percentile(99),
        wire_bytes=statistics.wire_bytes,
    )
    return pb.GenerateResponse(finished=pb.Finished(finish=message, usage=usage, tool_answer=answer))
