"""Changes to sessions, and sessions that move: what the calls send, and what their answers come to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from constraintd.v1 import session_pb2

from .constraints import ReasoningEnd
from .directive import directive_of
from .grammars import ConstraintLike
from .grammars import constraint as constraint_message
from .samplers import SamplerConfig
from .session_handle import SessionHandle

_Moved = (
    session_pb2.UpdateSessionResponse
    | session_pb2.RollbackSessionResponse
    | session_pb2.ForkSessionResponse
    | session_pb2.ResumeSessionResponse
    | session_pb2.ImportSessionResponse
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn's beginning: `prompt_tokens` stand between the token before `position` and the one at it."""

    position: int
    prompt_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resumed:
    """A session that was taken over, with all that a runner needs to go on."""

    session: SessionHandle
    vocabulary_id: str
    turns: tuple[Turn, ...]
    """The turns' prompts, by ascending position; the first at position 0."""
    tokens: tuple[int, ...]
    """All accepted tokens."""
    passes: tuple[int, ...]
    """Lengths of the forward passes as they were reported, in order; empty if they weren't."""
    constraint: session_pb2.Constraint | None = None
    """The constraint in force, as it was given; None from a daemon that does not tell."""
    reasoning_end: ReasoningEnd | None = None
    """Where the model's reasoning ends; None: it does not reason."""

    def model_input(self) -> list[int]:
        """Prompts and tokens in order: what the model has to be fed before the next token."""
        fed: list[int] = []
        taken = 0
        for turn in self.turns:
            fed += self.tokens[taken : turn.position]
            fed += turn.prompt_tokens
            taken = turn.position
        return [*fed, *self.tokens[taken:]]


def update_request(
    session: SessionHandle,
    constraint: ConstraintLike | None,
    sampler: SamplerConfig | None,
    reasoning_end: ReasoningEnd | None,
    new_turn: Sequence[int] | None,
    seed: int | None,
    request_id: bytes | None,
) -> session_pb2.UpdateSessionRequest:
    """The request for an update; without `request_id`, under 16 random bytes."""
    return session_pb2.UpdateSessionRequest(
        session_id=session.session_id,
        epoch=session.epoch,
        position=session.position,
        request_id=os.urandom(16) if request_id is None else request_id,
        constraint=None if constraint is None else constraint_message(constraint),
        sampler=sampler,
        reasoning_end=reasoning_end,
        new_turn=None if new_turn is None else session_pb2.NewTurn(prompt_tokens=new_turn),
        seed=seed,
    )


def rollback_request(
    session: SessionHandle, to_position: int, seed: int | None, request_id: bytes | None
) -> session_pb2.RollbackSessionRequest:
    """The request for a rollback; without `request_id`, under 16 random bytes."""
    return session_pb2.RollbackSessionRequest(
        session_id=session.session_id,
        epoch=session.epoch,
        position=session.position,
        request_id=os.urandom(16) if request_id is None else request_id,
        to_position=to_position,
        seed=seed,
    )


def fork_request(
    session_id: bytes, position: int, new_session_id: bytes | None, seed: int | None
) -> session_pb2.ForkSessionRequest:
    """The request for a fork; without `new_session_id`, under 16 random bytes."""
    return session_pb2.ForkSessionRequest(
        session_id=session_id,
        position=position,
        new_session_id=os.urandom(16) if new_session_id is None else new_session_id,
        seed=seed,
    )


def moved(session: SessionHandle, response: _Moved) -> SessionHandle:
    """The handle, at what the answer says. Raises MalformedAnswer if its Directive can't be used."""
    session.directive = directive_of(response.directive, response.ByteSize())
    session.epoch = response.epoch
    session.sampler = response.sampler
    session.seed = response.sampler.seed
    return session


def opened_by(session_id: bytes, response: _Moved) -> SessionHandle:
    """A new handle at what the answer says. Raises MalformedAnswer if its Directive can't be used."""
    directive = directive_of(response.directive, response.ByteSize())
    return SessionHandle(session_id, response.epoch, response.sampler.seed, directive, response.sampler)


def resumed_of(session_id: bytes, response: session_pb2.ResumeSessionResponse) -> Resumed:
    """What a takeover came to. Raises MalformedAnswer if its Directive can't be used."""
    return Resumed(
        opened_by(session_id, response),
        response.vocabulary_id,
        tuple(Turn(turn.position, tuple(turn.prompt_tokens)) for turn in response.turns),
        tuple(response.tokens),
        tuple(response.passes),
        response.constraint if response.HasField("constraint") else None,
        response.reasoning_end if response.HasField("reasoning_end") else None,
    )
