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
