"""Everything that can be refused, in the order a caller meets it, each with its gRPC code and ErrorReason.

The domain raises these; `constraintd.server.errors` turns them into a status with a `google.rpc.ErrorInfo`, or into a
`StepError` where a stream must go on. There is no other table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar


class ConstraintdError(Exception):
    """Base of all. `message` says what was wrong and what to do; `metadata` is for programs, strings only."""

    code: ClassVar[str] = "INTERNAL"
    reason: ClassVar[str] = "INTERNAL"
    retry_seconds: ClassVar[float | None] = None
    """After how long the same call may well succeed; None: not by waiting."""

    def __init__(self, message: str, **metadata: object) -> None:
        super().__init__(message)
        self.message = message
        self.metadata: Mapping[str, str] = {k: str(v) for k, v in metadata.items()}


# --- any request ---


class InvalidField(ConstraintdError):
    """A field is missing, malformed or out of range."""

    code = "INVALID_ARGUMENT"
    reason = "INVALID_FIELD"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}", field=field)


class TooLarge(ConstraintdError):
    """A text, list or upload is longer than the server takes."""

    code = "RESOURCE_EXHAUSTED"
    reason = "TOO_LARGE"

    def __init__(self, field: str, *, limit: int, actual: int, unit: str = "bytes") -> None:
        super().__init__(
            f"{field}: {actual} {unit} are more than the limit of {limit}; see GetServerInfo.limits",
            field=field,
            limit=limit,
            actual=actual,
        )


class LimitReached(ConstraintdError):
    """As many of something as the server holds at once."""

    code = "RESOURCE_EXHAUSTED"
    reason = "LIMIT_REACHED"
    retry_seconds = 1.0

    def __init__(self, what: str, *, limit: int, remedy: str = "try again later") -> None:
        super().__init__(f"all {limit} {what} are taken: {remedy}, or raise the server's limit", what=what, limit=limit)


class Unauthenticated(ConstraintdError):
    """The call came without a token that the server knows."""

    code = "UNAUTHENTICATED"
    reason = "UNAUTHENTICATED"


# --- vocabularies ---


class VocabularyError(ConstraintdError):
    """A vocabulary, or the file that it is read from, can't be used.

    `location` names the place: a JSON pointer (`tokenizer.json#/model/vocab`), a piece index, a byte
    offset or a parameter name. The message is `location: problem; remedy`.
    """

    code = "INVALID_ARGUMENT"
    reason = "INVALID_VOCABULARY"

    def __init__(self, problem: str, *, location: str, remedy: str) -> None:
        super().__init__(f"{location}: {problem}; {remedy}", location=location)
        self.location = location
        self.problem = problem
        self.remedy = remedy


class UnsupportedTokenizer(VocabularyError):
    """The file is well-formed but of a kind that has no loader here (WordPiece, a decoder of its own, ...)."""


class EogMissing(VocabularyError):
    """Neither the caller nor the configuration files name an end-of-generation id."""


class UnknownVocabulary(VocabularyError):
    """No vocabulary is registered under this fingerprint."""

    code = "NOT_FOUND"
    reason = "UNKNOWN_VOCABULARY"


class VocabularyLimitReached(VocabularyError):
    """The registry already holds as many vocabularies as it may."""

    code = "RESOURCE_EXHAUSTED"
    reason = "LIMIT_REACHED"


class VocabularyMismatch(ConstraintdError):
    """The session belongs to another vocabulary than the stream."""

    code = "FAILED_PRECONDITION"
    reason = "VOCABULARY_MISMATCH"


class LogitsWidthMismatch(ConstraintdError):
    """Hello names another logits width than the vocabulary has."""

    code = "INVALID_ARGUMENT"
    reason = "LOGITS_WIDTH_MISMATCH"


# --- grammars ---


class InvalidGrammar(ConstraintdError):
    """The grammar doesn't parse, doesn't compile, or can't be spelled by the vocabulary."""

    code = "INVALID_ARGUMENT"
    reason = "INVALID_GRAMMAR"


class UnknownGrammar(ConstraintdError):
    """No grammar of that id is compiled for that vocabulary."""

    code = "NOT_FOUND"
    reason = "UNKNOWN_GRAMMAR"


class LimitExceeded(ConstraintdError):
    """A grammar, or a session in it, went past a limit of its engine."""

    code = "RESOURCE_EXHAUSTED"
    reason = "LIMIT_EXCEEDED"


# --- sessions ---


class UnknownSession(ConstraintdError):
    """No session of that id is open."""

    code = "NOT_FOUND"
    reason = "UNKNOWN_SESSION"

    def __init__(self, session_id: bytes) -> None:
        super().__init__(
            f"no session {session_id.hex()} is open: it was never opened, was closed, or expired; open it again"
        )


class AlreadyExists(ConstraintdError):
    """That session id was opened by a different request."""

    code = "ALREADY_EXISTS"
    reason = "ALREADY_EXISTS"


class StaleEpoch(ConstraintdError):
    """Another runner owns the session now."""

    code = "ABORTED"
    reason = "STALE_EPOCH"


class PositionError(ConstraintdError):
    """A step that doesn't begin where the session stands."""

    def __init__(self, message: str, *, expected_position: int) -> None:
        super().__init__(message, expected_position=expected_position)
        self.expected_position = expected_position


class PositionGap(PositionError):
    """The step begins past the session's position."""

    code = "FAILED_PRECONDITION"
    reason = "POSITION_GAP"


class StalePosition(PositionError):
    """The step begins before the last applied step."""

    code = "ABORTED"
    reason = "STALE_POSITION"


class PositionConflict(ConstraintdError):
    """Other tokens were applied at that position."""

    code = "ABORTED"
    reason = "POSITION_CONFLICT"

    def __init__(self, message: str, *, logged_tokens: Sequence[int]) -> None:
        super().__init__(message, logged_tokens=",".join(map(str, logged_tokens)))
        self.logged_tokens = tuple(logged_tokens)


class IllegalStep(ConstraintdError):
    """A step with an illegal element; `illegal_index` is the first one's index into its tokens."""

    def __init__(self, message: str, *, illegal_index: int) -> None:
        super().__init__(message, illegal_index=illegal_index)
        self.illegal_index = illegal_index


class SessionFinished(IllegalStep):
    """The session has finished, or would have before this token."""

    code = "FAILED_PRECONDITION"
    reason = "SESSION_FINISHED"


class TokenNotAllowed(IllegalStep):
    """A token whose bit was not set."""

    code = "INVALID_ARGUMENT"
    reason = "TOKEN_NOT_ALLOWED"


class InvalidSurprisal(IllegalStep):
    """A surprisal that is negative, infinite or not a number."""

    code = "INVALID_ARGUMENT"
    reason = "INVALID_SURPRISAL"


class StepInFlight(ConstraintdError):
    """The session's last step is not answered yet."""

    code = "ABORTED"
    reason = "STEP_IN_FLIGHT"


class InvalidEnvelope(ConstraintdError):
    """An exported session can't be imported: cut off, altered, of an unknown version, or at odds with what is here."""

    code = "DATA_LOSS"
    reason = "INVALID_ENVELOPE"


class ReplayDiverged(ConstraintdError):
    """A logged token is refused now, or the log leads to another state than the one that was written down."""

    code = "DATA_LOSS"
    reason = "REPLAY_DIVERGED"


class StoreUnavailable(ConstraintdError):
    """The store can't do this for now; the same call may be made again."""

    code = "UNAVAILABLE"
    reason = "STORE_UNAVAILABLE"
    retry_seconds = 0.2


# --- streams ---


class HelloExpected(ConstraintdError):
    """A Decode stream that doesn't begin with Hello, or says it twice."""

    code = "INVALID_ARGUMENT"
    reason = "HELLO_EXPECTED"
