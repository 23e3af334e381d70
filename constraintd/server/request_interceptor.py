"""Gives every call its request id, its lines in the log, and counts those that run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from constraintd.serving.handlers import refusal, rewrapped
from constraintd.serving.logs import fields
from constraintd.serving.request_scope import REQUEST_ID_HEADER, RequestScope, request_id_of, serving, session_of

_log = logging.getLogger(__name__)
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class RequestInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of the daemon's own services; outermost, so that refusals are told too."""

    def __init__(self, *, log_calls: bool = False) -> None:
        """`log_calls`: whether calls that come to a good end are logged too, and not at debug alone."""
        self._good_level = logging.INFO if log_calls else logging.DEBUG
        self._running = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def close(self) -> None:
        """From now on calls are refused with UNAVAILABLE; running ones are not disturbed."""
        self._closed = True

    async def idle(self) -> None:
        """Waits until no call runs."""
        await self._idle.wait()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See grpc.aio.ServerInterceptor."""
        method = handler_call_details.method
        if not method.startswith("/constraintd."):
            return await continuation(handler_call_details)
        headers: Any = handler_call_details.invocation_metadata or ()
        scope = RequestScope(method.rpartition("/")[2], request_id_of(headers))
        if self._closed:
            return refusal(_abort_stopping)
        with serving(scope):
            handler = await continuation(handler_call_details)
        return None if handler is None else rewrapped(handler, lambda inner: self._counted(inner, scope))

    def _counted(self, inner: Any, scope: RequestScope) -> Any:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            self._running += 1
            self._idle.clear()
            began = time.perf_counter()
            scope.session_id = session_of(request)
            context.set_trailing_metadata(((REQUEST_ID_HEADER, scope.request_id),))
            ended = grpc.StatusCode.CANCELLED
            with serving(scope):
                if scope.method == "Decode":
                    _log.info("a Decode stream begins", extra=fields(peer=context.peer()))
                try:
                    response = await inner(request, context)
                    ended = _code_of(context)
                    return response
                except grpc.aio.AbortError:
                    ended = _code_of(context)
                    raise
                finally:
                    self._running -= 1
                    if not self._running:
                        self._idle.set()
                    self._tell(scope, ended, time.perf_counter() - began)

        return call

    def _tell(self, scope: RequestScope, ended: grpc.StatusCode, seconds: float) -> None:
        good = ended is grpc.StatusCode.OK and scope.method != "Decode"
        level = self._good_level if good else logging.INFO
        if _log.isEnabledFor(level):
            _log.log(level, "a call ended", extra=fields(**scope.ending(ended.name, seconds)))


async def _abort_stopping(context: grpc.aio.ServicerContext[Any, Any]) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "the daemon is stopping; connect again")


def _code_of(context: Any) -> grpc.StatusCode:
    """The status that a handler has set, OK if none: gRPC gives its number or its name, as it was set."""
    code = context.code()
    if code is None:
        return grpc.StatusCode.OK
    return code if isinstance(code, grpc.StatusCode) else _CODES.get(code, grpc.StatusCode.UNKNOWN)
