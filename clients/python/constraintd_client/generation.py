"""Constrained text from a runner."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from constraintd.runner.v1 import generation_service_pb2, generation_service_pb2_grpc

from .constraints import ReasoningEnd
from .errors import from_rpc_error
from .generation_events import Delta, Event, Prompt, Transcript, generate_request
from .grammars import ConstraintLike
from .samplers import SamplerConfig
from .transport import ChannelOptions, channel_options


class Generation(Transcript):
    """One running generation: iterate over it for its text, or over `events` for everything.

    Iteration ends only when the runner said Finished. Otherwise it raises the error's class, or
    IncompleteGeneration, with the text so far in `fragment`. One thread iterates; any may cancel.
    """

    def __init__(self, call: Any) -> None:
        super().__init__()
        self._call = call

    def __iter__(self) -> Iterator[str]:
        """Pieces of settled text, none empty, none splitting a character."""
        for event in self.events():
            if isinstance(event, Delta) and event.text:
                yield event.text

    def events(self) -> Iterator[Event]:
        """Started, Deltas, Finished."""
        try:
            for message in self._call:
                event = self._accept(message)
                if event is not None:
                    yield event
        except grpc.RpcError as error:
            raise self._failed(from_rpc_error(error)) from error
        self._ended()

    def wait(self) -> Self:
        """Runs to the end, for callers who want no pieces."""
        for _ in self.events():
            pass
        return self

    def cancel(self) -> None:
        """Frees its place at the runner; whoever iterates gets Cancelled."""
        self._call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()  # changes nothing once it has ended


class GenerationClient:
    """A connection to a runner. Any number of threads may use it."""

    def __init__(self, target: str, *, timeout: float = 30.0, options: ChannelOptions = ()) -> None:
        """`target` is "host:port" or "unix:/path"; `timeout`, in seconds, is that of `model_info`."""
        self._timeout = timeout
        self._channel = grpc.insecure_channel(target, options=channel_options(options))
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
    ) -> Generation:
        """Starts a generation. `constraint` None says "unconstrained"; it has to be said.

        `reasoning_end` None: the model does not reason. `logprobs`, 0 to 20, asks for log probabilities, with so many
        of the most probable tokens at each position (0: the taken token's alone).
        `timeout`, in seconds, is for the whole generation; None is no limit. The runner's refusals come when
        iterating: InvalidGrammar, NoTokenAllowed, ContextExceeded, DaemonUnavailable and the others of
        `errors.py`.
        """
        request = generate_request(prompt, constraint, sampler, reasoning_end, logprobs)
        return Generation(self._stub.Generate(request, timeout=timeout))

    def model_info(self) -> generation_service_pb2.GetModelInfoResponse:
        """What this runner runs."""
        request = generation_service_pb2.GetModelInfoRequest()
        try:
            return self._stub.GetModelInfo(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error

    def close(self) -> None:
        """Ends the connection and every generation on it."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
