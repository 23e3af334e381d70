"""How long to wait between attempts: exponential backoff with full jitter.

Full jitter, so that many clients that lost one server in the same instant don't come back to it in the same instant
(Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """The pauses of one series of attempts, in seconds. Owned by whoever makes the attempts."""

    def __init__(
        self, first: float = 0.02, cap: float = 1.0, *, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        """The n-th pause, counted from 0, is `uniform(0, min(cap, first * 2**n))`."""
        self._first = first
        self._cap = cap
        self._uniform = uniform
        self._bound = first

    def next_pause(self) -> float:
        """How long to wait before the next attempt."""
        bound = min(self._bound, self._cap)
        self._bound = bound * 2
        return self._uniform(0.0, bound)

    def reset(self) -> None:
        """After a success: the next series begins anew."""
        self._bound = self._first
