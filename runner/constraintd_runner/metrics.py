"""Serves the runner's metrics over HTTP, for Prometheus to scrape."""

from __future__ import annotations

import threading
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, start_http_server

from constraintd_runner import metrics_recording
from constraintd_runner.metrics_recorder import RunnerRecorder

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
            metrics_recording.active = metrics_recording.Recording()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def serve_metrics(address: str) -> MetricsServer:
    """Begins to measure, and serves what was measured at http://ADDRESS/metrics.

    `address`: `host:port` or `[ipv6]:port`; port 0: any free one. Raises CannotServeMetrics.
    """
    if isinstance(metrics_recording.active, RunnerRecorder):
        raise CannotServeMetrics("this process serves its metrics already; one address is enough")
    host, port = split_address(address)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nothing here asks for
    registry = CollectorRegistry()
    recorder = RunnerRecorder(registry)
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:
        raise CannotServeMetrics(
            f"{error}; is another process there, or the host another machine's? Choose another port, or 0 for any"
        ) from None
    handler: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type("Handler", (handler,), {"timeout": _REQUEST_SECONDS})
    metrics_recording.active = recorder
    return MetricsServer(server, thread, f"{address.rpartition(':')[0]}:{server.server_port}")


def split_address(address: str) -> tuple[str, int]:
    """Host and port. Raises CannotServeMetrics."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in host and bare == host) or not (port.isascii() and port.isdecimal() and len(port) < 6):
        raise CannotServeMetrics(
            f"{address!r} is no address for metrics; expected host:port, such as 127.0.0.1:9465 or [::1]:9465"
        )
    if int(port) > 65_535:
        raise CannotServeMetrics(f"{address!r} is no address for metrics: ports end at 65535")
    return bare, int(port)
