"""Daemons and runners die at random instants and named places, messages get lost: nobody can tell.

The bounded version; `make chaos` is the long one.
"""

from __future__ import annotations

import pytest

from constraintd import failpoints
from tests.fault.chaos import Chaos, Plan, known_texts, workplace

LOSSY = ("--drop", "0.01", "--delay", "0.05", "--duplicate", "0.03", "--cut", "0.003")


@pytest.fixture(scope="module")
def texts():
    return known_texts()


def run(texts, **fields):
    plan = Plan(**({"store": "sqlite", "kills": 0, "seed": 1} | fields))
    with workplace(plan.store) as (folder, store):
        chaos = Chaos(plan, folder, store)
        verdict = chaos.go(texts)
        if not plan.bug:
            assert verdict.clean, f"{verdict.table()}\nsee {folder}"
            assert verdict.sessions >= 5
            assert verdict.outcomes >= 200
        return verdict, chaos.tally


def run_with_bug(texts, bug, kills):
    return run(texts, bug=bug, kills=kills, targets=("daemon",), places=(), work=60, finish=False)[0]


def test_no_accepted_token_is_lost_or_doubled_on_sqlite_whoever_dies_wherever(texts):
    _, tally = run(texts, kills=14, seed=3)
    assert tally.kills.total() >= 14
    assert len(tally.reached) >= 4


@pytest.mark.services
def test_no_accepted_token_is_lost_or_doubled_on_redis_whoever_dies_wherever(texts):
    _, tally = run(texts, store="redis", kills=12, seed=4)
    assert len(tally.reached) >= 4


@pytest.mark.services
def test_replicas_on_one_redis_die_in_turn(texts):
    run(texts, store="redis", kills=4, seed=5, daemons=2, places=())


def test_messages_that_get_lost_late_or_doubled_change_nothing(texts):
    verdict, _ = run(texts, seconds=6.0, proxy=LOSSY, places=())
    assert verdict.doubtful > 10


# --- the harness itself: each of these bugs is planted by a flag, and must not go unseen ---


def test_an_append_that_is_skipped_is_caught(texts):
    verdict = run_with_bug(texts, failpoints.BUG_APPEND, kills=1)
    assert verdict.violations
    assert verdict.lost > 0


def test_an_epoch_that_is_not_checked_is_caught(texts):
    assert run_with_bug(texts, failpoints.BUG_FENCING, kills=0).violations


def test_a_repeat_that_is_applied_again_is_caught(texts):
    verdict = run_with_bug(texts, failpoints.BUG_REPEAT, kills=0)
    assert verdict.violations
    assert verdict.doubled > 0


def test_a_fold_that_loses_the_last_token_is_caught(texts):
    assert run_with_bug(texts, failpoints.BUG_FOLD, kills=1).violations
