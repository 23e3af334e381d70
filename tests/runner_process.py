"""A real runner in a process of its own, for tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RunningRunner:
    """One `constraintd-runner serve` on a Unix socket, to be ended by `stop` or `kill`."""

    def __init__(self, model: Path, daemon: str, *arguments: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="constraintd-runner-"))
        self.address = f"unix:{self._folder}/runner.sock"
        self._log = self._folder / "log"
        command = [sys.executable, "-m", "constraintd_runner.cli", "serve", "--model", str(model), "--daemon", daemon]
        with self._log.open("w") as stderr:
            self._process = subprocess.Popen(
                [*command, "--listen", self.address, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == f"listening on {self.address}\n", (line, self.log())

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    def stop(self) -> None:
        """Ends it by SIGTERM, and asserts that it lived until now and went in order."""
        assert self._process.poll() is None, f"the runner died during the test: {self.log()}"
        self._process.terminate()
        self._process.wait(timeout=30)
        assert self._process.returncode == 0, self.log()
        assert "Traceback" not in self.log(), self.log()

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def clear(self) -> None:
        """Ends it if it still runs, and removes its files."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def runner_process(model: Path, daemon: str, *arguments: str) -> Iterator[str]:
    """`constraintd-runner serve` on a Unix socket; gives its address, and ends the process by SIGTERM."""
    with mortal_runner(model, daemon, *arguments) as runner:
        yield runner.address
        runner.stop()


@contextmanager
def mortal_runner(model: Path, daemon: str, *arguments: str) -> Iterator[RunningRunner]:
    """One that the test itself ends, or not."""
    runner = RunningRunner(model, daemon, *arguments)
    try:
        yield runner
    finally:
        runner.clear()
