"""Serves the metrics over HTTP, for Prometheus to scrape."""

from __future__ import annotations

import threading
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from constraintd.metrics import recording
from constraintd.metrics.exposition import DaemonCollector
from constraintd.metrics.recorder import Recorder

# For a whole request: a client that sends half of one holds its thread no longer.
_REQUEST_SECONDS: Final = 10.0


class CannotServeMetrics(ValueError):
    """The metrics can't be served there; the message says why, and what would do."""


class MetricsServer:
    """A listener of its own, in threads of its own. The process measures itself until it is closed."""

    def __init__(self, server: WSGIServer, thread: threading.Thread, address: str) -> None:
        """For `serve_metrics`."""
        self._server = server
        self._thread = thread
        self.address = address
        """Where it listens, with the port filled in."""

    def close(self) -> None:
        """Stops listening and measuring. Safe to call twice."""
        if self._thread.is_alive():
            recording.active = None
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def serve_metrics(address: str) -> MetricsServer:
    """Begins to measure, and serves what was measured at http://ADDRESS/metrics.

    `address`: `host:port` or `[ipv6]:port`; port 0: any free one. Raises CannotServeMetrics.
    """
    if recording.active is not None:
        raise CannotServeMetrics("this process serves its metrics already; one address is enough")
    host, port = split_address(address)
    recorder = Recorder()
    registry = CollectorRegistry()
    registry.register(DaemonCollector(recorder))
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:
        raise CannotServeMetrics(
            f"{error}; is another process there, or the host another machine's? Choose another port, or 0 for any"
        ) from None
    handler: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type("Handler", (handler,), {"timeout": _REQUEST_SECONDS})
    recording.active = recorder
    return MetricsServer(server, thread, f"{address.rpartition(':')[0]}:{server.server_port}")


def split_address(address: str) -> tuple[str, int]:
    """Host and port. Raises CannotServeMetrics."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in host and bare == host) or not (port.isascii() and port.isdecimal() and len(port) < 6):
        raise CannotServeMetrics(
            f"{address!r} is no address for metrics; expected host:port, such as 127.0.0.1:9464 or [::1]:9464"
        )
    if int(port) > 65_535:
        raise CannotServeMetrics(f"{address!r} is no address for metrics: ports end at 65535")
    return bare, int(port)
