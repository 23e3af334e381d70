"""Several addresses of one service: one is in use, and who finds it dead goes on to the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest
from constraintd_client import Cancelled, ConstraintClient, GenerationClient, Unavailable
from constraintd_client.aio import AsyncGenerationClient
from constraintd_client.transport import Targets

from clients.python.tests.scripted_daemon import RunningDaemon
from clients.python.tests.scripted_runner import STARTED, RunningRunner
from constraintd.runner.v1 import generation_service_pb2 as runner_pb2

NOWHERE = "127.0.0.1:1"


def test_addresses_are_used_in_turn_and_opened_when_needed() -> None:
    opened: list[str] = []

    def connect(target: str) -> str:
        opened.append(target)
        return target.upper()

    targets = Targets(["a", "b", "c"], connect)
    assert (targets.present, targets.wire(), targets.wire()) == ("a", "A", "A")
    for present in ("a", "b"):
        targets.leave(present)
    assert (targets.present, opened) == ("c", ["a"])
    targets.leave("c")
    assert (targets.wire(), opened) == ("A", ["a"])


def test_of_two_who_find_the_same_address_dead_only_one_goes_on() -> None:
    targets = Targets(["a", "b"], str)
    targets.leave("a")
    targets.leave("a")
    assert targets.present == "b"


def test_one_address_stays_in_use_and_none_is_refused() -> None:
    targets = Targets("a", str)
    targets.leave("a")
    assert targets.present == "a"
    with pytest.raises(ValueError, match="at least one"):
        Targets([], str)


def test_every_call_carries_the_client_s_affinity(server: RunningDaemon) -> None:
    with ConstraintClient(server.target, affinity="pod-7") as client, ConstraintClient(server.target) as other:
        client.server_info()
        stream = client.decode_stream("v" * 64, 8)
        stream.close()
        other.server_info()
        other.server_info()
    # server_info, the one that decode_stream asks, the stream itself; then the other client's own value, twice.
    assert server.daemon.affinities.count("pod-7") == 3
    (random,) = {value for value in server.daemon.affinities if value != "pod-7"}
    assert len(random) == 32


def test_a_generation_client_leaves_a_runner_that_is_gone(runner: RunningRunner) -> None:
    with GenerationClient([NOWHERE, runner.target]) as client:
        with pytest.raises(Unavailable) as caught:
            client.generate("x", constraint=None).wait()
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
        assert client.model_info().model == "tiny"


async def test_a_generation_that_was_cancelled_on_this_side_leaves_its_runner_in_use(runner: RunningRunner) -> None:
    over = threading.Event()

    def endless() -> Iterator[runner_pb2.GenerateResponse]:
        yield STARTED
        over.wait(20)

    runner.script = endless
    with GenerationClient([runner.target, NOWHERE]) as client:
        generation = client.generate("x", constraint=None)
        events = generation.events()
        next(events)
        generation.cancel()
        with pytest.raises(Cancelled):
            next(events)
        assert client.model_info().model == "tiny"
    async with AsyncGenerationClient([runner.target, NOWHERE]) as asyncio_client:
        asyncio_generation = asyncio_client.generate("x", constraint=None)
        asyncio_events = asyncio_generation.events()
        await anext(asyncio_events)
        asyncio_generation.cancel()
        with pytest.raises(Cancelled):
            await anext(asyncio_events)
        assert (await asyncio_client.model_info()).model == "tiny"
    over.set()
