"""A resumable generation goes on behind a break by itself: within its bound, without a gap, without a repetition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from constraintd_client import (
    Cancelled,
    DaemonUnavailable,
    Delta,
    Finished,
    GenerationClient,
    InvalidField,
    NoTokenAllowed,
    Started,
    Unavailable,
    UnknownSession,
)
from constraintd_client.aio import AsyncGenerationClient
from constraintd_client.backoff import Backoff
from constraintd_client.errors import StaleEpoch
from constraintd_client.resuming import Healing, Seen, resume_request

from clients.python.tests.scripted_daemon import EndStream
from clients.python.tests.scripted_runner import FINISHED, STARTED, RunningRunner, delta
from constraintd.runner.v1 import generation_service_pb2 as runner_pb2

BREAK = EndStream(grpc.StatusCode.UNAVAILABLE, "", "the runner is gone")


@pytest.fixture
def client(runner: RunningRunner) -> Iterator[GenerationClient]:
    with GenerationClient(runner.target) as connected:
        yield connected


def breaking(*events: runner_pb2.GenerateResponse, end: EndStream = BREAK) -> Callable[[], Iterator[object]]:
    """These events, then a break."""

    def script() -> Iterator[object]:
        yield from events
        raise end

    return script


def in_turn(*scripts: Callable[[], object]) -> Callable[[], object]:
    """Another script for each call."""
    left = list(scripts)
    return lambda: left.pop(0)()


def test_a_break_is_bridged_and_the_events_go_on(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = breaking(STARTED, delta("é", 1), delta("b", 2))  # type: ignore[assignment]
    runner.resume_script = lambda: [STARTED, delta("c", 3), FINISHED]
    generation = client.generate("Hi", constraint=None, resumable=True, logprobs=2)
    assert [type(event) for event in generation.events()] == [Started, Delta, Delta, Delta, Finished]
    assert (generation.text, generation.token_ids) == ("ébc", (1, 2, 3))
    (request,), (resume,) = runner.requests, runner.resumes
    assert request.resumable
    assert len(request.session_id) == 16
    assert resume == runner_pb2.ResumeGenerationRequest(
        session_id=request.session_id, seen_tokens=2, seen_text_bytes=3, logprobs=2
    )


def test_it_goes_on_over_several_breaks_and_asks_for_what_is_new_each_time(
    runner: RunningRunner, client: GenerationClient
) -> None:
    runner.script = breaking(STARTED, delta("a", 1))  # type: ignore[assignment]
    runner.resume_script = in_turn(  # type: ignore[assignment]
        breaking(),
        breaking(STARTED, delta("b", 2), end=EndStream(grpc.StatusCode.UNAVAILABLE, "DAEMON_UNAVAILABLE", "")),
        breaking(end=EndStream(grpc.StatusCode.ABORTED, "STEP_IN_FLIGHT", "")),
        lambda: [STARTED, delta("c", 3), FINISHED],
    )
    assert client.generate("Hi", constraint=None, resumable=True).wait().text == "abc"
    assert [resume.seen_tokens for resume in runner.resumes] == [1, 1, 2, 2]


def test_one_that_is_not_resumable_ends_at_the_break(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = breaking(STARTED, delta("a", 1))  # type: ignore[assignment]
    with pytest.raises(Unavailable) as caught:
        client.generate("Hi", constraint=None).wait()
    assert caught.value.fragment == "a"
    assert runner.resumes == []


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, "NO_TOKEN_ALLOWED", NoTokenAllowed),
        (grpc.StatusCode.ABORTED, "STALE_EPOCH", StaleEpoch),
        (grpc.StatusCode.NOT_FOUND, "UNKNOWN_SESSION", UnknownSession),
        (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", InvalidField),
    ],
)
def test_what_no_other_runner_can_mend_is_final(
    runner: RunningRunner, client: GenerationClient, code: grpc.StatusCode, reason: str, kind: type[Exception]
) -> None:
    runner.script = breaking(STARTED, delta("a", 1), end=EndStream(code, reason, ""))  # type: ignore[assignment]
    with pytest.raises(kind):
        client.generate("Hi", constraint=None, resumable=True).wait()
    assert runner.resumes == []


def test_a_session_that_was_never_opened_is_asked_for_again(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = in_turn(breaking(), lambda: [STARTED, delta("a", 1), FINISHED])  # type: ignore[assignment]
    runner.resume_script = breaking(end=EndStream(grpc.StatusCode.NOT_FOUND, "UNKNOWN_SESSION", ""))  # type: ignore[assignment]
    assert client.generate("Hi", constraint=None, resumable=True).wait().text == "a"
    one, other = runner.requests
    assert one == other


def test_a_break_that_lasts_is_an_error_in_time(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = breaking(STARTED, delta("a", 1))  # type: ignore[assignment]
    runner.resume_script = breaking(end=EndStream(grpc.StatusCode.UNAVAILABLE, "DAEMON_UNAVAILABLE", "gone"))  # type: ignore[assignment]
    began = time.monotonic()
    with pytest.raises(DaemonUnavailable) as caught:
        client.generate("Hi", constraint=None, resumable=True, resume_timeout=0.5).wait()
    assert time.monotonic() - began < 5
    assert caught.value.fragment == "a"
    assert len(runner.resumes) >= 3


def test_cancelling_ends_the_wait_for_a_runner(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = breaking(STARTED, delta("a", 1))  # type: ignore[assignment]
    runner.resume_script = breaking()  # type: ignore[assignment]
    generation = client.generate("Hi", constraint=None, resumable=True, resume_timeout=60)
    threading.Timer(0.2, generation.cancel).start()
    with pytest.raises((Cancelled, Unavailable)):
        generation.wait()


def test_an_explicit_resume_counts_from_what_was_seen_before(runner: RunningRunner, client: GenerationClient) -> None:
    runner.resume_script = in_turn(  # type: ignore[assignment]
        breaking(STARTED, delta("xy", 8, 9)), lambda: [STARTED, delta("z", 10), FINISHED]
    )
    generation = client.resume(b"s" * 16, seen_tokens=7, seen_text_bytes=20, exact=True).wait()
    assert (generation.text, generation.token_ids) == ("xyz", (8, 9, 10))
    assert [(resume.seen_tokens, resume.seen_text_bytes, resume.exact) for resume in runner.resumes] == [
        (7, 20, True),
        (9, 22, True),
    ]
    assert client.close_generation(b"s" * 16)
    assert not client.close_generation(b"t" * 16)


async def test_the_asyncio_client_heals_as_well(runner: RunningRunner) -> None:
    runner.script = breaking(STARTED, delta("a", 1))  # type: ignore[assignment]
    rest = [STARTED, delta("b", 2), FINISHED]
    runner.resume_script = in_turn(breaking(), lambda: rest, lambda: rest)  # type: ignore[assignment]
    async with AsyncGenerationClient([runner.target, runner.target]) as client:
        generation = client.generate("Hi", constraint=None, resumable=True)
        assert [type(event) async for event in generation.events()] == [Started, Delta, Delta, Finished]
        assert generation.text == "ab"
        assert (await client.resume(b"s" * 16).wait()).text == "b"
        assert await client.close_generation(b"s" * 16)


# --- the bound, by a clock of the test ---


def test_the_pauses_of_one_break_end_at_its_bound_and_begin_anew_after_progress() -> None:
    now = [0.0]
    request = resume_request(b"s" * 16, Seen(), exact=False, logprobs=None)
    backoff = Backoff(1.0, 4.0, uniform=lambda low, high: high)
    healing = Healing(request, timeout=10.0, backoff=backoff, clock=lambda: now[0])
    gone = Unavailable("gone")
    pauses = []
    while (pause := healing.pause_after(gone, Seen(3, 5))) is not None:
        pauses.append(pause)
        now[0] += pause
    assert pauses == [1.0, 2.0, 4.0]
    healing.moved_on()
    assert healing.pause_after(gone, Seen(3, 5)) == 1.0
    assert healing.next_request(Seen(3, 5)).seen_tokens == 3  # type: ignore[union-attr]
