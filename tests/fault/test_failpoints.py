"""Failpoints: what a SPEC says, and that an unarmed process is as if there were none."""

import signal
import subprocess
import sys
import timeit

import pytest

from constraintd import failpoints
from constraintd.errors import StoreUnavailable


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.enable("")


def failures(spec, times, name=failpoints.APPEND_BEFORE):
    failpoints.enable(spec)
    failed = []
    for number in range(1, times + 1):
        try:
            failpoints.hit(name)
        except StoreUnavailable:
            failed.append(number)
    return failed


def test_without_the_flag_nothing_happens(monkeypatch):
    monkeypatch.setenv("CONSTRAINTD_FAILPOINTS", "append.before=error")
    for name in failpoints.NAMES:
        failpoints.hit(name)
    assert not any(failpoints.bug(bug) for bug in failpoints.BUGS)


def test_an_unarmed_place_costs_next_to_nothing():
    seconds = min(timeit.repeat(lambda: failpoints.hit(failpoints.APPEND_BEFORE), number=20_000, repeat=10)) / 20_000
    assert seconds < 500e-9  # 40 ns of it are the place's, some 40 this lambda's; the rest is room for a busy machine


def test_an_error_comes_at_the_named_time_only():
    assert failures("append.before=error@3", 6) == [3]


def test_an_error_without_a_condition_comes_every_time():
    assert failures("append.before=error", 3) == [1, 2, 3]


def test_an_error_comes_as_often_as_its_probability_says_and_by_the_seed():
    first = failures("append.before=error@p0.25;seed=5", 400)
    assert 70 <= len(first) <= 130
    assert failures("append.before=error@p0.25;seed=5", 400) == first
    assert failures("append.before=error@p0.25;seed=6", 400) != first


def test_other_places_are_left_alone():
    assert failures("append.before=error", 3, failpoints.APPEND_AFTER) == []


def test_a_delay_blocks_for_its_time():
    failpoints.enable("reply.after=delay:0.05")
    assert 0.05 <= timeit.timeit(lambda: failpoints.hit(failpoints.REPLY_AFTER), number=1) < 2.0


def test_a_kill_is_a_sigkill_to_the_process_itself():
    program = (
        "from constraintd import failpoints as f; f.enable('create.after=kill@2'); "
        "f.hit(f.CREATE_AFTER); print('once', flush=True); f.hit(f.CREATE_AFTER); print('twice', flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "once\n")


def test_only_planted_bugs_are_there():
    failpoints.enable("bug:fold;bug:append")
    assert [failpoints.bug(bug) for bug in ("append", "fencing", "repeat", "fold")] == [True, False, False, True]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("append.never=kill", "no place 'append.never'"),
        ("append.before", "can't read 'append.before'; expected NAME=kill"),
        ("append.before=explode", "can't read 'append.before=explode'"),
        ("append.before=kill@0", "can't read 'append.before=kill@0'"),
        ("append.before=error@p1.5", "probability outside 0 to 1"),
        ("bug:off-by-one", "no bug 'off-by-one'; expected one of append, fencing, repeat, fold"),
        ("seed=x", "can't read 'seed=x'"),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused_by_name(spec, message):
    with pytest.raises(failpoints.BadSpec) as caught:
        failpoints.enable(spec)
    assert message in str(caught.value)
