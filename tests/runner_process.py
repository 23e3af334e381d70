"""A real runner in a process of its own, for tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def runner_process(model: Path, daemon: str, *arguments: str) -> Iterator[str]:
    """`constraintd-runner serve` on a Unix socket; gives its address, and ends the process by SIGTERM."""
    folder = Path(tempfile.mkdtemp(prefix="constraintd-runner-"))
    address = f"unix:{folder}/runner.sock"
    log = folder / "log"
    command = [sys.executable, "-m", "constraintd_runner.cli", "serve", "--model", str(model), "--daemon", daemon]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, "--listen", address, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == f"listening on {address}\n", (line, log.read_text())
        yield address
        assert process.poll() is None, f"the runner died during the test: {log.read_text()}"
        process.terminate()
        process.wait(timeout=30)
        assert process.returncode == 0, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
