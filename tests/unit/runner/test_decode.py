"""The decode loop against a scripted decoder and a scripted source of directives."""

from __future__ import annotations

import threading
import time

import pytest
from constraintd_client.errors import ConstraintdError, TokenNotAllowed, Unavailable
from constraintd_runner.directives import InProcessDirectives, ends_stream
from constraintd_runner.errors import (
    Abandoned,
    DaemonLost,
    DeadEnd,
    InternalFault,
    ModelFailure,
    RunnerError,
    Stopping,
)
from constraintd_runner.generation import Accepted, Ended, Generation, PromptIn
from constraintd_runner.pickers import ReplayPicker, UnmaskedPicker
from constraintd_runner.sampling import Chain, Greedy

from tests.unit.runner.scripted import (
    Answer,
    CountingDecoder,
    Running,
    ScriptedSource,
    anything,
    dead,
    end,
    generation,
    only,
    tokens_of,
    until,
)


def failure_of(wanted: Generation) -> Exception:
    with pytest.raises((RunnerError, ConstraintdError)) as caught:
        list(wanted.events())
    return caught.value


def eventually(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)


# --- one generation ---


def test_a_generation_runs_from_prompt_to_finish() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    with Running(decoder, source) as loop:
        wanted = generation(source.open(until(3)), first=10)
        loop.submit(wanted)
        events = list(wanted.events())
    assert events[0] == PromptIn()
    assert events[1:4] == [Accepted(11, 0), Accepted(12, 0), Accepted(13, 3)]
    assert isinstance(events[4], Ended)
    assert events[4].finish.reason == "EOG"
    statistics = events[4].statistics
    assert (statistics.prompt_tokens, statistics.completion_tokens, len(statistics.mask_waits_us)) == (1, 3, 3)
    # The first directive and three answers of 100 bytes; steps of 39, 41 and 41 bytes.
    assert statistics.wire_bytes == 4 * 100 + 39 + 41 + 41
    assert decoder.lengths == {}
    assert source.closed == [wanted.session.session_id]


def test_the_step_is_sent_before_its_forward_pass() -> None:
    decoder = CountingDecoder()
    source = ScriptedSource(decoder)
    with Running(decoder, source) as loop:
        wanted = generation(source.open(until(3)))
        loop.submit(wanted)
        list(wanted.events())
    assert decoder.events == ["send", "pass"] * 3


def test_only_what_the_mask_allows_is_picked() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    script = {1: only(1, 33), 2: only(2, 3, 7), 3: end(3)}
    with Running(decoder, source) as loop:
        wanted = generation(source.open(lambda position, token: script[position]))
        loop.submit(wanted)
        events = list(wanted.events())
    assert tokens_of(events) == [1, 33, 3]


def test_a_likely_end_waits_for_the_answer_before_a_forward_pass_is_spent() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    with Running(decoder, source) as loop:
        by_eog = generation(source.open(until(3)), eog=frozenset([3]))
        loop.submit(by_eog)
        list(by_eog.events())
        by_length = generation(source.open(until(3)), limit=3)
        loop.submit(by_length)
        list(by_length.events())
    assert decoder.passes == [[1], [2], [1], [2]]


def test_an_end_that_does_not_come_costs_a_turn_and_nothing_else() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    with Running(decoder, source) as loop:
        wanted = generation(source.open(until(5)), eog=frozenset([2, 3]))
        loop.submit(wanted)
        events = list(wanted.events())
    assert tokens_of(events) == [1, 2, 3, 4, 5]
    assert decoder.passes == [[1], [2], [3], [4], [5]]


# --- many generations ---


def test_generations_share_forward_passes_and_more_wait_for_a_slot() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    with Running(decoder, source) as loop:
        wanted = [generation(source.open(until(6)), first=10 * index) for index in range(3)]
        for each in wanted:
            loop.submit(each)
        texts = [tokens_of(list(each.events())) for each in wanted]
    assert texts == [[1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 25, 26]]
    assert max(len(batch) for batch in decoder.passes) == 2
    assert max(source.batches) == 2


def test_a_late_answer_holds_up_nobody_else() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    released = threading.Event()

    def slow(position: int, token: int) -> Answer:
        if position == 2 and not released.is_set():
            return None
        return end(position) if position == 4 else anything(position)

    with Running(decoder, source) as loop:
        late, quick = generation(source.open(slow), first=10), generation(source.open(until(12)))
        loop.submit(late)
        loop.submit(quick)
        assert tokens_of(list(quick.events())) == list(range(1, 13))
        released.set()
        # Its logits were kept, though the decoder has reused their memory since.
        assert tokens_of(list(late.events())) == [11, 12, 13, 14]


def test_generations_that_are_all_late_come_through() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    asked: dict[int, int] = {}

    def slow(position: int, token: int) -> Answer:
        asked[token] = asked.get(token, 0) + 1
        if asked[token] < 4:
            return None
        return end(position) if position == 3 else anything(position)

    with Running(decoder, source, patience=0.0) as loop:
        wanted = [generation(source.open(slow), first=first) for first in (0, 20)]
        for each in wanted:
            loop.submit(each)
        assert [tokens_of(list(each.events())) for each in wanted] == [[1, 2, 3], [21, 22, 23]]


def test_a_session_that_fails_ends_alone() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    refusal = TokenNotAllowed("no", reason="TOKEN_NOT_ALLOWED")
    with Running(decoder, source) as loop:
        bad = generation(source.open(lambda position, token: refusal), first=10)
        good = generation(source.open(until(5)))
        loop.submit(bad)
        loop.submit(good)
        assert failure_of(bad) is refusal
        assert tokens_of(list(good.events())) == [1, 2, 3, 4, 5]
    assert decoder.lengths == {}


# --- no mask, no token ---


def test_a_dead_end_is_a_failure_after_the_tokens_that_were_accepted() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    with Running(decoder, source) as loop:
        wanted = generation(source.open(lambda position, token: dead(2) if position == 2 else anything(position)))
        loop.submit(wanted)
        events = wanted.events()
        assert [next(events) for _ in range(3)] == [PromptIn(), Accepted(1, 0), Accepted(2, 0)]
        with pytest.raises(DeadEnd, match="nothing fits here"):
            next(events)


def test_a_session_without_an_answer_ends_in_time_and_alone() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    with Running(decoder, source, answer_timeout=0.05) as loop:
        silent = generation(source.open(lambda position, token: None), first=10)
        good = generation(source.open(until(5)))
        loop.submit(silent)
        loop.submit(good)
        assert tokens_of(list(good.events())) == [1, 2, 3, 4, 5]
        assert isinstance(failure_of(silent), DaemonLost)
    assert decoder.lengths == {}


def test_an_answer_without_a_mask_is_an_error_and_not_a_free_choice() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    empty = anything(1).__class__(1, None, None, None, 0.5, 0, 0)
    with Running(decoder, source) as loop:
        wanted = generation(source.open(lambda position, token: empty))
        loop.submit(wanted)
        assert "no mask at position 1" in str(failure_of(wanted))


# --- a broken stream ---


def test_a_broken_stream_is_replaced_and_nobody_notices() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    down = threading.Event()
    source.on_reconnect = down.clear

    def script(position: int, token: int) -> Answer:
        if position == 3 and token == 3 and source.reconnects == 0:
            down.set()
        return Unavailable("the stream broke") if down.is_set() else until(6)(position, token)

    with Running(decoder, source) as loop:
        wanted = [generation(source.open(script), first=first) for first in (0, 20)]
        for each in wanted:
            loop.submit(each)
        texts = [tokens_of(list(each.events())) for each in wanted]
    assert texts == [[1, 2, 3, 4, 5, 6], [21, 22, 23, 24, 25, 26]]
    assert source.reconnects == 1


def test_a_daemon_that_stays_away_fails_all_and_the_loop_serves_on() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    gone = Unavailable("connection refused")
    with Running(decoder, source, answer_timeout=0.1) as loop:
        wanted = [generation(source.open(lambda position, token: gone)) for _ in range(2)]
        for each in wanted:
            loop.submit(each)
        for each in wanted:
            assert isinstance(failure_of(each), DaemonLost)
        assert decoder.lengths == {}
        after = generation(source.open(until(2)))
        loop.submit(after)
        assert tokens_of(list(after.events())) == [1, 2]


def test_a_reconnect_that_is_refused_fails_all() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()

    def refuse() -> None:
        raise ConstraintdError("another vocabulary", reason="VOCABULARY_MISMATCH")

    source.on_reconnect = refuse
    with Running(decoder, source) as loop:
        wanted = generation(source.open(lambda position, token: Unavailable("gone")))
        loop.submit(wanted)
        assert "another vocabulary" in str(failure_of(wanted))


def test_a_refused_step_does_not_end_the_stream_and_a_failed_call_does() -> None:
    import grpc

    assert not ends_stream(TokenNotAllowed("no", reason="TOKEN_NOT_ALLOWED"))
    assert ends_stream(Unavailable("gone"))
    assert ends_stream(ConstraintdError("no", reason="LIMIT_REACHED", code=grpc.StatusCode.RESOURCE_EXHAUSTED))


# --- a broken model ---


def test_a_forward_pass_that_raises_fails_its_batch_and_the_loop_serves_on() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()

    def fail() -> None:
        raise RuntimeError("out of memory")

    with Running(decoder, source) as loop:
        wanted = generation(source.open(lambda position, token: anything(position)))
        loop.submit(wanted)
        next(wanted.events())
        decoder.fail = fail
        assert isinstance(failure_of(wanted), ModelFailure)
        on_prompt = generation(source.open(until(2)))
        loop.submit(on_prompt)
        assert "out of memory" in str(failure_of(on_prompt))
        decoder.fail = lambda: None
        after = generation(source.open(until(2)))
        loop.submit(after)
        assert tokens_of(list(after.events())) == [1, 2]


def test_logits_that_are_not_numbers_fail_the_session() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    decoder.broken_row = True
    with Running(decoder, source) as loop:
        wanted = generation(source.open(until(2)))
        loop.submit(wanted)
        assert isinstance(failure_of(wanted), ModelFailure)


def test_a_fault_in_the_loop_ends_its_generations_and_not_the_loop() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()

    def fault(position: int, token: int) -> Answer:
        raise KeyError("a bug")

    with Running(decoder, source) as loop:
        wanted = generation(source.open(fault))
        loop.submit(wanted)
        assert isinstance(failure_of(wanted), InternalFault)
        after = generation(source.open(until(2)))
        loop.submit(after)
        assert tokens_of(list(after.events())) == [1, 2]


# --- cancelling and stopping ---


def test_cancelling_frees_the_slot_for_the_next_in_line() -> None:
    decoder, source = CountingDecoder(slots=1), ScriptedSource()
    with Running(decoder, source) as loop:
        endless = generation(source.open(lambda position, token: anything(position)))
        waiting = generation(source.open(until(2)))
        loop.submit(endless)
        loop.submit(waiting)
        next(endless.events())
        endless.cancel()
        assert tokens_of(list(waiting.events())) == [1, 2]
        assert isinstance(failure_of(endless), Abandoned)
    assert set(source.closed) == {endless.session.session_id, waiting.session.session_id}


def test_what_was_cancelled_while_waiting_leaves_the_queue_at_once() -> None:
    decoder, source = CountingDecoder(slots=1), ScriptedSource()
    with Running(decoder, source) as loop:
        first = generation(source.open(lambda position, token: anything(position)))
        loop.submit(first)
        next(first.events())
        second = generation(source.open(until(2)))
        second.cancel()
        loop.submit(second)
        assert isinstance(failure_of(second), Abandoned)
        eventually(lambda: second.session.session_id in source.closed)
        assert decoder.lengths != {}  # the first one has run all the time


def test_cancelling_ends_a_wait_for_an_answer() -> None:
    decoder, source = CountingDecoder(), ScriptedSource()
    with Running(decoder, source) as loop:
        wanted = generation(source.open(lambda position, token: None))
        loop.submit(wanted)
        assert source.heard.wait(5)
        wanted.cancel()
        assert isinstance(failure_of(wanted), Abandoned)


def test_stopping_ends_what_runs_and_what_waits() -> None:
    decoder, source = CountingDecoder(slots=1), ScriptedSource()
    with Running(decoder, source) as loop:
        wanted = [generation(source.open(lambda position, token: anything(position))) for _ in range(3)]
        for each in wanted:
            loop.submit(each)
        loop.stop()
        for each in wanted:
            assert isinstance(failure_of(each), Stopping)
        with pytest.raises(Stopping):
            loop.submit(wanted[0])
    assert decoder.lengths == {}


# --- without a daemon ---


def test_in_process_generations_end_at_their_length_and_nowhere_else() -> None:
    decoder, source = CountingDecoder(), InProcessDirectives(40)
    with Running(decoder, source) as loop:  # type: ignore[arg-type]
        free = generation(source.open_session(4))
        free.picker = UnmaskedPicker(Chain.of([Greedy()]))
        replay = generation(source.open_session(3))
        replay.picker = ReplayPicker(Chain.of([Greedy()]), [30, 20, 10])
        masked = generation(source.open_session(2), first=37)
        for each in (free, replay, masked):
            loop.submit(each)
        assert tokens_of(list(free.events())) == [1, 2, 3, 4]
        assert tokens_of(list(replay.events())) == [30, 20, 10]
        assert tokens_of(list(masked.events())) == [38, 39]
