"""A real daemon that is one of several on the same store: on a port of loopback, killed and started again there."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path


class Replica:
    """`constraintd serve` at `127.0.0.1:port`, as often as it takes. Use it in a with statement."""

    def __init__(self, folder: Path, port: int, store: str, *arguments: str) -> None:
        self.address = f"127.0.0.1:{port}"
        self._log = folder / f"replica-{port}.log"
        self._command = [sys.executable, "-m", "constraintd.cli", "serve", "--listen", self.address]
        self._command += ["--store", store, *arguments]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Replica:
        self.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Starts it, and does not wait."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)

    def wait_ready(self) -> None:
        """Until it listens. Raises RuntimeError with its log if it ends before."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line != f"listening on {self.address}\n":
            raise RuntimeError(f"the replica said {line!r}; its log:\n{self._log.read_text()[-3000:]}")

    def kill(self) -> float:
        """SIGKILL: nothing is said or written any more. Gives the moment, by time.monotonic."""
        return self._end(signal.SIGKILL)

    def stop(self) -> float:
        """SIGTERM, without waiting for the end: it drains. Gives the moment."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return time.monotonic()

    def wait_stopped(self) -> None:
        """Until it has ended. Raises RuntimeError if that was not well."""
        assert self._process is not None
        status = self._process.wait(timeout=20)
        self._close()
        if status:
            raise RuntimeError(f"the replica ended with status {status}; its log:\n{self._log.read_text()[-3000:]}")

    def freeze(self) -> None:
        """SIGSTOP: it holds its connections, and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()

    def _end(self, number: signal.Signals) -> float:
        moment = time.monotonic()
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._close()
        return moment

    def _close(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
