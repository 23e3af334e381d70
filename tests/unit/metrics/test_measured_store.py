"""The store as the daemon uses it: appends timed, failures counted, and the answers those of the store itself."""

from __future__ import annotations

import resource
from contextlib import closing, contextmanager

import pytest

from constraintd.errors import StoreUnavailable
from constraintd.metrics import recording
from constraintd.metrics.measured_store import MeasuredStore
from constraintd.metrics.recorder import Recorder
from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.store import Append, Behind, Head

SESSION = bytes(16)
FIRST, SECOND = Head(7, 1, 0), Head(7, 2, 1)


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(recording, "active", recorder)
    return recorder


@pytest.fixture
def store(tmp_path):
    with closing(SqliteStore(tmp_path / "sessions.sqlite")) as store:
        store.create(SESSION, FIRST, [b"opened"], [])
        yield MeasuredStore(store)


@contextmanager
def full_disk():
    """The kernel refuses to let any file of this process grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def appended(recorder: Recorder) -> int:
    return recorder.store_append_seconds["sqlite"].snapshot().count


def test_an_append_is_timed_and_does_what_the_store_does(store, recorder):
    assert store.append([Append(SESSION, FIRST, SECOND, (b"step",))]) == [None]
    assert store.append([Append(SESSION, FIRST, SECOND, (b"step",))]) == [Behind(SECOND)]
    assert appended(recorder) == 2
    assert store.head(SESSION) == SECOND
    assert store.load(SESSION).records == (b"opened", b"step")
    assert recorder.store_errors.snapshot() == {}


def test_a_failed_append_is_counted_not_timed_and_raised_as_it_is(store, recorder):
    with full_disk(), pytest.raises(StoreUnavailable):
        store.append([Append(SESSION, FIRST, SECOND, (b"step",))])
    with full_disk(), pytest.raises(StoreUnavailable):
        store.create(bytes(15) + b"\1", FIRST, [b"opened"], [])
    assert recorder.store_errors.snapshot() == {("sqlite", "append"): 1, ("sqlite", "create"): 1}
    assert appended(recorder) == 0


def test_without_a_listener_it_is_the_store(store):
    assert recording.active is None
    with full_disk(), pytest.raises(StoreUnavailable):
        store.append([Append(SESSION, FIRST, SECOND, (b"step",))])
    assert store.append([Append(SESSION, FIRST, SECOND, (b"step",))]) == [None]
    assert store.append([Append(SESSION, FIRST, SECOND, (b"step",))]) == [Behind(SECOND)]
