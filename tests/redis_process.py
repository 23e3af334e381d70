"""A real redis-server on loopback for tests: started, killed, and started again on the same port and folder."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path


class RedisProcess:
    """One server with an append-only file, which is synced at each write or each second.

    `cluster`: alone in a cluster, with all its slots.
    """

    def __init__(self, folder: Path, *, cluster: bool = False, synced: bool = True) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise RuntimeError("redis-server is not installed: install the package redis-server (or valkey-server)")
        self.port = _free_port()
        self._folder = folder
        self._command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self._command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always" if synced else "everysec"]
        if cluster:
            self._command += ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"]
            self._command += ["--cluster-port", str(_free_port())]
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Returns when the server answers."""
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self._wait(b"PING", b"+PONG")
        if self._cluster:
            if b"cluster_slots_assigned:16384" not in self.say(b"CLUSTER INFO"):
                self.say(b"CLUSTER ADDSLOTSRANGE 0 16383")
            self._wait(b"CLUSTER INFO", b"cluster_state:ok")

    def kill(self) -> None:
        """As by kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def say(self, command: bytes) -> bytes:
        """One command in plain words, and the beginning of its answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(command + b"\r\n")
            return connection.recv(65536)

    def follow(self, primary: RedisProcess) -> None:
        """Becomes a replica of another server; returns when it has caught up with it."""
        self.say(b"REPLICAOF 127.0.0.1 %d" % primary.port)
        self._wait(b"INFO replication", b"master_link_status:up")

    def lead(self) -> None:
        """A replica becomes a primary of its own, as by a failover."""
        self.say(b"REPLICAOF NO ONE")

    def _wait(self, command: bytes, expected: bytes) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                if expected in self.say(command):
                    return
            except OSError:
                pass
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"redis-server did not start; its log:\n{(self._folder / 'redis.log').read_text()[-2000:]}")


def _free_port() -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port < 55_536:  # a cluster's own port may not lie past 65535
            return port
