"""Resumed generations in the decode loop: who may be beside them, how they are prefilled, what stays open."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from constraintd_client import SessionHandle
from constraintd_runner.errors import Abandoned, RunnerError, Stopping, TakenOver
from constraintd_runner.generation import Ended, Generation
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.sampling import Chain, Greedy
from numpy.typing import NDArray

from tests.unit.runner.scripted import (
    CountingDecoder,
    Running,
    ScriptedSource,
    anything,
    end,
    generation,
    tokens_of,
    until,
)


class PassDecoder(CountingDecoder):
    """Notes the lengths of its prefills among its decoding passes."""

    def __init__(self, slots: int = 2) -> None:
        super().__init__(slots)
        self.lengths_run: list[int | str] = []
        self.beside: list[int] = []

    def prefill(self, slot: int, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        self.lengths_run.append(len(tokens))
        return super().prefill(slot, tokens)

    def decode(self, slots: list[int], tokens: list[int]) -> NDArray[np.float32]:  # type: ignore[override]
        self.lengths_run.append("one")
        self.beside.append(len(slots))
        return super().decode(slots, tokens)


def exact(source: ScriptedSource, prompt: list[int], passes: tuple[int, ...], length: int = 9) -> Generation:
    return Generation(
        source.open(until(length)),
        np.array(prompt),
        MaskedPicker(Chain.of([Greedy()])),
        token_limit=1000,
        resumable=True,
        resumed=True,
        accepted=len(prompt) - 1,
        passes=passes,
    )


def failure_of(wanted: Generation) -> Exception:
    with pytest.raises(RunnerError) as caught:
        list(wanted.events())
    return caught.value


def test_an_exact_prefill_repeats_the_passes_and_reports_them_all() -> None:
    decoder, source = PassDecoder(), ScriptedSource()
    with Running(decoder, source) as loop:
        wanted = exact(source, [1, 2, 3, 4, 5, 6, 7, 8], (3, 1, 3, 1), length=2)
        loop.submit(wanted)
        events = list(wanted.events())
    assert tokens_of(events) == [9, 10]
    # The last two are the passes of the tokens that were picked.
    assert decoder.lengths_run == [3, "one", 3, "one", "one", "one"]
    assert source.passes[wanted.session.session_id] == [[3, 1, 3, 1], [1]]
    assert isinstance(events[-1], Ended)
    assert events[-1].statistics.prompt_tokens == 1


def test_a_first_pass_of_one_token_is_a_prefill() -> None:
    decoder, source = PassDecoder(), ScriptedSource()
    with Running(decoder, source) as loop:
        wanted = exact(source, [1, 2], (1, 1), length=1)
        loop.submit(wanted)
        list(wanted.events())
    assert decoder.lengths_run[:2] == [1, "one"]


def test_an_exact_one_waits_for_the_others_and_the_next_ones_wait_for_it() -> None:
    decoder, source = PassDecoder(slots=4), ScriptedSource()
    decoder.fail = lambda: time.sleep(0.001)
    with Running(decoder, source) as loop:
        before = generation(source.open(until(30)))
        alone = exact(source, [1, 2, 3], (2, 1), length=10)
        after = generation(source.open(until(5)), first=20)
        for each in (before, alone, after):
            loop.submit(each)
        for each in (before, alone, after):
            assert isinstance(list(each.events())[-1], Ended)
    assert set(decoder.beside) == {1}
    assert decoder.lengths_run.index(2) > decoder.lengths_run.index(1)


def test_others_share_the_batch_as_ever() -> None:
    decoder, source = PassDecoder(slots=4), ScriptedSource()
    decoder.fail = lambda: time.sleep(0.001)
    with Running(decoder, source) as loop:
        wanted = [generation(source.open(until(30)), first=first) for first in (0, 5)]
        for each in wanted:
            loop.submit(each)
        for each in wanted:
            list(each.events())
    assert 2 in decoder.beside


def test_a_cancelled_exact_prefill_ends_between_two_passes() -> None:
    decoder, source = PassDecoder(), ScriptedSource()
    started = threading.Event()

    def slow() -> None:
        started.set()
        time.sleep(0.01)

    decoder.fail = slow
    with Running(decoder, source) as loop:
        wanted = exact(source, [1] * 30, (1,) * 30)
        loop.submit(wanted)
        assert started.wait(5)
        wanted.cancel()
        assert isinstance(failure_of(wanted), Abandoned)
        assert len(decoder.lengths_run) < 30
        stopped = exact(source, [1] * 30, (1,) * 30)
        started.clear()
        loop.submit(stopped)
        assert started.wait(5)
        loop.stop()
        assert isinstance(failure_of(stopped), Stopping)
    assert decoder.lengths == {}


def test_a_resumable_session_is_left_open_however_it_ends() -> None:
    decoder, source = CountingDecoder(slots=2), ScriptedSource()
    with Running(decoder, source) as loop:
        finished = generation(source.open(until(2)))
        cancelled = generation(source.open(lambda position, token: anything(position)))
        for each in (finished, cancelled):
            each.resumable = True
            loop.submit(each)
        list(finished.events())
        next(cancelled.events())
        cancelled.cancel()
        assert isinstance(failure_of(cancelled), Abandoned)
    assert set(source.left) == {finished.session.session_id, cancelled.session.session_id}
    assert source.closed == []


@pytest.mark.parametrize("slots", [1, 2], ids=["while it waits", "while it runs"])
def test_a_session_that_is_resumed_at_the_same_runner_has_one_owner(slots: int) -> None:
    decoder, source = CountingDecoder(slots=slots), ScriptedSource()
    with Running(decoder, source) as loop:
        blocker = generation(source.open(lambda position, token: anything(position)))
        loop.submit(blocker)
        next(blocker.events())
        # Token p + 7 at position p is the new one's; the old one's is p.
        old = generation(
            source.open(lambda position, token: end(5) if (position, token) == (5, 12) else anything(position))
        )
        new = generation(SessionHandle(old.session.session_id, 2, 7, anything(0)), first=7)
        loop.submit(old)
        time.sleep(0.02)
        loop.submit(new)
        assert isinstance(failure_of(old), TakenOver)
        blocker.cancel()
        assert isinstance(list(new.events())[-1], Ended)
    assert old.session.session_id in source.left
