"""Opens the store that a daemon's config names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from constraintd.session.store.memory import MemoryStore
from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.store import SessionStore

Durability = Literal["relaxed", "strict"]


class BadStore(ValueError):
    """A store that can't be opened as it is named; the message says what would do."""


def open_store(name: str, *, durability: Durability) -> SessionStore:
    """`memory`, `sqlite:PATH` or a Redis URL. Raises BadStore, StoreUnavailable."""
    if name == "memory":
        return MemoryStore()
    if name.startswith("sqlite:"):
        path = Path(name.removeprefix("sqlite:")).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        return SqliteStore(path, durability=durability)
    if name.startswith(("redis://", "rediss://", "unix://")):
        try:
            from constraintd.session.store.redis_ import RedisStore
        except ImportError:
            raise BadStore("store redis needs the package redis: pip install 'constraintd[redis]'") from None
        return RedisStore(name)
    raise BadStore(f"store {name!r} is none of memory, sqlite:PATH, redis://HOST:PORT/DB")
