"""Power is lost at any write or sync: strict keeps all that was answered, relaxed all but the last moments.

The machine is a disk in memory that forgets what was not synced (see unsynced_disk).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.store import Head
from tests.unit.store.places import session, step
from tests.unit.store.unsynced_disk import Disk, write_image

PATH = "/nowhere/sessions.db"
SESSIONS = 6
BATCHES = 80


def record(number: int, version: int) -> bytes:
    return b"%d of session %d, " % (version, number) * 20


def images_of_a_run(durability: str) -> list[tuple[int, dict[str, bytes]]]:
    """At every 23rd write or sync of a run: the batches answered by then, and the disk if power were lost."""
    disk = Disk(f"power-{durability}")
    answered = -1  # the sessions aren't all created yet
    operations = 0
    images: list[tuple[int, dict[str, bytes]]] = []

    def watch() -> None:
        nonlocal operations
        operations += 1
        if operations % 23 == 0 or answered < 0:
            images.append((answered, disk.image_after_power_loss(seed=operations)))

    disk.watch = watch
    store = SqliteStore(PATH, durability, connect=disk.connect, index_seconds=1000)  # type: ignore[arg-type]
    for number in range(SESSIONS):
        store.create(session(number), Head(7, 0, 0), [], [])
    store._call(store._put_blobs, {b"v" * 32: b"vocabulary"})
    answered = 0
    for version in range(BATCHES):
        batch = [step(session(number), version, record(number, version)) for number in range(SESSIONS)]
        assert store.append(batch) == [None] * SESSIONS
        answered = version + 1
        if version % 2:
            images.append((answered, disk.image_after_power_loss(seed=-version)))
        store._call(store._index_step)
        if version % 25 == 24:
            store._call(store._open_connection.execute, "PRAGMA wal_checkpoint(PASSIVE)")
    disk.watch = lambda: None
    store.close()
    return images


def versions_found(image: dict[str, bytes], folder: Path) -> list[int | None]:
    """Opens what the power loss left; each session's version, its records checked."""
    path = write_image(image, folder)
    found: list[int | None] = []
    with closing(SqliteStore(path)) as store:
        for number in range(SESSIONS):
            stored = store.load(session(number))
            found.append(None if stored is None else stored.head.version)
            if stored is not None:
                assert list(stored.records) == [record(number, version) for version in range(stored.head.version)]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return found


def test_strict_keeps_all_that_was_answered(tmp_path: Path) -> None:
    images = images_of_a_run("strict")
    assert len(images) > 60
    for place, (answered, image) in enumerate(images):
        found = versions_found(image, tmp_path / str(place))
        if answered < 0:
            assert set(found) <= {None, 0}
        else:
            assert found in ([answered] * SESSIONS, [answered + 1] * SESSIONS)


def test_relaxed_loses_only_the_last_moments_and_of_all_sessions_alike(tmp_path: Path) -> None:
    images = images_of_a_run("relaxed")
    assert len(images) > 60
    lost = 0
    for place, (answered, image) in enumerate(images):
        found = versions_found(image, tmp_path / str(place))
        if place > len(images) // 2:  # later than the first time that the log was moved into the file
            assert None not in found
        assert len(set(found)) == 1 or set(found) == {None, 0}
        assert all(version is None or version <= answered + 1 for version in found)
        lost += sum(answered - (version or 0) for version in found)
    assert lost > 0  # otherwise this disk would prove nothing


def test_relaxed_keeps_what_was_answered_before_the_last_round_of_the_index(tmp_path: Path) -> None:
    disk = Disk("rounds")
    store = SqliteStore(PATH, connect=disk.connect, index_seconds=1000)
    for number in range(SESSIONS):
        store.create(session(number), Head(7, 1, 1), [record(number, 0)], [])
    while store._call(store._index_step):
        pass
    image = disk.image_after_power_loss(seed=1)
    store.close()
    assert versions_found(image, tmp_path / "image") == [1] * SESSIONS


@pytest.mark.parametrize("durability", ["relaxed", "strict"])
def test_a_closed_store_is_durable(tmp_path: Path, durability: str) -> None:
    disk = Disk(f"closing-{durability}")
    store = SqliteStore(PATH, durability, connect=disk.connect)  # type: ignore[arg-type]
    for number in range(SESSIONS):
        store.create(session(number), Head(7, 1, 1), [record(number, 0)], [])
    store.close()
    assert versions_found(disk.image_after_power_loss(seed=1), tmp_path / "image") == [1] * SESSIONS
