"""What a client's calls and answers are in a history."""

from __future__ import annotations

from dataclasses import replace

from constraintd_client import ConstraintdError, MalformedAnswer, SessionHandle

from tests.fault.history import Answer, Call, Refusal
from tests.fault.sessions import config_digest_of, digest_of

# Errors that leave open what became of the call: the transport's, the store's, and those that say "try again". All
# others are outcomes; one that the model never gives (INTERNAL, REPLAY_DIVERGED, ...) is thereby a violation.
_DOUBTFUL = ("", "STORE_UNAVAILABLE", "STEP_IN_FLIGHT", "UNKNOWN_VOCABULARY", "UNKNOWN_GRAMMAR", "LIMIT_REACHED")


def step_call(handle: SessionHandle, token: int) -> Call:
    """A step of one token from where the handle stands."""
    return Call("step", handle.epoch, handle.position, (token,))


def stepped(session: SessionHandle) -> Answer:
    """What a step's answer says, when the handle has moved on."""
    directive = session.directive
    return Answer(position=session.position, directive=digest_of(directive), finished=directive.finish is not None)


def stands(session: SessionHandle) -> Answer:
    """What the answer to an open, a change or a takeover says."""
    return replace(stepped(session), epoch=session.epoch, config=config_digest_of(session.sampler))


def is_doubtful(error: ConstraintdError) -> bool:
    """Whether nobody knows after this error what became of the call."""
    return error.reason in _DOUBTFUL and not isinstance(error, MalformedAnswer)


def refusal_of(error: ConstraintdError) -> Refusal:
    """What any other error says."""
    expected = error.metadata.get("expected_position", "")
    logged = error.metadata.get("logged_tokens", "")
    return Refusal(
        error.reason or type(error).__name__,
        int(expected) if expected else None,
        tuple(int(token) for token in logged.split(",")) if logged else None,
    )
