"""The daemon's answers as values, and the one place that translates them from messages."""

from __future__ import annotations

import math
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


@dataclass(frozen=True, slots=True, eq=False)
class LogitAdjustments:
    """Changes to single logits, after the mask and before the first stage; arrays of one length n >= 1, read-only.

    A scale s acts on logit l as l > 0 ? l / s : l * s; then the offset is added. Ids are those of tokens that the mask
    may or may not allow; what it forbids stays forbidden.
    """

    ids: NDArray[np.uint32]
    """ "<u4" of shape (n,)."""
    scales: NDArray[np.float64]
    """ "<f8" of shape (n,), finite and > 0."""
    offsets: NDArray[np.float64]
    """ "<f8" of shape (n,), finite."""


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
    adjustments: LogitAdjustments | None = None
    """What the penalties change; None: nothing."""
    mu: float | None = None
    """Mirostat's mu in bits, for the config's mirostat stage; None where it has none."""
    awaiting_trigger: bool = False
    """Whether some grammar still sleeps."""
    allows_eog: bool = False
    """Whether the text may end here."""
    complete: bool = False
    """Whether the text so far satisfies every grammar."""
    exhausted: bool = False
    """Whether it does, and nothing but the end can follow."""


def directive_of(message: session_pb2.Directive, wire_bytes: int) -> Directive:
    """Translates a Directive.

    Raises MalformedAnswer if it has no outcome, or a mask in an encoding that this client does not know: such an answer
    must never read as "all allowed". Also for adjustments whose arrays don't belong together or hold no usable numbers,
    and for a mu that is not finite.
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
    mu = message.mu if message.HasField("mu") else None
    if mu is not None and not math.isfinite(mu):
        raise MalformedAnswer(f"mu is {mu} at position {message.position}; expected a finite number")
    return Directive(
        position=message.position,
        mask=mask,
        finish=finish,
        no_token_allowed=no_token_allowed,
        draw=message.draw,
        settled_bytes=message.settled_bytes,
        wire_bytes=wire_bytes,
        adjustments=_adjustments_of(message) if message.HasField("adjustments") else None,
        mu=mu,
        awaiting_trigger=message.awaiting_trigger,
        allows_eog=message.allows_eog,
        complete=message.complete,
        exhausted=message.exhausted,
    )


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


def _adjustments_of(message: session_pb2.Directive) -> LogitAdjustments | None:
    """The adjustments; None for an empty list."""
    given = message.adjustments
    count = len(given.ids) // 4
    if len(given.ids) % 4 or len(given.scales) != 8 * count or len(given.offsets) != 8 * count:
        raise MalformedAnswer(
            f"the adjustments at position {message.position} have {len(given.ids)} bytes of ids, {len(given.scales)} "
            f"of scales and {len(given.offsets)} of offsets; expected 4, 8 and 8 a token"
        )
    if not count:
        return None
    scales, offsets = np.frombuffer(given.scales, "<f8"), np.frombuffer(given.offsets, "<f8")
    usable = (scales > 0.0).all() and np.isfinite(scales).all() and np.isfinite(offsets).all()
    if not usable:
        raise MalformedAnswer(
            f"the adjustments at position {message.position} hold a scale that is not finite and > 0, or an offset "
            "that is not finite"
        )
    return LogitAdjustments(np.frombuffer(given.ids, "<u4"), scales, offsets)
