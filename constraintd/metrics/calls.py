"""Measures the RPC handlers: how long each call takes, and what it is refused with."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import grpc

from constraintd.errors import ConstraintdError
from constraintd.metrics import recording
from constraintd.metrics.recorder import METHODS, Recorder

Service = TypeVar("Service", bound=type)


def measured(service: Service) -> Service:
    """The servicer with every handler of an RPC measured, while somebody listens. A class decorator."""
    for method in METHODS:
        handler = vars(service)[method]
        wrap = _streaming if inspect.isasyncgenfunction(handler) else _single
        setattr(service, method, functools.wraps(handler)(wrap(handler)))
    return service


@contextmanager
def refused_grammars() -> Iterator[None]:
    """Around what reads or compiles a grammar: counts refusals."""
    try:
        yield
    except ConstraintdError as error:
        recorder = recording.active
        if recorder is not None:
            recorder.compile_refused(error)
        raise


def _single(handler: Callable[..., Any]) -> Callable[..., Any]:
    async def call(service: Any, request: Any, context: Any) -> Any:
        recorder = recording.active
        if recorder is None:
            return await handler(service, request, context)
        with _recorded(handler.__name__, recorder):
            return await handler(service, request, context)

    return call


def _streaming(handler: Callable[..., Any]) -> Callable[..., Any]:
    async def call(service: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        async with aclosing(handler(service, request, context)) as responses:
            recorder = recording.active
            if recorder is None:
                async for response in responses:
                    yield response
                return
            with _recorded(handler.__name__, recorder):
                async for response in responses:
                    yield response

    return call


@contextmanager
def _recorded(method: str, recorder: Recorder) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    except (grpc.aio.AbortError, grpc.aio.InternalError):
        raise  # a stream that ends because the daemon stops, or whose client is gone: nobody's fault
    except Exception as error:
        recorder.error(method, error)
        raise
    finally:
        seconds = recorder.call_seconds.get(method)
        if seconds is not None:
            seconds.observe(time.perf_counter() - began)
