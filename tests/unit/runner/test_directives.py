"""The daemon as the decode loop sees it, with a scripted client in place of a connection."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import grpc
import pytest
from constraintd_client import Directive, SessionHandle, VocabularyInfo
from constraintd_client.errors import ConstraintdError, Unavailable, UnknownVocabulary
from constraintd_runner.directives import DaemonDirectives

from constraintd.v1 import sampler_pb2, session_pb2
from tests.unit.runner.scripted import anything

FORGOTTEN = UnknownVocabulary("no such vocabulary", reason="UNKNOWN_VOCABULARY", code=grpc.StatusCode.NOT_FOUND)

END = session_pb2.ReasoningEnd(texts=[b"</think>"])


def vocabulary(digit: str) -> VocabularyInfo:
    return VocabularyInfo(digit * 64, 40, 40, (39,), None, False)


class FakeStream:
    def __init__(self) -> None:
        self.broken: ConstraintdError | None = None
        self.forgotten: list[bytes] = []
        self.reconnects: list[bool] = []
        self.closed = False

    def forget(self, session: SessionHandle) -> None:
        self.forgotten.append(session.session_id)

    def reconnect(self, *, wait_for_ready: bool) -> None:
        self.reconnects.append(wait_for_ready)

    def close(self) -> None:
        self.closed = True


class FakeClient:
    def __init__(self) -> None:
        self.targets = ["a"]
        self.stream = FakeStream()
        self.opened: list[bytes] = []
        self.reasoning_ends: list[session_pb2.ReasoningEnd | None] = []
        self.closed: list[bytes] = []
        self.refusals: list[ConstraintdError] = []
        self.close_error: ConstraintdError | None = None

    @property
    def target(self) -> str:
        return self.targets[0]

    def leave(self, target: str) -> None:
        if self.targets[0] == target:
            self.targets.append(self.targets.pop(0))

    def decode_stream(self, vocabulary_id: str, logits_width: int) -> FakeStream:
        assert (vocabulary_id, logits_width) == ("a" * 64, 40)
        return self.stream

    def open_session(
        self,
        vocabulary_id: str,
        constraint: session_pb2.Constraint,
        *,
        sampler: sampler_pb2.SamplerConfig,
        prompt_tokens: Sequence[int],
        session_id: bytes,
        reasoning_end: session_pb2.ReasoningEnd | None,
    ) -> SessionHandle:
        self.opened.append(session_id)
        self.reasoning_ends.append(reasoning_end)
        if self.refusals:
            raise self.refusals.pop(0)
        return SessionHandle(session_id, 1, 7, first())

    def close_session(self, session_id: bytes) -> bool:
        if self.close_error is not None:
            raise self.close_error
        self.closed.append(session_id)
        return True


def first() -> Directive:
    return anything(0)


class Daemon:
    def __init__(self) -> None:
        self.client = FakeClient()
        self.answers = [vocabulary("a")]
        self.registrations = 0
        self.directives = DaemonDirectives(self.client, self._register)  # type: ignore[arg-type]

    def _register(self) -> VocabularyInfo:
        self.registrations += 1
        return self.answers[min(self.registrations, len(self.answers)) - 1]

    def open(self) -> SessionHandle:
        return self.directives.open_session(session_pb2.Constraint(), sampler_pb2.SamplerConfig(), [1, 2], END)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.directives.close()


def test_a_daemon_that_forgot_the_vocabulary_is_told_it_again(daemon: Daemon) -> None:
    daemon.client.refusals = [FORGOTTEN]
    session = daemon.open()
    assert daemon.registrations == 2
    assert daemon.client.opened == [session.session_id, session.session_id]
    assert daemon.client.reasoning_ends == [END, END]


def test_it_is_told_once_and_not_for_ever(daemon: Daemon) -> None:
    daemon.client.refusals = [FORGOTTEN, FORGOTTEN]
    with pytest.raises(UnknownVocabulary):
        daemon.open()
    assert daemon.registrations == 2


def test_a_vocabulary_that_changed_under_way_is_refused(daemon: Daemon) -> None:
    daemon.answers = [vocabulary("a"), vocabulary("b")]
    daemon.client.refusals = [FORGOTTEN]
    with pytest.raises(ConstraintdError, match="restart the runner") as caught:
        daemon.open()
    assert caught.value.reason == "VOCABULARY_MISMATCH"


def test_a_reconnect_does_not_wait_for_a_daemon_that_is_away(daemon: Daemon) -> None:
    daemon.client.stream.broken = Unavailable("gone")
    daemon.directives.reconnect()
    assert daemon.client.stream.reconnects == [False]
    assert daemon.registrations == 1


def test_a_stream_that_ended_for_want_of_the_vocabulary_registers_it_before_the_next(daemon: Daemon) -> None:
    daemon.client.stream.broken = FORGOTTEN
    daemon.directives.reconnect()
    assert daemon.registrations == 2


def test_sessions_are_closed_in_the_background_and_before_the_stream() -> None:
    daemon = Daemon()
    sessions = [daemon.open() for _ in range(3)]
    for session in sessions:
        daemon.directives.close_session(session)
    daemon.directives.close()
    ids = [session.session_id for session in sessions]
    assert daemon.client.closed == ids
    assert daemon.client.stream.forgotten == ids
    assert daemon.client.stream.closed


def test_a_session_that_cannot_be_closed_is_logged_and_the_next_is_closed(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = daemon.open(), daemon.open()
    daemon.client.close_error = Unavailable("gone")
    daemon.directives.close_session(bad)
    deadline = time.monotonic() + 5
    while "could not be closed" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    daemon.client.close_error = None
    daemon.directives.close_session(good)
    while daemon.client.closed != [good.session_id]:
        assert time.monotonic() < deadline
        time.sleep(0.001)
