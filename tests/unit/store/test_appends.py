"""Sessions are created once, and an append goes on from the head that it names or not at all."""

from __future__ import annotations

import threading

import pytest

from constraintd.session.store.store import Append, Behind, Head, SessionStore
from tests.unit.store.places import Place, session, step

A, B, C = session(1), session(2), session(3)
LARGEST = Head(2**64 - 1, 1, 0)


def test_a_created_session_is_loaded_as_it_was_given(store: SessionStore) -> None:
    assert store.create(A, LARGEST, [b"opened"], [b"v" * 32, b"g" * 32]) is None
    stored = store.load(A)
    assert stored is not None
    assert (stored.head, stored.records) == (LARGEST, (b"opened",))
    assert sorted(stored.blobs) == [b"g" * 32, b"v" * 32]
    assert stored.idle_seconds == 0.0
    assert store.head(A) == LARGEST


def test_an_id_that_is_taken_is_answered_with_what_is_kept_there(store: SessionStore) -> None:
    store.create(A, Head(7, 1, 0), [b"first"], [])
    taken = store.create(A, Head(8, 1, 0), [b"second"], [])
    assert taken is not None
    assert (taken.head, taken.records) == (Head(7, 1, 0), (b"first",))
    assert store.head(A) == Head(7, 1, 0)


def test_an_unknown_session_has_neither_head_nor_records(store: SessionStore) -> None:
    assert store.head(A) is None
    assert store.load(A) is None
    assert store.delete(A) is False


def test_short_sessions_are_loaded_together_and_long_and_unknown_ones_left_out(store: SessionStore) -> None:
    store.create(A, Head(7, 1, 0), [b"opened"], [b"g" * 32])
    store.create(B, Head(8, 3, 0), [b"one", b"two", b"three"], [])
    assert store.load_short([], 64) == {}
    assert store.load_short([C], 64) == {}
    found = store.load_short([A, B, C], 2)
    assert list(found) == [A]
    assert (found[A].head, found[A].records, found[A].blobs) == (Head(7, 1, 0), (b"opened",), (b"g" * 32,))
    assert found[A].idle_seconds == 0.0
    assert set(store.load_short([A, B], 3)) == {A, B}


def test_appended_records_follow_in_order(store: SessionStore) -> None:
    store.create(A, Head(7, 0, 0), [], [])
    assert store.append([step(A, 0, b"one")]) == [None]
    assert store.append([step(A, 1, b"two", b"three")]) == [None]
    stored = store.load(A)
    assert stored is not None
    assert (stored.head, stored.records) == (Head(7, 3, 3), (b"one", b"two", b"three"))


@pytest.mark.parametrize(
    "expected",
    [Head(8, 1, 1), Head(7, 0, 1), Head(7, 2, 1), Head(7, 1, 0)],
    ids=["another epoch", "an older version", "a newer version", "another position"],
)
def test_an_append_from_another_head_writes_nothing(store: SessionStore, expected: Head) -> None:
    store.create(A, Head(7, 1, 1), [b"one"], [])
    assert store.append([Append(A, expected, Head(7, 3, 3), (b"lost",))]) == [Behind(Head(7, 1, 1))]
    stored = store.load(A)
    assert stored is not None
    assert (stored.head, stored.records) == (Head(7, 1, 1), (b"one",))


def test_an_append_to_no_session_is_behind_nothing(store: SessionStore) -> None:
    assert store.append([step(A, 0, b"one")]) == [Behind(None)]
    assert store.load(A) is None


def test_of_one_batch_all_that_fit_are_written(store: SessionStore) -> None:
    store.create(A, Head(7, 0, 0), [], [])
    store.create(B, Head(9, 0, 0), [], [])
    assert store.append([step(A, 0, b"a"), step(B, 0, b"b"), step(C, 0, b"c")]) == [
        None,
        Behind(Head(9, 0, 0)),
        Behind(None),
    ]
    assert store.append([step(C, 0, b"c"), step(B, 0, b"b", epoch=9), step(A, 1, b"a")]) == [Behind(None), None, None]
    assert store.head(A) == Head(7, 2, 2)
    assert store.head(B) == Head(9, 1, 1)


def test_an_empty_batch_is_answered_with_nothing(store: SessionStore) -> None:
    assert store.append([]) == []


def test_an_append_without_records_changes_the_epoch_and_fences_the_old_one(store: SessionStore) -> None:
    store.create(A, Head(7, 1, 0), [b"opened"], [])
    assert store.append([Append(A, Head(7, 1, 0), Head(8, 1, 0), ())]) == [None]
    assert store.append([Append(A, Head(7, 1, 0), Head(7, 2, 1), (b"late",))]) == [Behind(Head(8, 1, 0))]
    stored = store.load(A)
    assert stored is not None
    assert (stored.head, stored.records) == (Head(8, 1, 0), (b"opened",))


def test_appended_blobs_join_those_that_are_named_already(store: SessionStore) -> None:
    store.create(A, Head(7, 0, 0), [], [b"v" * 32])
    store.append([Append(A, Head(7, 0, 0), Head(7, 1, 0), (b"r",), (b"g" * 32, b"v" * 32))])
    stored = store.load(A)
    assert stored is not None
    assert sorted(stored.blobs) == [b"g" * 32, b"v" * 32]


def test_4096_records_of_one_token_and_records_of_a_megabyte_come_back_whole(place: Place) -> None:
    tokens = [number.to_bytes(2, "big") * 20 for number in range(4096)]
    large = [b"", b"\x00" * 2**20, b"\xff" * 2**20, b""]
    with place.open() as store:
        store.create(A, Head(7, 0, 0), [], [])
        store.create(B, Head(7, 4, 0), large, [])
        for version, record in enumerate(tokens):
            assert store.append([step(A, version, record)]) == [None]
        loaded, other = store.load(A), store.load(B)
    assert loaded is not None
    assert other is not None
    assert loaded.head == Head(7, 4096, 4096)
    assert list(loaded.records) == tokens
    assert list(other.records) == large


def test_a_batch_of_many_records_is_written_whole(store: SessionStore) -> None:
    records = tuple(number.to_bytes(4, "big") for number in range(20_000))
    store.create(A, Head(7, 0, 0), [], [])
    assert store.append([step(A, 0, *records)]) == [None]
    stored = store.load(A)
    assert stored is not None
    assert stored.records == records


def test_a_deleted_session_is_gone_and_its_id_free(store: SessionStore) -> None:
    store.create(A, Head(7, 1, 0), [b"first"], [b"v" * 32])
    assert store.delete(A) is True
    assert store.load(A) is None
    assert store.append([step(A, 1, b"late")]) == [Behind(None)]
    assert store.create(A, Head(9, 1, 0), [b"second"], []) is None
    stored = store.load(A)
    assert stored is not None
    assert (stored.head, stored.records, stored.blobs) == (Head(9, 1, 0), (b"second",), ())


def test_of_threads_that_append_to_one_session_one_wins_each_version(store: SessionStore) -> None:
    store.create(A, Head(7, 0, 0), [], [])
    won: list[int] = []

    def race(thread: int) -> None:
        for version in range(50):
            while True:
                head = store.head(A)
                assert head is not None
                if head.version > version:
                    break
                if store.append([step(A, version, bytes([thread]))]) == [None]:
                    won.append(version)
                    break

    threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(50))
    assert store.head(A) == Head(7, 50, 50)


def test_threads_with_sessions_of_their_own_do_not_disturb_each_other(store: SessionStore) -> None:
    def drive(number: int) -> None:
        store.create(session(number), Head(7, 0, 0), [], [])
        for version in range(50):
            assert store.append([step(session(number), version, bytes([number, version]))]) == [None]

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        stored = store.load(session(number))
        assert stored is not None
        assert list(stored.records) == [bytes([number, version]) for version in range(50)]


def test_what_was_written_is_there_when_the_store_is_opened_again(place: Place) -> None:
    if not place.lasting:
        with place.open() as store:
            assert store.shared is False
        return
    with place.open() as store:
        store.create(A, Head(7, 0, 0), [], [b"v" * 32])
        store.put_blobs({b"v" * 32: b"vocabulary"})
        store.append([step(A, 0, b"one")])
        store.create(B, Head(7, 0, 0), [], [])
        store.delete(B)
    with place.open() as store:
        stored = store.load(A)
        assert stored is not None
        assert (stored.head, stored.records, stored.blobs) == (Head(7, 1, 1), (b"one",), (b"v" * 32,))
        assert store.append([step(A, 1, b"two")]) == [None]
        assert store.blob(b"v" * 32) == b"vocabulary"
        assert store.head(B) is None
