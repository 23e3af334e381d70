"""Every error reaches a caller with its code and reason."""

from __future__ import annotations

import grpc
import pytest
from constraintd_client.errors import DeadlineExceeded, InvalidGrammar, StaleEpoch, Unavailable
from constraintd_runner.errors import CODES, Abandoned, ContextExceeded, DeadEnd, Stopping, status_of
from google.rpc import error_details_pb2, status_pb2

from constraintd.v1 import error_pb2


def test_every_reason_of_the_protocol_has_a_code() -> None:
    names = {name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.keys()}
    assert set(CODES) == names - {"UNSPECIFIED"}


def test_a_dead_end_is_a_kind_of_its_own() -> None:
    status = status_of(DeadEnd("nothing fits"))
    assert (status.code, status.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_TOKEN_ALLOWED")


def test_the_details_carry_reason_domain_and_metadata() -> None:
    details = status_of(ContextExceeded("too long", limit="8", actual="9")).details()
    status = status_pb2.Status.FromString(details)
    info = error_details_pb2.ErrorInfo()
    assert status.code == 3
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("CONTEXT_EXCEEDED", "constraintd")
    assert dict(info.metadata) == {"limit": "8", "actual": "9"}


def test_the_daemons_errors_pass_through() -> None:
    error = InvalidGrammar("no", reason="INVALID_GRAMMAR", metadata={"location": "1:2"})
    status = status_of(error)
    assert (status.code, status.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_GRAMMAR")
    assert status.metadata == {"location": "1:2"}
    assert status_of(StaleEpoch("x", reason="STALE_EPOCH")).code == grpc.StatusCode.ABORTED


@pytest.mark.parametrize("error", [Unavailable("gone"), DeadlineExceeded("slow")])
def test_a_silent_daemon_is_daemon_unavailable(error: Exception) -> None:
    status = status_of(error)
    assert (status.code, status.reason) == (grpc.StatusCode.UNAVAILABLE, "DAEMON_UNAVAILABLE")


def test_a_fault_of_ours_tells_nothing_of_its_insides() -> None:
    status = status_of(KeyError("secret"))
    assert (status.code, status.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "secret" not in status.message


def test_an_end_without_fault_has_no_reason() -> None:
    assert (status_of(Stopping("bye")).code, status_of(Stopping("bye")).reason) == (grpc.StatusCode.UNAVAILABLE, "")
    assert status_of(Abandoned("bye")).code == grpc.StatusCode.CANCELLED


def test_a_message_is_cut_to_what_a_header_holds() -> None:
    status = status_of(DeadEnd("x" * 100_000))
    assert len(status.text()) == 2000
    assert len(status.details()) < 4096
