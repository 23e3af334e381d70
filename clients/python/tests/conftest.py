from __future__ import annotations

from collections.abc import Iterator

import pytest
from constraintd_client import ConstraintClient

from clients.python.tests.scripted_daemon import RunningDaemon
from clients.python.tests.scripted_runner import RunningRunner


@pytest.fixture
def server() -> Iterator[RunningDaemon]:
    """A scripted daemon behind real gRPC."""
    running = RunningDaemon()
    yield running
    running.stop()


@pytest.fixture
def client(server: RunningDaemon) -> Iterator[ConstraintClient]:
    with ConstraintClient(server.target, timeout=10) as connected:
        yield connected


@pytest.fixture
def runner() -> Iterator[RunningRunner]:
    """A scripted runner behind real gRPC."""
    running = RunningRunner()
    yield running
    running.stop()
