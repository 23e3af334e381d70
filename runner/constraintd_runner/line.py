"""Generations that wait for a slot, first come, first served."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence

from constraintd_runner.errors import Stopping
from constraintd_runner.generation import Generation
from constraintd_runner.live import Live


class Line:
    """Who waits. `join` and `stop` are for any thread, the rest for the decode loop's."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[Generation | None] = queue.SimpleQueue()
        self._arrived: deque[Generation] = deque()
        self._waiting: deque[Generation] = deque()
        self._stopping = threading.Event()
        self._gate = threading.Lock()  # nobody joins after `_stopping` is set

    def join(self, generation: Generation) -> None:
        """Queues it. Raises Stopping."""
        with self._gate:
            if self._stopping.is_set():
                raise Stopping("the runner is stopping; try again later or elsewhere")
            self._inbox.put(generation)

    def stop(self) -> None:
        """Nobody joins any more; whoever blocks in `wait` wakes. Safe to call twice."""
        with self._gate:
            self._stopping.set()
            self._inbox.put(None)

    @property
    def stopping(self) -> bool:
        """Whether the loop is to end."""
        return self._stopping.is_set()

    def wait(self) -> None:
        """Blocks until somebody joins or the line stops; at once if somebody waits already."""
        if not self._waiting and not self._arrived:
            self._keep(self._inbox.get())

    def newcomers(self) -> Iterator[Generation]:
        """Who has joined since the last time; each waits from then on."""
        while not self._inbox.empty():
            self._keep(self._inbox.get())
        while self._arrived:
            generation = self._arrived.popleft()
            self._waiting.append(generation)
            yield generation

    def remove(self, generation: Generation) -> None:
        """Takes it out of the line."""
        self._waiting.remove(generation)

    def __iter__(self) -> Iterator[Generation]:
        """Everyone who waits now."""
        return iter(tuple(self._waiting))

    def next(self, live: Sequence[Live], slots: int) -> Generation | None:
        """Who is to be admitted beside those who are live, if anybody is.

        One that has to run alone waits for all others to end, and whoever comes after it waits behind it.
        """
        if not self._waiting or len(live) == slots:
            return None
        if live and (self._waiting[0].alone or live[0].generation.alone):
            return None
        return self._waiting.popleft()

    def _keep(self, generation: Generation | None) -> None:
        if generation is not None:
            self._arrived.append(generation)
