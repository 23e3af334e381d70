"""A real daemon that is killed and started again on the same store."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


class KillableDaemon:
    """`constraintd serve` at one Unix socket and one store, as often as it takes. Use it in a with statement."""

    def __init__(self, folder: Path, store: str, *arguments: str) -> None:
        self.address = f"unix:{folder}/daemon.sock"
        self._command = [sys.executable, "-m", "constraintd.cli", "serve", "--listen", self.address]
        self._command += ["--store", store, "--drain-seconds", "0.5", *arguments]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> KillableDaemon:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"listening on {self.address}\n"

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: nothing is said or written any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Kills it and starts another."""
        self.kill()
        self.start()
