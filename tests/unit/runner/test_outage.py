"""When a broken stream is tried again."""

from __future__ import annotations

from constraintd_client.backoff import Backoff
from constraintd_runner.outage import Outage


def longest(low: float, high: float) -> float:
    return high


def test_the_first_break_schedules_an_attempt_and_later_news_of_it_changes_nothing() -> None:
    outage = Outage(Backoff(0.02, 1.0, uniform=longest))
    assert outage.pause(5.0) is None
    assert outage.broke(5.0)
    assert not outage.broke(5.01)
    assert outage.pause(5.0) == 0.02 or abs((outage.pause(5.0) or 0) - 0.02) < 1e-9
    assert outage.pause(9.0) == 0.0


def test_attempts_that_fail_are_further_and_further_apart_until_an_answer_comes() -> None:
    outage = Outage(Backoff(0.5, 2.0, uniform=longest))
    pauses = []
    for _ in range(4):
        outage.broke(0.0)
        pauses.append(outage.pause(0.0))
        outage.trying()
        assert outage.pause(0.0) is None
    assert pauses == [0.5, 1.0, 2.0, 2.0]
    outage.over()
    outage.broke(0.0)
    assert outage.pause(0.0) == 0.5


def test_where_nothing_has_failed_the_first_attempt_comes_at_once_and_only_that() -> None:
    outage = Outage(Backoff(0.5, 2.0, uniform=longest))
    assert outage.broke(3.0, at_once=True)
    assert outage.pause(3.0) == 0.0
    outage.trying()
    assert outage.broke(3.0)
    assert outage.pause(3.0) == 0.5
