"""Every error that the runner tells a caller, and the one table from reasons to gRPC codes.

The runner's own errors come first, in the order in which a request can meet them. Errors of the daemon pass through
with their own reason; what the transport between runner and daemon throws becomes DAEMON_UNAVAILABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import grpc
from constraintd_client.errors import Cancelled, ConstraintdError, DeadlineExceeded, Unavailable
from constraintd_client.errors import Unauthenticated as RefusedByDaemon
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

DOMAIN: Final = "constraintd"
DETAILS_KEY: Final = "grpc-status-details-bin"
# Trailers share the 8 KiB that HTTP/2 peers grant to headers; with a longer text the whole status would be lost.
_MAX_TEXT: Final = 2000


class RunnerError(Exception):
    """Root of what the runner itself refuses or fails at. `reason` is an ErrorReason's name without prefix."""

    reason: str = "INTERNAL"

    def __init__(self, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.message = message
        self.metadata: Mapping[str, str] = metadata


class Unauthenticated(RunnerError):
    """The call came without a token that this runner knows."""

    reason = "UNAUTHENTICATED"


class InvalidRequest(RunnerError):
    """A field of the request is missing or can't be used; metadata: `field`."""

    reason = "INVALID_FIELD"


class QueueFull(RunnerError):
    """As many calls run or wait for a place in the batch as the runner takes; metadata: `what`, `limit`."""

    reason = "LIMIT_REACHED"


class ContextExceeded(RunnerError):
    """Prompt and output don't fit the model's context; metadata: `limit`, `actual`, in tokens."""

    reason = "CONTEXT_EXCEEDED"


class OtherVocabulary(RunnerError):
    """The session to be resumed belongs to another model's vocabulary."""

    reason = "VOCABULARY_MISMATCH"


class TakenOver(RunnerError):
    """Another call, at this runner or another, has resumed the session; this one is out of it."""

    reason = "STALE_EPOCH"


class DeadEnd(RunnerError):
    """Nothing legal is left, so nothing was sampled; the text so far is a fragment."""

    reason = "NO_TOKEN_ALLOWED"


class DaemonLost(RunnerError):
    """The daemon gave no answer for this generation in time. Nothing was sampled unmasked."""

    reason = "DAEMON_UNAVAILABLE"


class ModelFailure(RunnerError):
    """The forward pass raised, or its logits were not numbers."""

    reason = "MODEL_FAILED"


class Stopping(RunnerError):
    """The runner is going down; another one, or this one later, can take the request."""

    reason = ""


class Abandoned(RunnerError):
    """The caller cancelled."""

    reason = ""


class InternalFault(RunnerError):
    """A fault of the runner; its log has the trace."""


CODES: Final[Mapping[str, grpc.StatusCode]] = {
    "INVALID_FIELD": grpc.StatusCode.INVALID_ARGUMENT,
    "TOO_LARGE": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "LIMIT_REACHED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "INTERNAL": grpc.StatusCode.INTERNAL,
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "INVALID_VOCABULARY": grpc.StatusCode.INVALID_ARGUMENT,
    "UNKNOWN_VOCABULARY": grpc.StatusCode.NOT_FOUND,
    "VOCABULARY_MISMATCH": grpc.StatusCode.FAILED_PRECONDITION,
    "LOGITS_WIDTH_MISMATCH": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_GRAMMAR": grpc.StatusCode.INVALID_ARGUMENT,
    "UNKNOWN_GRAMMAR": grpc.StatusCode.NOT_FOUND,
    "LIMIT_EXCEEDED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "UNKNOWN_SESSION": grpc.StatusCode.NOT_FOUND,
    "ALREADY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "STALE_EPOCH": grpc.StatusCode.ABORTED,
    "POSITION_GAP": grpc.StatusCode.FAILED_PRECONDITION,
    "POSITION_CONFLICT": grpc.StatusCode.ABORTED,
    "STALE_POSITION": grpc.StatusCode.ABORTED,
    "SESSION_FINISHED": grpc.StatusCode.FAILED_PRECONDITION,
    "TOKEN_NOT_ALLOWED": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_SURPRISAL": grpc.StatusCode.INVALID_ARGUMENT,
    "STEP_IN_FLIGHT": grpc.StatusCode.ABORTED,
    "NO_TOKEN_ALLOWED": grpc.StatusCode.FAILED_PRECONDITION,
    "INVALID_ENVELOPE": grpc.StatusCode.DATA_LOSS,
    "REPLAY_DIVERGED": grpc.StatusCode.DATA_LOSS,
    "STORE_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "HELLO_EXPECTED": grpc.StatusCode.INVALID_ARGUMENT,
    "CONTEXT_EXCEEDED": grpc.StatusCode.INVALID_ARGUMENT,
    "DAEMON_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "MODEL_FAILED": grpc.StatusCode.INTERNAL,
}
"""ErrorReason, without prefix, to the code that `proto/constraintd/v1/error.proto` names beside it."""

_WITHOUT_REASON: Final[Mapping[type[RunnerError], grpc.StatusCode]] = {
    Stopping: grpc.StatusCode.UNAVAILABLE,
    Abandoned: grpc.StatusCode.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class CallStatus:
    """How a call ends that failed. `reason` is empty where no ErrorReason applies."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The message, short enough for a header."""
        return self.message if len(self.message) <= _MAX_TEXT else self.message[: _MAX_TEXT - 1] + "…"

    def details(self) -> bytes:
        """The serialized google.rpc.Status for the trailer `grpc-status-details-bin`."""
        number: int = self.code.value[0]
        status = status_pb2.Status(code=number, message=self.text())
        if self.reason:
            metadata = {key: value[:_MAX_TEXT] for key, value in self.metadata.items()}
            info = error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=metadata)
            packed = any_pb2.Any()
            packed.Pack(info)
            status.details.append(packed)
        return bytes(status.SerializeToString())


def status_of(error: Exception) -> CallStatus:
    """The status that tells a caller of `error`; anything unknown is INTERNAL, without its text."""
    if isinstance(error, RunnerError):
        code = CODES[error.reason] if error.reason else _WITHOUT_REASON[type(error)]
        return CallStatus(code, error.message, error.reason, error.metadata)
    if isinstance(error, RefusedByDaemon):  # it is the runner's token that is at fault, not its caller's
        message = f"the daemon does not let this runner in: {error.message}; see --daemon-token-file"
        return CallStatus(grpc.StatusCode.UNAVAILABLE, message, DaemonLost.reason)
    if isinstance(error, ConstraintdError) and error.reason:
        code = CODES.get(error.reason) or error.code or grpc.StatusCode.INTERNAL
        return CallStatus(code, error.message, error.reason, error.metadata)
    if isinstance(error, Unavailable | DeadlineExceeded | Cancelled):
        message = f"the runner can't reach its daemon: {error.message}; check that it runs, then try again"
        return CallStatus(grpc.StatusCode.UNAVAILABLE, message, DaemonLost.reason)
    if isinstance(error, ConstraintdError):
        return CallStatus(grpc.StatusCode.INTERNAL, error.message, InternalFault.reason)
    return CallStatus(grpc.StatusCode.INTERNAL, "a fault of the runner; its log has the trace", InternalFault.reason)
