"""What daemon and runner say to those who ask after their health, beside gRPC's own names."""

from __future__ import annotations

from typing import Final

from constraintd.serving.listener import Listener

LIVENESS: Final = "liveness"
"""The service name under which an orchestrator asks whether to start the process anew: never because it drains."""

_SOCKET_MODE: Final = 0o666


def probes_listener(address: str) -> Listener:
    """For a server that answers health checks alone, to whoever can reach it."""
    return Listener(address, mode=_SOCKET_MODE, credentials=None)
