"""What several kinds of test share: a daemon, and the real model's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from constraintd.v1 import constraint_service_pb2_grpc
from tests.daemon_process import daemon_process, register_bytes, stub_for


@pytest.fixture(scope="session")
def daemon() -> Iterator[str]:
    """The address of one daemon for the whole run."""
    with daemon_process() as address:
        yield address


@pytest.fixture
def stub(daemon: str) -> Iterator[constraint_service_pb2_grpc.ConstraintServiceStub]:
    """A stub on a channel of its own."""
    channel, stub = stub_for(daemon)
    with channel:
        yield stub


@pytest.fixture
def byte_vocabulary(stub: constraint_service_pb2_grpc.ConstraintServiceStub) -> str:
    """The id of the byte vocabulary of tests.daemon_process."""
    return register_bytes(stub)


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The 8-bit SmolLM2 folder, fetched and converted if it isn't there yet."""
    from constraintd_runner.model.fetch import fetch_smollm2

    return fetch_smollm2()
