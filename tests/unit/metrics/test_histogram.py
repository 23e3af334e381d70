"""The daemon's own counters: exact, also under threads, and closed against labels that nobody named."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from constraintd.metrics.histogram import Count, Histogram, LabelledCount


def test_a_bound_belongs_to_its_bucket_and_buckets_are_cumulative():
    histogram = Histogram((1.0, 2.0, 4.0))
    for value in (0.5, 1.0, 1.5, 4.0, 4.5):
        histogram.observe(value)
    now = histogram.snapshot()
    assert now.buckets == ((1.0, 2), (2.0, 3), (4.0, 4))
    assert now.count == 5
    assert now.sum == 11.5


def test_a_value_may_count_for_many():
    histogram = Histogram((1.0, 2.0))
    histogram.observe_many(1.5, 32)
    histogram.observe_many(9.0, 0)
    assert histogram.snapshot().buckets == ((1.0, 0), (2.0, 32))
    assert histogram.snapshot().count == 32
    assert histogram.snapshot().sum == 48.0


@pytest.fixture
def hasty_switching():
    """Threads that take turns a thousand times as often as usual."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(interval)


def test_nothing_is_lost_between_threads(hasty_switching):
    histogram = Histogram((1.0,))
    counts = LabelledCount(("a",))
    count = Count()

    def record(_: int) -> None:
        for _ in range(20_000):
            histogram.observe(0.5)
            histogram.observe_many(2.0, 3)
            counts.add("a")
            count.add(2)

    with ThreadPoolExecutor(5) as threads:
        recording = [threads.submit(record, number) for number in range(4)]
        seen = [histogram.snapshot().count for _ in range(50)]
        for each in recording:
            each.result()
    assert seen == sorted(seen)
    assert histogram.snapshot().buckets == ((1.0, 80_000),)
    assert histogram.snapshot().count == 320_000
    assert histogram.snapshot().sum == 40_000.0 + 480_000.0
    assert count.value == 160_000
    assert counts.snapshot() == {("a",): 80_000}


def test_labels_that_nobody_named_are_one_and_the_same():
    counts = LabelledCount(("in", "out"), ("red",))
    for number in range(1000):
        counts.add(f"{number}", '\xff\n"}')
    counts.add("in", "blue")
    counts.add("out", "red")
    assert counts.snapshot() == {("other", "other"): 1000, ("in", "other"): 1, ("out", "red"): 1}
