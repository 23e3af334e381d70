"""The last resort at the end of a process."""

from __future__ import annotations

import logging
import os
import threading

_log = logging.getLogger(__name__)


def end_within(seconds: float) -> None:
    """Ends this process if it still runs then: a thread that is stuck may not keep it for longer than whoever stops it
    waits. Nothing is lost that was answered.
    """

    def end() -> None:
        _log.error("not stopped within %g s: ending", seconds)
        logging.shutdown()
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
