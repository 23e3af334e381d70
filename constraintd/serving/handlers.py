"""Handlers of gRPC calls, as interceptors wrap them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

import grpc


def rewrapped(handler: grpc.RpcMethodHandler[Any, Any], wrap: Callable[[Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
    """The same handler around another function: `wrap` gets the one that it has."""
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[bool(handler.request_streaming), bool(handler.response_streaming)]
    inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    return make(
        wrap(inner),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def refusal(abort: Callable[[Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler that ends any kind of call by what `abort` does with its context; a coroutine function for an asyncio
    server. As a stream of both sides, it need not read what was sent.
    """

    def call(_requests: Any, context: Any) -> Any:
        return abort(context)

    async def call_async(_requests: Any, context: Any) -> Any:
        return await abort(context)

    # gRPC tells the two apart by looking at the function.
    return grpc.stream_stream_rpc_method_handler(call_async if iscoroutinefunction(abort) else call)
