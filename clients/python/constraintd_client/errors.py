"""Every error that this client raises, on one page, in the order in which a caller meets them.

A refused call carries a `google.rpc.ErrorInfo`; a refused step inside a Decode stream carries a
`StepError`. Both name the same `ErrorReason`, and both become the same class here, by the one table at the
end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import grpc
from google.rpc import error_details_pb2, status_pb2

from constraintd.v1 import error_pb2, session_pb2

__all__ = [
    "AlreadyExists",
    "Cancelled",
    "ConstraintdError",
    "ContextExceeded",
    "DaemonUnavailable",
    "DeadlineExceeded",
    "Draining",
    "HelloExpected",
    "IncompleteGeneration",
    "InternalError",
    "InvalidEnvelope",
    "InvalidField",
    "InvalidGrammar",
    "InvalidSurprisal",
    "InvalidVocabulary",
    "LimitExceeded",
    "LimitReached",
    "LogitsWidthMismatch",
    "MalformedAnswer",
    "ModelFailed",
    "NoTokenAllowed",
    "PositionConflict",
    "PositionGap",
    "ReplayDiverged",
    "SessionFinished",
    "StaleEpoch",
    "StalePosition",
    "StepInFlight",
    "StoreUnavailable",
    "TokenNotAllowed",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "UnknownGrammar",
    "UnknownSession",
    "UnknownVocabulary",
    "VocabularyMismatch",
]

_DOMAIN: Final = "constraintd"
_DETAILS_KEY: Final = "grpc-status-details-bin"


class ConstraintdError(Exception):
    """Anything that the daemon, the runner or the transport refused; also a reason that this client is
    too old for.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        code: grpc.StatusCode | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{reason}: {message}" if reason else message)
        self.message = message
        """For people: what was wrong and what to do."""
        self.reason = reason
        """Name of the `ErrorReason` without its prefix, such as "STALE_EPOCH"; empty if the server gave
        none.
        """
        self.code = code
        """The call's gRPC status; None for a step that was refused inside a stream."""
        self.metadata = dict(metadata or {})
        """Particulars, such as {"expected_position": "7"}."""
        self.fragment = ""
        """Text that a Generation had given before it failed; not a finished text."""
        self.retry_after: float | None = None
        """Seconds that the server asks to wait before the same call is made again; None if it says nothing."""

    @property
    def retryable(self) -> bool:
        """Whether the same call, after a pause, may succeed: nothing is wrong with the call itself."""
        return isinstance(self, _RETRYABLE)

    def copy(self) -> Self:
        """The same error as a new exception, so that each raise of a lasting failure has its own traceback."""
        twin = type(self)(self.message, reason=self.reason, code=self.code, metadata=self.metadata)
        twin.retry_after = self.retry_after
        return twin

    def _number(self, key: str) -> int | None:
        value = self.metadata.get(key, "")
        return int(value) if value.isdecimal() else None


# --- transport ---


class Unavailable(ConstraintdError):
    """The server can't be reached, or the stream broke. Sessions stay as they are: connect and send again."""


class Draining(Unavailable):
    """The daemon is about to stop: it has answered what it had read, and ended the stream. Reconnect at once."""


class DeadlineExceeded(ConstraintdError):
    """No answer in time. It may still come; a step is then still unanswered."""


class Cancelled(ConstraintdError):
    """The call was cancelled, by this side or by the server."""


class MalformedAnswer(ConstraintdError):
    """The server's answer can't be used, such as a Directive without mask, finish or no_token_allowed."""


# --- any request ---


class InvalidField(ConstraintdError):
    """A field is missing, malformed or out of range; metadata: `field`."""


class TooLarge(ConstraintdError):
    """A text, list or upload is longer than the server takes; metadata: `field`, `limit`, `actual`."""


class LimitReached(ConstraintdError):
    """The server holds as many streams, sessions or uploads as it can; try later; metadata: `what`,
    `limit`.
    """


class InternalError(ConstraintdError):
    """A fault of the server itself; its log says more."""


class Unauthenticated(ConstraintdError):
    """The server takes calls with a token alone, and this one had none that it knows, or one that has expired."""


# --- vocabularies ---


class InvalidVocabulary(ConstraintdError):
    """The tokenizer or its EOG ids can't be used; metadata: `location`."""


class UnknownVocabulary(ConstraintdError):
    """No vocabulary of that id is registered; register it again."""


class VocabularyMismatch(ConstraintdError):
    """The session belongs to another vocabulary than the stream or grammar."""


class LogitsWidthMismatch(ConstraintdError):
    """The stream names another logits width than the vocabulary was registered with."""


# --- grammars ---


class InvalidGrammar(ConstraintdError):
    """The grammar doesn't parse, doesn't compile or can't be spelled by the vocabulary; metadata:
    `location`.
    """

    @property
    def location(self) -> str:
        """Where: "line:column" or a JSON pointer; empty if not known."""
        return self.metadata.get("location", "")


class UnknownGrammar(ConstraintdError):
    """No grammar of that id is compiled for that vocabulary; compile it again."""


class LimitExceeded(ConstraintdError):
    """A grammar, or a session in it, went past an engine limit."""


# --- sessions ---


class UnknownSession(ConstraintdError):
    """No session of that id: never opened, closed, or expired."""


class AlreadyExists(ConstraintdError):
    """That session id was opened by a different request."""


class StaleEpoch(ConstraintdError):
    """Another runner has taken the session over."""


class PositionGap(ConstraintdError):
    """The step begins past the session's position."""

    @property
    def expected_position(self) -> int | None:
        """The session's position."""
        return self._number("expected_position")


class PositionConflict(ConstraintdError):
    """Other tokens were applied at that position."""

    @property
    def logged_tokens(self) -> tuple[int, ...]:
        """The tokens that were applied there."""
        return tuple(int(token) for token in self.metadata.get("logged_tokens", "").split(",") if token)


class StalePosition(ConstraintdError):
    """The step begins before the last applied step."""

    @property
    def expected_position(self) -> int | None:
        """The session's position."""
        return self._number("expected_position")


class _IllegalStep(ConstraintdError):
    @property
    def illegal_index(self) -> int | None:
        """Index of the first illegal entry of the step's tokens."""
        return self._number("illegal_index")


class SessionFinished(_IllegalStep):
    """The session has finished, or the step has tokens after the one that finishes it."""


class TokenNotAllowed(_IllegalStep):
    """A token whose bit was not set, or past the logits width."""


class InvalidSurprisal(_IllegalStep):
    """A surprisal that is negative, infinite or not a number."""


class StepInFlight(ConstraintdError):
    """The session's last step is not answered yet; wait for its answer, then send again."""


class NoTokenAllowed(ConstraintdError):
    """The constraint leaves no token here; the history is intact."""


class InvalidEnvelope(ConstraintdError):
    """An exported session can't be imported: cut off, altered, of an unknown version, or at odds with what is there."""


class ReplayDiverged(ConstraintdError):
    """A logged token is refused there, or the log leads to another state: the daemons' engines differ."""


class StoreUnavailable(ConstraintdError):
    """The daemon's store can't keep what was asked for now; send the same again."""


# --- streams ---


class HelloExpected(ConstraintdError):
    """The first message of a Decode stream was not Hello, or a later one was."""


# --- the runner ---


class ContextExceeded(ConstraintdError):
    """Prompt and output don't fit the model's context; metadata: `limit`, `actual`."""


class DaemonUnavailable(Unavailable):
    """The runner got no answer from the daemon in time; nothing was sampled unmasked."""


class ModelFailed(ConstraintdError):
    """The model's forward pass failed."""


class IncompleteGeneration(ConstraintdError):
    """The stream ended without Finished: `fragment` is not a finished text."""


# Cancelled: by the server, which is going down. The others pass by themselves.
_RETRYABLE: Final = (Unavailable, Cancelled, StoreUnavailable, StepInFlight, LimitReached)

ERROR_CLASSES: Final[Mapping[str, type[ConstraintdError]]] = {
    "INVALID_FIELD": InvalidField,
    "TOO_LARGE": TooLarge,
    "LIMIT_REACHED": LimitReached,
    "UNAUTHENTICATED": Unauthenticated,
    "INTERNAL": InternalError,
    "INVALID_VOCABULARY": InvalidVocabulary,
    "UNKNOWN_VOCABULARY": UnknownVocabulary,
    "VOCABULARY_MISMATCH": VocabularyMismatch,
    "LOGITS_WIDTH_MISMATCH": LogitsWidthMismatch,
    "INVALID_GRAMMAR": InvalidGrammar,
    "UNKNOWN_GRAMMAR": UnknownGrammar,
    "LIMIT_EXCEEDED": LimitExceeded,
    "UNKNOWN_SESSION": UnknownSession,
    "ALREADY_EXISTS": AlreadyExists,
    "STALE_EPOCH": StaleEpoch,
    "POSITION_GAP": PositionGap,
    "POSITION_CONFLICT": PositionConflict,
    "STALE_POSITION": StalePosition,
    "SESSION_FINISHED": SessionFinished,
    "TOKEN_NOT_ALLOWED": TokenNotAllowed,
    "INVALID_SURPRISAL": InvalidSurprisal,
    "STEP_IN_FLIGHT": StepInFlight,
    "NO_TOKEN_ALLOWED": NoTokenAllowed,
    "INVALID_ENVELOPE": InvalidEnvelope,
    "REPLAY_DIVERGED": ReplayDiverged,
    "STORE_UNAVAILABLE": StoreUnavailable,
    "HELLO_EXPECTED": HelloExpected,
    "CONTEXT_EXCEEDED": ContextExceeded,
    "DAEMON_UNAVAILABLE": DaemonUnavailable,
    "MODEL_FAILED": ModelFailed,
}
"""Reason (without prefix) to class. A reason that is not here becomes a plain `ConstraintdError`."""

_TRANSPORT_CLASSES: Final[Mapping[grpc.StatusCode, type[ConstraintdError]]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    # Our servers give their own INTERNAL a reason. Without one it is how gRPC reports a stream that was reset on the
    # way: a proxy whose server dies in the middle of a stream has no other means to say so.
    grpc.StatusCode.INTERNAL: Unavailable,
}


def from_step_error(error: session_pb2.StepError) -> ConstraintdError:
    """The exception for a step that was refused; `code` is None."""
    reason = _reason_name(error.reason)
    return ERROR_CLASSES.get(reason, ConstraintdError)(error.message, reason=reason, metadata=_step_metadata(error))


def from_rpc_error(error: grpc.RpcError) -> ConstraintdError:
    """The exception for a call that failed, sync or asyncio.

    The reason comes from the ErrorInfo of our domain; without one, the status code tells the transport's
    own failures.
    """
    # Both flavours of RpcError carry these; only their common base, which is what gRPC declares, does not.
    call: Any = error
    code: grpc.StatusCode = call.code()
    message: str = call.details() or ""
    reason, metadata, retry_after = _details(call.trailing_metadata() or ())
    kind = ERROR_CLASSES.get(reason) or _TRANSPORT_CLASSES.get(code, ConstraintdError)
    made = kind(message, reason=reason, code=code, metadata=metadata)
    made.retry_after = retry_after
    return made


def _details(trailing_metadata: Iterable[tuple[str, bytes]]) -> tuple[str, dict[str, str], float | None]:
    reason = ""
    metadata: dict[str, str] = {}
    retry_after: float | None = None
    for key, value in trailing_metadata:
        if key != _DETAILS_KEY:
            continue
        for detail in status_pb2.Status.FromString(value).details:
            info, step, retry = error_details_pb2.ErrorInfo(), session_pb2.StepError(), error_details_pb2.RetryInfo()
            if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == _DOMAIN:
                reason = info.reason
                metadata |= dict(info.metadata)
            elif detail.Is(step.DESCRIPTOR) and detail.Unpack(step):
                metadata = _step_metadata(step) | metadata
            elif detail.Is(retry.DESCRIPTOR) and detail.Unpack(retry):
                retry_after = retry.retry_delay.ToTimedelta().total_seconds()
    return reason, metadata, retry_after


def _reason_name(value: int) -> str:
    known = error_pb2.ErrorReason.values()
    if value not in known:
        return str(value)  # a newer server's reason, whose name these stubs don't know
    name = error_pb2.ErrorReason.Name(error_pb2.ErrorReason.ValueType(value))
    return "" if value == 0 else name.removeprefix("ERROR_REASON_")


def _step_metadata(error: session_pb2.StepError) -> dict[str, str]:
    metadata = {}
    if error.HasField("expected_position"):
        metadata["expected_position"] = str(error.expected_position)
    if error.logged_tokens:
        metadata["logged_tokens"] = ",".join(map(str, error.logged_tokens))
    if error.HasField("illegal_index"):
        metadata["illegal_index"] = str(error.illegal_index)
    return metadata
