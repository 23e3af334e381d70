"""When something was last used, by a clock that may jump.

Two readings of the clock are compared: one at use, one when idleness is asked for. A time of use is never earlier than
any reading seen before it, so that a clock which is set back and then right again doesn't make what was used in between
look old. The time to compare with is the clock as it stands, so that one which ran ahead for a while and was set back
doesn't make what was used before look old. Both err to one side: what a jump touches may expire late by the size of the
jump, nothing expires early.
"""

from __future__ import annotations

from collections.abc import Callable

BLOB_GRACE_SECONDS = 3600.0
"""How long a blob that no session names is kept after it was put."""


class StoreClock:
    """Readings of `now` (seconds since 1970). Owned by one store, read under its lock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._latest = 0.0

    def mark(self) -> float:
        """The time to write down for a use that happens now."""
        self._latest = max(self._latest, self._now())
        return self._latest

    def seen(self, used: float) -> None:
        """A time of use that was found in the store: later ones are not earlier than it."""
        self._latest = max(self._latest, used)

    def before(self, seconds: float) -> float:
        """What was used earlier than this has been idle for longer than `seconds`."""
        return self._now() - seconds

    def idle(self, used: float) -> float:
        """Seconds since a use, at least 0."""
        return max(0.0, self._now() - used)
