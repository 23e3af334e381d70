"""Where the decode loop's directives come from: the daemon, or (for measuring) nowhere."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import numpy as np
from constraintd_client import ConstraintClient, Directive, Finish, SessionHandle, VocabularyInfo
from constraintd_client.backoff import Backoff
from constraintd_client.errors import (
    Cancelled,
    ConstraintdError,
    StepInFlight,
    StoreUnavailable,
    Unavailable,
    UnknownVocabulary,
)
from constraintd_client.session_changes import Resumed

from constraintd.v1 import sampler_pb2, session_pb2

StepReport = tuple[SessionHandle, Sequence[int], Sequence[float], Sequence[int]]
"""A session, the tokens it accepted from its position on, the surprisal of each in bits, and the lengths of the forward
passes that ran since its last report, the prompt's included.
"""

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")


class DirectiveSource(Protocol):
    """What the decode loop asks of whoever decides what is legal. All on the loop's thread, but for `close_session`."""

    def send(self, reports: Sequence[StepReport]) -> None:
        """Reports accepted tokens, for the answers to be computed meanwhile. Never waits."""
        ...

    def take(self, session: SessionHandle, timeout: float) -> Directive:
        """The answer to a session's last report, waiting at most `timeout` seconds.

        Raises DeadlineExceeded if it isn't there yet (take again), and any other ConstraintdError if there will be
        none: for this session alone, or for all of them where `ends_stream` says so.
        """
        ...

    def reconnect(self) -> None:
        """Starts over after a break; unanswered reports are sent again. Raises ConstraintdError if it can't."""
        ...

    def close_session(self, session: SessionHandle) -> None:
        """Forgets a session, in the background."""
        ...

    def leave_session(self, session: SessionHandle) -> None:
        """Leaves a session as it is, for whoever goes on with it."""
        ...


def ends_stream(error: ConstraintdError) -> bool:
    """Whether `take` raised it for the whole stream: the transport's failures, and what has the status of a call."""
    return isinstance(error, Unavailable | Cancelled) or error.code is not None


def is_final(error: ConstraintdError) -> bool:
    """Whether another attempt at a stream would end in the same way."""
    return error.reason in ("VOCABULARY_MISMATCH", "LOGITS_WIDTH_MISMATCH", "HELLO_EXPECTED")


class DaemonDirectives:
    """The daemon's answers, over one Decode stream.

    Owns the stream and a thread that closes sessions, so that no generation's end costs the batch a round trip.
    """

    def __init__(
        self, client: ConstraintClient, register: Callable[[], VocabularyInfo], *, answer_timeout: float = 30.0
    ) -> None:
        """`register` registers the model's vocabulary and gives what the daemon made of it; it is called here, and
        again whenever a daemon does not know it. `answer_timeout`: seconds that a call may take to reach one. Raises
        ConstraintdError.
        """
        self._client = client
        self._register = register
        self._answer_timeout = answer_timeout
        self.vocabulary = register()
        self._stream_target = client.target
        self._stream = client.decode_stream(self.vocabulary.vocabulary_id, self.vocabulary.logits_width)
        self._closings: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._closer = threading.Thread(target=self._close_sessions, name="runner-session-closer", daemon=True)
        self._closer.start()

    def open_session(
        self,
        constraint: session_pb2.Constraint,
        sampler: sampler_pb2.SamplerConfig,
        prompt_tokens: Sequence[int],
        reasoning_end: session_pb2.ReasoningEnd | None = None,
        *,
        session_id: bytes | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> SessionHandle:
        """Opens a session; from any thread, and as long as compiling its grammar takes. `session_id` None: a random
        one. Tries again while no daemon answers and the session is still `wanted`. Raises ConstraintdError.
        """
        chosen = os.urandom(16) if session_id is None else session_id
        return self._ask(
            lambda: self._client.open_session(
                self.vocabulary.vocabulary_id,
                constraint,
                sampler=sampler,
                prompt_tokens=prompt_tokens,
                session_id=chosen,
                reasoning_end=reasoning_end,
            ),
            wanted,
        )

    def resume_session(self, session_id: bytes, *, wanted: Callable[[], bool] = lambda: True) -> Resumed:
        """Takes a session over; as `open_session`. Raises UnknownSession and other ConstraintdErrors."""
        return self._ask(lambda: self._client.resume_session(session_id), wanted)

    def close_now(self, session_id: bytes, *, wanted: Callable[[], bool] = lambda: True) -> bool:
        """Closes a session that no generation here owns; False if there was none. Raises ConstraintdError."""
        return self._ask(lambda: self._client.close_session(session_id), wanted)

    def _ask(self, call: Callable[[], _Answer], wanted: Callable[[], bool]) -> _Answer:
        """The answer of whichever daemon gives one in time. All these calls may be repeated."""
        backoff = Backoff()
        until = time.monotonic() + self._answer_timeout
        told: set[str] = set()
        while True:
            target = self._client.target
            try:
                return call()
            except UnknownVocabulary:
                if target in told:
                    raise
                told.add(target)
                self._register_again()
                continue
            except Unavailable as error:
                self._client.leave(target)
                failure: ConstraintdError = error
            except (StoreUnavailable, StepInFlight) as error:
                failure = error
            pause = backoff.next_pause()
            if time.monotonic() + pause > until or not wanted():
                raise failure
            time.sleep(pause)

    def send(self, reports: Sequence[StepReport]) -> None:
        """One StepBatch with all of them."""
        self._stream.send(reports)

    def take(self, session: SessionHandle, timeout: float) -> Directive:
        """See DirectiveSource; the stream's reader thread has usually put the answer there already."""
        return self._stream.take(session, timeout)

    def reconnect(self) -> None:
        """A new stream: to the same address where the old one lacked only the vocabulary, which is registered first;
        else to the next one.
        """
        if isinstance(self._stream.broken, UnknownVocabulary):
            self._register_again()
        else:
            self._client.leave(self._stream_target)
        self._stream_target = self._client.target
        # Not waiting for a daemon to come back there: the next address may be up already.
        self._stream.reconnect(wait_for_ready=False)

    def close_session(self, session: SessionHandle) -> None:
        """Drops what is unanswered, and closes the session at the daemon in the background."""
        self._stream.forget(session)
        self._closings.put(session.session_id)

    def leave_session(self, session: SessionHandle) -> None:
        """Drops what is unanswered."""
        self._stream.forget(session)

    def close(self) -> None:
        """Closes the sessions that wait for it, then the stream. The client stays open."""
        self._closings.put(None)
        self._closer.join(timeout=5.0)
        self._stream.close()

    def _register_again(self) -> None:
        found = self._register()
        if found.vocabulary_id != self.vocabulary.vocabulary_id:
            raise ConstraintdError(
                f"the daemon reads the model's vocabulary differently than before: {found.vocabulary_id}, "
                f"expected {self.vocabulary.vocabulary_id}; restart the runner",
                reason="VOCABULARY_MISMATCH",
            )

    def _close_sessions(self) -> None:
        while (session_id := self._closings.get()) is not None:
            try:
                self._client.close_session(session_id)
            except ConstraintdError as error:
                # It costs the daemon an idle session until that expires; nobody else can act on it.
                _log.warning("session %s could not be closed: %s", session_id.hex(), error)


class InProcessDirectives:
    """Every token legal, every time, with no daemon: the other side of a comparison.

    Ends a session only at its length. Masks are all ones, and one array for all of them, so that they cost nothing;
    `UnmaskedPicker` and `ReplayPicker` leave them unread.
    """

    _DRAW: Final = 0.5

    def __init__(self, logits_width: int) -> None:
        self._mask = np.full((logits_width + 31) // 32, 0xFFFFFFFF, dtype="<u4")
        if logits_width % 32:
            self._mask[-1] = (1 << logits_width % 32) - 1
        self._mask.setflags(write=False)
        self._limits: dict[bytes, int] = {}

    def open_session(self, max_tokens: int) -> SessionHandle:
        """A session of exactly `max_tokens` (>= 1) tokens."""
        session_id = os.urandom(16)
        self._limits[session_id] = max_tokens
        return SessionHandle(session_id, 0, 0, self._directive(0, max_tokens))

    def send(self, reports: Sequence[StepReport]) -> None:
        """Moves the sessions on at once."""
        for session, tokens, _, _ in reports:
            session.directive = self._directive(session.position + len(tokens), self._limits[session.session_id])

    def take(self, session: SessionHandle, timeout: float) -> Directive:  # noqa: ARG002 - the protocol's
        """The answer, which is always there."""
        return session.directive

    def reconnect(self) -> None:
        """Nothing to do."""

    def close_session(self, session: SessionHandle) -> None:
        """Forgets it."""
        self._limits.pop(session.session_id, None)

    def leave_session(self, session: SessionHandle) -> None:
        """Forgets it: nobody else could go on with it."""
        self.close_session(session)

    def _directive(self, position: int, limit: int) -> Directive:
        if position >= limit:
            return Directive(position, None, Finish("LENGTH", b"", None, 0, False), None, 0.0, 0, 0)
        return Directive(position, self._mask, None, None, self._DRAW, 0, 0)


def step_bytes(position: int, token: int, passes: Sequence[int]) -> int:
    """Size of a one-token Step as a serialized message (see `proto/constraintd/v1/session.proto`).

    16 bytes of id and 8 of epoch, token, surprisal and passes packed, each with its tag and length; a position of 0
    isn't sent.
    """
    packed = sum(map(_varint_bytes, passes))
    lengths = 1 + _varint_bytes(packed) + packed if passes else 0
    return 18 + 9 + (1 + _varint_bytes(position) if position else 0) + 2 + _varint_bytes(token) + 6 + lengths


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
