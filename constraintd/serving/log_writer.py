"""Writes log lines beside the work: whoever logs never waits for whoever reads.

A pipe that nobody empties would else stop the event loop, and with it every session, in the middle of a log line.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from typing import Final, TextIO

_MAX_LINES: Final = 10_000
_FAREWELL_SECONDS: Final = 1.0


class LogWriter(logging.Handler):
    """Owns a thread, which writes to one stream. Past `max_lines` unwritten ones, further lines are counted instead."""

    def __init__(self, stream: TextIO, *, max_lines: int = _MAX_LINES) -> None:
        super().__init__()
        self._stream = stream
        self._max_lines = max_lines
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._news = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def emit(self, record: logging.LogRecord) -> None:
        """Formats here, where the call that is served is known; writes later."""
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        with self._news:
            if len(self._lines) < self._max_lines:
                self._lines.append(line)
            else:
                self._dropped += 1
            self._news.notify()

    def close(self) -> None:
        """Writes what there is, for a second at most. May be called twice."""
        with self._news:
            self._ended = True
            self._news.notify()
        self._thread.join(_FAREWELL_SECONDS)
        super().close()

    def _write(self) -> None:
        while True:
            with self._news:
                while not (self._lines or self._ended):
                    self._news.wait()
                lines, self._lines = list(self._lines), deque()
                dropped, self._dropped = self._dropped, 0
                ended = self._ended and not lines
            if ended:
                return
            if dropped:
                notice = f"{dropped} log lines were dropped, since nobody read them in time"
                record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, notice, None, None)
                lines.append(self.format(record))
            try:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                return  # nobody reads any more; there is no other place to say so
