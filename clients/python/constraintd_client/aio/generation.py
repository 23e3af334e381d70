"""Constrained text from a runner, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from constraintd.runner.v1 import generation_service_pb2, generation_service_pb2_grpc
from constraintd_client.constraints import ReasoningEnd
from constraintd_client.errors import Cancelled, from_rpc_error
from constraintd_client.generation_events import Delta, Event, Prompt, Transcript, generate_request
from constraintd_client.grammars import ConstraintLike
from constraintd_client.samplers import SamplerConfig
from constraintd_client.transport import ChannelOptions, channel_options


class AsyncGeneration(Transcript):
    """One running generation: iterate over it for its text, or over `events` for everything.

    Iteration ends only when the runner said Finished. Otherwise it raises the error's class, or
    IncompleteGeneration, with the text so far in `fragment`. One task iterates; any may cancel.
    """

    def __init__(self, call: Any) -> None:
        super().__init__()
        self._call = call

    async def __aiter__(self) -> AsyncIterator[str]:
        """Pieces of settled text, none empty, none splitting a character."""
        async for event in self.events():
            if isinstance(event, Delta) and event.text:
                yield event.text

    async def events(self) -> AsyncIterator[Event]:
        """Started, Deltas, Finished."""
        try:
            async for message in self._call:
                event = self._accept(message)
                if event is not None:
                    yield event
        except grpc.RpcError as error:
            raise self._failed(from_rpc_error(error)) from error
        except asyncio.CancelledError:
            # gRPC raises this for a cancelled call, too; only a cancelled task may see it.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self._failed(Cancelled("the generation was cancelled")) from None
        self._ended()

    async def wait(self) -> Self:
        """Runs to the end, for callers who want no pieces."""
        async for _ in self.events():
            pass
        return self

    def cancel(self) -> None:
        """Frees its place at the runner; whoever iterates gets Cancelled."""
        self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()  # changes nothing once it has ended


class AsyncGenerationClient:
    """A connection to a runner. Belongs to one event loop."""

    def __init__(self, target: str, *, timeout: float = 30.0, options: ChannelOptions = ()) -> None:
        """`target` is "host:port" or "unix:/path"; `timeout`, in seconds, is that of `model_info`."""
        self._timeout = timeout
        self._channel = grpc.aio.insecure_channel(target, options=channel_options(options))
        self._stub = generation_service_pb2_grpc.GenerationServiceStub(self._channel)

    def generate(
        self,
        prompt: Prompt,
        *,
        constraint: ConstraintLike,
        sampler: SamplerConfig | None = None,
        reasoning_end: ReasoningEnd | None = None,
        logprobs: int | None = None,
        timeout: float | None = None,
    ) -> AsyncGeneration:
        """Starts a generation. `constraint` None says "unconstrained"; it has to be said.

        `reasoning_end` None: the model does not reason. `logprobs`, 0 to 20, asks for log probabilities, with so many
        of the most probable tokens at each position (0: the taken token's alone).
        `timeout`, in seconds, is for the whole generation; None is no limit. The runner's refusals come when
        iterating: InvalidGrammar, NoTokenAllowed, ContextExceeded, DaemonUnavailable and the others of
        `errors.py`.
        """
        request = generate_request(prompt, constraint, sampler, reasoning_end, logprobs)
        return AsyncGeneration(self._stub.Generate(request, timeout=timeout))

    async def model_info(self) -> generation_service_pb2.GetModelInfoResponse:
        """What this runner runs."""
        request = generation_service_pb2.GetModelInfoRequest()
        try:
            return await self._stub.GetModelInfo(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error

    async def close(self) -> None:
        """Ends the connection and every generation on it."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
