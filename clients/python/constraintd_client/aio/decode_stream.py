"""The Decode stream for asyncio; what the sync one says of order, errors and reconnecting holds here too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from constraintd.v1 import session_pb2
from constraintd_client.directive import Directive
from constraintd_client.errors import (
    Cancelled,
    ConstraintdError,
    DeadlineExceeded,
    Draining,
    MalformedAnswer,
    StepInFlight,
    Unavailable,
    from_rpc_error,
)
from constraintd_client.session_handle import SessionHandle
from constraintd_client.step_batch import (
    DECODE_METHOD,
    StepReport,
    answer_to,
    hello,
    refuse_second_step,
    response_of,
    step_answers,
    step_batches,
    step_message,
)
from constraintd_client.transport import Metadata

_IN_FLIGHT_PAUSE_SECONDS: Final = 0.005


class AsyncDecodeStream:
    """Steps many sessions of one vocabulary, one unanswered Step a session. Belongs to one event loop.

    Requests go out through a task of gRPC's, and answers come in through one of ours: cancelling whoever sends
    or takes never breaks the stream for the other sessions.
    """

    def __init__(
        self,
        channel: Callable[[], grpc.aio.Channel],
        vocabulary_id: str,
        logits_width: int,
        *,
        batch_steps: int,
        metadata: Callable[[], Metadata] = lambda: (),
    ) -> None:
        """`channel` gives the channel to open the stream on, `metadata` its headers; asked again for every
        `reconnect`.
        """
        self._channel = channel
        self._metadata = metadata
        self._hello = hello(vocabulary_id, logits_width)
        self._batch_steps = batch_steps
        self._bytes_before = (0, 0)
        self._closed = False
        self._connection = self._connect({}, wait_for_ready=False)

    def send(self, steps: Sequence[StepReport]) -> None:
        """Sends these Steps; see the sync `DecodeStream.send`. Not a coroutine, since it never waits."""
        messages = [step_message(*step) for step in steps]
        payloads = step_batches(messages, self._batch_steps)
        new = {message.session_id: _Waiting(message) for message in messages}
        self._refuse_if_closed()
        connection = self._connection
        refuse_second_step(messages, connection.unanswered)
        connection.unanswered.update(new)
        if connection.failure is None:
            connection.write(payloads)
        else:
            connection.wake(new.values())

    async def take(self, session: SessionHandle, timeout: float) -> Directive:
        """This session's answer, waiting at most `timeout` seconds; see the sync `DecodeStream.take`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            connection = self._connection
            waiting = connection.unanswered.get(session.session_id)
            if waiting is None:
                raise ValueError(f"nothing unanswered was sent for {session!r}")
            if not waiting.answer.done():
                # asyncio.wait leaves the future alone when it times out or is cancelled: take may come again.
                await asyncio.wait([waiting.answer], timeout=max(deadline - loop.time(), 0))
                if not waiting.answer.done():
                    raise DeadlineExceeded(f"no answer for {session!r} within {timeout} s")
            outcome = waiting.answer.result()
            if outcome is None:
                if connection is not self._connection:
                    continue  # another task has reconnected meanwhile
                assert connection.failure is not None
                raise connection.failure.copy()
            if isinstance(outcome, StepInFlight) and waiting.resent:
                # The daemon is still at work on what the broken stream had brought it.
                await asyncio.sleep(_IN_FLIGHT_PAUSE_SECONDS)
                if waiting.answer.result() is outcome and connection is self._connection:
                    waiting.answer = loop.create_future()
                    connection.write(step_batches([waiting.step], 1))
                if loop.time() < deadline:
                    continue
                raise DeadlineExceeded(f"the step of {session!r} is still in flight after {timeout} s")
            self.forget(session)
            if isinstance(outcome, ConstraintdError):
                raise outcome
            session.directive = outcome
            return outcome

    def forget(self, session: SessionHandle) -> None:
        """Drops this session's unanswered Step and its answer, if any: for a session that nobody continues."""
        self._connection.unanswered.pop(session.session_id, None)

    @property
    def broken(self) -> ConstraintdError | None:
        """Why the stream broke; None while it stands."""
        return self._connection.failure

    @property
    def draining(self) -> bool:
        """Whether the daemon has said that it reads no more here; the stream soon breaks."""
        return self._connection.draining

    def reconnect(self, *, wait_for_ready: bool = True) -> None:
        """Opens a new stream and sends every unanswered Step again; see the sync `DecodeStream.reconnect`."""
        self._refuse_if_closed()
        old = self._connection
        carried = {session_id: _carry(waiting) for session_id, waiting in old.unanswered.items()}
        self._bytes_before = (self.wire_bytes_sent, self.wire_bytes_received)
        self._connection = self._connect(carried, wait_for_ready=wait_for_ready)
        again = [waiting.step for waiting in carried.values() if waiting.resent]
        self._connection.write(step_batches(again, self._batch_steps))
        old.end(Unavailable("the stream was replaced by a new one"))

    async def close(self) -> None:
        """Ends the stream and waits for its reader. Whoever is taking gets Cancelled. May be called twice."""
        self._closed = True
        self._connection.end(Cancelled("the stream was closed"))
        await self._connection.join()

    @property
    def wire_bytes_sent(self) -> int:
        """Bytes of all messages sent so far, reconnects included, without the transport's framing."""
        return self._bytes_before[0] + self._connection.bytes_sent

    @property
    def wire_bytes_received(self) -> int:
        """Bytes of all messages received so far, reconnects included, without the transport's framing."""
        return self._bytes_before[1] + self._connection.bytes_received

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _connect(self, unanswered: dict[bytes, _Waiting], *, wait_for_ready: bool) -> _Connection:
        open_call: Any = self._channel().stream_stream(DECODE_METHOD)
        call = partial(open_call, wait_for_ready=wait_for_ready, metadata=self._metadata())
        return _Connection(call, self._hello, unanswered)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ValueError("the stream is closed")


class _Waiting:
    """One unanswered Step. Its future gets the answer, or None when the stream breaks."""

    __slots__ = ("answer", "resent", "step")

    def __init__(self, step: session_pb2.Step, *, resent: bool = False) -> None:
        self.step = step
        self.resent = resent
        self.answer: asyncio.Future[Directive | ConstraintdError | None] = asyncio.get_running_loop().create_future()


class _Connection:
    """One gRPC call with its reader task; its answers go to its own `unanswered` only."""

    def __init__(self, open_call: Callable[..., Any], first: bytes, unanswered: dict[bytes, _Waiting]) -> None:
        self.unanswered = unanswered
        self.failure: ConstraintdError | None = None
        self.draining = False
        self.bytes_sent = 0
        self.bytes_received = 0
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.write([first])
        self._call = open_call(self._outgoing())
        self._reader = asyncio.create_task(self._read(), name="constraintd-decode-reader")

    def write(self, payloads: Sequence[bytes]) -> None:
        """Sends them, unless the daemon reads no more: then they go out at the next connection."""
        if self.draining:
            return
        for payload in payloads:
            self.bytes_sent += len(payload)
            self._requests.put_nowait(payload)

    def wake(self, waiting: Iterable[_Waiting]) -> None:
        for one in waiting:
            if not one.answer.done():
                one.answer.set_result(None)

    def end(self, failure: ConstraintdError) -> None:
        """Ends the call, if it has not ended, and wakes whoever waits for its answers."""
        if self.failure is None:
            self.failure = failure
            self._requests.put_nowait(None)
            self._call.cancel()
            self.wake(self.unanswered.values())

    async def join(self) -> None:
        await asyncio.wait([self._reader])

    async def _outgoing(self) -> AsyncIterator[bytes]:
        while (payload := await self._requests.get()) is not None:
            yield payload

    async def _read(self) -> None:
        failure: ConstraintdError = Unavailable("the server ended the stream")
        try:
            async for message in self._call:
                self.bytes_received += len(message)
                response = response_of(message)
                self.draining = self.draining or response.HasField("draining")
                for session_id, outcome in step_answers(response):
                    self._deliver(session_id, outcome)
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
        except DecodeError as error:
            failure = MalformedAnswer(f"the stream can't be read: {error}")
        except asyncio.CancelledError:
            failure = Cancelled("the stream was cancelled")
        finally:
            # CANCELLED, where this side has not cancelled, is how a server that goes down ends what it had not begun.
            if isinstance(failure, Unavailable | Cancelled):
                failure = (Draining if self.draining else Unavailable)(failure.message, code=failure.code)
            self.end(failure)

    def _deliver(self, session_id: bytes, outcome: Directive | ConstraintdError) -> None:
        waiting = self.unanswered.get(session_id)
        if waiting is None or waiting.answer.done():
            return  # forgotten, or answered twice
        answer = answer_to(waiting.step, outcome)
        if answer is not None:
            waiting.answer.set_result(answer)


def _carry(old: _Waiting) -> _Waiting:
    """What the next connection waits for: the answer, where it is here already, else a Step to send again."""
    outcome = old.answer.result() if old.answer.done() else None
    new = _Waiting(old.step, resent=outcome is None)
    if outcome is not None:
        new.answer.set_result(outcome)
    return new
