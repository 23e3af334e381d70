"""The processes that a fault run starts and kills: daemons, toy runners, proxies, and a Redis of its own.

All of them listen on Unix sockets in the run's folder, are known by their Popen, and end with it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_START_SECONDS = 30.0
CALLERS_CHANNEL = (("grpc.max_reconnect_backoff_ms", 100), ("grpc.initial_reconnect_backoff_ms", 20))
"""For channels to what is killed: they look again soon."""


class Killable:
    """One process after the other in the same place. `kill` is SIGKILL, and `start` starts it anew."""

    def __init__(self, name: str, folder: Path, command: Sequence[str], ready: str) -> None:
        """`ready`: what the line that it says when it is ready begins with."""
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = tuple(command)
        self._ready = ready
        self._process: subprocess.Popen[str] | None = None
        self.starts = 0

    def start(self, *arguments: str, wait: bool = True) -> None:
        """Starts it, with arguments of this once. Raises RuntimeError if it doesn't get ready."""
        with self.log.open("a") as log:
            print(f"--- start {self.starts}: {' '.join(arguments)}", file=log, flush=True)
            self._process = subprocess.Popen(
                [*self._command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.starts += 1
        if wait:
            self.wait_ready()

    def wait_ready(self) -> bool:
        """False if it died on the way by SIGKILL: a failpoint was faster. Raises RuntimeError for any other end."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.startswith(self._ready):
            return True
        if self._process.wait(_START_SECONDS) == -signal.SIGKILL:
            return False
        raise RuntimeError(f"{self.name} said {line!r} and ended {self._process.returncode}: see\n{self.tail()}")

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close_pipes()

    def died(self, within: float) -> bool:
        """Whether it dies by itself in this time. Raises RuntimeError if that was by anything but SIGKILL."""
        assert self._process is not None
        try:
            status = self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        self._close_pipes()
        if status != -signal.SIGKILL:
            raise RuntimeError(f"{self.name} ended by itself, status {status}: see\n{self.tail()}")
        return True

    def let_finish(self) -> None:
        """Closes its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    def finished(self, within: float) -> bool:
        """Whether it ends, status 0, in this time. Raises RuntimeError for another status."""
        assert self._process is not None
        try:
            status = self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        self._close_pipes()
        if status:
            raise RuntimeError(f"{self.name} ended with status {status}: see\n{self.tail()}")
        return True

    def tail(self) -> str:
        """The end of what it logged."""
        return self.log.read_text(errors="replace")[-3000:]

    def _close_pipes(self) -> None:
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def daemon(folder: Path, store: str, *arguments: str, name: str = "daemon") -> Killable:
    """A daemon on a socket in the folder, not started yet. `store` is what `--store` takes."""
    command = [sys.executable, "-m", "constraintd.cli", "serve", "--listen", address_of(folder, name)]
    return Killable(name, folder, [*command, "--store", store, *arguments], "listening on ")


def toy_runner(folder: Path, run: str, daemons: Sequence[str], slot: int, slots: int, *arguments: str) -> Killable:
    """A toy runner, not started yet; starting it takes `--incarnation N`."""
    command = [sys.executable, "-m", "tests.fault.toy_runner_process", "--run", run, "--folder", str(folder)]
    for address in daemons:
        command += ["--daemon", address]
    return Killable(
        f"runner{slot}", folder, [*command, "--slot", str(slot), "--slots", str(slots), *arguments], "running"
    )


def real_runner(folder: Path, model: Path, address: str) -> Killable:
    """The real runner with that model folder, not started yet."""
    command = [sys.executable, "-m", "constraintd_runner.cli", "serve", "--model", str(model), "--daemon", address]
    return Killable("runner", folder, [*command, "--listen", address_of(folder, "runner")], "listening on ")


def proxy(folder: Path, upstream: str, *arguments: str) -> Killable:
    """The faulty proxy before a daemon, not started yet."""
    command = [sys.executable, "-m", "tests.fault.proxy", "--listen", address_of(folder, "proxy")]
    return Killable(
        "proxy", folder, [*command, "--upstream", upstream, "--folder", str(folder), *arguments], "listening on "
    )


def address_of(folder: Path, name: str) -> str:
    """Where that process of this run listens."""
    return f"unix:{folder}/{name}.sock"


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A Redis (or Valkey) of its own on a Unix socket, with an append-only file; gives the URL for `--store`."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        raise RuntimeError("neither redis-server nor valkey-server is installed")
    socket = folder / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", ""]
    options += ["--appendonly", "yes", "--appendfsync", "everysec"]
    with (folder / "redis.log").open("w") as log:
        process = subprocess.Popen([binary, *options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + _START_SECONDS
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{binary} doesn't come up: {(folder / 'redis.log').read_text()}")
            time.sleep(0.02)
        yield f"unix://{socket}?db=0"
    finally:
        process.kill()
        process.wait()
