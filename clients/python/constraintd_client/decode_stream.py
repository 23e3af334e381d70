"""The Decode stream for a runner: one for all its sessions, with a reader thread that drains it ahead of
need.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Self

import grpc
from google.protobuf.message import DecodeError

from constraintd.v1 import session_pb2

from .directive import Directive
from .errors import (
    Cancelled,
    ConstraintdError,
    DeadlineExceeded,
    Draining,
    MalformedAnswer,
    StepInFlight,
    Unavailable,
    from_rpc_error,
)
from .session_handle import SessionHandle
from .step_batch import (
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
from .transport import Metadata

_IN_FLIGHT_PAUSE_SECONDS: Final = 0.005


class DecodeStream:
    """Steps many sessions of one vocabulary, one unanswered Step a session.

    Any thread may send, take and forget, each session from one thread at a time. Answers wait here until
    they are taken, at most one a session, so memory is bounded; and the reader always reads, so flow control
    can't lock up.

    A stream breaks as a whole (`broken` says why). Sessions stay as they are at the daemon: `reconnect` opens
    a new stream and sends every unanswered Step again; a Step that was applied already gives the same answer.
    A daemon that is about to stop says so: from then on nothing more is sent on this stream, answers still come,
    and then it breaks with `Draining`.
    """

    def __init__(
        self,
        channel: Callable[[], grpc.Channel],
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
        # Guards which connection is the present one and what it waits for. Held for a few dictionary
        # operations at most; the reader takes it only when its call ends, or is about to.
        self._lock = threading.Lock()
        self._connection = self._connect({}, wait_for_ready=False)

    def send(self, steps: Sequence[StepReport]) -> None:
        """Sends these Steps, in one StepBatch unless they are more than the server takes in one. Never waits.

        On a broken stream they count as unanswered, for `take` to report and `reconnect` to send. Raises
        ValueError, before anything is sent, if a session has an unanswered Step or comes twice, if a Step is
        malformed, or if the stream is closed.
        """
        messages = [step_message(*step) for step in steps]
        payloads = step_batches(messages, self._batch_steps)
        new = {message.session_id: _Waiting(message) for message in messages}
        with self._lock:
            self._refuse_if_closed()
            connection = self._connection
            refuse_second_step(messages, connection.unanswered)
            connection.unanswered.update(new)
            if connection.failure is None:
                connection.write(payloads)
            else:
                connection.wake(new.values())

    def take(self, session: SessionHandle, timeout: float) -> Directive:
        """This session's answer, waiting at most `timeout` seconds; the handle then stands at its position.

        Raises the class of its StepError (the session then has no unanswered Step), DeadlineExceeded if no
        answer came (the Step stays unanswered: take again, or forget), Unavailable or the stream's own error if
        the stream is broken (the Step stays unanswered: reconnect), and ValueError if nothing was sent.
        """
        deadline = 0.0
        while True:
            connection = self._connection
            waiting = connection.unanswered.get(session.session_id)
            if waiting is None:
                if connection is not self._connection:
                    continue
                raise ValueError(f"nothing unanswered was sent for {session!r}")
            try:
                outcome = waiting.answers.get_nowait()
            except Empty:
                # The clock is read only by those who wait.
                now = time.monotonic()
                deadline = deadline or now + timeout
                try:
                    outcome = waiting.answers.get(timeout=max(deadline - now, 0))
                except Empty:
                    raise DeadlineExceeded(f"no answer for {session!r} within {timeout} s") from None
            if outcome is None:
                waiting.answers.put(None)  # for whoever takes again before reconnecting
                if connection is not self._connection:
                    continue  # another thread has reconnected meanwhile
                assert connection.failure is not None
                raise connection.failure.copy()
            if isinstance(outcome, StepInFlight) and waiting.resent:
                # The daemon is still at work on what the broken stream had brought it.
                deadline = deadline or time.monotonic() + timeout
                time.sleep(_IN_FLIGHT_PAUSE_SECONDS)
                with self._lock:
                    connection.write(step_batches([waiting.step], 1))
                if time.monotonic() < deadline:
                    continue
                raise DeadlineExceeded(f"the step of {session!r} is still in flight after {timeout} s")
            self.forget(session)
            if isinstance(outcome, ConstraintdError):
                raise outcome
            session.directive = outcome
            return outcome

    def forget(self, session: SessionHandle) -> None:
        """Drops this session's unanswered Step and its answer, if any: for a session that nobody continues."""
        with self._lock:
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
        """Opens a new stream and sends every unanswered Step again, in batches. Answers that came are kept.

        Returns at once: whether the daemon is there shows when taking. With `wait_for_ready` the new stream
        waits for the daemon to come back (take then ends in DeadlineExceeded until it does); without, it fails
        at once. Raises ValueError if the stream is closed.
        """
        with self._lock:
            self._refuse_if_closed()
            old = self._connection
            carried = {session_id: _carry(waiting) for session_id, waiting in old.unanswered.items()}
            self._bytes_before = (self.wire_bytes_sent, self.wire_bytes_received)
            self._connection = self._connect(carried, wait_for_ready=wait_for_ready)
            again = [waiting.step for waiting in carried.values() if waiting.resent]
            self._connection.write(step_batches(again, self._batch_steps))
            old.end(Unavailable("the stream was replaced by a new one"))

    def close(self) -> None:
        """Ends the stream and waits for its reader. Whoever is taking gets Cancelled. May be called twice."""
        with self._lock:
            self._closed = True
            self._connection.end(Cancelled("the stream was closed"))
        self._connection.join()

    @property
    def wire_bytes_sent(self) -> int:
        """Bytes of all messages sent so far, reconnects included, without the transport's framing."""
        return self._bytes_before[0] + self._connection.bytes_sent

    @property
    def wire_bytes_received(self) -> int:
        """Bytes of all messages received so far, reconnects included, without the transport's framing."""
        return self._bytes_before[1] + self._connection.bytes_received

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self, unanswered: dict[bytes, _Waiting], *, wait_for_ready: bool) -> _Connection:
        open_call: Callable[..., Any] = self._channel().stream_stream(DECODE_METHOD)
        call = partial(open_call, wait_for_ready=wait_for_ready, metadata=self._metadata())
        return _Connection(call, self._hello, unanswered, self._lock)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ValueError("the stream is closed")


class _Waiting:
    """One unanswered Step. Its queue gets one answer, or None when the stream breaks.

    A SimpleQueue, since it is C throughout: an answer that is there is taken without waiting for any thread,
    and one that is not wakes exactly its taker.
    """

    __slots__ = ("answers", "resent", "step")

    def __init__(self, step: session_pb2.Step, *, resent: bool = False) -> None:
        self.step = step
        self.resent = resent
        self.answers: SimpleQueue[Directive | ConstraintdError | None] = SimpleQueue()


class _Connection:
    """One gRPC call with its reader.

    Its answers go to its own `unanswered` only: what a replaced stream still brings can't be mistaken for an
    answer to a later Step. Everything but the reader's loop runs under the stream's lock.
    """

    def __init__(
        self,
        open_call: Callable[..., Any],
        first: bytes,
        unanswered: dict[bytes, _Waiting],
        lock: threading.Lock,
    ) -> None:
        self.unanswered = unanswered
        self.failure: ConstraintdError | None = None
        self.draining = False
        self.bytes_sent = 0
        self.bytes_received = 0
        self._lock = lock
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self.write([first])
        self._call: Any = open_call(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read, name="constraintd-decode-reader", daemon=True)
        self._reader.start()

    def write(self, payloads: Sequence[bytes]) -> None:
        """Sends them, unless the daemon reads no more: then they go out at the next connection."""
        if self.draining:
            return
        for payload in payloads:
            self.bytes_sent += len(payload)
            self._requests.put(payload)

    def wake(self, waiting: Iterable[_Waiting]) -> None:
        for one in waiting:
            one.answers.put(None)

    def end(self, failure: ConstraintdError) -> None:
        """Ends the call, if it has not ended, and wakes whoever waits for its answers."""
        if self.failure is None:
            self.failure = failure
            self._requests.put(None)  # frees gRPC's thread that waits for requests
            self._call.cancel()
            self.wake(self.unanswered.values())

    def join(self) -> None:
        self._reader.join()
        # Let go of here, while gRPC's threads run: freed at the interpreter's end, a call waits for a lock that one of
        # them may hold, stopped where it was.
        self._call = None

    def _read(self) -> None:
        failure: ConstraintdError = Unavailable("the server ended the stream")
        try:
            for message in self._call:
                self.bytes_received += len(message)
                response = response_of(message)
                if response.HasField("draining"):
                    with self._lock:
                        self.draining = True
                for session_id, outcome in step_answers(response):
                    self._deliver(session_id, outcome)
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
        except DecodeError as error:
            failure = MalformedAnswer(f"the stream can't be read: {error}")
        finally:
            # CANCELLED, where this side has not cancelled, is how a server that goes down ends what it had not begun.
            if isinstance(failure, Unavailable | Cancelled):
                failure = (Draining if self.draining else Unavailable)(failure.message, code=failure.code)
            # Whatever ended the reader: without it every taker would wait for its timeout.
            with self._lock:
                self.end(failure)

    def _deliver(self, session_id: bytes, outcome: Directive | ConstraintdError) -> None:
        waiting = self.unanswered.get(session_id)
        if waiting is None:
            return  # forgotten
        answer = answer_to(waiting.step, outcome)
        if answer is not None:
            waiting.answers.put(answer)


def _carry(old: _Waiting) -> _Waiting:
    """What the next connection waits for: the answer, where it is here already, else a Step to send again."""
    try:
        outcome = old.answers.get_nowait()
    except Empty:
        outcome = None
    new = _Waiting(old.step, resent=outcome is None)
    if outcome is not None:
        new.answers.put(outcome)
    return new
