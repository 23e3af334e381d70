"""Domain errors on the wire: a status with ErrorInfo for a call, a StepError inside a stream."""

from __future__ import annotations

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from constraintd.errors import ConstraintdError, IllegalStep, PositionConflict, PositionError
from constraintd.v1 import error_pb2, session_pb2

DOMAIN = "constraintd"
_DETAILS_KEY = "grpc-status-details-bin"
# Trailing metadata shares HTTP/2's 8 KiB header budget with the rest; a longer message would lose the whole status.
_MAX_MESSAGE = 2000


def status_code(error: ConstraintdError) -> grpc.StatusCode:
    """The gRPC code of an error."""
    return grpc.StatusCode[error.code]


def clipped(message: str) -> str:
    """The message, short enough for a header."""
    return message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…"


def trailing_metadata(error: ConstraintdError) -> tuple[tuple[str, bytes]]:
    """The error as a google.rpc.Status: an ErrorInfo, a RetryInfo where waiting helps, a StepError if it is one."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain=DOMAIN, metadata={k: clipped(v) for k, v in error.metadata.items()}
    )
    details = [_packed(info)]
    if error.retry_seconds is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(error.retry_seconds * 1e9))
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    if isinstance(error, PositionError | PositionConflict | IllegalStep):
        details.append(_packed(step_error(error)))
    status = status_pb2.Status(code=status_code(error).value[0], message=clipped(error.message), details=details)
    return ((_DETAILS_KEY, status.SerializeToString()),)


def step_error(error: ConstraintdError) -> session_pb2.StepError:
    """The error as the answer to one step of a stream."""
    message = session_pb2.StepError(
        reason=error_pb2.ErrorReason.Value(f"ERROR_REASON_{error.reason}"), message=clipped(error.message)
    )
    if isinstance(error, PositionError):
        message.expected_position = error.expected_position
    elif isinstance(error, PositionConflict):
        message.logged_tokens.extend(error.logged_tokens)
    elif isinstance(error, IllegalStep):
        message.illegal_index = error.illegal_index
    return message


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
