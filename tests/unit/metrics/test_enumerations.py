"""Label values are enumerated, and the enumerations hold what the code can bring forth."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from constraintd_runner import errors as runner_errors
from constraintd_runner import metrics_recorder
from constraintd_runner.errors import CallStatus, status_of
from prometheus_client import CollectorRegistry, generate_latest

from constraintd.errors import ConstraintdError, InvalidGrammar, LimitExceeded
from constraintd.metrics import measured_store, recorder
from constraintd.metrics.recorder import Recorder
from constraintd.session.store.memory import MemoryStore
from constraintd.session.store.redis_ import RedisStore
from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.store import SessionStore


def _subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _subclasses(below)


def test_every_error_of_the_daemon_has_a_reason_that_may_be_counted():
    assert {kind.reason for kind in _subclasses(ConstraintdError)} <= set(recorder.REASONS)


def test_every_error_of_the_runner_has_a_reason_that_may_be_counted():
    kinds = _subclasses(runner_errors.RunnerError)
    statuses = [status_of(kind("no")) for kind in kinds if kind.__module__ == runner_errors.__name__]
    assert len(statuses) > 10
    assert {status.reason or status.code.name for status in statuses} <= set(metrics_recorder.REASONS)
    assert set(runner_errors.CODES) <= set(metrics_recorder.REASONS)


def test_every_operation_of_a_store_has_its_name():
    promised = {name for name in vars(SessionStore) if not name.startswith("_")}
    assert promised - {"shared", "quick", "close"} == set(recorder.OPERATIONS)


@pytest.mark.parametrize(("kind", "name"), [(MemoryStore, "memory"), (SqliteStore, "sqlite"), (RedisStore, "redis")])
def test_every_backend_has_its_name(kind, name):
    assert measured_store.MeasuredStore(kind.__new__(kind)).backend == name
    assert name in recorder.BACKENDS


def test_a_hostile_method_or_reason_makes_no_series_at_the_daemon():
    class Unheard(ConstraintdError):
        reason = 'X"} 1\nconstraintd_forged 1'

    to = Recorder()
    for number in range(100):
        to.error(f"Method{number}", Unheard("no"))
        to.error("OpenSession", ValueError(str(number)))
        to.compile_refused(LimitExceeded("no", limit=f"{number}"))
    to.compile_refused(InvalidGrammar("no", location="1:1"))
    assert to.errors.snapshot() == {("other", "other"): 100, ("OpenSession", "INTERNAL"): 100}
    assert to.compile_refusals.snapshot() == {("LIMIT_EXCEEDED", "other"): 100, ("INVALID_GRAMMAR", "none"): 1}


def test_a_hostile_method_or_reason_makes_no_series_at_the_runner():
    registry = CollectorRegistry()
    to = metrics_recorder.RunnerRecorder(registry)
    for number in range(100):
        # A daemon newer than this runner, or one that lies.
        to.refused(f"Method{number}", CallStatus(grpc.StatusCode.INTERNAL, "no", f"REASON{number}"))
    assert b'constraintd_runner_errors_total{method="other",reason="other"} 100.0\n' in generate_latest(registry)
    assert generate_latest(registry).count(b"constraintd_runner_errors_total{") == 1
