"""SIGTERM at a daemon: what was read is answered, streams move, no step is lost or doubled, and it is gone in time."""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from constraintd_client import ConstraintClient, Draining, SessionHandle, Unavailable
from constraintd_client.aio import AsyncConstraintClient
from grpc_health.v1 import health_pb2, health_pb2_grpc

from constraintd.v1 import constraint_service_pb2 as pb
from constraintd.v1 import session_pb2
from tests.daemon_process import (
    BYTE_TABLE,
    EOG,
    SECOND_EOG,
    UNCONSTRAINED,
    WIDTH,
    open_request,
    register_bytes,
    step_message,
    stub_for,
)
from tests.served_process import ServedProcess

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SLOW_APPENDS = ("--durability", "strict", "--failpoints", "append.before=delay:1")
"""Steps wait in a thread for their append: a test has time to act while they do."""


def daemon_at(folder: Path, *arguments: str, drain: str = "5") -> ServedProcess:
    """On one socket and one store of this folder."""
    flags = ("--listen", f"unix:{folder}/daemon.sock", "--store", f"sqlite:{folder}/sessions", "--no-sandbox")
    return ServedProcess(folder, *flags, "--drain-seconds", drain, *arguments)


class RawStream:
    """A Decode stream as it goes over the wire."""

    def __init__(self, daemon: str) -> None:
        self.channel, self.stub = stub_for(daemon)
        self.vocabulary_id = register_bytes(self.stub)
        self._requests: queue.SimpleQueue[pb.DecodeRequest | None] = queue.SimpleQueue()
        self.responses = self.stub.Decode(iter(self._requests.get, None))
        self._requests.put(pb.DecodeRequest(hello=pb.Hello(vocabulary_id=self.vocabulary_id, logits_width=WIDTH)))

    def open_sessions(self, count: int) -> list[session_pb2.Step]:
        """Sessions, and the first Step of each."""
        steps = []
        for _ in range(count):
            request = open_request(self.vocabulary_id, UNCONSTRAINED)
            answer = self.stub.OpenSession(request)
            steps.append(step_message(request.session_id, answer.epoch, 0, [65]))
        return steps

    def send(self, steps: list[session_pb2.Step]) -> None:
        self._requests.put(pb.DecodeRequest(step_batch=pb.StepBatch(steps=steps)))

    def close(self) -> None:
        self._requests.put(None)
        self.channel.close()


@pytest.fixture
def slow_daemon(tmp_path: Path) -> Iterator[ServedProcess]:
    with daemon_at(tmp_path, *SLOW_APPENDS) as daemon:
        yield daemon


def test_draining_comes_first_then_every_answer_that_is_owed_then_unavailable(slow_daemon: ServedProcess) -> None:
    stream = RawStream(slow_daemon.address)
    steps = stream.open_sessions(5)
    stream.send(steps)
    time.sleep(0.2)
    slow_daemon.signal()
    seen: list[str] = []
    answered: set[bytes] = set()
    with pytest.raises(grpc.RpcError) as caught:
        for response in stream.responses:
            seen.append(response.WhichOneof("message"))
            answered |= {answer.session_id for answer in response.directive_batch.answers if answer.directive.position}
    assert seen[0] == "draining"
    assert seen.count("draining") == 1
    assert answered == {step.session_id for step in steps}
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    slow_daemon.gone(within=5)
    stream.close()


def test_a_stream_that_waits_for_its_client_ends_at_once(tmp_path: Path) -> None:
    with daemon_at(tmp_path, drain="30") as daemon:
        stream = RawStream(daemon.address)
        stream.send(stream.open_sessions(1))
        assert next(stream.responses).WhichOneof("message") == "directive_batch"
        assert daemon.end() < 2
        assert next(stream.responses).WhichOneof("message") == "draining"
        stream.close()


def test_a_unary_call_that_runs_is_finished_and_a_new_one_is_refused(slow_daemon: ServedProcess) -> None:
    channel, stub = stub_for(slow_daemon.address)
    request = open_request(register_bytes(stub), UNCONSTRAINED)
    epoch = stub.OpenSession(request).epoch
    running = stub.Step.future(session_pb2.StepRequest(step=step_message(request.session_id, epoch, 0, [65])))
    time.sleep(0.2)
    slow_daemon.signal()
    time.sleep(0.1)
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert running.result(timeout=5).directive.position == 1
    slow_daemon.gone(within=5)
    channel.close()


def test_a_draining_daemon_is_alive_and_not_ready(slow_daemon: ServedProcess) -> None:
    stream = RawStream(slow_daemon.address)
    health = health_pb2_grpc.HealthStub(stream.channel)

    def told(service: str) -> int:
        return health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status

    names = ("", "constraintd.v1.ConstraintService", "liveness")
    assert [told(name) for name in names] == [SERVING, SERVING, SERVING]
    watch = health.Watch(health_pb2.HealthCheckRequest())
    assert next(watch).status == SERVING
    stream.send(stream.open_sessions(1))
    time.sleep(0.2)
    slow_daemon.signal()
    assert next(watch).status == NOT_SERVING
    assert [told(name) for name in names] == [NOT_SERVING, NOT_SERVING, SERVING]
    assert slow_daemon.gone(within=4) < 3  # who watches the health does not keep it
    stream.close()


def test_a_call_that_outlasts_the_drain_is_ended_and_the_daemon_gone_in_time(tmp_path: Path) -> None:
    with daemon_at(tmp_path, "--durability", "strict", "--failpoints", "append.before=delay:2", drain="0.3") as daemon:
        stream = RawStream(daemon.address)
        stream.send(stream.open_sessions(1))
        time.sleep(0.2)
        began = time.monotonic()
        daemon.signal()
        with pytest.raises(grpc.RpcError):
            list(stream.responses)
        assert time.monotonic() - began < 1.5
        daemon.process.wait(timeout=4)
        stream.close()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with daemon_at(tmp_path, "--durability", "strict", "--failpoints", "append.before=delay:1", drain="60") as daemon:
        stream = RawStream(daemon.address)
        stream.send(stream.open_sessions(1))
        time.sleep(0.2)
        daemon.signal()
        time.sleep(0.1)
        daemon.signal(signal.SIGINT)
        daemon.gone(within=4)
        stream.close()


SESSIONS, LENGTH = 12, 150


def token_at(session: int, position: int) -> int:
    """What each session accepts; no two alike."""
    return (session * 31 + position * 7) % 256


def check(client: ConstraintClient, sessions: list[SessionHandle]) -> None:
    """Nothing lost, nothing doubled."""
    for number, session in enumerate(sessions):
        expected = [token_at(number, position) for position in range(LENGTH)]
        assert list(client.get_session(session.session_id).tokens) == expected


def check_drains(drains: list[int]) -> None:
    """The stream was told of each end: before all answers to the Steps on their way, or else when the next were sent.

    Of two ends in a row it may see one: the daemon between them can be gone before the stream comes to it.
    """
    assert all(any(drain in (at, at + 1) for drain in drains) for at in AT)
    assert all(any(drain in (at, at + 1) for at in AT) for drain in drains)
    assert len(AT) - 1 <= len(drains) <= len(AT)


class Replacing:
    """Ends a daemon and starts another in its place, beside the test's own work."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.daemon = daemon_at(folder)
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """SIGTERM now; the next one starts once this one is gone."""
        self._settle()
        self.daemon.signal()
        self._thread = threading.Thread(target=self._finish)
        self._thread.start()

    def end(self) -> None:
        self._settle()
        self.daemon.end()

    def _settle(self) -> None:
        """A daemon may answer before it is known here that it has started."""
        if self._thread is not None:
            self._thread.join()

    def _finish(self) -> None:
        self.daemon.gone(within=10)
        self.daemon = daemon_at(self._folder)


AT = (20, 60, 61, 120)
"""Positions after whose Steps are sent, and before their answers are taken, the daemon is told to end."""


def test_sessions_in_the_middle_of_batches_go_on_at_the_next_daemon(tmp_path: Path) -> None:
    daemons = Replacing(tmp_path)
    drains = []
    with ConstraintClient(daemons.daemon.address) as client:
        vocabulary_id = client.register_vocabulary(
            "token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG]
        ).vocabulary_id
        sessions = [client.open_session(vocabulary_id, None) for _ in range(SESSIONS)]
        with client.decode_stream(vocabulary_id, WIDTH) as stream:
            for position in range(LENGTH):
                stream.send([(session, [token_at(n, position)], [0.5]) for n, session in enumerate(sessions)])
                if position in AT:
                    daemons.begin()
                for session in sessions:
                    while True:
                        try:
                            stream.take(session, timeout=20)
                            break
                        except Draining:
                            drains.append(position)
                            stream.reconnect()
                        except Unavailable:
                            stream.reconnect()
        check(client, sessions)
    daemons.end()
    check_drains(drains)


async def test_the_asyncio_stream_goes_on_at_the_next_daemon_too(tmp_path: Path) -> None:
    daemons = await asyncio.to_thread(Replacing, tmp_path)
    drains = []
    async with AsyncConstraintClient(daemons.daemon.address) as client:
        vocabulary = await client.register_vocabulary(
            "token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG]
        )
        sessions = [await client.open_session(vocabulary.vocabulary_id, None) for _ in range(SESSIONS)]
        async with await client.decode_stream(vocabulary.vocabulary_id, WIDTH) as stream:
            for position in range(LENGTH):
                stream.send([(session, [token_at(n, position)], [0.5]) for n, session in enumerate(sessions)])
                if position in AT:
                    daemons.begin()
                for session in sessions:
                    while True:
                        try:
                            await stream.take(session, timeout=20)
                            break
                        except Draining:
                            drains.append(position)
                            stream.reconnect()
                        except Unavailable:
                            stream.reconnect()
        with ConstraintClient(daemons.daemon.address) as checking:
            await asyncio.to_thread(check, checking, sessions)
    await asyncio.to_thread(daemons.end)
    check_drains(drains)
