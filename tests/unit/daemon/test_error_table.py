"""The error tree and the protocol's reasons are one table."""

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from constraintd import errors
from constraintd.server.errors import status_code, step_error, trailing_metadata
from constraintd.v1 import error_pb2, session_pb2


def tree(base=errors.ConstraintdError):
    return [base, *[leaf for child in base.__subclasses__() for leaf in tree(child)]]


# The runner's reasons, and those of an outcome that is no error at the daemon.
ELSEWHERE = {"UNSPECIFIED", "NO_TOKEN_ALLOWED", "CONTEXT_EXCEEDED", "DAEMON_UNAVAILABLE", "MODEL_FAILED"}


def test_every_reason_of_the_protocol_has_an_error_and_every_error_a_reason():
    declared = {name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.keys()}
    assert {error.reason for error in tree()} == declared - ELSEWHERE


@pytest.mark.parametrize("error", tree(), ids=lambda error: error.__name__)
def test_every_error_has_a_grpc_code(error):
    assert error.code in grpc.StatusCode.__members__


def test_an_error_travels_as_error_info_with_its_metadata():
    [(key, value)] = trailing_metadata(errors.TooLarge("grammar.regex", limit=5, actual=9))
    assert key == "grpc-status-details-bin"
    status = status_pb2.Status.FromString(value)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("constraintd", "TOO_LARGE")
    assert dict(info.metadata) == {"field": "grammar.regex", "limit": "5", "actual": "9"}
    assert status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


def test_a_step_s_error_travels_with_its_position_tokens_or_index():
    gap = step_error(errors.PositionGap("gap", expected_position=0))
    assert (gap.reason, gap.HasField("expected_position"), gap.expected_position) == (
        error_pb2.ERROR_REASON_POSITION_GAP,
        True,
        0,
    )
    assert step_error(errors.PositionConflict("other", logged_tokens=[3, 4])).logged_tokens == [3, 4]
    assert step_error(errors.TokenNotAllowed("no", illegal_index=0)).HasField("illegal_index")


def test_a_long_message_never_costs_the_status():
    error = errors.InvalidGrammar("x" * 100_000, location="y" * 100_000)
    [(_, value)] = trailing_metadata(error)
    assert len(value) < 8000
    assert status_code(error) is grpc.StatusCode.INVALID_ARGUMENT


def test_the_unary_form_of_a_step_s_error_carries_the_step_error_too():
    [(_, value)] = trailing_metadata(errors.StalePosition("old", expected_position=4))
    step = session_pb2.StepError()
    assert status_pb2.Status.FromString(value).details[1].Unpack(step)
    assert step.expected_position == 4
