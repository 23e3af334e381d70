"""What a scrape reads off a running daemon, and what it does without."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from constraintd.errors import StoreUnavailable
from constraintd.grammar import cache, compiler
from constraintd.metrics import recording
from constraintd.metrics.exposition import DaemonCollector
from constraintd.metrics.recorder import Recorder
from constraintd.metrics.sources import OnLoop, Sources
from constraintd.session import table

COMPILING = compiler.Statistics(
    hits=5, misses=4, joined=3, refused=2, in_flight=1, refusals_kept=0, cache=cache.Statistics(9, 8, 7, 6, 5)
)
SESSIONS = table.Statistics(open=10, hot=4, limit=100, revived=3, passivated=2)


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def scrape():
    """The page's lines that have samples, with these sources watched."""
    registry = CollectorRegistry()
    registry.register(DaemonCollector(Recorder()))

    def lines(sources: Sources) -> set[str]:
        with recording.watching(sources):
            return {line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")}

    return lines


def test_what_belongs_to_the_loop_is_read_on_the_loop(scrape):
    read_by = []

    def on_loop() -> OnLoop:
        read_by.append(asyncio.get_running_loop())
        return OnLoop(streams=2, max_streams=64, compile_helper_starts=1, compiling=COMPILING)

    with running_loop() as loop:
        found = scrape(Sources(loop, on_loop, lambda: SESSIONS))
        assert read_by == [loop]
    assert found >= {
        "constraintd_streams 2.0",
        "constraintd_streams_limit 64.0",
        "constraintd_compile_helper_starts_total 1.0",
        "constraintd_compiles_in_flight 1.0",
        "constraintd_compile_joined_total 3.0",
        "constraintd_grammar_cache_hits_total 5.0",
        "constraintd_grammar_cache_misses_total 4.0",
        "constraintd_grammar_cache_evictions_total 5.0",
        "constraintd_grammar_cache_bytes 8.0",
        "constraintd_grammar_cache_limit_bytes 6.0",
        'constraintd_grammar_cache_grammars{state="pinned"} 7.0',
        'constraintd_grammar_cache_grammars{state="idle"} 2.0',
        'constraintd_sessions{state="hot"} 4.0',
        'constraintd_sessions{state="passive"} 6.0',
        "constraintd_sessions_limit 100.0",
        "constraintd_session_revivals_total 3.0",
        "constraintd_session_passivations_total 2.0",
    }


def test_a_busy_loop_costs_its_own_numbers_and_no_others(scrape):
    with running_loop() as loop:
        loop.call_soon_threadsafe(time.sleep, 0.5)
        on_loop = OnLoop(0, 0, 0, COMPILING)
        found = scrape(Sources(loop, lambda: on_loop, lambda: SESSIONS, patience=0.05))
    assert "constraintd_sessions_limit 100.0" in found
    assert not any(line.startswith(("constraintd_streams", "constraintd_compiles_")) for line in found)


def test_a_loop_that_has_ended_does_as_well(scrape):
    with running_loop() as loop:
        pass
    found = scrape(Sources(loop, lambda: OnLoop(0, 0, 0, COMPILING), lambda: SESSIONS))
    assert "constraintd_sessions_limit 100.0" in found
    assert "constraintd_mask_seconds_count 0.0" in found


def test_a_store_that_is_away_costs_the_sessions_alone(scrape):
    def away() -> table.Statistics:
        raise StoreUnavailable("the connection is lost; try again")

    with running_loop() as loop:
        found = scrape(Sources(loop, lambda: OnLoop(2, 64, 1, COMPILING), away))
    assert "constraintd_streams 2.0" in found
    assert not any(line.startswith("constraintd_session") for line in found)


def test_many_scrapes_count_the_sessions_once():
    counted = []

    def count() -> table.Statistics:
        counted.append(time.monotonic())
        return SESSIONS

    sources = Sources(asyncio.new_event_loop(), lambda: OnLoop(0, 0, 0, COMPILING), count)
    until = time.monotonic() + 1.3
    while time.monotonic() < until:
        assert sources.read_sessions() == SESSIONS
    assert len(counted) == 2
    assert counted[1] - counted[0] >= 1.0


def test_whoever_stops_watching_leaves_another_watcher_alone():
    with running_loop() as loop:
        one, two = (Sources(loop, lambda: OnLoop(0, 0, 0, COMPILING), lambda: SESSIONS) for _ in range(2))
        with recording.watching(two):
            with recording.watching(one):
                recording.watched = two
            assert recording.watched is two
    assert recording.watched is None
