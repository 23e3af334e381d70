"""The asyncio client keeps the same promises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from constraintd_client import (
    Cancelled,
    DeadlineExceeded,
    IncompleteGeneration,
    InvalidGrammar,
    KeywordReport,
    SessionHandle,
    TokenNotAllowed,
    Unavailable,
    UnknownVocabulary,
    json_schema,
    reasoning_end,
    regex,
)
from constraintd_client.aio import AsyncConstraintClient, AsyncDecodeStream, AsyncGenerationClient

from clients.python.tests.scripted_daemon import WIDTH, EndStream, RunningDaemon, applied, apply_all, batch, refused
from clients.python.tests.scripted_runner import FINISHED, STARTED, RunningRunner, delta
from constraintd.runner.v1 import generation_service_pb2 as runner_pb2
from constraintd.v1 import constraint_service_pb2 as service_pb2
from constraintd.v1 import error_pb2

WAIT = 5.0
Answers = Iterator[service_pb2.DecodeResponse]


@pytest.fixture
async def aclient(server: RunningDaemon) -> AsyncIterator[AsyncConstraintClient]:
    async with AsyncConstraintClient(server.target, timeout=10) as connected:
        yield connected


@pytest.fixture
async def astream(aclient: AsyncConstraintClient) -> AsyncIterator[AsyncDecodeStream]:
    async with await aclient.decode_stream("v", WIDTH) as opened:
        yield opened


async def sessions(client: AsyncConstraintClient, count: int) -> list[SessionHandle]:
    return [await client.open_session("v", None) for _ in range(count)]


async def test_unary_calls_give_the_same_values_and_errors(aclient: AsyncConstraintClient) -> None:
    info = await aclient.register_token_table([b"a"], eog_ids=[1], logits_width=5)
    assert (info.logits_width, info.eog_ids) == (5, (1,))
    assert (await aclient.token_table("v")).tokens == (b"ab", b"", b"\xff", b"")
    with pytest.raises(InvalidGrammar):
        await aclient.compile_grammar("v", regex("("))
    with pytest.raises(UnknownVocabulary):
        await aclient.token_table("other")
    opened = await sessions(aclient, 3)
    assert (await aclient.step(opened[0], [1], [0.0])).position == 1
    assert [s.session_id async for s in aclient.list_sessions()] == sorted(s.session_id for s in opened)
    assert await aclient.close_session(opened[0].session_id) is True


async def test_reports_and_reasoning_ends_are_there_too(
    server: RunningDaemon, runner: RunningRunner, aclient: AsyncConstraintClient
) -> None:
    report = await aclient.compile_report("v", json_schema({"title": "t"}))
    assert report == (KeywordReport("/title", "title", "ANNOTATION", "says nothing"),)
    end = reasoning_end("</think>")
    await aclient.open_session("v", None, reasoning_end=end)
    assert server.daemon.opened[0].reasoning_end == end
    runner.script = lambda: [STARTED, FINISHED]
    async with AsyncGenerationClient(runner.target) as generations:
        await generations.generate("Hi", constraint=None, reasoning_end=end, logprobs=0).wait()
    assert runner.requests[0].reasoning_end == end
    assert runner.requests[0].HasField("logprobs")


async def test_split_answers_in_any_order_find_their_sessions(
    server: RunningDaemon, aclient: AsyncConstraintClient, astream: AsyncDecodeStream
) -> None:
    def backwards(_stream: int, steps: service_pb2.StepBatch) -> Answers:
        for step in reversed(steps.steps):
            if step.tokens[0] == 9:
                yield batch(refused(step, error_pb2.ERROR_REASON_TOKEN_NOT_ALLOWED))
            else:
                yield batch(applied(step))

    server.daemon.script = backwards
    one, bad, three = await sessions(aclient, 3)
    astream.send([(one, [1], [0.0]), (bad, [9], [0.0]), (three, [1, 1], [0.0, 0.0])])
    with pytest.raises(ValueError, match="unanswered"):
        astream.send([(one, [1], [0.0])])
    assert (await astream.take(one, WAIT)).position == 1
    with pytest.raises(TokenNotAllowed):
        await astream.take(bad, WAIT)
    assert (await astream.take(three, WAIT)).position == 2


async def test_a_broken_stream_reconnects_and_sends_again(
    server: RunningDaemon, aclient: AsyncConstraintClient, astream: AsyncDecodeStream
) -> None:
    def break_the_first(number: int, steps: service_pb2.StepBatch) -> Answers:
        if number == 0:
            yield batch(applied(steps.steps[0]))
            raise EndStream(grpc.StatusCode.UNAVAILABLE)
        yield from apply_all(number, steps)

    server.daemon.script = break_the_first
    answered, lost = await sessions(aclient, 2)
    astream.send([(answered, [1], [0.0]), (lost, [3], [0.0])])
    with pytest.raises(Unavailable):
        await astream.take(lost, WAIT)
    astream.reconnect()
    assert (await astream.take(lost, WAIT)).position == 1
    assert (await astream.take(answered, WAIT)).position == 1
    assert astream.wire_bytes_received > 0


async def test_a_step_still_in_flight_is_asked_for_again(
    server: RunningDaemon, aclient: AsyncConstraintClient, astream: AsyncDecodeStream
) -> None:
    tries = []

    def busy_once(number: int, steps: service_pb2.StepBatch) -> Answers:
        if number == 0:
            raise EndStream(grpc.StatusCode.UNAVAILABLE)
        tries.append(steps)
        busy = refused(steps.steps[0], error_pb2.ERROR_REASON_STEP_IN_FLIGHT)
        yield batch(busy if len(tries) < 2 else applied(steps.steps[0]))

    server.daemon.script = busy_once
    (session,) = await sessions(aclient, 1)
    astream.send([(session, [1], [0.0])])
    with pytest.raises(Unavailable):
        await astream.take(session, WAIT)
    astream.reconnect()
    assert (await astream.take(session, WAIT)).position == 1


async def test_giving_up_on_one_answer_leaves_the_stream_standing(
    server: RunningDaemon, aclient: AsyncConstraintClient, astream: AsyncDecodeStream
) -> None:
    gate = threading.Event()

    def wait_for_gate(number: int, steps: service_pb2.StepBatch) -> Answers:
        gate.wait(WAIT)
        yield from apply_all(number, steps)

    server.daemon.script = wait_for_gate
    (session,) = await sessions(aclient, 1)
    astream.send([(session, [1], [0.0])])
    with pytest.raises(DeadlineExceeded):
        await astream.take(session, 0.02)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(astream.take(session, WAIT), 0.02)
    gate.set()
    assert (await astream.take(session, WAIT)).position == 1


async def test_closing_wakes_whoever_takes(
    server: RunningDaemon, aclient: AsyncConstraintClient, astream: AsyncDecodeStream
) -> None:
    server.daemon.script = lambda _number, _steps: iter(())
    (session,) = await sessions(aclient, 1)
    astream.send([(session, [1], [0.0])])
    taking = asyncio.create_task(astream.take(session, WAIT))
    await asyncio.sleep(0.02)
    await astream.close()
    with pytest.raises(Cancelled):
        await taking
    with pytest.raises(ValueError, match="closed"):
        astream.send([(session, [1], [0.0])])


async def test_a_generation_gives_pieces_and_a_finish(runner: RunningRunner) -> None:
    runner.script = lambda: [STARTED, delta("ab", 1), delta("c", 2), FINISHED]
    async with AsyncGenerationClient(runner.target) as client:
        generation = client.generate("Hi", constraint=None)
        assert [piece async for piece in generation] == ["ab", "c"]
        assert generation.finish is not None
        assert generation.finish.reason == "STOP_STRING"
        assert (await client.model_info()).slots == 4


async def test_a_generation_cut_short_or_cancelled_raises_with_its_fragment(runner: RunningRunner) -> None:
    gate = threading.Event()

    def endless() -> Iterator[runner_pb2.GenerateResponse]:
        yield delta("a", 1)
        gate.wait(WAIT)

    async with AsyncGenerationClient(runner.target) as client:
        runner.script = lambda: [STARTED, delta("ab", 1)]
        with pytest.raises(IncompleteGeneration) as cut:
            await client.generate("Hi", constraint=None).wait()
        assert cut.value.fragment == "ab"

        runner.script = endless
        generation = client.generate("Hi", constraint=None)
        pieces = aiter(generation)
        assert await anext(pieces) == "a"
        generation.cancel()
        with pytest.raises(Cancelled) as cancelled:
            await anext(pieces)
        assert cancelled.value.fragment == "a"
        gate.set()
