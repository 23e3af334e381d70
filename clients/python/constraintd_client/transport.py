"""What every channel of this client is opened with, and the choice between several addresses of one service."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

ChannelOptions = Sequence[tuple[str, Any]]
"""gRPC channel arguments, by name."""

Metadata: TypeAlias = tuple[tuple[str, str], ...]
"""Headers of a call."""

AFFINITY_HEADER: Final = "x-constraintd-affinity"
"""By its value a proxy in front of several daemons keeps a client's stream and unary calls at one of them."""

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
    # A peer that is gone without a word (its machine, a firewall between) is noticed, also while nothing is asked.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Each client has its own connection, so that one that is broken or busy is no other's concern.
    ("grpc.use_local_subchannel_pool", 1),
)

_Wire = TypeVar("_Wire")


def channel_options(options: ChannelOptions) -> list[tuple[str, Any]]:
    """This client's channel arguments; `options` override by name."""
    return list((dict(_OPTIONS) | dict(options)).items())


class Targets(Generic[_Wire]):
    """The addresses of one service, one of them the present one. Any number of threads may use it.

    Owns what was opened for each address, which stays open: calls that run there end by themselves.
    """

    def __init__(
        self,
        targets: str | Sequence[str],
        connect: Callable[[str], _Wire],
        *,
        version: Callable[[], object] = lambda: None,
    ) -> None:
        """One address or several, to be tried in this order and round again. `version`: what is open is used as long as
        it stays equal. Raises ValueError for none.
        """
        self._targets = listed(targets)
        if not self._targets:
            raise ValueError("at least one target is needed")
        self._connect = connect
        self._version = version
        self._present = 0
        self._open: dict[str, tuple[object, _Wire]] = {}
        self._left: list[_Wire] = []
        self._lock = threading.Lock()

    @property
    def present(self) -> str:
        """The address in use."""
        return self._targets[self._present]

    def wire(self) -> _Wire:
        """What is open to the present address; opened on the first use."""
        version = self._version()
        with self._lock:
            target = self._targets[self._present]
            found = self._open.get(target)
            if found is None or found[0] != version:
                if found is not None:
                    self._left.append(found[1])
                found = self._open[target] = version, self._connect(target)
            return found[1]

    def leave(self, target: str) -> None:
        """Goes on to the next address, unless somebody else has left this one already."""
        with self._lock:
            if self._targets[self._present] == target:
                self._present = (self._present + 1) % len(self._targets)

    def opened(self) -> list[_Wire]:
        """All that is open, to be closed."""
        with self._lock:
            return [*self._left, *(wire for _, wire in self._open.values())]


def listed(targets: str | Sequence[str]) -> list[str]:
    """One target or several, as a list."""
    return [targets] if isinstance(targets, str) else list(targets)
