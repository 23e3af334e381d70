"""Metrics over HTTP, for Prometheus to scrape: the listener that daemon and runner share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

# For a whole request: a client that sends half of one holds its thread no longer.
_REQUEST_SECONDS: Final = 10.0


class CannotServeMetrics(ValueError):
    """The metrics can't be served there; the message says why, and what would do."""


class MetricsServer:
    """A listener of its own, in threads of its own."""

    def __init__(self, server: WSGIServer, thread: threading.Thread, address: str, stop: Callable[[], None]) -> None:
        """For `listen`."""
        self._server = server
        self._thread = thread
        self._stop = stop
        self.address = address
        """Where it listens, with the port filled in."""

    def close(self) -> None:
        """Stops measuring and listening. Safe to call twice."""
        if self._thread.is_alive():
            self._stop()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def listen(address: str, registry: CollectorRegistry, stop: Callable[[], None]) -> MetricsServer:
    """Serves the registry at http://ADDRESS/metrics; `stop` is called when that ends.

    `address`: `host:port` or `[ipv6]:port`; port 0: any free one. Raises CannotServeMetrics.
    """
    host, port = split_address(address)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:
        raise CannotServeMetrics(
            f"{error}; is another process there, or the host another machine's? Choose another port, or 0 for any"
        ) from None
    handler: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type("Handler", (handler,), {"timeout": _REQUEST_SECONDS})
    return MetricsServer(server, thread, f"{address.rpartition(':')[0]}:{server.server_port}", stop)


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
