"""kill -9 in the middle of appends: every answered append is there, whole and once."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from constraintd.errors import StoreUnavailable
from constraintd.session.store.redis_ import RedisStore
from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.store import Head, SessionStore
from tests.redis_process import RedisProcess
from tests.unit.store.appending_child import SESSIONS, record
from tests.unit.store.places import session, step

ROOT = Path(__file__).parents[3]


def killed_after(path: Path, durability: str, answers: int) -> int:
    """Lets a child append, kills it after so many answers; the last version that it had answered."""
    command = [sys.executable, "-m", "tests.unit.store.appending_child", str(path), durability]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        last = 0
        for _ in range(answers):
            last = int(child.stdout.readline())
        child.kill()
        for line in child.stdout.read().splitlines():
            last = int(line)
    return last


def assert_all_there(store: SessionStore, answered: int) -> None:
    """Up to the batch that was under way: that is there or not, but in all sessions alike."""
    heads = {store.head(session(number)) for number in range(SESSIONS)}
    assert len(heads) == 1
    (head,) = heads
    assert head in (Head(7, answered, answered), Head(7, answered + 1, answered + 1))
    for number in range(SESSIONS):
        stored = store.load(session(number))
        assert stored is not None
        assert list(stored.records) == [record(number, version) for version in range(stored.head.version)]


@pytest.mark.parametrize("durability", ["relaxed", "strict"])
def test_sqlite_keeps_every_answered_append_when_its_process_is_killed(tmp_path: Path, durability: str) -> None:
    path = tmp_path / "sessions.db"
    for answers in (1, 60, 250, 700):
        answered = killed_after(path, durability, answers)
        with closing(SqliteStore(path)) as store:
            assert_all_there(store, answered)


@pytest.mark.services
def test_redis_with_a_synced_append_only_file_keeps_every_answered_append_when_it_is_killed(tmp_path: Path) -> None:
    server = RedisProcess(tmp_path)
    server.start()
    answered = 0
    try:
        with closing(RedisStore(server.url)) as store:
            store.create(session(1), Head(7, 0, 0), [], [])
            killer = threading.Thread(target=server.kill)
            with pytest.raises(StoreUnavailable):
                while True:
                    assert store.append([step(session(1), answered, record(1, answered))]) == [None]
                    answered += 1
                    if answered == 100:
                        killer.start()
            killer.join()
            server.start()
            stored = store.load(session(1))
            assert stored is not None
            assert stored.head.version in (answered, answered + 1)
            assert list(stored.records) == [record(1, version) for version in range(stored.head.version)]
    finally:
        server.kill()
