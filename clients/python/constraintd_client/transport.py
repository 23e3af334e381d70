"""What every channel of this client is opened with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

ChannelOptions = Sequence[tuple[str, Any]]
"""gRPC channel arguments, by name."""

_OPTIONS: Final[ChannelOptions] = (
    # The server's own limits are smaller and answer with a typed error; the transport's would only break
    # the call.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A daemon that restarts is back within a second; gRPC's defaults would look again after up to two
    # minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Each client has its own connection, so that one that is broken or busy is no other's concern.
    ("grpc.use_local_subchannel_pool", 1),
)


def channel_options(options: ChannelOptions) -> list[tuple[str, Any]]:
    """This client's channel arguments; `options` override by name."""
    return list((dict(_OPTIONS) | dict(options)).items())
