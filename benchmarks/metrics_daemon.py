"""A daemon whose recording can be switched off and on while it runs, for the benchmark `metrics`.

Two daemons won't do: equal ones differ by 3% in CPU time here, for as long as they live.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

# Time for the daemon to see the signal.
_SWITCH_SECONDS = 0.005


class SwitchedDaemon:
    """`constraintd serve` on the memory store with a metrics listener, recording. Use it in a with statement."""

    def __init__(self, metrics: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="constraintd-")
        self.address = f"unix:{self._folder}/daemon.sock"
        command = [sys.executable, "-m", "benchmarks.metrics_daemon", "serve", "--listen", self.address]
        command += ["--store", "memory", "--log-level", "error", "--metrics-listen", metrics]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        """Waits until it listens. Raises RuntimeError if it doesn't."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith("listening on"):
            raise RuntimeError("the daemon did not start; run `constraintd serve` to see why")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def switch(self) -> None:
        """Recording is off where it was on, and on where it was off."""
        self._process.send_signal(signal.SIGUSR1)
        time.sleep(_SWITCH_SECONDS)

    def cpu_us(self) -> float:
        """Microseconds of CPU that its living threads have used, without its helpers."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3


def main() -> int:
    """The daemon's process."""
    from constraintd.cli import main as constraintd
    from constraintd.metrics import recording
    from constraintd.metrics.recorder import Recorder

    kept: list[Recorder] = []

    def switch(*_: object) -> None:
        if recording.active is None:
            recording.active = kept.pop()
        else:
            kept.append(recording.active)
            recording.active = None

    signal.signal(signal.SIGUSR1, switch)
    return constraintd(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
