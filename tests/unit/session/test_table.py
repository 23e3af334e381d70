"""Hot copies and the store behind them: passivation, room, expiry, trouble with the store, daemons that share one."""

import asyncio
import secrets

import pytest

from constraintd.config import Limits
from constraintd.errors import LimitReached, PositionConflict, StaleEpoch, StoreUnavailable, UnknownSession
from constraintd.session.store.memory import MemoryStore
from constraintd.v1 import constraint_service_pb2, grammar_pb2, session_pb2
from tests.plain_daemon import PlainDaemon

LETTERS = session_pb2.Constraint(grammar=grammar_pb2.Grammar(regex=b"[ab]*"))


class SharedStore(MemoryStore):
    """A memory store that two daemons of this process share."""

    shared = True


class BrokenStore(MemoryStore):
    """One whose connection can be cut: before it has written, or after."""

    broken = None

    def append(self, appends):
        if self.broken == "before":
            raise StoreUnavailable("cut off before writing")
        results = super().append(appends)
        if self.broken == "after":
            raise StoreUnavailable("cut off after writing")
        return results


class Clock:
    """A wall clock that a test moves."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def make():
    made = []

    def make_daemon(**arguments):
        made.append(PlainDaemon(**arguments))
        return made[-1]

    yield make_daemon
    for daemon in made:
        daemon.close()


def id_of(session):
    return session.identity.session_id


def text_of(daemon, session_id):
    request = session_pb2.GetSessionRequest(session_id=session_id)
    return bytes(daemon.run(daemon.calls.get(request)).tokens)


# --- passivation and room ---


def test_a_session_that_is_not_stepped_for_a_while_is_dropped_and_revived_by_its_next_step(make):
    daemon = make()
    session = daemon.open(LETTERS)
    daemon.step(session, [97], [1.0])
    session.last_step -= 61
    daemon.run(daemon.table.sweep())
    assert daemon.table.statistics().hot == 0
    assert daemon.step(session, [98], [1.0]).position == 2
    assert daemon.table.statistics().revived == 1
    assert text_of(daemon, id_of(session)) == b"ab"


def test_the_longest_idle_copies_make_room_for_a_new_session(make):
    daemon = make(limits=Limits(max_hot_session_bytes=600_000))  # two sessions of one grammar, and some
    sessions = [daemon.open(LETTERS) for _ in range(3)]
    sessions[0].last_step -= 2
    sessions[1].last_step -= 1
    daemon.open(LETTERS)
    assert [daemon.table.hot(id_of(session)) is not None for session in sessions] == [False, True, True]
    assert daemon.step(sessions[0], [97], [1.0]).position == 1


def test_a_session_with_something_pending_is_never_dropped(make):
    daemon = make(limits=Limits(max_hot_session_bytes=1))
    session = daemon.open(LETTERS)
    pending = session.prepare_step(session.epoch, 0, [97], [1.0])
    with pytest.raises(LimitReached, match="bytes of memory for sessions") as caught:
        daemon.open(LETTERS)
    assert caught.value.retry_seconds == 1.0
    pending.abort()
    daemon.open(LETTERS)


def test_a_full_table_refuses_and_closing_makes_room(make):
    daemon = make(limits=Limits(max_sessions=2))
    first = daemon.open(LETTERS)
    daemon.open(LETTERS)
    with pytest.raises(LimitReached, match="all 2 sessions are taken"):
        daemon.open(LETTERS)
    daemon.close_session(first)
    daemon.open(LETTERS)


# --- reading ahead ---


@pytest.fixture
def quick(monkeypatch):
    """Every short session comes back at once, once one under its settings has, however slow this machine is."""
    monkeypatch.setattr("constraintd.revival._QUICK_SECONDS", 60.0)


@pytest.mark.usefixtures("quick")
def test_sessions_that_were_read_ahead_are_brought_back_as_the_store_has_them(make):
    daemon = make()
    sessions = [daemon.open(LETTERS) for _ in range(3)]
    for number, session in enumerate(sessions):
        for _ in range(number):
            daemon.step(session, [97], [1.0])
        daemon.table.drop(id_of(session))
    daemon.session(id_of(sessions[0]))
    daemon.table.drop(id_of(sessions[0]))
    daemon.table.read_ahead([id_of(session) for session in sessions])
    assert [daemon.table.at_hand(id_of(session)).position for session in sessions] == [0, 1, 2]


class CountingStore(MemoryStore):
    """One that counts the looks for short sessions."""

    looks = 0

    def load_short(self, session_ids, most_records):
        self.looks += 1
        return super().load_short(session_ids, most_records)


@pytest.mark.usefixtures("quick")
def test_one_that_is_unknown_or_long_costs_the_others_of_its_batch_nothing(make):
    store = CountingStore()
    daemon = make(store=store)
    first, long, last = (daemon.open(LETTERS) for _ in range(3))
    for _ in range(70):
        daemon.step(long, [97], [1.0])
    ids = [id_of(first), id_of(long), bytes(16), id_of(last)]
    daemon.table.drop(id_of(first))
    daemon.session(id_of(first))
    for session_id in ids:
        daemon.table.drop(session_id)
    store.looks = 0
    daemon.table.read_ahead(ids)
    found = [daemon.table.at_hand(session_id) for session_id in ids]
    assert [session and id_of(session) for session in found] == [id_of(first), None, None, id_of(last)]
    assert store.looks == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("way", ["stepped", "closed and opened anew", "expired"])
def test_what_was_read_ahead_is_forgotten_once_the_session_is_another(make, way):
    clock = Clock()
    daemon = make(store=MemoryStore(clock), limits=Limits(session_idle_seconds=900))
    other, session = daemon.open(LETTERS), daemon.open(LETTERS)
    session_id = id_of(session)
    daemon.step(session, [97], [1.0])
    daemon.table.drop(session_id), daemon.table.drop(id_of(other))
    kept = daemon.session(id_of(other))  # and with it their settings
    daemon.table.read_ahead([session_id])
    if way == "stepped":
        again = daemon.session(session_id)
        daemon.step(again, [97], [1.0])
        again.last_step -= 61
        daemon.run(daemon.table.sweep())  # passive: the copy is gone, and not by `drop`
        assert (daemon.table.hot(session_id), daemon.table.at_hand(session_id).position) == (None, 2)
    elif way == "expired":
        clock.now += 1000
        daemon.run(daemon.table.sweep())
        assert daemon.table.at_hand(session_id) is None
    else:
        daemon.close_session(session)
        daemon.open(LETTERS, session_id=session_id)
        daemon.table.drop(session_id)
        assert daemon.table.at_hand(session_id).position == 0
    assert kept.position == 0


def test_a_stream_that_ends_in_the_middle_of_a_batch_leaves_no_session_held(make, monkeypatch):
    monkeypatch.setattr("constraintd.decode._SLICE_SECONDS", 0.0)
    monkeypatch.setattr("constraintd.decode._ANSWER_SECONDS", 60.0)
    daemon = make()
    sessions = [daemon.open(LETTERS) for _ in range(3)]
    for session in sessions:
        session.step_seconds = 0.0  # none is for the slow lane
    steps = [
        session_pb2.Step(session_id=id_of(each), epoch=each.epoch, position=0, tokens=[97], surprisals=[1.0])
        for each in sessions
    ]

    async def unread(_answer):
        raise AssertionError("nothing is answered before the stream ends")

    async def end_in_the_middle():
        batch = constraint_service_pb2.StepBatch(steps=steps)
        task = asyncio.create_task(daemon.stream(unread).step_batch(batch))
        await asyncio.sleep(0)  # it runs until it gives the loop back for the first time
        held = sum(each.is_busy for each in sessions)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return held

    assert daemon.run(end_in_the_middle()) == 1
    assert not any(each.is_busy for each in sessions)
    assert daemon.step(sessions[0], [98], [1.0]).position == 1


# --- expiry ---


def test_a_session_expires_by_the_stores_clock_since_its_last_step(make):
    clock = Clock()
    daemon = make(store=MemoryStore(clock), limits=Limits(session_idle_seconds=900))
    stepped, idle = daemon.open(LETTERS), daemon.open(LETTERS)
    clock.now += 600
    daemon.step(stepped, [97], [1.0])
    clock.now += 600
    daemon.run(daemon.table.sweep())
    assert text_of(daemon, id_of(stepped)) == b"a"
    with pytest.raises(UnknownSession):
        text_of(daemon, id_of(idle))


def test_a_takeover_counts_as_use_and_a_clock_that_jumps_back_expires_nothing(make):
    clock = Clock()
    daemon = make(store=MemoryStore(clock), limits=Limits(session_idle_seconds=900))
    session = daemon.open(LETTERS)
    clock.now += 800
    daemon.run(daemon.calls.resume(session_pb2.ResumeSessionRequest(session_id=id_of(session))))
    clock.now += 800
    daemon.run(daemon.table.sweep())
    clock.now -= 1_000_000
    daemon.run(daemon.table.sweep())
    assert text_of(daemon, id_of(session)) == b""


# --- a store in trouble ---


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_step_whose_append_failed_may_be_sent_again_whether_it_was_written_or_not(make, when):
    store = BrokenStore()
    daemon = make(store=store)
    session = daemon.open(LETTERS)
    daemon.step(session, [97], [1.0])
    store.broken = when
    with pytest.raises(StoreUnavailable):
        daemon.step(session, [98], [1.0])
    store.broken = None
    step = session_pb2.Step(session_id=id_of(session), epoch=session.epoch, position=1, tokens=[98], surprisals=[1.0])
    assert daemon.send(step).position == 2
    assert daemon.send(step).position == 2
    assert text_of(daemon, id_of(session)) == b"ab"


def test_a_change_whose_append_failed_changes_nothing_that_is_answered(make):
    store = BrokenStore()
    daemon = make(store=store)
    session = daemon.open(LETTERS)
    daemon.step(session, [97], [1.0])
    store.broken = "before"
    with pytest.raises(StoreUnavailable):
        daemon.rollback(session, 0)
    store.broken = None
    assert text_of(daemon, id_of(session)) == b"a"
    daemon.rollback(daemon.session(id_of(session)), 0)
    assert text_of(daemon, id_of(session)) == b""


# --- two daemons on one store ---


@pytest.fixture
def two(make):
    store = SharedStore()
    return make(store=store), make(store=store)


def test_any_daemon_adopts_any_session(two):
    one, other = two
    session = one.open(LETTERS)
    one.step(session, [97], [1.0])
    adopted = other.session(id_of(session))
    assert other.step(adopted, [98], [1.0]).position == 2
    # The first one's copy is stale now: it is replaced, and the same runner goes on there.
    step = session_pb2.Step(session_id=id_of(session), epoch=session.epoch, position=2, tokens=[97], surprisals=[1.0])
    assert one.send(step).position == 3
    assert text_of(other, id_of(session)) == b"aba"


def test_a_stale_copy_is_never_answered_from(two):
    one, other = two
    session = one.open(LETTERS)
    one.step(session, [97], [1.0])
    adopted = other.session(id_of(session))
    other.step(adopted, [98], [1.0])
    stale = session_pb2.Step(session_id=id_of(session), epoch=session.epoch, position=1, tokens=[98], surprisals=[1.0])
    assert text_of(one, id_of(session)) == b"ab"
    other.step(adopted, [97], [1.0])
    # A repeat of the step that the other daemon applied, which this one's copy would take for a new one.
    stale.position, stale.tokens[0] = 2, 97
    assert one.send(stale).position == 3
    other.step(adopted, [97], [1.0])
    conflict = session_pb2.Step()
    conflict.CopyFrom(stale)
    conflict.position, conflict.tokens[0] = 3, 98
    with pytest.raises(PositionConflict):
        one.send(conflict)


def test_a_takeover_at_one_daemon_fences_off_the_runner_at_the_other(two):
    one, other = two
    session = one.open(LETTERS)
    one.step(session, [97], [1.0])
    epoch = session.epoch
    other.run(other.calls.resume(session_pb2.ResumeSessionRequest(session_id=id_of(session))))
    step = session_pb2.Step(session_id=id_of(session), epoch=epoch, position=1, tokens=[97], surprisals=[1.0])
    with pytest.raises(StaleEpoch):
        one.send(step)
    with pytest.raises(StaleEpoch):
        one.run(
            one.calls.rollback(
                session_pb2.RollbackSessionRequest(
                    session_id=id_of(session), epoch=epoch, position=1, request_id=secrets.token_bytes(16)
                )
            )
        )


def test_a_session_that_was_closed_elsewhere_is_unknown_here(two):
    one, other = two
    session = one.open(LETTERS)
    other.close_session(session)
    with pytest.raises(UnknownSession):
        one.step(session, [97], [1.0])
    with pytest.raises(UnknownSession):
        text_of(one, id_of(session))
