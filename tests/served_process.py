"""A real daemon or runner in a process of its own, for tests of what surrounds the service."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self


class ServedProcess:
    """One `serve` command. Use it in a with statement, which kills what still runs at its end."""

    def __init__(self, folder: Path, *arguments: str, program: str = "constraintd.cli", **environment: str) -> None:
        """`arguments` follow `serve`; keywords are set in its environment."""
        self._log = folder / f"log-{time.monotonic_ns()}"
        command = [sys.executable, "-m", program, "serve", *arguments]
        inherited: Mapping[str, str] = {k: v for k, v in os.environ.items() if not k.startswith("CONSTRAINTD_")}
        with self._log.open("w") as stderr:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**inherited, **environment}
            )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.wait(timeout=10)
        self.addresses = line.removeprefix("listening on ").split()
        """Where it listens; none if it has ended instead."""

    @property
    def address(self) -> str:
        """The only one."""
        (address,) = self.addresses
        return address

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Sends it a signal, and waits for nothing."""
        self.process.send_signal(number)

    def end(self, within: float = 20.0) -> float:
        """Ends it by SIGTERM unless it is ending already; gives the seconds until it was gone, and asserts status 0."""
        began = time.monotonic()
        self.signal()
        return self.gone(within, since=began)

    def gone(self, within: float, *, since: float | None = None) -> float:
        """Waits until it is gone; gives the seconds, and asserts status 0."""
        began = time.monotonic() if since is None else since
        assert self.process.wait(timeout=within) == 0, self.log
        return time.monotonic() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
