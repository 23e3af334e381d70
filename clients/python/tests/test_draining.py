"""A daemon that says it is about to stop: nothing more goes to it, everything that it owes is taken from it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Final

import grpc
import pytest
from constraintd_client import ConstraintClient, Draining, SessionHandle
from constraintd_client.aio import AsyncConstraintClient

from clients.python.tests.scripted_daemon import WIDTH, EndStream, RunningDaemon, applied, apply_all, batch
from constraintd.v1 import constraint_service_pb2 as service_pb2

WAIT: Final = 10.0


class DrainingScript:
    """The first stream: Draining upon the first batch, its answers once `owed` is set, and then the end."""

    def __init__(self) -> None:
        self.owed = threading.Event()

    def __call__(self, stream: int, steps: service_pb2.StepBatch) -> Iterator[service_pb2.DecodeResponse]:
        if stream > 0:
            yield from apply_all(stream, steps)
            return
        yield service_pb2.DecodeResponse(draining=service_pb2.Draining())
        self.owed.wait(WAIT)
        yield batch(*[applied(step) for step in steps.steps])
        raise EndStream(grpc.StatusCode.UNAVAILABLE, "", "the daemon is stopping; connect again")


@pytest.fixture
def script(server: RunningDaemon) -> DrainingScript:
    server.daemon.script = DrainingScript()
    return server.daemon.script


def positions_sent(server: RunningDaemon) -> list[tuple[int, list[int]]]:
    """For each batch that the daemon read: its stream, and the positions of its steps."""
    return [(stream, [step.position for step in steps.steps]) for stream, steps in server.daemon.batches]


def test_what_is_sent_after_it_goes_out_on_the_next_stream_alone(
    server: RunningDaemon, script: DrainingScript, client: ConstraintClient
) -> None:
    first, second = (client.open_session("v", None) for _ in range(2))
    with client.decode_stream("v", WIDTH) as stream:
        stream.send([(first, [1], [0.5])])
        while not stream.draining:
            threading.Event().wait(0.001)
        stream.send([(second, [2], [0.5])])
        script.owed.set()
        assert stream.take(first, WAIT).position == 1
        with pytest.raises(Draining, match="connect again") as caught:
            stream.take(second, WAIT)
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
        assert isinstance(stream.broken, Draining)
        assert positions_sent(server) == [(0, [0])]
        stream.reconnect()
        assert not stream.draining
        assert stream.take(second, WAIT).position == 1
        assert positions_sent(server) == [(0, [0]), (1, [0])]
        stream.send([(first, [1], [0.5])])
        assert stream.take(first, WAIT).position == 2


def test_an_answer_that_was_owed_can_be_taken_after_the_reconnect_too(
    server: RunningDaemon, script: DrainingScript, client: ConstraintClient
) -> None:
    session = client.open_session("v", None)
    with client.decode_stream("v", WIDTH) as stream:
        stream.send([(session, [1], [0.5])])
        script.owed.set()
        while stream.broken is None:
            threading.Event().wait(0.001)
        stream.reconnect()
        assert stream.take(session, WAIT).position == 1
    assert positions_sent(server) == [(0, [0])]  # nothing was sent twice


async def test_the_asyncio_stream_keeps_to_it_too(server: RunningDaemon, script: DrainingScript) -> None:
    async with AsyncConstraintClient(server.target) as client:
        first: SessionHandle = await client.open_session("v", None)
        second: SessionHandle = await client.open_session("v", None)
        async with await client.decode_stream("v", WIDTH) as stream:
            stream.send([(first, [1], [0.5])])
            while not stream.draining:
                await asyncio.sleep(0.001)
            stream.send([(second, [2], [0.5])])
            script.owed.set()
            assert (await stream.take(first, WAIT)).position == 1
            with pytest.raises(Draining):
                await stream.take(second, WAIT)
            assert positions_sent(server) == [(0, [0])]
            stream.reconnect()
            assert (await stream.take(second, WAIT)).position == 1
            assert positions_sent(server) == [(0, [0]), (1, [0])]
