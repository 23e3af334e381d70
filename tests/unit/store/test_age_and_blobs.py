"""Sessions are listed in order, expire by idle time whatever the clock does, and keep the blobs that they name."""

from __future__ import annotations

from constraintd.session.store.store import Append, Head, SessionStore, Statistics
from tests.unit.store.places import Place, session, step

DAY = 86_400.0
V, G = b"v" * 32, b"g" * 32
ids = [bytes([number * 5]) * 16 for number in range(50)]


def test_pages_list_all_ids_in_order(store: SessionStore) -> None:
    for session_id in reversed(ids):
        store.create(session_id, Head(7, 0, 0), [], [])
    assert store.page(b"", 20) == ids[:20]
    assert store.page(ids[19], 20) == ids[20:40]
    assert store.page(ids[39], 20) == ids[40:]
    assert store.page(ids[49], 20) == []


def test_a_page_leaves_out_what_was_deleted(store: SessionStore) -> None:
    for session_id in ids[:3]:
        store.create(session_id, Head(7, 0, 0), [], [])
    store.delete(ids[1])
    assert store.page(b"", 10) == [ids[0], ids[2]]


def test_only_sessions_idle_for_longer_expire(place: Place) -> None:
    with place.open() as store:
        store.create(session(1), Head(7, 0, 0), [], [])
        store.create(session(2), Head(7, 0, 0), [], [])
        place.clock.now += 3599
        assert store.expire(3600) == []
        store.append([step(session(2), 0, b"used")])
        place.clock.now += 2
        stored = store.load(session(2))
        assert stored is not None
        assert stored.idle_seconds == 2.0
        assert store.expire(3600) == [session(1)]
        assert store.load(session(1)) is None
        assert store.page(b"", 10) == [session(2)]


def test_an_append_without_records_counts_as_use(place: Place) -> None:
    with place.open() as store:
        store.create(session(1), Head(7, 0, 0), [], [])
        place.clock.now += 3599
        store.append([Append(session(1), Head(7, 0, 0), Head(8, 0, 0), ())])
        place.clock.now += 3599
        assert store.expire(3600) == []


def test_a_failed_append_does_not_count_as_use(place: Place) -> None:
    with place.open() as store:
        store.create(session(1), Head(7, 0, 0), [], [])
        place.clock.now += 3599
        store.append([step(session(1), 5, b"gap")])
        place.clock.now += 2
        assert store.expire(3600) == [session(1)]


def test_a_clock_set_back_expires_nothing_early(place: Place) -> None:
    with place.open() as store:
        store.create(session(1), Head(7, 0, 0), [], [])
        place.clock.now -= DAY
        stored = store.load(session(1))
        assert stored is not None
        assert stored.idle_seconds == 0.0
        assert store.expire(0.5) == []
        place.clock.now += DAY + 10
        assert store.expire(3600) == []
        assert store.expire(5) == [session(1)]


def test_a_session_used_while_the_clock_was_set_back_is_not_old_once_it_is_right_again(place: Place) -> None:
    with place.open() as store:
        store.create(session(1), Head(7, 0, 0), [], [])
        place.clock.now -= DAY
        store.append([step(session(1), 0, b"used")])
        place.clock.now += DAY
        assert store.expire(3600) == []


def test_a_clock_that_ran_ahead_and_is_set_right_expires_nothing_early(place: Place) -> None:
    with place.open() as store:
        store.create(session(1), Head(7, 0, 0), [], [])
        place.clock.now += DAY
        store.create(session(2), Head(7, 0, 0), [], [])
        place.clock.now -= DAY - 1
        assert store.expire(3600) == []
        assert store.page(b"", 10) == [session(1), session(2)]


def test_last_use_is_known_after_opening_again(place: Place) -> None:
    if not place.lasting:
        return
    with place.open() as store:
        store.create(session(1), Head(7, 0, 0), [], [])
        place.clock.now += 1000
        store.append([step(session(1), 0, b"used")])
    place.clock.now += 3000
    with place.open() as store:
        assert store.expire(3600) == []
        place.clock.now += 601
        assert store.expire(3600) == [session(1)]


def test_many_sessions_expire_at_once(place: Place) -> None:
    with place.open() as store:
        for number in range(300):
            store.create(session(number), Head(7, 0, 0), [], [])
        place.clock.now += 100
        store.create(session(300), Head(7, 0, 0), [], [])
        assert sorted(store.expire(50)) == [session(number) for number in range(300)]
        assert store.statistics() == Statistics(sessions=1, blobs=0)


def test_a_blob_is_given_back_by_its_hash(store: SessionStore) -> None:
    large = bytes(range(256)) * 40_000
    store.put_blobs({V: b"vocabulary", G: large})
    assert store.blob(V) == b"vocabulary"
    assert store.blob(G) == large
    assert store.blob(b"?" * 32) is None
    assert store.statistics() == Statistics(sessions=0, blobs=2)


def test_a_blob_that_no_session_names_goes_after_an_hour(place: Place) -> None:
    with place.open() as store:
        store.put_blobs({V: b"vocabulary", G: b"grammar"})
        place.clock.now += 3599
        store.expire(DAY)
        assert store.blob(V) == b"vocabulary"
        store.put_blobs({G: b"grammar"})
        place.clock.now += 2
        store.expire(DAY)
        assert store.blob(V) is None
        assert store.blob(G) == b"grammar"


def test_a_blob_is_kept_as_long_as_one_session_names_it(place: Place) -> None:
    with place.open() as store:
        store.put_blobs({V: b"vocabulary", G: b"grammar"})
        store.create(session(1), Head(7, 0, 0), [], [V])
        store.create(session(2), Head(7, 0, 0), [], [V])
        store.append([Append(session(2), Head(7, 0, 0), Head(7, 1, 0), (b"config",), (G,))])
        place.clock.now += 4000
        store.expire(DAY)
        store.delete(session(1))
        store.expire(DAY)
        assert store.blob(V) == b"vocabulary"
        assert store.blob(G) == b"grammar"
        store.delete(session(2))
        place.clock.now += 4000
        store.expire(DAY)
        assert store.blob(V) is None
        assert store.blob(G) is None
        assert store.statistics() == Statistics(sessions=0, blobs=0)


def test_blobs_go_with_the_session_that_expires(place: Place) -> None:
    with place.open() as store:
        store.put_blobs({V: b"vocabulary"})
        store.create(session(1), Head(7, 0, 0), [], [V])
        place.clock.now += DAY
        assert store.expire(4000) == [session(1)]
        assert store.blob(V) is None
