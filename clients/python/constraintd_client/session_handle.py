"""A client's hold on one open session."""

from __future__ import annotations

import os
from collections.abc import Sequence

from constraintd.v1 import session_pb2

from .constraints import ReasoningEnd
from .directive import Directive, directive_of
from .grammars import ConstraintLike
from .grammars import constraint as constraint_message
from .samplers import SamplerConfig


class SessionHandle:
    """An open session as this client last saw it.

    `ConstraintClient.step` and `DecodeStream.take` move it on; whoever generates reads it. One thread at a
    time may drive a session.
    """

    __slots__ = ("directive", "epoch", "sampler", "seed", "session_id")

    def __init__(
        self, session_id: bytes, epoch: int, seed: int, directive: Directive, sampler: SamplerConfig | None = None
    ) -> None:
        self.session_id = session_id
        """16 bytes, chosen by whoever opened it."""
        self.epoch = epoch
        """Names this owner's view of the session; goes into every Step."""
        self.seed = seed
        """The seed in force."""
        self.directive = directive
        """The latest answer: what to do at `position`."""
        self.sampler = sampler
        """The sampler config in force: defaults filled in, a preset spelled out. None if the daemon did not say."""

    @property
    def position(self) -> int:
        """Tokens accepted so far, the prompt excluded; the next Step's position."""
        return self.directive.position

    def __repr__(self) -> str:
        return f"SessionHandle({self.session_id.hex()}, position={self.position})"


def open_request(
    vocabulary_id: str,
    constraint: ConstraintLike,
    sampler: SamplerConfig | None,
    prompt_tokens: Sequence[int],
    session_id: bytes | None,
    reasoning_end: ReasoningEnd | None = None,
) -> session_pb2.OpenSessionRequest:
    """The request that opens a session; without `session_id`, under 16 random bytes."""
    return session_pb2.OpenSessionRequest(
        session_id=os.urandom(16) if session_id is None else session_id,
        vocabulary_id=vocabulary_id,
        constraint=constraint_message(constraint),
        sampler=sampler,
        prompt_tokens=prompt_tokens,
        reasoning_end=reasoning_end,
    )


def handle_of(session_id: bytes, response: session_pb2.OpenSessionResponse) -> SessionHandle:
    """The handle that an OpenSession answer gives. Raises MalformedAnswer if its Directive can't be used."""
    directive = directive_of(response.directive, response.ByteSize())
    sampler = response.sampler if response.HasField("sampler") else None
    return SessionHandle(session_id, response.epoch, response.seed, directive, sampler)
