"""The stream to the daemon is broken: when to try the next one."""

from __future__ import annotations

from constraintd_client.backoff import Backoff


class Outage:
    """The present break, if there is one. Owned by the decode loop, whose clock all times are of, in seconds."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._retry_at: float | None = None

    def broke(self, now: float, *, at_once: bool = False) -> bool:
        """The stream ended, or the attempt at a new one failed. False if that was known already. `at_once`: the first
        attempt needs no pause, since nothing has failed.
        """
        if self._retry_at is not None:
            return False
        self._retry_at = now if at_once else now + self._backoff.next_pause()
        return True

    def pause(self, now: float) -> float | None:
        """Seconds until a new stream is to be tried; None: there is no break, or one is being tried."""
        return None if self._retry_at is None else max(0.0, self._retry_at - now)

    def trying(self) -> None:
        """A new stream is open; whether the daemon is there shows when something comes of it."""
        self._retry_at = None

    def over(self) -> None:
        """An answer came."""
        self._retry_at = None
        self._backoff.reset()
