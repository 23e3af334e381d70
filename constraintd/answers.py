"""Answers of one Decode stream that wait to be sent, written once, where they leave.

A message that is put into another one is copied, and asking a message for its size serialises it: with masks of 6 KB
that took a tenth of a step. So answers are filled in inside their response, and a mask's answer is sized by its mask.
"""

from __future__ import annotations

from constraintd.errors import ConstraintdError
from constraintd.metrics import recording
from constraintd.server.errors import step_error
from constraintd.session.directive import DenseMask, Directive
from constraintd.translate import directive_message, fill_directive
from constraintd.v1 import constraint_service_pb2, session_pb2

# What an answer has at most besides its mask and its logit adjustments, tags and lengths included.
_FIXED_BYTES = 176
_ADJUSTMENT_BYTES = 20  # a token's id, scale and offset


class Answers:
    """Cut into responses that each stay under `limit` bytes. Used by one task."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._responses: list[constraint_service_pb2.DecodeResponse] = []
        self._size = 0

    def directive(self, step: session_pb2.Step, directive: Directive) -> None:
        """The Step was applied."""
        outcome, changes = directive.outcome, directive.adjustments
        if isinstance(outcome, DenseMask):
            size = len(outcome.words) + (0 if changes is None else _ADJUSTMENT_BYTES * len(changes.ids))
            fill_directive(self._next(step, size).directive, directive)
        else:  # rare, and short
            message = directive_message(directive)
            self._next(step, message.ByteSize()).directive.CopyFrom(message)

    def refusal(self, step: session_pb2.Step, error: ConstraintdError) -> None:
        """The Step was refused."""
        recorder = recording.active
        if recorder is not None:
            recorder.error("Decode", error)
        message = step_error(error)
        self._next(step, message.ByteSize()).error.CopyFrom(message)

    def take(self) -> list[constraint_service_pb2.DecodeResponse]:
        """What waits, to be sent as it is; nothing waits then."""
        responses, self._responses, self._size = self._responses, [], 0
        recorder = recording.active
        if recorder is not None:
            recorder.wire_bytes_out.add(sum(response.ByteSize() for response in responses))
        return responses

    def _next(self, step: session_pb2.Step, size: int) -> constraint_service_pb2.StepAnswer:
        size += _FIXED_BYTES
        if not self._responses or self._size + size > self._limit:
            self._responses.append(constraint_service_pb2.DecodeResponse())
            self._size = 0
        self._size += size
        answer = self._responses[-1].directive_batch.answers.add()
        answer.session_id = step.session_id[:64]
        return answer
