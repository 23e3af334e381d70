"""The daemon's life: start, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from constraintd.config import Config
from constraintd.grammar.sandbox import Sandbox
from constraintd.server.collector import settle_collector
from constraintd.server.error_interceptor import ErrorInterceptor
from constraintd.server.health import Health
from constraintd.server.request_interceptor import RequestInterceptor
from constraintd.server.token_interceptor import TokenInterceptor
from constraintd.service import ConstraintService
from constraintd.serving.access import access_of
from constraintd.serving.cpu_budget import cpu_budget
from constraintd.serving.farewell import end_within
from constraintd.serving.metrics_setting import metrics_served
from constraintd.serving.tokens import TokensFile
from constraintd.serving.transport import server_options
from constraintd.session.store.store import SessionStore
from constraintd.stores import open_store
from constraintd.v1 import constraint_service_pb2, constraint_service_pb2_grpc

SERVICE_NAME = constraint_service_pb2.DESCRIPTOR.services_by_name["ConstraintService"].full_name
_STATUS_SECONDS: Final = 0.2
_OVERTIME_SECONDS: Final = 2.0
"""What closing the store may take after the drain."""
_log = logging.getLogger(__name__)


def interceptors_of(requests: RequestInterceptor, tokens: TokensFile | None) -> tuple[grpc.aio.ServerInterceptor, ...]:
    """Outermost first: a call is logged whoever refuses it, and who has no token does not reach a handler."""
    gate = () if tokens is None else (TokenInterceptor(tokens),)
    return (requests, *gate, ErrorInterceptor())


class Daemon:
    """One gRPC server. Owns its service and store; used from one event loop. The sandbox is its starter's to close."""

    def __init__(self, config: Config, sandbox: Sandbox, store: SessionStore) -> None:
        """Raises BadConfig for TLS, tokens or listeners that can't be used."""
        access = access_of(config.listen, config)
        self._listeners = access.listeners
        self._config = config
        self._store = store
        self._service = ConstraintService(
            config.limits, sandbox, store, threads=config.threads or min(2 * cpu_budget(), 32)
        )
        self._sweeping: asyncio.Task[None] | None = None
        self._health = Health(SERVICE_NAME)
        self._requests = RequestInterceptor(log_calls=config.log_calls)
        self._server = grpc.aio.server(
            interceptors=interceptors_of(self._requests, access.tokens),
            options=server_options(
                max_message_bytes=config.limits.max_message_bytes,
                max_connection_calls=config.limits.max_connection_calls,
                keepalive_seconds=config.keepalive_seconds,
            ),
        )
        constraint_service_pb2_grpc.add_ConstraintServiceServicer_to_server(self._service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, self._server)
        reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self) -> tuple[str, ...]:
        """Listens; gives the addresses with ports filled in. Raises CannotListen."""
        bound = tuple(listener.open(self._server) for listener in self._listeners)
        await self._health.alive()
        await self._health.listen(self._config.health_listen)
        await self._server.start()
        self._sweeping = asyncio.create_task(self._service.sweep())
        await self._health.ready(True)
        settle_collector()
        return bound

    async def stop(self, hurry: asyncio.Event) -> None:
        """Turns NOT_SERVING, refuses new calls, says Draining on the streams, lets running calls finish for
        `drain_seconds` or until somebody is in a `hurry`, then ends them; the store is flushed. Health checks are
        answered to the end.
        """
        await self._health.ready(False)
        self._requests.close()
        self._service.end_streams()
        await _first_of(self._requests.idle(), hurry.wait(), asyncio.sleep(self._config.drain_seconds))
        # A call is counted out before gRPC has sent its status.
        await self._server.stop(_STATUS_SECONDS)
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._service.close()
        self._store.close()
        await self._health.close()
        for listener in self._listeners:
            listener.remove()


async def serve(config: Config, sandbox: Sandbox, ready: Callable[[tuple[str, ...]], None]) -> None:
    """Runs a daemon until SIGTERM or SIGINT; a second one ends it at once. `ready` gets its addresses once it listens.

    Raises BadConfig, CannotListen, BadStore and StoreUnavailable.
    """
    stopping, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_tell_fault)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (hurry if stopping.is_set() else stopping).set())
    with metrics_served(config.metrics_listen, "constraintd.metrics.server", "daemon"):
        daemon = Daemon(config, sandbox, open_store(config.store, durability=config.durability))
        ready(await daemon.start())
        await stopping.wait()
        _log.info("stopping: running calls have %g s to finish", config.drain_seconds)
        end_within(config.drain_seconds + _OVERTIME_SECONDS)
        await daemon.stop(hurry)


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _tell_fault(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """asyncio's own handler would log the task with its exception's message, which may quote a request."""
    _log.error("%s", context.get("message"), exc_info=context.get("exception"))
