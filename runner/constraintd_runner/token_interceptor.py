"""Lets in only calls with a token; health checks stay open, for those who probe have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from constraintd.serving.handlers import refusal
from constraintd.serving.request_scope import present_request
from constraintd.serving.tokens import OPEN_METHODS, Refused, TokensFile, authorization_of
from constraintd_runner.errors import DETAILS_KEY, Unauthenticated, status_of


class TokenInterceptor(grpc.ServerInterceptor):
    """Asks the tokens file about every other call, reflection included, before a message of it is read."""

    def __init__(self, tokens: TokensFile) -> None:
        self._tokens = tokens

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See grpc.ServerInterceptor."""
        if handler_call_details.method.startswith(OPEN_METHODS):
            return continuation(handler_call_details)
        headers: Any = handler_call_details.invocation_metadata or ()
        try:
            bearer = self._tokens.bearer(authorization_of(headers))
        except Refused as refused:
            return refusal(_abort(Unauthenticated(str(refused))))
        scope = present_request()
        if scope is not None:
            scope.bearer = bearer
        return continuation(handler_call_details)


def _abort(error: Unauthenticated) -> Callable[[grpc.ServicerContext], None]:
    status = status_of(error)

    def abort(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata(((DETAILS_KEY, status.details()),))
        context.abort(status.code, status.text())

    return abort
