"""What a scrape reads off the running daemon: gauges, and counts that its parts keep anyway."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from constraintd.errors import StoreUnavailable
from constraintd.grammar import compiler
from constraintd.session import table

# Counting 131,072 sessions in SQLite takes 20 ms, for which appends wait: no more often than this, whoever scrapes.
_COUNT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class OnLoop:
    """What may only be read on the event loop, at one instant."""

    streams: int
    max_streams: int
    compile_helper_starts: int
    """0 without a sandbox."""
    compiling: compiler.Statistics


class Sources:
    """How to read one daemon's numbers. Its methods are for threads other than the event loop's."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_loop: Callable[[], OnLoop],
        sessions: Callable[[], table.Statistics],
        *,
        patience: float = 2.0,
    ) -> None:
        """`on_loop` is called on `loop`, which has `patience` seconds for it; `sessions` asks the store, and blocks as
        long as that does.
        """
        self._loop = loop
        self._on_loop = on_loop
        self._sessions = sessions
        self._patience = patience
        self._counting = threading.Lock()
        self._counted: tuple[float, table.Statistics] | None = None

    def read_loop(self) -> OnLoop | None:
        """None if the loop doesn't come to it in time, or has ended."""
        answer: concurrent.futures.Future[OnLoop] = concurrent.futures.Future()

        def read() -> None:
            try:
                answer.set_result(self._on_loop())
            except Exception as error:
                answer.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(read)
        except RuntimeError:  # it is closed
            return None
        try:
            return answer.result(self._patience)
        except TimeoutError:
            return None

    def read_sessions(self) -> table.Statistics | None:
        """As they are now or were a second ago; None while the store is unavailable."""
        with self._counting:
            if self._counted is not None and time.monotonic() - self._counted[0] < _COUNT_SECONDS:
                return self._counted[1]
            try:
                self._counted = time.monotonic(), self._sessions()
            except StoreUnavailable:
                return None
            return self._counted[1]
