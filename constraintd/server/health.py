"""What the daemon says of its health: whether it takes calls, and, apart from that, whether it lives."""

from __future__ import annotations

import logging

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from constraintd.serving.probes import LIVENESS, probes_listener

_log = logging.getLogger(__name__)


class Health:
    """The daemon's health service. Used from one event loop."""

    def __init__(self, service_name: str) -> None:
        """`service_name`: under that name, and under "", it tells whether the daemon takes calls."""
        self._names = ("", service_name)
        self.servicer = health.aio.HealthServicer()
        self._apart: grpc.aio.Server | None = None

    async def listen(self, address: str | None) -> None:
        """Answers there too, and nothing else does: whoever can reach it learns that this process lives. None: nowhere
        else. Raises CannotListen.
        """
        if address is None:
            return
        self._apart = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(self.servicer, self._apart)
        bound = probes_listener(address).open(self._apart)
        await self._apart.start()
        _log.info("health checks are answered on %s", bound)

    async def close(self) -> None:
        """Ends the listener that it has for itself."""
        if self._apart is not None:
            await self._apart.stop(None)

    async def alive(self) -> None:
        """The process runs, and takes no calls yet."""
        await self.servicer.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.ready(False)

    async def ready(self, ready: bool) -> None:
        """Whether it takes calls from now on."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._names:
            await self.servicer.set(name, status)
