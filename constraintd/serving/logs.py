"""Log lines: JSON objects for machines or text for people, marked with request and session.

What people send, grammars, prompts and texts, is in neither. So an exception is logged by its type and its frames, and
not by its message: that often quotes what it stumbled over.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Final, Literal

from constraintd.serving.log_writer import LogWriter
from constraintd.serving.request_scope import present_request

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
_FIELDS: Final = "fields"


def fields(**values: object) -> dict[str, dict[str, object]]:
    """The `extra` of a logging call: what a JSON line says beside its message."""
    return {_FIELDS: values}


def set_up_logs(form: LogFormat, level: LogLevel) -> None:
    """Everything that this process logs goes to stderr in this form."""
    stderr = LogWriter(sys.stderr)
    stderr.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[stderr])


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line: dict[str, object] = {
            "time": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _marks(record)
        if record.exc_info and record.exc_info[1] is not None:
            line["trace"] = _trace(record.exc_info[1])
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """The same for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        marks = "".join(f" {key}={value}" for key, value in _marks(record).items())
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {record.getMessage()}{marks}"
        if record.exc_info and record.exc_info[1] is not None:
            line += "\nTraceback (without messages, which may quote requests):\n  " + "\n  ".join(
                _trace(record.exc_info[1])
            )
        return line


def _marks(record: logging.LogRecord) -> dict[str, object]:
    marks: dict[str, object] = {}
    scope = present_request()
    if scope is not None:
        marks["request_id"] = scope.request_id
        if scope.session_id:
            marks["session_id"] = scope.session_id
    extra: Any = getattr(record, _FIELDS, None)
    return marks | extra if isinstance(extra, dict) else marks


def _trace(error: BaseException) -> list[str]:
    """Frames, outermost first, and the type; of an OSError its number's meaning too, which the system has written."""
    lines: list[str] = []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines += [*_trace(cause), "which led to"]
    for frame in traceback.extract_tb(error.__traceback__):
        lines.append(f"{frame.filename}:{frame.lineno} in {frame.name}")
    meaning = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
    lines.append(f"{type(error).__module__}.{type(error).__qualname__}{meaning}")
    return lines
