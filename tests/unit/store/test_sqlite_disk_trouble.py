"""Disk full, read-only, failing or locked: the calls concerned fail and say what to do, and later ones work again."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from constraintd.errors import StoreUnavailable
from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.sqlite_file import connect
from constraintd.session.store.store import Head
from tests.unit.store.places import session, step
from tests.unit.store.unsynced_disk import Disk, write_image

A = session(1)
PATH = "/nowhere/sessions.db"
TROUBLES: dict[str, tuple[Callable[[], Exception], str]] = {
    "full": (lambda: apsw.exception_for(apsw.SQLITE_FULL), "free some space on that disk, then try again"),
    "read-only": (
        lambda: apsw.exception_for(apsw.SQLITE_READONLY),
        "make the file and its folder writable, then try again",
    ),
    "failing": (
        lambda: apsw.exception_for(apsw.SQLITE_IOERR_WRITE),
        "see the system's log about that disk, then try again",
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("durability", ["relaxed", "strict"])
def test_a_disk_in_trouble_fails_what_writes_and_heals_by_itself(durability: str, trouble: str) -> None:
    failure, remedy = TROUBLES[trouble]
    disk = Disk(f"{trouble}-{durability}")
    store = SqliteStore(PATH, durability, connect=disk.connect, index_seconds=1000)  # type: ignore[arg-type]
    store.create(A, Head(7, 0, 0), [], [])
    assert store.append([step(A, 0, b"one")]) == [None]
    disk.failure = failure
    for call in (
        lambda: store.append([step(A, 1, b"two")]),
        lambda: store.create(session(2), Head(7, 0, 0), [], []),
        lambda: store.delete(A),
        lambda: store.put_blobs({b"v" * 32: b"vocabulary"}),
    ):
        with pytest.raises(StoreUnavailable, match=r"sessions\.db: .*; .*, then try again") as refusal:
            call()
        assert refusal.value.code == "UNAVAILABLE"
    with pytest.raises(StoreUnavailable, match=remedy):
        store.append([step(A, 1, b"two")])
    disk.failure = None
    stored = store.load(A)
    assert stored is not None
    assert (stored.head, stored.records) == (Head(7, 1, 1), (b"one",))
    assert store.append([step(A, 1, b"two")]) == [None]
    assert store.head(session(2)) is None
    assert store.blob(b"v" * 32) is None
    store.close()


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("durability", ["relaxed", "strict"])
def test_whichever_write_or_sync_fails_memory_and_file_stay_at_one(
    tmp_path: Path, durability: str, trouble: str
) -> None:
    failure, _ = TROUBLES[trouble]
    disk = Disk(f"each-{trouble}-{durability}")
    chance = random.Random(5)
    store = SqliteStore(PATH, durability, connect=disk.connect, index_seconds=1000)  # type: ignore[arg-type]
    store.create(A, Head(7, 0, 0), [], [])
    left = -1

    def watch() -> None:
        nonlocal left
        left -= 1
        disk.failure = failure if left == 0 else None

    disk.watch = watch
    version = failed = 0
    for round_ in range(600):
        left = chance.randrange(1, 25)
        record = round_.to_bytes(2, "big") * 30
        try:
            assert store.append([step(A, version, record)]) == [None]
            if round_ % 3 == 0:
                store._call(store._index_step)
        except StoreUnavailable:
            failed += 1
        left = -1
        disk.failure = None
        stored = store.load(A)
        assert stored is not None
        assert stored.head in (Head(7, version, version), Head(7, version + 1, version + 1))
        assert len(stored.records) == stored.head.version
        version = stored.head.version
        if round_ % 50 == 49:  # the file says the same as memory, to another process after a crash
            image = {name: bytes(file.bytes) for name, file in disk.files.items()}
            with closing(SqliteStore(write_image(image, tmp_path / str(round_)))) as other:
                assert other.head(A) == stored.head
    disk.watch = lambda: None
    store.close()
    assert failed > 50


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The kernel refuses to let any file of this process grow further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_real_file_that_may_not_grow_fails_appends_until_it_may(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with closing(SqliteStore(path, index_seconds=1000)) as store:
        store.create(A, Head(7, 0, 0), [], [])
        answered = 0
        log_size = path.with_name("sessions.db-wal").stat().st_size
        with files_no_larger_than(log_size + 100_000), pytest.raises(StoreUnavailable, match="then try again"):
            while True:
                assert store.append([step(A, answered, b"r" * 1000)]) == [None]
                answered += 1
        assert 1 < answered < 100
        assert store.head(A) == Head(7, answered, answered)
        assert store.append([step(A, answered, b"r" * 1000)]) == [None]
    with closing(SqliteStore(path)) as store:
        assert store.head(A) == Head(7, answered + 1, answered + 1)


@contextmanager
def an_ordinary_user() -> Iterator[None]:
    """Permissions don't bind root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_read_only_file_is_refused_unchanged_until_it_is_writable() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        with closing(SqliteStore(path)) as store:
            store.create(A, Head(7, 0, 0), [], [])
        before = path.read_bytes()
        path.chmod(0o444)
        path.parent.chmod(0o555)
        with an_ordinary_user():
            with pytest.raises(StoreUnavailable, match="make the file and its folder writable, then try again"):
                SqliteStore(path)
        assert path.read_bytes() == before
        path.parent.chmod(0o755)
        path.chmod(0o644)
        with closing(SqliteStore(path)) as store:
            assert store.append([step(A, 0, b"one")]) == [None]


def test_a_file_that_another_program_locks_while_it_is_opened_anew_heals_once_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    failing = False

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, parameters: object = ()) -> sqlite3.Cursor:  # type: ignore[override]
            if failing and sql.startswith("INSERT INTO journal"):
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
                raise error
            return super().execute(sql, parameters)  # type: ignore[arg-type]

    def connect_failing(name: str) -> sqlite3.Connection:
        return sqlite3.connect(name, timeout=0.05, isolation_level=None, check_same_thread=False, factory=Failing)

    with closing(SqliteStore(path, connect=connect_failing, index_seconds=1000)) as store:
        store.create(A, Head(7, 0, 0), [], [])
        failing = True
        with pytest.raises(StoreUnavailable, match="disk I/O error"):  # the store lets the file go
            store.append([step(A, 0, b"one")])
        failing = False
        with closing(connect(str(path))) as other:
            other.execute("BEGIN EXCLUSIVE")
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="another process has it open"):
                    store.append([step(A, 0, b"one")])
                with pytest.raises(StoreUnavailable, match="another process has it open"):
                    store.load(A)
        assert store.append([step(A, 0, b"one")]) == [None]
        assert store.head(A) == Head(7, 1, 1)
