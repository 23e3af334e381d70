"""When a broken generation goes on, and from where. The sync and the asyncio client share this."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from constraintd.runner.v1 import generation_service_pb2

from .backoff import Backoff
from .errors import Cancelled, ConstraintdError, Unavailable, UnknownSession

ResumeRequest: TypeAlias = generation_service_pb2.ResumeGenerationRequest

GenerationRequest: TypeAlias = generation_service_pb2.GenerateRequest | ResumeRequest
"""What begins a stream of a generation's events."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a caller has come."""

    tokens: int = 0
    text_bytes: int = 0
    """Of UTF-8."""


class Healing:
    """One resumable generation's way back after a break. Belongs to whoever iterates over it."""

    def __init__(
        self,
        request: GenerationRequest,
        *,
        timeout: float,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`request` began it, with its session id; `timeout`: seconds that one break may last."""
        self._request = request
        self._timeout = timeout
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._until: float | None = None
        self._anew = False  # the session was never opened, or is not there any more before anything of it was seen

    def moved_on(self) -> None:
        """Something new came: the next break is another one."""
        self._until = None
        self._backoff.reset()

    def pause_after(self, error: ConstraintdError, seen: Seen) -> float | None:
        """Seconds to wait before the next attempt; None where none can help, or the time is up."""
        first = isinstance(self._request, generation_service_pb2.GenerateRequest)
        self._anew = isinstance(error, UnknownSession) and first and seen == Seen()
        if not self._anew and not error.retryable:
            return None
        now = self._clock()
        if self._until is None:
            self._until = now + self._timeout
        pause = self._backoff.next_pause()
        return pause if now + pause < self._until else None

    def next_request(self, seen: Seen) -> GenerationRequest:
        """What to ask the next runner for."""
        if self._anew:
            return self._request
        exact = self._request.exact if isinstance(self._request, ResumeRequest) else False
        return resume_request(
            self._request.session_id,
            seen,
            exact=exact,
            logprobs=self._request.logprobs if self._request.HasField("logprobs") else None,
        )


def resume_request(session_id: bytes, seen: Seen, *, exact: bool, logprobs: int | None) -> ResumeRequest:
    """The request that goes on behind what was seen."""
    return ResumeRequest(
        session_id=session_id,
        seen_tokens=seen.tokens,
        seen_text_bytes=seen.text_bytes,
        exact=exact,
        logprobs=logprobs,
    )


def lost_its_server(error: ConstraintdError) -> bool:
    """Whether another address may do better."""
    return isinstance(error, Unavailable | Cancelled)
