"""The daemon as a process of its own, as it is deployed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def daemon_process(*arguments: str) -> Iterator[str]:
    """`constraintd serve` on a Unix socket, with a fresh SQLite store unless `arguments` name another; its address.

    Raises RuntimeError if it doesn't start.
    """
    folder = tempfile.mkdtemp(prefix="constraintd-")
    address = f"unix:{folder}/daemon.sock"
    command = [sys.executable, "-m", "constraintd.cli", "serve", "--listen", address, "--log-level", "warning"]
    if "--store" not in arguments:
        command += ["--store", f"sqlite:{folder}/sessions.sqlite"]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not process.stdout.readline().startswith("listening on"):
            raise RuntimeError("the daemon did not start; run `constraintd serve` to see why")
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)
        shutil.rmtree(folder, ignore_errors=True)
