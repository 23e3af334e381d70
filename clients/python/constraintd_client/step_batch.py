"""The Decode stream's messages, as bytes and values. Sync and asyncio streams share this translation."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final

from constraintd.v1 import constraint_service_pb2, session_pb2

from .directive import Directive, directive_of
from .errors import ConstraintdError, MalformedAnswer, from_step_error
from .session_handle import SessionHandle

DECODE_METHOD: Final = f"/{constraint_service_pb2.DESCRIPTOR.services_by_name['ConstraintService'].full_name}/Decode"
"""Path of the Decode call; the streams use it with bytes, so that they count what goes over the wire."""

StepReport = (
    tuple[SessionHandle, Sequence[int], Sequence[float]]
    | tuple[SessionHandle, Sequence[int], Sequence[float], Sequence[int]]
)
"""A session, the tokens it accepted from its position on, the surprisal of each in bits, and, from runners that report
them, the lengths of the forward passes since the last report.
"""


def hello(vocabulary_id: str, logits_width: int) -> bytes:
    """A stream's first message, serialized."""
    return constraint_service_pb2.DecodeRequest(
        hello=constraint_service_pb2.Hello(vocabulary_id=vocabulary_id, logits_width=logits_width)
    ).SerializeToString()


def step_message(
    session: SessionHandle, tokens: Sequence[int], surprisals: Sequence[float], passes: Sequence[int] = ()
) -> session_pb2.Step:
    """The Step that reports these tokens at the session's position.

    `passes`: lengths in tokens of the forward passes since the last Step, the prompt's first; none: not reported.
    Raises ValueError if the numbers of tokens and surprisals differ or a token is no uint32.
    """
    if len(tokens) != len(surprisals):
        raise ValueError(f"{len(tokens)} tokens but {len(surprisals)} surprisals for {session!r}")
    return session_pb2.Step(
        session_id=session.session_id,
        epoch=session.epoch,
        position=session.position,
        tokens=tokens,
        surprisals=surprisals,
        passes=passes,
    )


def step_batches(steps: Sequence[session_pb2.Step], batch_steps: int) -> list[bytes]:
    """As few StepBatch messages, serialized, as hold these steps with at most `batch_steps` in each."""
    return [
        constraint_service_pb2.DecodeRequest(
            step_batch=constraint_service_pb2.StepBatch(steps=steps[start : start + batch_steps])
        ).SerializeToString()
        for start in range(0, len(steps), batch_steps)
    ]


def response_of(message: bytes) -> constraint_service_pb2.DecodeResponse:
    """A serialized DecodeResponse. Raises google.protobuf's DecodeError."""
    return constraint_service_pb2.DecodeResponse.FromString(message)


def step_answers(
    response: constraint_service_pb2.DecodeResponse,
) -> Iterator[tuple[bytes, Directive | ConstraintdError]]:
    """The (session id, answer) pairs of a response.

    An answer that can't be used is that session's MalformedAnswer.
    """
    for answer in response.directive_batch.answers:
        kind = answer.WhichOneof("answer")
        outcome: Directive | ConstraintdError
        if kind == "directive":
            try:
                outcome = directive_of(answer.directive, answer.ByteSize())
            except MalformedAnswer as error:
                outcome = error
        elif kind == "error":
            outcome = from_step_error(answer.error)
        else:
            outcome = MalformedAnswer("the answer has neither a directive nor an error")
        yield answer.session_id, outcome


def refuse_second_step(steps: Sequence[session_pb2.Step], unanswered: Container[bytes]) -> None:
    """Raises ValueError if a session comes twice in `steps` or its id is in `unanswered`."""
    seen: set[bytes] = set()
    for step in steps:
        if step.session_id in unanswered or step.session_id in seen:
            raise ValueError(f"session {step.session_id.hex()} has an unanswered step; take or forget its answer first")
        seen.add(step.session_id)


def answer_to(step: session_pb2.Step, outcome: Directive | ConstraintdError) -> Directive | ConstraintdError | None:
    """The outcome as this Step's answer.

    None where it answers an earlier Step of the session: one that was sent again while its first answer was
    being taken. MalformedAnswer where it stands past the Step, since its mask would be another position's.
    """
    if isinstance(outcome, ConstraintdError):
        return outcome
    expected = step.position + len(step.tokens)
    if outcome.position == expected:
        return outcome
    if outcome.position < expected:
        return None
    return MalformedAnswer(f"the answer stands at position {outcome.position}, expected {expected}")
