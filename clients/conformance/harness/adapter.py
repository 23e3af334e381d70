"""One adapter's process, to which requests are put line by line."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from .languages import ROOT, Language

LOG_TAIL_BYTES: Final = 4000


class AdapterDied(Exception):
    """The adapter ended, or said nothing in time, or something that is no answer."""


class Adapter:
    """Use it in a with statement, which ends it. One thread may ask."""

    def __init__(self, language: Language) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            language.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, request: dict[str, Any], timeout: float = 60.0) -> dict[str, Any]:
        """{"ok": ...} or {"error": ...}. Raises AdapterDied."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=timeout)
        except (BrokenPipeError, queue.Empty) as error:
            raise AdapterDied(f"no answer to {request['op']} within {timeout} s{self._told()}") from error
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise AdapterDied(f"the answer to {request['op']} is {line!r}, which is no JSON{self._told()}") from error
        if not isinstance(answer, dict) or answer.keys() not in ({"ok"}, {"error"}):
            raise AdapterDied(f"the answer to {request['op']} has neither ok nor error alone: {line}")
        return answer

    def _told(self) -> str:
        """The end of what it has said on stderr."""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")[-LOG_TAIL_BYTES:].strip()
        return f"; it says:\n{text}" if text else ""

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")  # wakes whoever waits for the answer of one that has died

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        with suppress(BrokenPipeError):  # for what it had not read any more
            self._process.stdin.close()
        self._log.close()
