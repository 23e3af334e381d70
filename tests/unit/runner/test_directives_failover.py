"""Calls to a daemon that is away, and several daemons: who is asked, how often, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from constraintd_client.errors import (
    ConstraintdError,
    InvalidGrammar,
    StepInFlight,
    StoreUnavailable,
    Unavailable,
    UnknownSession,
)
from constraintd_runner.directives import DaemonDirectives, is_final

from constraintd.v1 import sampler_pb2, session_pb2
from tests.unit.runner.test_directives import FORGOTTEN, Daemon

GONE = Unavailable("gone")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    made.client.targets = ["a", "b", "c"]
    yield made
    made.directives.close()


def opened(daemon: Daemon, directives: DaemonDirectives | None = None, **options: object) -> bytes:
    session = (directives or daemon.directives).open_session(
        session_pb2.Constraint(),
        sampler_pb2.SamplerConfig(),
        [1],
        **options,  # type: ignore[arg-type]
    )
    return session.session_id


def test_a_session_is_opened_at_the_first_daemon_that_answers_under_one_id(daemon: Daemon) -> None:
    daemon.client.refusals = [GONE, GONE, StoreUnavailable("full", reason="STORE_UNAVAILABLE")]
    session_id = opened(daemon, session_id=b"i" * 16)
    assert session_id == b"i" * 16
    assert daemon.client.opened == [b"i" * 16] * 4
    assert daemon.client.target == "c"


def test_each_daemon_is_told_the_vocabulary_once(daemon: Daemon) -> None:
    daemon.client.refusals = [FORGOTTEN, GONE, FORGOTTEN]
    opened(daemon)
    assert daemon.registrations == 3


def test_a_refusal_is_not_asked_for_again(daemon: Daemon) -> None:
    daemon.client.refusals = [InvalidGrammar("no", reason="INVALID_GRAMMAR")]
    with pytest.raises(InvalidGrammar):
        opened(daemon)
    assert len(daemon.client.opened) == 1


def test_asking_ends_at_its_bound_or_when_nobody_wants_the_answer(daemon: Daemon) -> None:
    daemon.client.refusals = [GONE] * 1000
    hasty = DaemonDirectives(daemon.client, daemon._register, answer_timeout=0.2)  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        opened(daemon, hasty)
    asked = len(daemon.client.opened)
    assert 2 <= asked <= 100
    with pytest.raises(Unavailable):
        opened(daemon, wanted=lambda: False)
    assert len(daemon.client.opened) == asked + 1
    hasty.close()


def test_a_session_with_a_step_in_flight_is_taken_over_when_that_is_done(daemon: Daemon) -> None:
    answers: list[ConstraintdError] = [StepInFlight("busy", reason="STEP_IN_FLIGHT"), GONE]

    def resume(session_id: bytes) -> object:
        if answers:
            raise answers.pop(0)
        return session_id

    daemon.client.resume_session = resume  # type: ignore[attr-defined]
    assert daemon.directives.resume_session(b"i" * 16) == b"i" * 16  # type: ignore[comparison-overlap]
    answers = [UnknownSession("never heard", reason="UNKNOWN_SESSION")]
    with pytest.raises(UnknownSession):
        daemon.directives.resume_session(b"i" * 16)


def test_a_broken_stream_goes_to_the_next_daemon_and_round_again(daemon: Daemon) -> None:
    daemon.client.stream.broken = GONE
    visited = []
    for _ in range(4):
        daemon.directives.reconnect()
        visited.append(daemon.client.target)
    assert visited == ["b", "c", "a", "b"]


def test_one_that_lacks_only_the_vocabulary_is_asked_again(daemon: Daemon) -> None:
    daemon.client.stream.broken = FORGOTTEN
    daemon.directives.reconnect()
    assert (daemon.client.target, daemon.registrations) == ("a", 2)


def test_no_other_stream_helps_against_another_vocabulary_or_width() -> None:
    assert is_final(ConstraintdError("", reason="VOCABULARY_MISMATCH"))
    assert is_final(ConstraintdError("", reason="LOGITS_WIDTH_MISMATCH"))
    assert not is_final(ConstraintdError("", reason="LIMIT_REACHED"))
    assert not is_final(FORGOTTEN)
    assert not is_final(GONE)
