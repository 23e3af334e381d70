"""Whether this process measures itself, and where to. This module imports nothing, so that every layer may ask it.

The step path asks at every token: while nobody listens that is one attribute and one comparison, 30 ns. That is also
why both of its variables are the process's own, against the house rule and for the reason that `constraintd.failpoints`
gives: handed through every layer they would be in every signature on that path.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constraintd.metrics.recorder import Recorder
    from constraintd.metrics.sources import Sources

active: Recorder | None = None
"""Takes measurements, as long as somebody listens."""

watched: Sources | None = None
"""Of the daemon that runs in this process: what is read when a scrape comes, rather than recorded."""


@contextmanager
def watching(sources: Sources) -> Iterator[None]:
    """Lets scrapes read these sources until the end of the block."""
    global watched
    watched = sources
    try:
        yield
    finally:
        if watched is sources:
            watched = None
