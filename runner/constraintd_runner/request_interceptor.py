"""Gives every call its request id, its lines in the log, and counts those that run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
from google.rpc import error_details_pb2, status_pb2

from constraintd.serving.handlers import refusal, rewrapped
from constraintd.serving.logs import fields
from constraintd.serving.request_scope import REQUEST_ID_HEADER, RequestScope, request_id_of, serving, session_of
from constraintd_runner.errors import DETAILS_KEY

_STOPPING: Final = "the runner is stopping; try again elsewhere"
_log = logging.getLogger(__name__)


class RequestInterceptor(grpc.ServerInterceptor):
    """Wraps the handlers of the runner's own service; outermost, so that refusals are told too."""

    def __init__(self, *, log_calls: bool = False) -> None:
        """`log_calls`: whether calls that come to a good end are logged too, and not at debug alone."""
        self._good_level = logging.INFO if log_calls else logging.DEBUG
        self._running = 0
        self._closed = False
        self._changed = threading.Condition()

    def close(self) -> None:
        """From now on calls are refused with UNAVAILABLE; running ones are not disturbed."""
        self._closed = True

    def wait_idle(self, seconds: float) -> bool:
        """Whether no call runs, within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running == 0, seconds)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See grpc.ServerInterceptor."""
        method: str = handler_call_details.method
        if not method.startswith("/constraintd."):
            return continuation(handler_call_details)
        headers: Any = handler_call_details.invocation_metadata or ()
        scope = RequestScope(method.rpartition("/")[2], request_id_of(headers))
        if self._closed:
            return refusal(lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, _STOPPING))
        with serving(scope):
            handler = continuation(handler_call_details)
        if handler is None:
            return None
        wrap = self._counted_stream if handler.response_streaming else self._counted
        return rewrapped(handler, lambda inner: wrap(inner, scope))

    def _counted(self, inner: Any, scope: RequestScope) -> Any:
        def call(request: Any, context: grpc.ServicerContext) -> Any:
            began = self._begin(request, context, scope)
            with serving(scope):
                try:
                    return inner(request, context)
                finally:
                    self._end(context, scope, began)

        return call

    def _counted_stream(self, inner: Any, scope: RequestScope) -> Any:
        def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            began = self._begin(request, context, scope)
            responses: Any = None
            try:
                with serving(scope):
                    responses = iter(inner(request, context))
                while True:
                    # Between two responses the thread may be anybody's.
                    with serving(scope):
                        try:
                            response = next(responses)
                        except StopIteration:
                            return
                    scope.session_id = scope.session_id or session_of(getattr(response, "started", None))
                    yield response
            finally:
                with serving(scope):
                    close = getattr(responses, "close", None)
                    if close is not None:
                        close()
                    self._end(context, scope, began)

        return call

    def _begin(self, request: Any, context: grpc.ServicerContext, scope: RequestScope) -> float:
        with self._changed:
            self._running += 1
        scope.session_id = session_of(request)
        context.send_initial_metadata(((REQUEST_ID_HEADER, scope.request_id),))
        return time.perf_counter()

    def _end(self, context: Any, scope: RequestScope, began: float) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()
        code = context.code()
        if code is None:
            code = grpc.StatusCode.OK if context.is_active() else grpc.StatusCode.CANCELLED
        good = code is grpc.StatusCode.OK
        if not good:
            scope.reason = scope.reason or _reason_of(context)
        level = self._good_level if good else logging.INFO
        if _log.isEnabledFor(level):
            _log.log(level, "a call ended", extra=fields(**scope.ending(code.name, time.perf_counter() - began)))


def _reason_of(context: Any) -> str:
    """The ErrorReason in the status that a handler has set."""
    for key, value in context.trailing_metadata() or ():
        if key == DETAILS_KEY:
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return str(info.reason)
    return ""
