"""Three daemons on one Redis behind a real Envoy: any of them may go at any time, and no session notices."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pytest
from constraintd_client import ConstraintClient, regex
from constraintd_client.errors import PositionConflict, StaleEpoch, UnknownVocabulary

from tests.daemon_process import WIDTH
from tests.envoy_process import EnvoyProcess, deployed, envoy_program, free_ports
from tests.redis_process import RedisProcess
from tests.replica_load import KINDS, TOKENS, Runner, register, undisturbed
from tests.replica_process import Replica

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]
FEW = pytest.mark.parametrize("runners", [(1, 1, 1)], indirect=True)


@dataclass(frozen=True, slots=True)
class Site:
    """All that runs, and a client at each replica that goes past Envoy."""

    replicas: list[Replica]
    envoy: EnvoyProcess
    direct: list[ConstraintClient]

    @property
    def addresses(self) -> list[str]:
        return [replica.address for replica in self.replicas]

    def hot_at(self, number: int) -> set[bytes]:
        """The sessions that this replica has in memory as they stand. Asking makes none so."""
        return {each.session_id for each in self.direct[number].list_sessions() if not each.passive}

    def home_of(self, affinity: str, vocabulary_id: str) -> int:
        """The replica that Envoy sends this affinity to."""
        with ConstraintClient(self.envoy.address, affinity=affinity) as client:
            session_id = client.open_session(vocabulary_id, None).session_id
            homes = [number for number in range(3) if session_id in self.hot_at(number)]
            client.close_session(session_id)
        assert len(homes) == 1
        return homes[0]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replicas")
    redis = RedisProcess(folder)
    with ExitStack() as stack:
        stack.callback(redis.kill)
        redis.start()
        replicas = [
            stack.enter_context(Replica(folder, port, redis.url, "--drain-seconds", "1")) for port in free_ports(3)
        ]
        for replica in replicas:
            replica.wait_ready()
        envoy = stack.enter_context(EnvoyProcess(folder, [replica.address for replica in replicas]))
        yield Site(replicas, envoy, [stack.enter_context(ConstraintClient(each.address)) for each in replicas])
        for replica in replicas:
            assert "Traceback" not in replica.log, replica.log


@pytest.fixture
def site(running):
    running.envoy.wait_healthy(running.addresses)
    return running


@pytest.fixture(scope="module")
def expected(running):
    """The tokens of each kind of session where nothing happens."""
    found = undisturbed(running.direct[0])
    assert [len(tokens) for tokens in found] == [TOKENS] * len(KINDS)
    return found


@pytest.fixture
def runners(site, request):
    """Runners at work; the parameter tells how many are at home at each replica."""
    wanted = list(request.param)
    vocabulary_id = register(site.direct[0])
    affinities = []
    for number in range(200):
        home = site.home_of(f"runner {number}", vocabulary_id)
        if wanted[home]:
            wanted[home] -= 1
            affinities.append(f"runner {number}")
        if not any(wanted):
            break
    assert not any(wanted), "the ring leaves a replica out"
    stopping = threading.Event()
    runners = [Runner(site.envoy.address, affinity, stopping) for affinity in affinities]
    for runner in runners:
        runner.start()
    try:
        wait_for(lambda: all(len(runner.answers) > 30 for runner in runners), "the runners begin")
        yield runners
    finally:
        stopping.set()
        for runner in runners:
            runner.join(timeout=30)


def wait_for(condition, what, within=20.0):
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until, f"not within {within} s: {what}"
        time.sleep(0.2)  # asking costs the daemons time, too


def let_end(runners):
    """Every session ends; all that each runner saw is there to be read."""
    runners[0].stopping.set()
    for runner in runners:
        runner.join(timeout=30)
        assert not runner.is_alive(), f"{runner.name} does not end"


def check_texts(runners, expected):
    for runner in runners:
        assert runner.failure is None, (runner.name, repr(runner.failure), runner.errors[-3:])
        assert not runner.live
        for ended in runner.ended.values():
            assert ended.reason == "LENGTH"
            assert ended.taken == expected[ended.number]
            assert ended.kept == expected[ended.number]


@pytest.mark.parametrize("runners", [(3, 3, 2)], indirect=True)
def test_each_replica_is_killed_in_turn_under_load(site, runners, expected):
    outages = []
    for number, replica in enumerate(site.replicas):
        others = [each for each in range(3) if each != number]
        victims = site.hot_at(number) & set().union(*(runner.live for runner in runners))
        assert victims, "nobody is at home here"
        killed = replica.kill()
        adopted = set()

        def all_went_on(victims=victims, others=others, adopted=adopted):
            adopted |= victims & (site.hot_at(others[0]) | site.hot_at(others[1]))
            return victims <= adopted | set().union(*(set(runner.ended) for runner in runners))

        wait_for(all_went_on, "every session of the dead replica is at another one, or has ended")
        assert adopted
        site.envoy.wait_healthy([site.addresses[each] for each in others])
        replica.start()
        site.envoy.wait_healthy(site.addresses)
        outages.append(max(runner.longest_gap(killed, killed + 1.0) for runner in runners))
    let_end(runners)
    check_texts(runners, expected)
    ended = sum(len(runner.ended) for runner in runners)
    assert ended >= 8 * len(KINDS)
    seen = Counter((type(error).__name__, error.code) for runner in runners for _, error in runner.errors)
    print(f"{ended} sessions; seconds without answers {[round(each, 3) for each in outages]}; errors {dict(seen)}")
    assert {name for name, _ in seen} <= {"Unavailable", "StepInFlight"}
    assert max(outages) < 15.0  # a fraction of a second, where nothing else keeps the cores busy


@FEW
def test_a_replica_that_drains_is_left_without_a_lost_answer(site, runners, expected):
    stopped = site.replicas[1].stop()
    site.replicas[1].wait_stopped()
    wait_for(
        lambda: all(runner.answers and runner.answers[-1] > stopped + 1.5 for runner in runners),
        "every runner goes on at another replica",
    )
    site.replicas[1].launch()
    let_end(runners)
    site.replicas[1].wait_ready()
    check_texts(runners, expected)
    print(f"{max(runner.longest_gap(stopped, stopped + 2.0) for runner in runners):.3f} s without answers")
    assert {type(error).__name__ for runner in runners for _, error in runner.errors} <= {
        "Draining",
        "Unavailable",
        "StepInFlight",
    }


@FEW
def test_a_replica_that_hangs_is_left_and_changes_nothing_when_it_wakes(site, runners, expected):
    # And a stream elsewhere on which nothing happens all the while, but for Envoy's pings.
    vocabulary_id = register(site.direct[0])
    elsewhere = next(each.affinity for each in runners if site.home_of(each.affinity, vocabulary_id) != 2)
    with ConstraintClient(site.envoy.address, affinity=elsewhere) as client:
        with client.decode_stream(vocabulary_id, WIDTH) as quiet:
            hang(site, runners)
            session = client.open_session(vocabulary_id, regex("[ab]*"))
            quiet.send([(session, [97], [1.0])])
            assert quiet.take(session, 5).position == 1
    check_texts(runners, expected)
    assert {type(error).__name__ for runner in runners for _, error in runner.errors} <= {"Unavailable", "StepInFlight"}


def hang(site, runners):
    site.replicas[2].freeze()
    frozen = time.monotonic()
    try:
        wait_for(
            lambda: all(min(runner.answers[-1], time.monotonic()) > frozen + 6.0 for runner in runners),
            "every runner goes on at another replica",
        )
    finally:
        site.replicas[2].thaw()
    site.envoy.wait_healthy(site.addresses)
    let_end(runners)
    print(f"{max(runner.longest_gap(frozen, frozen + 1.0) for runner in runners):.3f} s without answers")


# --- one session at two replicas ---


@pytest.fixture
def pair(site):
    """Clients of two replicas, past Envoy: what a runner has that was sent elsewhere."""
    return site.direct[0], site.direct[1]


def test_the_replica_that_holds_the_old_copy_refuses_the_old_runner_and_tells_what_the_new_one_did(pair, site):
    a, b = pair
    vocabulary_id = register(a)
    session_id = os.urandom(16)
    old = a.open_session(vocabulary_id, regex("[ab]*"), session_id=session_id)
    with a.decode_stream(vocabulary_id, WIDTH) as stream_a, b.decode_stream(vocabulary_id, WIDTH) as stream_b:
        for byte in b"aab":
            stream_a.send([(old, [byte], [1.0])])
            stream_a.take(old, 5)
        new = b.resume_session(session_id)
        assert new.tokens == tuple(b"aab")
        for byte in b"bba":
            stream_b.send([(new.session, [byte], [1.0])])
            before = new.session.directive
            stream_b.take(new.session, 5)

        # The old runner goes on where it was, on its stream and by itself.
        stream_a.send([(old, [ord("a")], [1.0])])
        with pytest.raises(StaleEpoch):
            stream_a.take(old, 5)
    with pytest.raises(StaleEpoch):
        a.step(old, [ord("a")], [1.0])
    kept = a.get_session(session_id)
    assert bytes(kept.tokens) == b"aabbba"

    # A repeat of the new runner's last step gets the same answer from the other replica, other tokens a conflict.
    after = new.session.directive
    new.session.directive = before
    a.step(new.session, [ord("a")], [1.0])
    assert (new.session.position, new.session.directive.draw) == (6, after.draw)
    assert np.array_equal(new.session.directive.mask, after.mask)
    new.session.directive = before
    with pytest.raises(PositionConflict) as conflict:
        a.step(new.session, [ord("b")], [1.0])
    assert conflict.value.logged_tokens == (ord("a"),)


def test_a_stale_copy_is_not_told_by_opening_again_nor_by_listing(pair):
    a, b = pair
    vocabulary_id = register(a)
    session_id = os.urandom(16)
    a.open_session(vocabulary_id, regex("[ab]*"), session_id=session_id)
    taken = b.resume_session(session_id).session
    b.step(taken, [97], [1.0])
    listed = {each.session_id: each for each in a.list_sessions()}[session_id]
    assert (listed.position, listed.passive) == (1, True)
    again = a.open_session(vocabulary_id, regex("[ab]*"), session_id=session_id)
    assert (again.epoch, again.position) == (taken.epoch, 1)


def test_changes_at_one_replica_fence_off_the_other(pair):
    a, b = pair
    vocabulary_id = register(a)
    session = a.open_session(vocabulary_id, regex("[ab]*"))
    for byte in b"abab":
        a.step(session, [byte], [1.0])
    other = b.resume_session(session.session_id).session
    b.rollback_session(other, 2)
    with pytest.raises(StaleEpoch):
        a.rollback_session(session, 1)
    back = a.resume_session(session.session_id)
    assert back.tokens == tuple(b"ab")
    with pytest.raises(StaleEpoch):
        b.step(other, [97], [1.0])
    assert b.close_session(session.session_id)
    assert session.session_id not in {each.session_id for each in a.list_sessions()}


def test_of_two_runners_in_the_same_instant_one_wins_and_the_other_is_told_by_what(pair):
    a, b = pair
    vocabulary_id = register(a)
    session_id = a.open_session(vocabulary_id, regex("[ab]*")).session_id
    with ThreadPoolExecutor(2) as threads:
        for position in range(20):
            # Both hold the same epoch, as a runner and its forgotten twin do, and both replicas a hot copy.
            one, two = a.resume_session(session_id).session, b.get_session(session_id)
            assert len(two.tokens) == position
            twin = b.open_session(vocabulary_id, regex("[ab]*"), session_id=session_id)
            assert twin.epoch == one.epoch
            steps = [threads.submit(a.step, one, [97], [1.0]), threads.submit(b.step, twin, [98], [1.0])]
            failures = [step.exception() for step in steps]
            loser = next(each for each in failures if each is not None)
            assert isinstance(loser, PositionConflict)
            winner = 97 if failures[0] is None else 98
            assert failures.count(None) == 1
            assert loser.logged_tokens == (winner,)
            assert a.get_session(session_id).tokens[-1] == b.get_session(session_id).tokens[-1] == winner


def test_a_vocabulary_is_known_to_the_replicas_where_it_was_not_registered(site):
    table = [bytes([value]) for value in range(200)]
    vocabulary = site.direct[0].register_token_table(table, special={200: "</s>"}, eog_ids=[200])
    for client in site.direct[1:]:
        session = client.open_session(vocabulary.vocabulary_id, regex("[ab]*"))
        client.step(session, [97], [1.0])
    with pytest.raises(UnknownVocabulary):
        site.direct[1].open_session("0" * 64, None)


# --- the config ---


def test_the_config_is_valid_as_it_stands_and_rendering_changes_nothing_but_addresses(tmp_path):
    text = deployed().TEMPLATE.read_text()
    here = [f"127.0.0.1:{port}" for port in (50051, 50052, 50053)]
    assert deployed().rendered("127.0.0.1:50050", "127.0.0.1:9901", here) == text
    two = deployed().rendered("0.0.0.0:8080", "127.0.0.1:9901", ["replica-a:50051", "[::1]:50051"])
    assert two.count("lb_endpoints") == 1
    assert two.count("- endpoint:") == 2
    for name, content in (("as-it-stands", text), ("two", two)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(content)
        command = [str(envoy_program()), "-c", str(path), "--mode", "validate", "--disable-hot-restart"]
        assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0


def test_an_address_that_is_none_is_refused():
    for address in ("127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000", "a b:1", ":1", "a:1 }"):
        with pytest.raises(ValueError):
            deployed().rendered(address, "127.0.0.1:9901", ["127.0.0.1:1"])
    with pytest.raises(ValueError):
        deployed().rendered("127.0.0.1:1", "127.0.0.1:9901", ["127.0.0.1:2", "127.0.0.1:2"])
