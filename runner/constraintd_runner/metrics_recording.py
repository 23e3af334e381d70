"""Where this runner's measurements go: nowhere, until `metrics.serve_metrics` is called.

`active` and `loop` are the process's own rather than handed down to whoever records: there is at most one listener and
one loop a process. Recording into nothing costs one call, some 50 ns, against milliseconds for a forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constraintd_client import Directive

    from constraintd_runner.errors import CallStatus


class Recording:
    """What may be recorded, by any thread. Here it is forgotten; `metrics_recorder` counts it. Times in seconds."""

    def prefilled(self, tokens: int, seconds: float) -> None:
        """A prompt is in the model."""

    def fed(self, sequences: int, seconds: float) -> None:
        """A forward pass of one token each is done."""

    def picked(self, seconds: float) -> None:
        """A token was picked."""

    def answered(self, directive: Directive, waited: float) -> None:
        """The daemon accepted a token; the loop stood still for so long until it said so."""

    def failed(self, error: Exception) -> None:
        """A generation is over without a finish."""

    def resumed(self) -> None:
        """A session was taken up."""

    def reconnected(self, *, opened: bool) -> None:
        """A new Decode stream was tried."""

    def refused(self, method: str, status: CallStatus) -> None:
        """A call ends with an error."""


@dataclass(frozen=True, slots=True)
class LoopStatistics:
    """A decode loop at one instant: generations that can run at once, that do, and that wait."""

    slots: int
    used: int
    waiting: int


active = Recording()
"""Takes measurements."""

loop: Callable[[], LoopStatistics] | None = None
"""Of the decode loop that runs in this process; for any thread."""
