"""Daemons and a Redis server as processes of their own, for the benchmark `sessions`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self


class ServedDaemon:
    """`constraintd serve` on one store and a Unix socket of its own; it may be ended and started again."""

    def __init__(self, folder: Path, store: str, *arguments: str) -> None:
        """`folder` is for the socket. Use it in a with statement."""
        self.address = f"unix:{folder}/{os.urandom(4).hex()}.sock"
        self._command = [sys.executable, "-m", "constraintd.cli", "serve", "--listen", self.address]
        self._command += ["--store", store, "--log-level", "error", *arguments]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self) -> None:
        """Waits until it listens. Raises RuntimeError if it doesn't."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith("listening on"):
            raise RuntimeError("the daemon did not start; run `constraintd serve` to see why")

    def end(self) -> None:
        """By SIGTERM."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=120)
            self._process = None

    def rss_bytes(self) -> int:
        """Memory that it holds now, its helper processes included."""
        assert self._process is not None
        return sum(_rss_bytes(pid) for pid in _family(self._process.pid))

    def cpu_seconds(self) -> float:
        """CPU time that it has used so far, without its helpers."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _family(int(child))


def _rss_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has ended meanwhile
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:")), 0)


@contextmanager
def redis_url() -> Iterator[str | None]:
    """A Redis or Valkey server of one's own on loopback, synced once a second; None if neither is installed."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="constraintd-") as folder:
        port = _free_port()
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_for(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait(timeout=20)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(0.02)


def disk_sync_us(folder: Path, times: int = 50) -> list[float]:
    """What the disk takes to make 4 KiB durable that were appended to a file, in microseconds."""
    took = []
    path = folder / "sync-probe"
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1e6)
    path.unlink()
    return took
