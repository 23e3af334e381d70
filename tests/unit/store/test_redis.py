"""What is Redis's own: several daemons, lost connections, a failover, and indexes that may lag behind sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from constraintd.errors import StoreUnavailable
from constraintd.session.store.redis_ import RedisStore
from constraintd.session.store.store import Append, Behind, Head
from tests.redis_process import RedisProcess
from tests.unit.store.places import Clock, session, step

pytestmark = pytest.mark.services

A, V = session(1), b"v" * 32


@pytest.fixture(params=["alone", "in a cluster"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisProcess]:
    """A server that the test may kill; not started yet."""
    process = RedisProcess(tmp_path, cluster=request.param == "in a cluster")
    yield process
    process.kill()


def test_of_two_daemons_the_stale_one_is_told_where_the_session_stands(redis: RedisProcess) -> None:
    redis.say(b"FLUSHALL")
    with closing(RedisStore(redis.url)) as one, closing(RedisStore(redis.url)) as other:
        assert one.shared is True
        one.create(A, Head(7, 0, 0), [], [])
        assert one.append([step(A, 0, b"one")]) == [None]
        assert other.append([Append(A, Head(7, 1, 1), Head(8, 1, 1), ())]) == [None]
        assert one.append([step(A, 1, b"two")]) == [Behind(Head(8, 1, 1))]


def test_a_server_that_is_not_there_yet_fails_calls_until_it_is(server: RedisProcess) -> None:
    with closing(RedisStore(server.url)) as store:
        for call in (lambda: store.head(A), lambda: store.append([step(A, 0, b"one")]), lambda: store.page(b"", 1)):
            with pytest.raises(StoreUnavailable, match=r"redis 127\.0\.0\.1:\d+/0: .* try again") as refusal:
                call()
            assert refusal.value.code == "UNAVAILABLE"
        server.start()
        assert store.create(A, Head(7, 0, 0), [], []) is None


def test_a_server_that_was_killed_and_started_again_is_found_again(server: RedisProcess) -> None:
    server.start()
    with closing(RedisStore(server.url)) as store:
        store.create(A, Head(7, 0, 0), [], [])
        assert store.append([step(A, 0, b"one")]) == [None]
        server.kill()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                store.append([step(A, 1, b"two")])
        server.start()
        assert store.append([step(A, 1, b"two")]) == [None]
        stored = store.load(A)
        assert stored is not None
        assert stored.records == (b"one", b"two")


def test_cut_connections_of_a_living_server_are_made_anew(redis: RedisProcess) -> None:
    redis.say(b"FLUSHALL")
    with closing(RedisStore(redis.url)) as store:
        store.create(A, Head(7, 0, 0), [], [])
        redis.say(b"CLIENT KILL TYPE normal")
        assert store.append([step(A, 0, b"one")]) == [None]


def test_a_server_that_forgot_the_scripts_is_told_them_again(redis: RedisProcess) -> None:
    redis.say(b"FLUSHALL")
    with closing(RedisStore(redis.url)) as store:
        store.create(A, Head(7, 0, 0), [], [])
        redis.say(b"SCRIPT FLUSH")
        assert store.append([step(A, 0, b"one"), step(session(2), 0, b"none")]) == [None, Behind(None)]
        assert store.head(A) == Head(7, 1, 1)


def test_a_password_stays_out_of_messages() -> None:
    with closing(RedisStore("redis://user:secret@127.0.0.1:1/0")) as store:
        with pytest.raises(StoreUnavailable) as refusal:
            store.head(A)
    assert "127.0.0.1:1/0" in refusal.value.message
    assert "secret" not in refusal.value.message


@pytest.mark.parametrize("server", ["alone"], indirect=True)
def test_what_a_failover_lost_shows_as_a_session_behind_its_runner(server: RedisProcess, tmp_path: Path) -> None:
    server.start()
    folder = tmp_path / "replica"
    folder.mkdir()
    replica = RedisProcess(folder)
    replica.start()
    try:
        with closing(RedisStore(server.url)) as store:
            store.create(A, Head(7, 0, 0), [], [])
            assert store.append([step(A, 0, b"one")]) == [None]
            replica.follow(server)
            replica.lead()  # from here on nothing reaches it
            assert store.append([step(A, 1, b"two")]) == [None]
        server.kill()
        with closing(RedisStore(replica.url)) as store:
            assert store.append([step(A, 2, b"three")]) == [Behind(Head(7, 1, 1))]
            assert store.append([step(A, 1, b"two")]) == [None]
    finally:
        replica.kill()


def test_a_daemon_that_died_while_it_created_a_session_leaves_nothing_behind(redis: RedisProcess) -> None:
    redis.say(b"FLUSHALL")
    clock = Clock()
    with closing(RedisStore(redis.url, clock=clock)) as store:
        store.put_blobs({V: b"vocabulary"})
        store.create(A, Head(7, 0, 0), [], [])
        store.create(session(2), Head(7, 0, 0), [], [V])
        for kind in ("head", "records", "blobs"):  # index entries are written first: here they point to nothing
            redis.say(b"DEL constraintd:{%s}:%s" % (session(2).hex().encode(), kind.encode()))
        assert store.page(b"", 10) == [A]
        clock.now += 4000
        store.append([step(A, 0, b"one")])
        assert store.expire(3600) == []
        assert store.statistics().sessions == 1
        assert store.blob(V) is None


def test_everything_that_a_session_wrote_is_gone_with_it(redis: RedisProcess) -> None:
    redis.say(b"FLUSHALL")
    clock = Clock()
    with closing(RedisStore(redis.url, clock=clock)) as store:
        store.put_blobs({V: b"vocabulary"})
        store.create(A, Head(7, 1, 1), [b"one"], [V])
        store.create(session(2), Head(7, 1, 1), [b"one"], [V])
        store.delete(A)
        clock.now += 4000
        assert store.expire(60) == [session(2)]
    assert redis.say(b"DBSIZE") == b":0\r\n"


def test_a_page_goes_on_past_entries_that_point_to_nothing(redis: RedisProcess) -> None:
    redis.say(b"FLUSHALL")
    with closing(RedisStore(redis.url)) as store:
        for number in range(6):
            store.create(session(number), Head(7, 0, 0), [], [])
        for number in range(4):
            redis.say(b"DEL constraintd:{%s}:head" % session(number).hex().encode())
        assert store.page(b"", 2) == [session(4), session(5)]
