"""Every place that the contract tests run on, and the Redis servers behind two of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from constraintd.session.store.store import SessionStore
from tests.redis_process import RedisProcess
from tests.unit.store.places import Place, memory_place, redis_place, sqlite_place

_PLACES = [
    "memory",
    "sqlite-relaxed",
    "sqlite-strict",
    pytest.param("redis", marks=pytest.mark.services),
    pytest.param("redis-cluster", marks=pytest.mark.services),
]


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """One Redis for all tests that don't kill it."""
    server = RedisProcess(tmp_path_factory.mktemp("redis"), synced=False)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """One Redis in cluster mode: it refuses commands whose keys lie in different slots."""
    server = RedisProcess(tmp_path_factory.mktemp("redis-cluster"), cluster=True, synced=False)
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=_PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each kind of store in turn, empty."""
    match request.param:
        case "memory":
            return memory_place()
        case "redis":
            return redis_place(request.getfixturevalue("redis"))
        case "redis-cluster":
            return redis_place(request.getfixturevalue("redis_cluster"))
        case name:
            return sqlite_place(tmp_path, name.removeprefix("sqlite-"))


@pytest.fixture
def store(place: Place) -> Iterator[SessionStore]:
    """An empty store of each kind in turn."""
    with place.open() as opened:
        yield opened
