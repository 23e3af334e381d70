"""The daemon's life: start, drain, stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from constraintd.config import Config
from constraintd.grammar.sandbox import Sandbox
from constraintd.server.error_interceptor import ErrorInterceptor
from constraintd.service import ConstraintService
from constraintd.session.store.store import SessionStore
from constraintd.stores import open_store
from constraintd.v1 import constraint_service_pb2, constraint_service_pb2_grpc

SERVICE_NAME = constraint_service_pb2.DESCRIPTOR.services_by_name["ConstraintService"].full_name
# Outermost first. A test holds this order.
INTERCEPTORS: tuple[Callable[[], grpc.aio.ServerInterceptor], ...] = (ErrorInterceptor,)
_log = logging.getLogger(__name__)


class CannotListen(Exception):
    """An address can't be listened on; the message says which and why."""


class Daemon:
    """One gRPC server. Owns its service and store; used from one event loop. The sandbox is its starter's to close."""

    def __init__(self, config: Config, sandbox: Sandbox, store: SessionStore) -> None:
        self._config = config
        self._store = store
        self._service = ConstraintService(config.limits, sandbox, store)
        self._sweeping: asyncio.Task[None] | None = None
        self._health = health.aio.HealthServicer()
        size = config.limits.max_message_bytes
        self._server = grpc.aio.server(
            interceptors=[make() for make in INTERCEPTORS],
            options=[
                ("grpc.max_receive_message_length", size),
                ("grpc.max_send_message_length", size),
                ("grpc.so_reuseport", 0),
                # A proxy or client may ask every second whether this machine is still there; by gRPC's default a stream
                # on which nothing happens for a while would be ended with "too many pings".
                ("grpc.http2.min_ping_interval_without_data_ms", 1000),
                ("grpc.keepalive_permit_without_calls", 1),
            ],
        )
        constraint_service_pb2_grpc.add_ConstraintServiceServicer_to_server(self._service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self) -> tuple[str, ...]:
        """Listens; gives the addresses with ports filled in. Raises CannotListen."""
        bound = []
        for address in self._config.listen:
            try:
                port = self._server.add_insecure_port(address)
            except RuntimeError as error:
                raise CannotListen(
                    f"can't listen on {address}: {error}; is another daemon there, or the folder missing?"
                ) from None
            bound.append(address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}")
        await self._server.start()
        self._sweeping = asyncio.create_task(self._service.sweep())
        for name in ("", SERVICE_NAME):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        # What is there by now stays: the collector need never look at it again, which makes its full rounds short.
        gc.collect()
        gc.freeze()
        return tuple(bound)

    async def stop(self) -> None:
        """Turns NOT_SERVING, ends streams, lets running calls finish for `drain_seconds`, then ends them."""
        await self._health.enter_graceful_shutdown()
        self._service.end_streams()
        await self._server.stop(self._config.drain_seconds)
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._service.close()
        self._store.close()
        for address in self._config.listen:
            if address.startswith("unix:") and os.path.exists(address.removeprefix("unix:")):
                os.unlink(address.removeprefix("unix:"))


async def serve(config: Config, sandbox: Sandbox, ready: Callable[[tuple[str, ...]], None]) -> None:
    """Runs a daemon until SIGTERM or SIGINT. `ready` gets its addresses once it listens. Raises CannotListen,
    BadStore and StoreUnavailable.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    daemon = Daemon(config, sandbox, open_store(config.store, durability=config.durability))
    ready(await daemon.start())
    await stopping.wait()
    _log.info("stopping: running calls have %g s to finish", config.drain_seconds)
    await daemon.stop()
