"""Lets in only calls with a token; health checks stay open, for those who probe have none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from constraintd.errors import Unauthenticated
from constraintd.server.errors import status_code, trailing_metadata
from constraintd.serving.handlers import refusal
from constraintd.serving.request_scope import REQUEST_ID_HEADER, present_request
from constraintd.serving.tokens import OPEN_METHODS, Refused, TokensFile, authorization_of


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Asks the tokens file about every other call, reflection included, before a message of it is read."""

    def __init__(self, tokens: TokensFile) -> None:
        self._tokens = tokens

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See grpc.aio.ServerInterceptor."""
        if handler_call_details.method.startswith(OPEN_METHODS):
            return await continuation(handler_call_details)
        headers = handler_call_details.invocation_metadata or ()
        scope = present_request()
        try:
            bearer = self._tokens.bearer(authorization_of(headers))
        except Refused as refused:
            error = Unauthenticated(str(refused))
            if scope is not None:
                scope.reason = error.reason
            return refusal(_abort(error))
        if scope is not None:
            scope.bearer = bearer
        return await continuation(handler_call_details)


def _abort(error: Unauthenticated) -> Callable[[grpc.aio.ServicerContext[Any, Any]], Awaitable[None]]:
    async def abort(context: grpc.aio.ServicerContext[Any, Any]) -> None:
        scope = present_request()
        marks = () if scope is None else ((REQUEST_ID_HEADER, scope.request_id),)
        await context.abort(status_code(error), error.message, (*trailing_metadata(error), *marks))

    return abort
