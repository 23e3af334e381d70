"""Where a contract test keeps its sessions: the same test runs on every store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path

from constraintd.session.store.memory import MemoryStore
from constraintd.session.store.redis_ import RedisStore
from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.store import Append, Head, SessionStore
from tests.redis_process import RedisProcess


class Clock:
    """A clock that a test sets. Seconds since 1970."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class Place:
    """`open` gives a store; a second one, opened after the first was closed, sees the same sessions if `lasting`."""

    name: str
    lasting: bool
    clock: Clock
    make: Callable[[Clock], SessionStore]

    def open(self) -> AbstractContextManager[SessionStore]:
        return closing(self.make(self.clock))


def memory_place() -> Place:
    return Place("memory", False, Clock(), MemoryStore)


def sqlite_place(folder: Path, durability: str) -> Place:
    def make(clock: Clock) -> SessionStore:
        return SqliteStore(folder / "sessions.db", durability, clock)  # type: ignore[arg-type]

    return Place(f"sqlite-{durability}", True, Clock(), make)


def redis_place(server: RedisProcess) -> Place:
    server.say(b"FLUSHALL")

    def make(clock: Clock) -> SessionStore:
        return RedisStore(server.url, clock=clock)

    return Place("redis", True, Clock(), make)


def session(number: int) -> bytes:
    """A session id of 16 bytes."""
    return number.to_bytes(16, "big")


def step(session_id: bytes, version: int, *records: bytes, epoch: int = 7) -> Append:
    """An append to a session that has `version` records, one token each."""
    after = version + len(records)
    return Append(session_id, Head(epoch, version, version), Head(epoch, after, after), records)
