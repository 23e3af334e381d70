"""The Decode streams of one daemon, which end when it stops: none of them would by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

T = TypeVar("T")


class Stopping(Exception):
    """The daemon is stopping. A stream answers what it has read, and ends; its client goes on at another daemon."""


class Streams:
    """Knows which streams wait for their client's next message. Used from one event loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[Any]] = set()
        self._ended = False

    async def next(self, messages: AsyncIterator[T]) -> T | None:
        """A stream's next message; None at its end. Raises Stopping."""
        if self._ended:
            raise Stopping
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await anext(messages, None)
        except asyncio.CancelledError:
            if not self._ended:
                raise
            task.uncancel()
            raise Stopping from None
        finally:
            self._waiting.discard(task)

    def end(self) -> None:
        """From now on every `next` raises Stopping, those that wait too. What has been read is not disturbed."""
        self._ended = True
        for task in self._waiting:
            task.cancel()
