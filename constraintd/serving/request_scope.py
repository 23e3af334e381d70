"""Which call is being served here: what its log lines are marked with."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

REQUEST_ID_HEADER: Final = "x-request-id"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class RequestScope:
    """One call. Its own handler fills in what becomes known on the way."""

    __slots__ = ("bearer", "method", "reason", "request_id", "session_id")

    def __init__(self, method: str, request_id: str) -> None:
        self.method = method
        self.request_id = request_id
        self.session_id = ""
        """Hex digits; "" where the call is about no one session."""
        self.bearer = ""
        """Name of the token that it came with."""
        self.reason = ""
        """The ErrorReason that it is refused with."""

    def ending(self, code: str, seconds: float) -> dict[str, object]:
        """What its last log line says, beside the ids. `code`: its gRPC status."""
        marks: dict[str, object] = {"method": self.method, "code": code, "seconds": round(seconds, 6)}
        return marks | {key: value for key, value in (("reason", self.reason), ("bearer", self.bearer)) if value}


_present: ContextVar[RequestScope | None] = ContextVar("constraintd_request", default=None)


def present_request() -> RequestScope | None:
    """The call that the running code serves; None outside of one."""
    return _present.get()


@contextmanager
def serving(scope: RequestScope) -> Iterator[RequestScope]:
    """What runs within is done for this call."""
    token = _present.set(scope)
    try:
        yield scope
    finally:
        _present.reset(token)


def request_id_of(headers: Iterable[tuple[str, str | bytes]]) -> str:
    """The caller's own id, where it sends one that can stand in a log; else a new one."""
    for key, value in headers:
        if key == REQUEST_ID_HEADER and isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return secrets.token_hex(8)


def session_of(message: Any) -> str:
    """The session that a message names, as hex digits; what can't be an id is not repeated."""
    session_id = getattr(message, "session_id", None) or getattr(getattr(message, "step", None), "session_id", b"")
    return session_id.hex() if isinstance(session_id, bytes) and len(session_id) == 16 else ""
