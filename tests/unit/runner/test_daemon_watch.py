"""The runner's health follows its daemon, with patience in one direction."""

from __future__ import annotations

import queue
import time

import pytest
from constraintd_client.errors import ConstraintdError, LimitReached, Unauthenticated, Unavailable
from constraintd_runner.daemon_watch import DaemonWatch


class FakeClient:
    def __init__(self) -> None:
        self.target = "a"
        self.failure: ConstraintdError | None = None
        self.left = 0

    def leave(self, target: str) -> None:
        self.left += 1

    def server_info(self) -> None:
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize("failure", [Unavailable("gone"), Unauthenticated("who?", reason="UNAUTHENTICATED")])
def test_a_daemon_that_stays_away_or_lets_nobody_in_is_told_once_and_so_is_its_return(
    failure: ConstraintdError,
) -> None:
    client, told = FakeClient(), queue.SimpleQueue[bool]()
    watch = DaemonWatch(client, told.put, bound=0.1, interval=0.005)  # type: ignore[arg-type]
    watch.start()
    client.failure = failure
    began = time.monotonic()
    assert told.get(timeout=5) is False
    assert time.monotonic() - began >= 0.1
    assert client.left > 3
    client.failure = None
    assert told.get(timeout=5) is True
    watch.stop()
    with pytest.raises(queue.Empty):
        told.get(timeout=0.05)


@pytest.mark.parametrize("failure", [Unavailable("gone"), LimitReached("busy", reason="LIMIT_REACHED")])
def test_a_short_absence_or_a_refusal_is_no_loss(failure: ConstraintdError) -> None:
    client, told = FakeClient(), queue.SimpleQueue[bool]()
    watch = DaemonWatch(client, told.put, bound=0.1 if failure.reason else 5.0, interval=0.005)  # type: ignore[arg-type]
    client.failure = failure
    watch.start()
    with pytest.raises(queue.Empty):
        told.get(timeout=0.3)
    watch.stop()
