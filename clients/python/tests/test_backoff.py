"""Pauses between attempts grow, are jittered, and begin anew after a success."""

from __future__ import annotations

import random

from constraintd_client.backoff import Backoff


def longest(low: float, high: float) -> float:
    assert low == 0.0
    return high


def test_the_longest_pause_doubles_up_to_its_cap() -> None:
    backoff = Backoff(0.02, 1.0, uniform=longest)
    assert [backoff.next_pause() for _ in range(9)] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


def test_a_success_begins_the_series_anew() -> None:
    backoff = Backoff(0.02, 1.0, uniform=longest)
    for _ in range(5):
        backoff.next_pause()
    backoff.reset()
    assert backoff.next_pause() == 0.02


def test_the_jitter_is_full() -> None:
    rng = random.Random(1)
    pauses = [Backoff(1.0, 1.0, uniform=rng.uniform).next_pause() for _ in range(1000)]
    assert min(pauses) < 0.01
    assert max(pauses) > 0.99
    assert 0.45 < sum(pauses) / 1000 < 0.55
