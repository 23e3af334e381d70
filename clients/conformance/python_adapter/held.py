"""What the adapter holds between two lines, each under the name that the case gave it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from constraintd_client import (
    ConstraintClient,
    DecodeStream,
    Event,
    Generation,
    GenerationClient,
    SessionHandle,
)


class Held:
    """Clients, streams, sessions and generations by name. One thread uses it."""

    def __init__(self) -> None:
        self.daemons: dict[str, ConstraintClient] = {}
        self.runners: dict[str, GenerationClient] = {}
        self.streams: dict[str, tuple[DecodeStream, ConstraintClient]] = {}
        self.sessions: dict[str, SessionHandle] = {}
        self.generations: dict[str, tuple[Generation, Iterator[Event]]] = {}

    def daemon(self, request: Mapping[str, Any]) -> ConstraintClient:
        """The client that the request names, or "main"."""
        return self.daemons[request.get("client", "main")]

    def runner(self, request: Mapping[str, Any]) -> GenerationClient:
        """The runner's client that the request names, or "main"."""
        return self.runners[request.get("runner", "main")]

    def session(self, request: Mapping[str, Any]) -> SessionHandle:
        """The session that the request names."""
        return self.sessions[request["session"]]

    def reset(self) -> None:
        """Ends and forgets everything."""
        for generation, _ in self.generations.values():
            generation.cancel()
        for stream, _ in self.streams.values():
            stream.close()
        for daemon in self.daemons.values():
            daemon.close()
        for runner in self.runners.values():
            runner.close()
        for held in (self.daemons, self.runners, self.streams, self.sessions, self.generations):
            held.clear()
