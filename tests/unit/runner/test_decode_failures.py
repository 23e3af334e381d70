"""The decode loop when streams break and Steps are refused: what waits, what is sent again, and who ends alone."""

from __future__ import annotations

import threading
import time

import pytest
from constraintd_client.backoff import Backoff
from constraintd_client.errors import (
    ConstraintdError,
    PositionGap,
    StaleEpoch,
    StoreUnavailable,
    Unavailable,
    UnknownSession,
)
from constraintd_runner.errors import Abandoned, DaemonLost, RunnerError, TakenOver
from constraintd_runner.generation import Generation

from tests.unit.runner.scripted import (
    Answer,
    CountingDecoder,
    Running,
    ScriptedSource,
    anything,
    generation,
    tokens_of,
    until,
)

GONE = Unavailable("connection refused")


def failure_of(wanted: Generation) -> Exception:
    with pytest.raises((RunnerError, ConstraintdError)) as caught:
        list(wanted.events())
    return caught.value


# --- the stream ---


def test_a_daemon_that_is_away_for_many_attempts_costs_waiting_and_nothing_else() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()

    def script(position: int, token: int) -> Answer:
        return GONE if position == 3 and source.reconnects < 7 else until(5)(position, token)

    with Running(decoder, source, backoff=Backoff(0.001, 0.01)) as loop:
        wanted = [generation(source.open(script), first=first) for first in (0, 20)]
        for each in wanted:
            loop.submit(each)
        assert [tokens_of(list(each.events())) for each in wanted] == [[1, 2, 3, 4, 5], [21, 22, 23, 24, 25]]
    assert source.reconnects == 7


def test_attempts_keep_their_pauses() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    asked: list[float] = []

    def pause(low: float, high: float) -> float:
        asked.append(high)
        return high

    with Running(decoder, source, answer_timeout=0.5, backoff=Backoff(0.02, 0.1, uniform=pause)) as loop:
        wanted = generation(source.open(lambda position, token: GONE))
        began = time.perf_counter()
        loop.submit(wanted)
        assert isinstance(failure_of(wanted), DaemonLost)
        assert 0.4 < time.perf_counter() - began < 5.0
    assert asked[:5] == [0.02, 0.04, 0.08, 0.1, 0.1]
    assert len(asked) < 12


def test_nothing_is_picked_without_a_mask_while_the_daemon_is_away() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    with Running(decoder, source, answer_timeout=0.2, backoff=Backoff(0.001, 0.01)) as loop:
        wanted = generation(source.open(lambda position, token: GONE if position == 2 else anything(position)))
        loop.submit(wanted)
        assert isinstance(failure_of(wanted), DaemonLost)
    # One pass for each picked token, of which the second was never answered; no third token was picked.
    assert decoder.passes == [[1], [2]]


def test_cancelling_works_while_the_daemon_is_away() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    with Running(decoder, source, backoff=Backoff(5.0, 5.0, uniform=lambda low, high: high)) as loop:
        wanted = generation(source.open(lambda position, token: GONE))
        loop.submit(wanted)
        assert source.heard.wait(5)
        wanted.cancel()
        began = time.perf_counter()
        assert isinstance(failure_of(wanted), Abandoned)
        assert time.perf_counter() - began < 2.0


def test_a_row_that_waits_for_its_mask_outlives_the_passes_of_newcomers() -> None:
    # The decoder writes every pass into the same memory, and the newcomer's prefill comes while the first one waits.
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    back = threading.Event()

    def script(position: int, token: int) -> Answer:
        return GONE if position == 2 and not back.is_set() else until(4)(position, token)

    with Running(decoder, source, backoff=Backoff(0.01, 0.02)) as loop:
        first = generation(source.open(script))
        loop.submit(first)
        assert source.heard.wait(5)
        time.sleep(0.05)
        second = generation(source.open(until(2)), first=30)
        loop.submit(second)
        time.sleep(0.05)
        back.set()
        assert tokens_of(list(first.events())) == [1, 2, 3, 4]
        assert tokens_of(list(second.events())) == [31, 32]


# --- one session ---


def test_a_step_that_the_store_could_not_take_is_sent_again_and_the_others_go_on() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    refused = 0

    def full(position: int, token: int) -> Answer:
        nonlocal refused
        if position == 2 and refused < 4:
            refused += 1
            return StoreUnavailable("the disk is full", reason="STORE_UNAVAILABLE")
        return until(3)(position, token)

    with Running(decoder, source) as loop:
        waiting, other = generation(source.open(full)), generation(source.open(until(6)), first=10)
        loop.submit(waiting)
        loop.submit(other)
        assert tokens_of(list(other.events())) == [11, 12, 13, 14, 15, 16]
        assert tokens_of(list(waiting.events())) == [1, 2, 3]
    # The same report each time, passes included.
    assert source.passes[waiting.session.session_id] == [[1], [1], [1], [1], [1], [1], [1]]
    assert source.reconnects == 0


def test_a_store_that_stays_full_ends_its_session_in_time_and_alone() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    full = StoreUnavailable("the disk is full", reason="STORE_UNAVAILABLE")
    with Running(decoder, source, answer_timeout=0.2) as loop:
        waiting, other = generation(source.open(lambda position, token: full)), generation(source.open(until(6)))
        loop.submit(waiting)
        loop.submit(other)
        assert len(tokens_of(list(other.events()))) == 6
        assert isinstance(failure_of(waiting), DaemonLost)


def test_a_session_that_was_taken_over_ends_alone_and_is_left_to_its_new_owner() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    stale = StaleEpoch("another epoch", reason="STALE_EPOCH")
    with Running(decoder, source) as loop:
        lost = generation(source.open(lambda position, token: stale if position == 2 else anything(position)))
        other = generation(source.open(until(6)), first=10)
        loop.submit(lost)
        loop.submit(other)
        assert isinstance(failure_of(lost), TakenOver)
        assert len(tokens_of(list(other.events()))) == 6
    assert source.left == [lost.session.session_id]
    assert source.closed == [other.session.session_id]


@pytest.mark.parametrize(
    "refusal",
    [
        PositionGap("behind", reason="POSITION_GAP", metadata={"expected_position": "1"}),
        UnknownSession("expired", reason="UNKNOWN_SESSION"),
    ],
    ids=["gap", "unknown"],
)
def test_a_session_whose_daemon_has_lost_it_ends_alone_with_what_the_daemon_said(refusal: ConstraintdError) -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    with Running(decoder, source) as loop:
        lost = generation(source.open(lambda position, token: refusal if position == 3 else anything(position)))
        other = generation(source.open(until(6)), first=10)
        loop.submit(lost)
        loop.submit(other)
        assert failure_of(lost) is refusal
        assert len(tokens_of(list(other.events()))) == 6


def test_a_resumed_one_doubts_the_first_stale_epoch_which_may_be_its_predecessor_s() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    said = 0

    def stale_once(position: int, token: int) -> Answer:
        nonlocal said
        said += 1
        return StaleEpoch("another epoch", reason="STALE_EPOCH") if said == 1 else until(3)(position, token)

    with Running(decoder, source) as loop:
        wanted = generation(source.open(stale_once))
        wanted.resumed = True
        loop.submit(wanted)
        assert tokens_of(list(wanted.events())) == [1, 2, 3]
        again = generation(source.open(lambda position, token: StaleEpoch("", reason="STALE_EPOCH")))
        again.resumed = True
        loop.submit(again)
        assert isinstance(failure_of(again), TakenOver)
