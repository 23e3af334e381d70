"""The daemon's answers as values, and the one place that translates them from messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraintd.v1 import session_pb2

from .errors import MalformedAnswer


@dataclass(frozen=True, slots=True)
class Finish:
    """A session's end."""

    reason: str
    """ "EOG", "STOP_STRING", "STOP_ID", "GRAMMAR_EXHAUSTED" or "LENGTH"."""
    stop_string: bytes
    """STOP_STRING: the string that was found; else empty."""
    stop_id: int | None
    """EOG, STOP_ID: the token that ended it."""
    cut_offset: int
    """Length of the final text in bytes, from position 0."""
    constraint_incomplete: bool
    """True iff the text does not satisfy the constraint."""
    schema_satisfied: bool | None = None
    """Whether the final text satisfies the session's JSON Schemas as they were given, found by an independent
    validator; None for a session without any, and for an incomplete text.
    """
    schema_violation: str = ""
    """If not: where and why, for people."""


@dataclass(frozen=True, slots=True)
class Directive:
    """What to do at a position. Exactly one of `mask`, `finish` and `no_token_allowed` is not None."""

    position: int
    """Tokens accepted so far, the prompt excluded."""
    mask: NDArray[np.uint32] | None
    """Legal tokens, "<u4" of shape (ceil(logits_width / 32),): bit i of word w is token 32 * w + i.
    Read-only.
    """
    finish: Finish | None
    """The session has finished: drop the forward pass."""
    no_token_allowed: str | None
    """Nothing may come next; the text says why. The session stays open."""
    draw: float
    """The number in [0, 1) that picks the next token."""
    settled_bytes: int
    """Text bytes, from position 0, that no later step takes back."""
    wire_bytes: int
    """Size of the answer as a serialized message."""


def directive_of(message: session_pb2.Directive, wire_bytes: int) -> Directive:
    """Translates a Directive.

    Raises MalformedAnswer if it has no outcome, or a mask in an encoding that this client does not know:
    such an answer must never read as "all allowed".
    """
    mask: NDArray[np.uint32] | None = None
    finish: Finish | None = None
    no_token_allowed: str | None = None
    outcome = message.WhichOneof("outcome")
    if outcome == "mask":
        words = message.mask.dense
        if not words or len(words) % 4:
            raise MalformedAnswer(
                f"the mask at position {message.position} has {len(words)} dense bytes, "
                "which is not a whole, positive number of 32-bit words"
            )
        mask = np.frombuffer(words, "<u4")
    elif outcome == "finish":
        finish = finish_of(message.finish)
    elif outcome == "no_token_allowed":
        no_token_allowed = message.no_token_allowed.message
    else:
        raise MalformedAnswer(f"the Directive at position {message.position} has no mask, finish or no_token_allowed")
    return Directive(message.position, mask, finish, no_token_allowed, message.draw, message.settled_bytes, wire_bytes)


def finish_of(message: session_pb2.Finish) -> Finish:
    """Translates a Finish; a reason newer than these stubs is given as its number."""
    value = message.reason
    known = value in session_pb2.FinishReason.values()
    return Finish(
        reason=session_pb2.FinishReason.Name(value).removeprefix("FINISH_REASON_") if known else str(value),
        stop_string=message.stop_string,
        stop_id=message.stop_id if message.HasField("stop_id") else None,
        cut_offset=message.cut_offset,
        constraint_incomplete=message.constraint_incomplete,
        schema_satisfied=message.schema_satisfied if message.HasField("schema_satisfied") else None,
        schema_violation=message.schema_violation,
    )
