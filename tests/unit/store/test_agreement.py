"""Random calls: every store answers as the one of dicts does, whatever its index is doing and however it was left."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from constraintd.session.store.memory import MemoryStore
from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.store import Append, Head, SessionStore
from tests.unit.store.places import Clock, Place, session

CALLS = 400


def head_after(head: Head, records: int, chance: random.Random) -> Head:
    return Head(chance.choice([head.epoch, 2**64 - 1]), head.version + records, head.position + records)


def random_call(chance: random.Random, clock: Clock, model: MemoryStore, store: SessionStore) -> None:
    """One call on both; the answers agree."""
    one = session(chance.randrange(12) << 100)
    blobs = [bytes([chance.randrange(4)]) * 32 for _ in range(chance.randrange(3))]
    match chance.randrange(8):
        case 0 | 1:
            records = [chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(3))]
            head = Head(chance.randrange(2**64), len(records), 0)
            assert (model.create(one, head, records, blobs) is None) == (
                store.create(one, head, records, blobs) is None
            )
        case 2 | 3 | 4:
            batch = []
            for number in chance.sample(range(12), 5):
                one = session(number << 100)
                head = model.head(one) or Head(1, 1, 1)
                if chance.random() < 0.2:
                    head = Head(head.epoch, head.version + 1, head.position)
                records = [chance.randbytes(chance.choice([0, 30, 3000])) for _ in range(chance.randrange(4))]
                batch.append(Append(one, head, head_after(head, len(records), chance), tuple(records), tuple(blobs)))
            assert model.append(batch) == store.append(batch)
        case 5:
            assert model.delete(one) == store.delete(one)
        case 6:
            clock.now += chance.randrange(600)  # for jumps backward see test_age_and_blobs
            idle = chance.randrange(500, 5000)
            assert sorted(model.expire(idle)) == sorted(store.expire(idle))
        case 7:
            contents = {digest: digest[:1] * 100 for digest in blobs}
            model.put_blobs(contents)
            store.put_blobs(contents)


def assert_same(model: MemoryStore, store: SessionStore) -> None:
    """All that can be read is the same."""
    assert store.page(b"", 100) == model.page(b"", 100)
    assert store.page(session(5 << 100), 3) == model.page(session(5 << 100), 3)
    for number in range(12):
        one = session(number << 100)
        expected, stored = model.load(one), store.load(one)
        assert store.head(one) == model.head(one)
        assert (stored is None) == (expected is None)
        if stored is not None and expected is not None:
            assert (stored.head, stored.records) == (expected.head, expected.records)
            assert set(stored.blobs) == set(expected.blobs)
            assert stored.idle_seconds == pytest.approx(expected.idle_seconds, abs=1e-3)
    ids = [session(number << 100) for number in range(13)]
    for most in (0, 3, 64):
        expected_short, short = model.load_short(ids, most), store.load_short(ids, most)
        assert {each: (one.head, one.records, set(one.blobs)) for each, one in short.items()} == {
            each: (one.head, one.records, set(one.blobs)) for each, one in expected_short.items()
        }
    for number in range(4):  # a store may keep an unnamed blob for longer, never a named one for less
        digest = bytes([number]) * 32
        assert model.blob(digest) in (None, store.blob(digest))
    assert store.statistics().sessions == model.statistics().sessions


@pytest.mark.parametrize("seed", range(3))
def test_every_store_answers_as_the_one_of_dicts(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    model = MemoryStore(place.clock)
    with place.open() as store:
        for number in range(CALLS):
            random_call(chance, place.clock, model, store)
            if number % 20 == 19:
                assert_same(model, store)


@pytest.mark.parametrize("seed", range(4))
def test_sqlite_does_so_with_its_index_at_any_step_and_after_any_crash(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    clock = Clock()
    model = MemoryStore(clock)
    path = tmp_path / "0.db"
    store = SqliteStore(path, clock=clock, index_seconds=1000)
    for number in range(CALLS):
        random_call(chance, clock, model, store)
        for _ in range(chance.randrange(3)):
            store._call(store._index_step)
        if number % 20 == 19:
            assert_same(model, store)
            copy = tmp_path / f"{number}.db"  # what a kill would leave
            copy.write_bytes(path.read_bytes())
            Path(f"{copy}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
            with closing(store):
                path, store = copy, SqliteStore(copy, clock=clock, index_seconds=1000)
            assert_same(model, store)
    store.close()
