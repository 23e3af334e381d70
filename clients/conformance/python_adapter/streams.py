"""The Decode stream. This client's does not mend itself: who drives it reconnects, as the taking below does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from constraintd_client import Draining, Unavailable
from constraintd_client.backoff import Backoff

from . import spelled
from .held import Held

Request = Mapping[str, Any]


def _stream(held: Held, request: Request) -> None:
    client = held.daemon(request)
    held.streams[request["stream"]] = (
        client.decode_stream(request["vocabulary_id"], request["logits_width"]),
        client,
    )


def _send(held: Held, request: Request) -> None:
    stream, _ = held.streams[request["stream"]]
    stream.send([(held.session(each), each["tokens"], each["surprisals"]) for each in request["steps"]])


def _take(held: Held, request: Request) -> dict[str, Any]:
    stream, client = held.streams[request["stream"]]
    handle = held.session(request)
    until = time.monotonic() + request["timeout_ms"] / 1000
    backoff = Backoff()
    while True:
        target = client.target
        try:
            stream.take(handle, max(until - time.monotonic(), 0.0))
            return spelled.session(handle)
        except Unavailable as broken:
            if time.monotonic() >= until:
                raise
            client.leave(target)
            if not isinstance(broken, Draining):
                time.sleep(backoff.next_pause())
            stream.reconnect(wait_for_ready=False)


def _forget(held: Held, request: Request) -> None:
    held.streams[request["stream"]][0].forget(held.session(request))


def _reconnect(held: Held, request: Request) -> None:
    held.streams[request["stream"]][0].reconnect()


def _close_stream(held: Held, request: Request) -> None:
    held.streams[request["stream"]][0].close()


STREAM_CALLS: Final[Mapping[str, Callable[[Held, Request], Any]]] = {
    "stream": _stream,
    "send": _send,
    "take": _take,
    "forget": _forget,
    "reconnect": _reconnect,
    "close_stream": _close_stream,
}
