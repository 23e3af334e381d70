"""One stream for many sessions: whatever order, failure or delay, each session gets its own answer or error."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from constraintd_client import (
    Cancelled,
    ConstraintClient,
    DeadlineExceeded,
    DecodeStream,
    LimitReached,
    MalformedAnswer,
    SessionHandle,
    StepInFlight,
    TokenNotAllowed,
    Unavailable,
    UnknownVocabulary,
)

from clients.python.tests.scripted_daemon import (
    WIDTH,
    EndStream,
    RunningDaemon,
    applied,
    apply_all,
    batch,
    directive,
    refused,
)
from constraintd.v1 import constraint_service_pb2 as service_pb2
from constraintd.v1 import error_pb2, session_pb2

WAIT = 5.0
Answers = Iterator[service_pb2.DecodeResponse]


@pytest.fixture
def stream(client: ConstraintClient) -> Iterator[DecodeStream]:
    with client.decode_stream("v", WIDTH) as opened:
        yield opened


def sessions(client: ConstraintClient, count: int) -> list[SessionHandle]:
    return [client.open_session("v", None) for _ in range(count)]


def send_one(stream: DecodeStream, session: SessionHandle, token: int = 1) -> None:
    stream.send([(session, [token], [0.5])])


def test_hello_comes_first_and_an_answer_moves_the_handle_on(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    (session,) = sessions(client, 1)
    stream.send([(session, [1, 3], [0.5, 1.0])])
    taken = stream.take(session, WAIT)
    assert (server.daemon.hellos[0].vocabulary_id, server.daemon.hellos[0].logits_width) == ("v", WIDTH)
    step = server.daemon.batches[0][1].steps[0]
    assert (step.epoch, step.position, list(step.tokens), list(step.surprisals)) == (7, 0, [1, 3], [0.5, 1.0])
    assert session.position == 2
    assert session.directive is taken
    assert taken.mask is not None
    assert len(taken.mask) == 3


def test_answers_in_any_order_and_in_several_messages_find_their_sessions(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    def backwards_one_by_one(_stream: int, steps: service_pb2.StepBatch) -> Answers:
        for step in reversed(steps.steps):
            yield batch(applied(step))

    server.daemon.script = backwards_one_by_one
    three = sessions(client, 3)
    stream.send([(session, [1] * (i + 1), [0.0] * (i + 1)) for i, session in enumerate(three)])
    assert [stream.take(session, WAIT).position for session in three] == [1, 2, 3]


def test_a_slow_session_does_not_hold_back_another(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    gate = threading.Event()

    def first_waits(_stream: int, steps: service_pb2.StepBatch) -> Answers:
        yield batch(applied(steps.steps[1]))
        gate.wait(WAIT)
        yield batch(applied(steps.steps[0]))

    server.daemon.script = first_waits
    slow, quick = sessions(client, 2)
    stream.send([(slow, [1], [0.0]), (quick, [1], [0.0])])
    assert stream.take(quick, WAIT).position == 1
    with pytest.raises(DeadlineExceeded):
        stream.take(slow, 0.02)
    gate.set()
    assert stream.take(slow, WAIT).position == 1


def test_a_refused_step_is_that_sessions_error_only_and_it_may_send_again(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    def refuse_token_9(_stream: int, steps: service_pb2.StepBatch) -> Answers:
        yield batch(
            *[
                refused(step, error_pb2.ERROR_REASON_TOKEN_NOT_ALLOWED, illegal_index=0)
                if step.tokens[0] == 9
                else applied(step)
                for step in steps.steps
            ]
        )

    server.daemon.script = refuse_token_9
    bad, good = sessions(client, 2)
    stream.send([(bad, [9], [0.0]), (good, [1], [0.0])])
    with pytest.raises(TokenNotAllowed) as caught:
        stream.take(bad, WAIT)
    assert caught.value.illegal_index == 0
    assert bad.position == 0
    assert stream.take(good, WAIT).position == 1
    assert stream.broken is None
    send_one(stream, bad)
    assert stream.take(bad, WAIT).position == 1


def test_a_second_unanswered_step_is_refused_before_anything_is_sent(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    one, other = sessions(client, 2)
    send_one(stream, one)
    with pytest.raises(ValueError, match=one.session_id.hex()):
        stream.send([(other, [1], [0.0]), (one, [1], [0.0])])
    with pytest.raises(ValueError, match=other.session_id.hex()):
        stream.send([(other, [1], [0.0]), (other, [1], [0.0])])
    with pytest.raises(ValueError, match="surprisals"):
        stream.send([(other, [1], [])])
    with pytest.raises(ValueError, match="nothing unanswered"):
        stream.take(other, 0)
    stream.take(one, WAIT)
    assert len(server.daemon.batches) == 1


def test_more_steps_than_the_server_takes_go_in_several_batches(
    server: RunningDaemon, client: ConstraintClient
) -> None:
    server.daemon.max_batch_steps = 2
    five = sessions(client, 5)
    with client.decode_stream("v", WIDTH) as stream:
        stream.send([(session, [1], [0.0]) for session in five])
        assert [stream.take(session, WAIT).position for session in five] == [1] * 5
    assert [len(steps.steps) for _, steps in server.daemon.batches] == [2, 2, 1]


def test_a_broken_stream_is_reported_to_each_taker_and_reconnecting_sends_again(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    def break_the_first(number: int, steps: service_pb2.StepBatch) -> Answers:
        if number == 0:
            yield batch(applied(steps.steps[0]))
            raise EndStream(grpc.StatusCode.UNAVAILABLE)
        yield from apply_all(number, steps)

    server.daemon.script = break_the_first
    answered, lost, idle = sessions(client, 3)
    stream.send([(answered, [1], [0.0]), (lost, [3], [0.0])])
    for _ in range(2):
        with pytest.raises(Unavailable):
            stream.take(lost, WAIT)
    assert isinstance(stream.broken, Unavailable)
    send_one(stream, idle)  # a step sent on a broken stream waits for the next one
    with pytest.raises(Unavailable):
        stream.take(idle, WAIT)

    stream.reconnect()
    assert stream.take(lost, WAIT).position == 1
    assert stream.take(idle, WAIT).position == 1
    assert stream.take(answered, WAIT).position == 1
    assert stream.broken is None
    again = [list(step.tokens) for number, steps in server.daemon.batches if number == 1 for step in steps.steps]
    assert again == [[3], [1]]  # the answer that had come was kept, so its step went out once
    assert len(server.daemon.hellos) == 2


def test_a_step_still_in_flight_at_the_daemon_is_asked_for_until_it_is_answered(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    tries = []

    def busy_twice(number: int, steps: service_pb2.StepBatch) -> Answers:
        if number == 0:
            raise EndStream(grpc.StatusCode.UNAVAILABLE)
        tries.append(steps)
        step = steps.steps[0]
        busy = refused(step, error_pb2.ERROR_REASON_STEP_IN_FLIGHT)
        yield batch(busy if len(tries) < 3 else applied(step))

    server.daemon.script = busy_twice
    (session,) = sessions(client, 1)
    send_one(stream, session)
    with pytest.raises(Unavailable):
        stream.take(session, WAIT)
    stream.reconnect()
    assert stream.take(session, WAIT).position == 1
    assert len(tries) == 3


def test_a_step_in_flight_that_was_not_sent_again_is_the_sessions_error(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    server.daemon.script = lambda _number, steps: iter(
        [batch(refused(steps.steps[0], error_pb2.ERROR_REASON_STEP_IN_FLIGHT))]
    )
    (session,) = sessions(client, 1)
    send_one(stream, session)
    with pytest.raises(StepInFlight):
        stream.take(session, WAIT)


def test_a_replaced_streams_late_answer_is_not_taken_for_a_later_steps(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    gate = threading.Event()

    def first_stream_is_late(number: int, steps: service_pb2.StepBatch) -> Answers:
        if number == 0:
            gate.wait(WAIT)
        yield from apply_all(number, steps)

    server.daemon.script = first_stream_is_late
    (session,) = sessions(client, 1)
    send_one(stream, session)
    stream.reconnect()
    assert stream.take(session, WAIT).position == 1
    gate.set()
    send_one(stream, session)
    assert stream.take(session, WAIT).position == 2


def test_an_answer_past_the_step_is_refused(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    def too_far(_number: int, steps: service_pb2.StepBatch) -> Answers:
        answer = service_pb2.StepAnswer(session_id=steps.steps[0].session_id, directive=directive(5))
        yield batch(answer)

    server.daemon.script = too_far
    (session,) = sessions(client, 1)
    send_one(stream, session)
    with pytest.raises(MalformedAnswer, match="position 5, expected 1"):
        stream.take(session, WAIT)
    assert session.position == 0


def test_an_answer_without_an_outcome_is_refused(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    def empty(_number: int, steps: service_pb2.StepBatch) -> Answers:
        yield batch(
            service_pb2.StepAnswer(session_id=steps.steps[0].session_id, directive=session_pb2.Directive(position=1))
        )

    server.daemon.script = empty
    (session,) = sessions(client, 1)
    send_one(stream, session)
    with pytest.raises(MalformedAnswer):
        stream.take(session, WAIT)


def test_what_is_wrong_with_the_stream_itself_has_its_class(server: RunningDaemon, client: ConstraintClient) -> None:
    (session,) = sessions(client, 1)
    with client.decode_stream("unknown", WIDTH) as stream:
        send_one(stream, session)
        with pytest.raises(UnknownVocabulary):
            stream.take(session, WAIT)

    def full(_number: int, _steps: service_pb2.StepBatch) -> Answers:
        raise EndStream(grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED", "too many")

    server.daemon.script = full
    with client.decode_stream("v", WIDTH) as stream:
        send_one(stream, session)
        with pytest.raises(LimitReached) as caught:
            stream.take(session, WAIT)
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_stream_that_the_server_ends_in_order_is_still_a_broken_one(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    def leave(_number: int, _steps: service_pb2.StepBatch) -> Answers:
        raise EndStream

    server.daemon.script = leave
    (session,) = sessions(client, 1)
    send_one(stream, session)
    with pytest.raises(Unavailable, match="the server ended the stream"):
        stream.take(session, WAIT)


def test_reconnecting_waits_for_a_daemon_that_restarts(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    (session,) = sessions(client, 1)
    send_one(stream, session)
    stream.take(session, WAIT)
    server.stop()
    send_one(stream, session)
    with pytest.raises((Unavailable, Cancelled)):
        stream.take(session, WAIT)
    stream.reconnect()
    with pytest.raises(DeadlineExceeded):
        stream.take(session, 0.05)
    server.start()
    assert stream.take(session, WAIT).position == 2


def test_closing_wakes_whoever_takes_and_tells_the_server(
    server: RunningDaemon, client: ConstraintClient, stream: DecodeStream
) -> None:
    gate = threading.Event()

    def never(_number: int, _steps: service_pb2.StepBatch) -> Answers:
        gate.wait(WAIT)
        return iter(())

    server.daemon.script = never
    (session,) = sessions(client, 1)
    send_one(stream, session)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(stream.take, session, WAIT)
        time.sleep(0.05)
        stream.close()
        with pytest.raises(Cancelled):
            taking.result(WAIT)
    gate.set()
    assert server.daemon.streams_ended.acquire(timeout=WAIT)
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        send_one(stream, session)
    with pytest.raises(ValueError, match="closed"):
        stream.reconnect()


def test_a_forgotten_sessions_answer_is_dropped(client: ConstraintClient, stream: DecodeStream) -> None:
    gone, other = sessions(client, 2)
    stream.send([(gone, [1], [0.0]), (other, [1], [0.0])])
    stream.forget(gone)
    assert stream.take(other, WAIT).position == 1
    with pytest.raises(ValueError, match="nothing unanswered"):
        stream.take(gone, 0)


def test_many_sessions_from_many_threads_each_get_their_own(client: ConstraintClient, stream: DecodeStream) -> None:
    def drive(session: SessionHandle) -> int:
        for _ in range(40):
            send_one(stream, session)
            stream.take(session, WAIT)
        return session.position

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(drive, sessions(client, 8))) == [40] * 8


def test_a_client_that_never_takes_does_not_stop_the_stream(client: ConstraintClient, stream: DecodeStream) -> None:
    crowd = sessions(client, 200)
    stream.send([(session, [1], [0.0]) for session in crowd])
    (late,) = sessions(client, 1)
    send_one(stream, late)
    assert stream.take(late, WAIT).position == 1
    assert all(stream.take(session, WAIT).position == 1 for session in crowd)


def test_wire_bytes_count_both_directions_and_each_answer(client: ConstraintClient, stream: DecodeStream) -> None:
    (session,) = sessions(client, 1)
    before = stream.wire_bytes_sent
    send_one(stream, session)
    taken = stream.take(session, WAIT)
    assert 30 < stream.wire_bytes_sent - before < 60
    assert taken.wire_bytes < stream.wire_bytes_received < taken.wire_bytes + 10
