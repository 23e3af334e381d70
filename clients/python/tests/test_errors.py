"""Every reason becomes its own class, from a call and from a step alike."""

from __future__ import annotations

import grpc
import pytest
from constraintd_client import errors
from google.rpc import error_details_pb2

from clients.python.tests.scripted_daemon import status_details
from constraintd.v1 import error_pb2, session_pb2

NAMES = [name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.keys()][1:]


class FakeRpcError(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, *details: object) -> None:
        self._code, self._bin = code, status_details(code, "text", *details)

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "text"

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return (("grpc-status-details-bin", self._bin),)


def info(reason: str, domain: str = "constraintd", **metadata: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata)


def test_the_table_has_every_reason_of_the_protocol_and_no_other() -> None:
    assert sorted(errors.ERROR_CLASSES) == sorted(NAMES)


def test_no_two_reasons_share_a_class() -> None:
    assert len(set(errors.ERROR_CLASSES.values())) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_reason_gives_the_same_class_from_a_call_and_from_a_step(name: str) -> None:
    from_call = errors.from_rpc_error(FakeRpcError(grpc.StatusCode.ABORTED, info(name)))
    from_step = errors.from_step_error(
        session_pb2.StepError(reason=error_pb2.ErrorReason.Value(f"ERROR_REASON_{name}"), message="text")
    )
    assert type(from_call) is type(from_step) is errors.ERROR_CLASSES[name]
    assert from_call.reason == from_step.reason == name
    assert (from_call.code, from_step.code) == (grpc.StatusCode.ABORTED, None)
    assert str(from_call) == f"{name}: text"


def test_a_steps_particulars_are_readable() -> None:
    gap = errors.from_step_error(session_pb2.StepError(reason=error_pb2.ERROR_REASON_POSITION_GAP, expected_position=0))
    conflict = errors.from_step_error(
        session_pb2.StepError(reason=error_pb2.ERROR_REASON_POSITION_CONFLICT, logged_tokens=[17, 4])
    )
    illegal = errors.from_step_error(
        session_pb2.StepError(reason=error_pb2.ERROR_REASON_TOKEN_NOT_ALLOWED, illegal_index=2)
    )
    assert isinstance(gap, errors.PositionGap)
    assert gap.expected_position == 0
    assert isinstance(conflict, errors.PositionConflict)
    assert conflict.logged_tokens == (17, 4)
    assert isinstance(illegal, errors.TokenNotAllowed)
    assert illegal.illegal_index == 2


def test_a_call_carries_a_step_error_beside_its_error_info() -> None:
    step = session_pb2.StepError(logged_tokens=[1, 2])
    error = errors.from_rpc_error(FakeRpcError(grpc.StatusCode.ABORTED, info("POSITION_CONFLICT", hint="x"), step))
    assert isinstance(error, errors.PositionConflict)
    assert error.logged_tokens == (1, 2)
    assert error.metadata == {"logged_tokens": "1,2", "hint": "x"}


def test_another_domains_reason_is_not_ours() -> None:
    error = errors.from_rpc_error(FakeRpcError(grpc.StatusCode.ABORTED, info("STALE_EPOCH", domain="elsewhere")))
    assert type(error) is errors.ConstraintdError
    assert error.reason == ""


def test_a_reason_newer_than_this_client_is_a_plain_error_with_its_name() -> None:
    from_call = errors.from_rpc_error(FakeRpcError(grpc.StatusCode.ABORTED, info("NEWER")))
    from_step = errors.from_step_error(session_pb2.StepError.FromString(b"\x08\xe7\x07"))
    assert type(from_call) is type(from_step) is errors.ConstraintdError
    assert (from_call.reason, from_step.reason) == ("NEWER", "999")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceeded),
        (grpc.StatusCode.CANCELLED, errors.Cancelled),
        (grpc.StatusCode.UNKNOWN, errors.ConstraintdError),
    ],
)
def test_without_a_reason_the_status_tells_the_transports_failures(
    code: grpc.StatusCode, kind: type[Exception]
) -> None:
    assert type(errors.from_rpc_error(FakeRpcError(code))) is kind


@pytest.mark.parametrize(
    ("code", "reason", "retryable"),
    [
        (grpc.StatusCode.UNAVAILABLE, "", True),
        (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE", True),
        (grpc.StatusCode.UNAVAILABLE, "DAEMON_UNAVAILABLE", True),
        (grpc.StatusCode.CANCELLED, "", True),
        (grpc.StatusCode.ABORTED, "STEP_IN_FLIGHT", True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED", True),
        (grpc.StatusCode.INTERNAL, "", True),
        (grpc.StatusCode.INTERNAL, "INTERNAL", False),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", False),
        (grpc.StatusCode.ABORTED, "STALE_EPOCH", False),
        (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_GRAMMAR", False),
        (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", False),
    ],
)
def test_whether_the_same_call_may_succeed_later(code: grpc.StatusCode, reason: str, retryable: bool) -> None:
    details = [info(reason)] if reason else []
    assert errors.from_rpc_error(FakeRpcError(code, *details)).retryable is retryable


def test_the_server_s_own_delay_is_told_and_copied() -> None:
    delay = error_details_pb2.RetryInfo()
    delay.retry_delay.FromMilliseconds(1250)
    error = errors.from_rpc_error(FakeRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, info("LIMIT_REACHED"), delay))
    assert (error.retry_after, error.copy().retry_after) == (1.25, 1.25)
    assert errors.from_rpc_error(FakeRpcError(grpc.StatusCode.UNAVAILABLE)).retry_after is None
