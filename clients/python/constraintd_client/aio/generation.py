"""Constrained text from a runner, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import grpc
import grpc.aio

from constraintd.runner.v1 import generation_service_pb2, generation_service_pb2_grpc
from constraintd_client.access import Access, Tls
from constraintd_client.chat import Prompt, Tools
from constraintd_client.constraints import ReasoningEnd
from constraintd_client.errors import Cancelled, ConstraintdError, from_rpc_error
from constraintd_client.generation_events import Delta, Event, Transcript, generate_request
from constraintd_client.grammars import ConstraintLike
from constraintd_client.resuming import GenerationRequest, Healing, Seen, lost_its_server, resume_request
from constraintd_client.samplers import SamplerConfig
from constraintd_client.transport import ChannelOptions, Targets, channel_options, listed


class AsyncGeneration(Transcript):
    """One running generation: iterate over it for its text, or over `events` for everything.

    Iteration ends only when the runner said Finished. Otherwise it raises the error's class, or
    IncompleteGeneration, with the text so far in `fragment`. One task iterates; any may cancel.
    """

    def __init__(
        self,
        start: Start,
        request: GenerationRequest,
        timeout: float | None,
        *,
        healing: Healing | None = None,
        before: Seen | None = None,
    ) -> None:
        """Begins at once. `timeout`: seconds for the whole of it. `healing`: the way back after a break; None: none."""
        super().__init__(before)
        self._start = start
        self._until = None if timeout is None else time.monotonic() + timeout
        self._healing = healing
        self._cancelled = asyncio.Event()
        self._call = start(request, timeout)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Pieces of settled text, none empty, none splitting a character."""
        async for event in self.events():
            if isinstance(event, Delta) and event.text:
                yield event.text

    async def events(self) -> AsyncIterator[Event]:
        """Started, Deltas, Finished."""
        while self.finish is None:
            try:
                async for message in self._call.messages:
                    event = self._accept(message)
                    if event is not None:
                        if self._healing is not None:
                            self._healing.moved_on()
                        yield event
            except grpc.RpcError as error:
                if self.finish is None:
                    await self._go_on(from_rpc_error(error))
            except asyncio.CancelledError:
                # gRPC raises this for a cancelled call, too; only a cancelled task may see it.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise self._failed(Cancelled("the generation was cancelled")) from None
            else:
                self._ended()

    async def wait(self) -> Self:
        """Runs to the end, for callers who want no pieces."""
        async for _ in self.events():
            pass
        return self

    def cancel(self) -> None:
        """Frees its place at the runner; whoever iterates gets Cancelled. A resumable one can still be resumed."""
        self._cancelled.set()
        self._call.messages.cancel()

    async def _go_on(self, cause: ConstraintdError) -> None:
        """Resumes it after a break. Raises the cause, with the fragment, where it can't."""
        if lost_its_server(cause) and not self._cancelled.is_set():  # what this side ended tells nothing of the address
            self._call.leave()
        pause = None
        if self._healing is not None and not self._cancelled.is_set():
            pause = self._healing.pause_after(cause, self._seen)
        if self._healing is None or pause is None:
            raise self._failed(cause)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._cancelled.wait(), pause)
        if self._cancelled.is_set():
            raise self._failed(Cancelled("the generation was cancelled"))
        left = None if self._until is None else max(self._until - time.monotonic(), 0.0)
        self._call = self._start(self._healing.next_request(self._seen), left)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()  # changes nothing once it has ended


class AsyncGenerationClient:
    """A connection to a runner. Belongs to one event loop."""

    def __init__(
        self,
        target: str | Sequence[str],
        *,
        timeout: float = 30.0,
        options: ChannelOptions = (),
        tls: Tls | None = None,
        token: str | Path | None = None,
        allow_plaintext_token: bool = False,
    ) -> None:
        """`target` is "host:port" or "unix:/path", or several, of runners of the same model: the next is used when one
        can't be reached. `timeout`, in seconds, is that of `model_info` and `close_generation`. `tls`, `token` and
        `allow_plaintext_token`: see `ConstraintClient`.
        """
        self._timeout = timeout
        targets = listed(target)
        access = Access(targets, tls, token, allow_plaintext_token=allow_plaintext_token)
        self._access = access
        self._targets = Targets(targets, lambda address: _Wire.open(address, options, access), version=access.version)

    def generate(
        self,
        prompt: Prompt,
        *,
        constraint: ConstraintLike,
        sampler: SamplerConfig | None = None,
        reasoning_end: ReasoningEnd | None = None,
        logprobs: int | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
        resumable: bool = False,
        resume_timeout: float = 30.0,
        session_id: bytes | None = None,
    ) -> AsyncGeneration:
        """Starts a generation. `constraint` None says "unconstrained"; it has to be said.

        `reasoning_end` None: the model does not reason. `logprobs`, 0 to 20, asks for log probabilities, with so many
        of the most probable tokens at each position (0: the taken token's alone).
        `tools`, a list or its JSON text, are those that a chat's template tells the model of. None: those of the
        constraint, if it has `tool_calls`; [] keeps them out.
        `resumable`: it outlives its runner. When that can't be reached any more, the next address goes on with it,
        within `resume_timeout` seconds a break, and the events go on without a gap or a repetition; see
        `ResumeGenerationRequest` for what a resume may change. Its session stays until `close_generation`, or until
        the daemon closes it as idle. `session_id`: 16 random bytes (None: they are picked).
        `timeout`, in seconds, is for the whole generation; None is no limit. The runner's refusals come when
        iterating: InvalidGrammar, NoTokenAllowed, ContextExceeded, DaemonUnavailable and the others of
        `errors.py`.
        """
        request = generate_request(
            prompt,
            constraint,
            sampler,
            reasoning_end,
            logprobs,
            tools,
            resumable=resumable,
            session_id=session_id,
        )
        healing = Healing(request, timeout=resume_timeout) if resumable else None
        return AsyncGeneration(self._begin, request, timeout, healing=healing)

    def resume(
        self,
        session_id: bytes,
        *,
        seen_tokens: int = 0,
        seen_text_bytes: int = 0,
        exact: bool = False,
        logprobs: int | None = None,
        timeout: float | None = None,
        resume_timeout: float = 30.0,
    ) -> AsyncGeneration:
        """Goes on with a resumable generation behind the tokens and the UTF-8 bytes of text that were seen, at this
        runner, whichever began it; its text and tokens begin there. Whoever still runs it gets StaleEpoch.

        `exact`: bit by bit as if it had not been interrupted, at the price of a slow start; see
        `ResumeGenerationRequest`. When iterating: UnknownSession, VocabularyMismatch, ContextExceeded, and InvalidField
        for more than there is to be seen.
        """
        seen = Seen(seen_tokens, seen_text_bytes)
        request = resume_request(session_id, seen, exact=exact, logprobs=logprobs)
        healing = Healing(request, timeout=resume_timeout)
        return AsyncGeneration(self._begin, request, timeout, healing=healing, before=seen)

    async def close_generation(self, session_id: bytes) -> bool:
        """Forgets a resumable generation. False if there was none."""
        request = generation_service_pb2.CloseGenerationRequest(session_id=session_id)
        try:
            answer = await self._targets.wire().stub.CloseGeneration(
                request, timeout=self._timeout, metadata=self._access.metadata()
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        return answer.closed

    async def model_info(self) -> generation_service_pb2.GetModelInfoResponse:
        """What this runner runs."""
        request = generation_service_pb2.GetModelInfoRequest()
        try:
            return await self._targets.wire().stub.GetModelInfo(
                request, timeout=self._timeout, metadata=self._access.metadata()
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error

    async def close(self) -> None:
        """Ends the connection and every generation on it."""
        for wire in self._targets.opened():
            await wire.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _begin(self, request: GenerationRequest, timeout: float | None) -> _Call:
        wire, metadata = self._targets.wire(), self._access.metadata()
        if isinstance(request, generation_service_pb2.GenerateRequest):
            messages: Any = wire.stub.Generate(request, timeout=timeout, metadata=metadata)
        else:
            messages = wire.stub.ResumeGeneration(request, timeout=timeout, metadata=metadata)
        return _Call(messages, lambda: self._targets.leave(wire.address))


@dataclass(frozen=True, slots=True)
class _Call:
    """One stream of events, of perhaps several that make up a generation."""

    messages: Any
    """gRPC's call: iterates over the messages, and can be cancelled."""
    leave: Callable[[], None]
    """Makes the next call go to another address."""


Start: TypeAlias = Callable[[GenerationRequest, float | None], _Call]
"""Begins a stream at the present address, for so many seconds at most."""


@dataclass(frozen=True, slots=True)
class _Wire:
    """What is open to one address."""

    address: str
    channel: grpc.aio.Channel
    stub: generation_service_pb2_grpc.GenerationServiceAsyncStub

    @classmethod
    def open(cls, address: str, options: ChannelOptions, access: Access) -> _Wire:
        channel: grpc.aio.Channel = access.open(
            grpc.aio.insecure_channel, grpc.aio.secure_channel, address, channel_options(options)
        )
        return cls(address, channel, generation_service_pb2_grpc.GenerationServiceStub(channel))
