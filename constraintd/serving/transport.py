"""gRPC's own options of a server."""

from __future__ import annotations

from typing import Any


def server_options(
    *, max_message_bytes: int, max_connection_calls: int, keepalive_seconds: float
) -> list[tuple[str, Any]]:
    """`max_connection_calls`: calls at once on one connection, streams included; more wait at the client.
    `keepalive_seconds`: of silence, after which the client is asked whether it is still there; 0: never.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_concurrent_streams", max_connection_calls),
        ("grpc.so_reuseport", 0),
        # A proxy or client may ask every second whether this machine is still there; by gRPC's default a stream
        # on which nothing happens for a while would be ended with "too many pings".
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    if keepalive_seconds > 0:
        options += [
            ("grpc.keepalive_time_ms", round(keepalive_seconds * 1000)),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    return options
