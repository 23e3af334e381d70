"""Turns what a handler raises into a typed status. Nothing that a handler raises reaches a client raw."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from constraintd.errors import ConstraintdError
from constraintd.server.errors import clipped, status_code, trailing_metadata
from constraintd.serving.handlers import rewrapped
from constraintd.serving.request_scope import REQUEST_ID_HEADER, present_request

_log = logging.getLogger(__name__)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of the daemon's own services."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See grpc.aio.ServerInterceptor."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith("/constraintd."):
            return handler
        wrap = _streaming if handler.response_streaming else _single
        return rewrapped(handler, wrap)


def _single(inner: Any) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await inner(request, context)
        except Exception as error:
            _refuse(context, error)

    return call


def _streaming(inner: Any) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[None]]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        try:
            result = inner(request, context)
            if not isinstance(result, AsyncIterator):
                await result  # it writes for itself
                return
            async for response in result:
                await context.write(response)
        except Exception as error:
            _refuse(context, error)

    return call


def _refuse(context: grpc.aio.ServicerContext[Any, Any], error: Exception) -> None:
    """Sets the status that the error stands for; the call then ends with it.

    Not by `context.abort`: that raises an error which the context keeps, and so a cycle of frames that hold the
    request, 10 MB of a refused grammar say, until the collector comes.
    """
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, grpc.aio.InternalError):
        # gRPC fails a batch of operations only on a call that is over: nobody is left to tell.
        _log.info("a client went away while it was being answered")
        return
    if not isinstance(error, ConstraintdError):
        _log.error("a handler failed", exc_info=error)
        error = ConstraintdError("a fault of the daemon itself; its log has the trace")
    metadata: tuple[tuple[str, str | bytes], ...] = trailing_metadata(error)
    scope = present_request()
    if scope is not None:
        scope.reason = error.reason
        metadata += ((REQUEST_ID_HEADER, scope.request_id),)
    context.set_code(status_code(error))
    context.set_details(clipped(error.message))
    context.set_trailing_metadata(metadata)
