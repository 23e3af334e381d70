"""The file: one owner, a layout with a number, and an index that follows the journal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from constraintd.errors import StoreUnavailable
from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.sqlite_file import connect
from constraintd.session.store.sqlite_schema import APPLICATION_ID, STEPS, migrate
from constraintd.session.store.store import Behind, Head
from tests.unit.store.places import session, step


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that isn't there yet."""
    return tmp_path / "sessions.db"


def read(path: Path, sql: str) -> list[tuple[object, ...]]:
    """What another program finds in the file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def test_a_second_daemon_on_the_same_file_is_refused_and_the_file_named(path: Path) -> None:
    with closing(SqliteStore(path)) as first:
        first.create(session(1), Head(7, 0, 0), [], [])
        with pytest.raises(StoreUnavailable, match=r"sessions\.db: database is locked; another process has it open"):
            SqliteStore(path)
        assert first.append([step(session(1), 0, b"one")]) == [None]
        with pytest.raises(StoreUnavailable, match="another process has it open"):
            SqliteStore(path)
    with closing(SqliteStore(path)) as second:
        assert second.head(session(1)) == Head(7, 1, 1)


def test_a_new_file_carries_its_layout_and_whose_it_is(path: Path) -> None:
    SqliteStore(path).close()
    assert read(path, "PRAGMA user_version") == [(1,)]
    assert read(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    header = path.read_bytes()[:100]
    assert header[60:64] == b"\x00\x00\x00\x01"
    assert header[68:72] == b"cstd"


def test_only_its_owner_may_read_what_users_wrote(path: Path) -> None:
    with closing(SqliteStore(path)):
        assert {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {
            "sessions.db": 0o600,
            "sessions.db-wal": 0o600,
        }


def test_a_file_of_a_newer_version_is_refused_and_not_a_byte_of_it_changed(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.create(session(1), Head(7, 1, 1), [b"one"], [])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"layout 2 was written by a newer constraintd, this one knows 1"):
        SqliteStore(path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["sessions.db"]


def test_another_programs_file_is_refused_and_not_a_byte_of_it_changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="belongs to another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_file_that_is_not_sqlites_is_refused_and_not_a_byte_of_it_changed(path: Path) -> None:
    path.write_bytes(b"a letter to a friend" * 100)
    with pytest.raises(StoreUnavailable, match="this is no SQLite file"):
        SqliteStore(path)
    assert path.read_bytes() == b"a letter to a friend" * 100


def test_a_file_whose_folder_is_missing_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check that its folder exists"):
        SqliteStore(tmp_path / "nowhere" / "sessions.db")


def test_a_migration_adds_what_is_missing_and_keeps_the_rows(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.create(session(1), Head(7, 0, 0), [], [])
    with closing(connect(str(path))) as connection:
        assert migrate(connection, str(path), [*STEPS, ["ALTER TABLE sessions ADD COLUMN note TEXT DEFAULT 'none'"]])
        assert connection.execute("SELECT id, note FROM sessions").fetchall() == [(session(1), "none")]
        assert connection.execute("PRAGMA user_version").fetchall() == [(2,)]


def test_a_migration_that_fails_leaves_the_old_layout(path: Path) -> None:
    SqliteStore(path).close()
    with closing(connect(str(path))) as connection, pytest.raises(sqlite3.OperationalError):
        migrate(connection, str(path), [*STEPS, ["CREATE TABLE extra (x)", "CREATE TABLE extra (x)"]])
    assert read(path, "PRAGMA user_version") == [(1,)]
    assert read(path, "SELECT name FROM sqlite_schema WHERE name = 'extra'") == []
    SqliteStore(path).close()


def test_closing_leaves_one_file_with_everything_in_its_tables(path: Path) -> None:
    with closing(SqliteStore(path, index_seconds=1000)) as store:
        for number in range(100):
            store.create(session(number), Head(7, 1, 1), [b"opened"], [])
            store.append([step(session(number), 1, b"one")])
    assert [each.name for each in path.parent.iterdir()] == ["sessions.db"]
    assert read(path, "SELECT count(*) FROM sessions") == [(100,)]
    assert read(path, "SELECT count(*) FROM journal") == [(1,)]


def test_records_indexed_one_by_one_lie_in_few_rows(path: Path) -> None:
    with closing(SqliteStore(path, index_seconds=1000)) as store:
        store.create(session(1), Head(7, 0, 0), [], [])
        for version in range(300):
            store.append([step(session(1), version, b"r" * 50)])
            while store._call(store._index_step):
                pass
        stored = store.load(session(1))
        assert stored is not None
        assert stored.records == (b"r" * 50,) * 300
    assert read(path, "SELECT count(*) FROM chunks") == [(5,)]  # 71 records of 58 bytes to a row


def test_a_session_deleted_before_the_index_was_written_stays_deleted(path: Path) -> None:
    store = SqliteStore(path, index_seconds=1000)
    store.create(session(1), Head(7, 1, 1), [b"old"], [])
    while store._call(store._index_step):
        pass
    store.append([step(session(1), 1, b"older")])
    store.delete(session(1))
    store.create(session(2), Head(7, 1, 1), [b"old"], [])
    store.delete(session(2))
    store.create(session(2), Head(8, 1, 1), [b"new"], [])
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    copy.with_name("copy.db-wal").write_bytes(path.with_name("sessions.db-wal").read_bytes())
    store.close()
    with closing(SqliteStore(copy)) as reopened:  # as a crash would have left it
        assert reopened.load(session(1)) is None
        stored = reopened.load(session(2))
        assert stored is not None
        assert (stored.head, stored.records) == (Head(8, 1, 1), (b"new",))
        assert reopened.append([step(session(1), 2, b"late")]) == [Behind(None)]


def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        store.head(session(1))
