"""The end of a process, in time whatever its threads are at."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import sys
import threading
from typing import Final, NoReturn

_LAST_WORDS_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


def leave(status: int) -> NoReturn:
    """Ends this process with that exit status, once everything said is written, and without taking the interpreter
    apart: that stops gRPC's threads wherever they are, and then waits for locks that they may hold.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads
            stream.flush()
    os._exit(status)


def end_within(seconds: float) -> None:
    """Ends this process with exit status 1 if it still runs then: a thread that is stuck may not keep it for longer
    than whoever stops it waits. Nothing is lost that was answered.
    """

    def end() -> None:
        _log.error("not stopped within %g s: ending", seconds)
        leave(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    # That needs the interpreter, and whatever locks a log line takes. This needs neither, and says who holds them.
    faulthandler.dump_traceback_later(seconds + _LAST_WORDS_SECONDS, exit=True)
